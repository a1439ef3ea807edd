"""Content of a figure as numbers and texts. Two drawings of one figure are compared by content:
pixels differ between versions of the drawing library."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch


def describe(drawn: Figure) -> list[dict[str, Any]]:
    """Return a mapping for each of the figure's axes, of JSON types: title, axis labels and scales;
    lines (label, x, y), bars (x, y, width, height), outlines, points, images and texts. A value
    that is not a finite number is null."""
    return [_axes(axes) for axes in drawn.axes]


def _axes(axes: Axes) -> dict[str, Any]:
    found = {
        "title": axes.get_title(),
        "labels": [axes.get_xlabel(), axes.get_ylabel()],
        "scales": [axes.get_xscale(), axes.get_yscale()],
        "lines": [
            {
                "label": _label(line.get_label()),
                "x": _numbers(line.get_xdata(orig=False)),
                "y": _numbers(line.get_ydata(orig=False)),
            }
            for line in axes.lines
        ],
        "patches": [_patch(patch) for patch in axes.patches],
        "collections": [_collection(collection) for collection in axes.collections],
        "images": [_numbers(image.get_array()) for image in axes.images],
        "texts": [text.get_text() for text in axes.texts],
    }
    return {name: value for name, value in found.items() if value not in ([], "")}


def _label(label: object) -> str:
    """Return a line's name; empty for names that the library generates."""
    text = str(label)
    return "" if text.startswith("_") else text


def _patch(patch: Patch) -> dict[str, Any]:
    from matplotlib.patches import Rectangle

    label = {"label": _label(patch.get_label())}
    if isinstance(patch, Rectangle):
        x, y = patch.get_xy()
        return label | {"bar": _numbers([x, y, patch.get_width(), patch.get_height()])}
    return label | {"outline": _numbers(patch.get_path().vertices)}


def _collection(collection: Collection) -> dict[str, Any]:
    from matplotlib.collections import PathCollection

    found: dict[str, Any] = {"label": _label(collection.get_label())}
    if isinstance(collection, PathCollection):  # points: the paths are only their markers
        found["points"] = _numbers(collection.get_offsets())
    else:
        found["outlines"] = [_numbers(path.vertices) for path in collection.get_paths()]
    values = collection.get_array()
    if values is not None:
        found["values"] = _numbers(values)
    return found


def _numbers(values: Any) -> list[Any]:
    array: Any = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    return list(_finite(array.tolist()))


def _finite(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield list(_finite(value))
        else:
            yield value if math.isfinite(value) else None
