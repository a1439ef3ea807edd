"""Check of every figure that the tests draw."""

from tests.drawing import no_figure_misleads

__all__ = ["no_figure_misleads"]
