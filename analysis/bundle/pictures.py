"""Whether two pictures are the same, to the pixel or to the eye; the pictures within a page, and
what is written beside one in its file."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

UNLIKE = 0.03
"""Of two pictures' ink, that which makes them different ones. Of a plot of three bars and one of
two lines, other hinting, smoothing and fonts moved 0.0005 to 0.024, one bar of a tenth less height
0.036, two bars in each other's place 0.07. The figure's data tell of smaller changes."""
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
    make none another picture, but a bar that is another by a tenth does (see `UNLIKE`)."""
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


_PNG = b"\x89PNG\r\n\x1a\n"
_PDF = b"%PDF-"
_DRAWN = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"cHRM", b"gAMA", b"sRGB", b"pHYs"}
_HEAD = 2**12  # bytes in which an object of a PDF file begins, or a compressed note
_MOST_TEXT = 2**20
_MOST_TEXTS = 2**24
"""Bytes of one compressed text, and of all in a file, that are looked into."""


def told_by(data: bytes) -> bytes | None:
    """What a PNG or PDF file says beside what it shows: notes, names, and whatever stands behind
    its end; None where the contents are no picture, whatever the file is called."""
    if data.startswith(_PNG):
        return b"\n".join(_notes(data))
    if data.startswith(_PDF):
        return b"\n".join(_in_pdf(data))
    return None


def _in_pdf(data: bytes) -> Iterator[bytes]:
    """A PDF file's words: what stands beside its streams, then those streams that are not packed
    (XMP), and those that hold what else would stand beside them."""
    streams = list(_streams(data))
    starts = [0, *(end for _, end in streams)]
    yield b"".join(
        data[start:end] for start, end in zip(starts, [*(s for s, _ in streams), None], strict=True)
    )
    left = _MOST_TEXTS
    for start, end in streams:
        head = data[max(0, start - _HEAD) : start]
        head = head[head.rfind(b"obj") + 1 :]
        if b"/Filter" not in head:
            yield data[start:end]
        elif b"/FlateDecode" in head and (b"/Metadata" in head or b"/ObjStm" in head) and left:
            text = _inflated(data[start:end].partition(b"\n")[2], min(left, _MOST_TEXT))
            left -= len(text)
            yield text


def _streams(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each stream of a PDF file; none begins within another."""
    start = data.find(b"stream")
    while start >= 0:
        end = start + 6
        if data.startswith((b"\n", b"\r\n"), end):
            end = data.find(b"endstream", end) + 9
            if end < 9:
                return
            yield start, end
        start = data.find(b"stream", end)


def _inflated(packed: bytes | memoryview, most: int) -> bytes:
    """The beginning of what zlib has packed; nothing where it has not."""
    try:
        return zlib.decompressobj().decompress(packed, most)
    except zlib.error:
        return b""


def _notes(data: bytes) -> Iterator[bytes]:
    """PNG (RFC 2083): chunks of a length, a type, contents and a sum. Whatever does not draw is
    given as it is, and unpacked where it is compressed (zTXt, iTXt)."""
    at, left = len(_PNG), _MOST_TEXTS
    while at + 8 <= len(data):
        length, kind = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        at += 12 + length
        if kind not in _DRAWN:
            yield body
            text = _unpacked(body, min(left, _MOST_TEXT))
            left -= len(text)
            yield text
        if kind == b"IEND":
            break
    yield data[at:]


def _unpacked(body: bytes, most: int) -> bytes:
    """Return the text that is compressed behind a keyword, its flags and its language."""
    for found in re.finditer(rb"x[\x01\x5e\x9c\xda]", body[:_HEAD] if most else b""):
        text = _inflated(memoryview(body)[found.start() :], most)
        if text:
            return text
    return b""
