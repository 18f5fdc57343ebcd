import atexit
import os
import sys

import pytest
from hypothesis import settings

# How long an example takes says more of what else the machine does than of the code.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# libtpu is installed for its compiler: without this, JAX asks it for a TPU first, wherever it runs.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# It is loaded for its compiler alone, also while another test session has it.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-rewrite",
        action="store_true",
        help="rewrite tests/golden with what is rendered now, to be reviewed as a change",
    )


ENDED = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[ENDED] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends with the tests' own status, before native threads can end otherwise.

    One process here has had JAX, libtpu's compiler, gRPC and several Ray clusters. Seen once after
    3,528 tests: a segmentation fault in the interpreter's last moments, and status 139 for all.
    """
    if ENDED in config.stash:
        atexit._run_exitfuncs()  # noqa: SLF001 # what Ray and others have to clear away
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[ENDED])
