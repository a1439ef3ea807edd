"""Whether two pictures are the same, to the pixel; and the pictures within a page."""

from __future__ import annotations

import re
from pathlib import Path

_EMBEDDED = re.compile(rb"data:image/png;base64,([A-Za-z0-9+/=]*)")


def shown_in(page: bytes) -> tuple[bytes, list[bytes]]:
    """A page without its PNG pictures, and these, in base64."""
    return _EMBEDDED.sub(b"", page), _EMBEDDED.findall(page)


def same_picture(one: Path, other: Path) -> bool:
    """Whether two PNG files show the same; False where either cannot be read."""
    import numpy as np
    from matplotlib.image import imread

    try:
        if one.read_bytes() == other.read_bytes():
            return True
        first, second = imread(one), imread(other)
    except Exception:  # a stranger's picture may be anything
        return False
    return first.shape == second.shape and bool(np.array_equal(first, second))
