"""Whether two pictures are the same, to the pixel or to the eye; and the pictures within a page."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

UNLIKE = 0.1
"""Of two pictures' ink, that which makes them different ones."""
_BLUR = 33  # points at 160 dpi: letters of other shapes or some points aside
_MARGIN = 4  # points by which the size of the same picture may differ
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


def look_alike(one: Path, other: Path) -> bool:
    """Whether two PNG files show about the same: letters a little elsewhere and smoother edges
    make none another picture, but a bar or a line that is another does."""
    return unlike(one, other) <= UNLIKE


def unlike(one: Path, other: Path) -> float:
    """How much of the ink of two pictures is not in the same place, where each is blurred: 0 of the
    same, up to 1; infinite where either cannot be read or has another size."""
    import numpy as np
    from matplotlib.image import imread

    try:
        first, second = (_inked(imread(file)) for file in (one, other))
    except Exception:  # a stranger's picture may be anything
        return math.inf
    room = [abs(a - b) for a, b in zip(first.shape[:2], second.shape[:2], strict=True)]
    if max(room) > _MARGIN:
        return math.inf
    height, width = (min(ends) for ends in zip(first.shape[:2], second.shape[:2], strict=True))
    first, second = first[:height, :width], second[:height, :width]
    ink = float(np.sum(first) + np.sum(second))
    return float(np.sum(np.abs(first - second))) / ink if ink else 0.0


def _inked(picture: Any) -> Any:
    """How far each point is from white, blurred."""
    import numpy as np
    from scipy.ndimage import uniform_filter

    colours = np.atleast_3d(picture)
    clear = colours[..., 3:4] if colours.shape[2] == 4 else 1.0
    ink = (1.0 - colours[..., :3].astype(float)) * clear
    for _ in range(2):
        ink = uniform_filter(ink, size=(_BLUR, _BLUR, 1), mode="constant")
    return ink
