"""Check of every figure that the tests draw."""

from collections.abc import Iterator

import pytest

from analysis.core import style
from tests.drawing import no_figure_misleads

__all__ = ["no_figure_misleads"]


@pytest.fixture(scope="module", autouse=True)
def png_only() -> Iterator[None]:
    """Leave out the PDF files of figures: tests/analysis/test_report.py has them."""
    with style.recorded(pdf=False):
        yield
