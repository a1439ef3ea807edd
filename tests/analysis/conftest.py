"""Import path for this folder's synthetic runs, and a check of every figure that the tests draw."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.drawing import no_figure_misleads

sys.path.insert(0, str(Path(__file__).parent))

__all__ = ["no_figure_misleads"]
