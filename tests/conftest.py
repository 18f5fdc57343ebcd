import os

import pytest
from hypothesis import settings

# How long an example takes says more of what else the machine does than of the code.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# libtpu is installed for its compiler: without this, JAX asks it for a TPU first, wherever it runs.
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-rewrite",
        action="store_true",
        help="rewrite tests/golden with what is rendered now, to be reviewed as a change",
    )
