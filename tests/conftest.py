import os

import pytest

# libtpu is installed for its compiler: without this, JAX asks it for a TPU first, wherever it runs.
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-rewrite",
        action="store_true",
        help="rewrite tests/golden with what is rendered now, to be reviewed as a change",
    )
