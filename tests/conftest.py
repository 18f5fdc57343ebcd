import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-rewrite",
        action="store_true",
        help="rewrite tests/golden with what is rendered now, to be reviewed as a change",
    )
