"""Fixtures that every folder of tests shares: real parts, each started once, and options."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the outcomes of tests/scripts/*.txt anew"
    )
