"""Detection of a notebook frontend that can show widgets."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any


def has_widgets() -> bool:
    """Return True if this runs in a notebook's kernel with ipywidgets installed."""
    shell = sys.modules.get("IPython")
    running: Any = None if shell is None else shell.get_ipython()
    return (
        getattr(running, "kernel", None) is not None
        and importlib.util.find_spec("ipywidgets") is not None
    )


def show(what: object) -> None:
    """Display an object in the running notebook cell."""
    import IPython.display

    display: Any = IPython.display.display
    display(what)
