"""Style of figures: one style and one colour per controller, everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from analysis.core import aside

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

# Okabe and Ito's palette: colour-blind readers can distinguish its colours.
COLOURS = {
    "default": "#999999",
    "reweight": "#E69F00",
    "reweight-capped": "#F5C869",
    "dlr": "#0072B2",
    "dlr-auto": "#56B4E9",
    "dlr-pg": "#009E73",
    "upmap": "#CC79A7",
    "oracle": "#D55E00",
    "read-balancer": "#882255",
    "upmap-read": "#AA4499",
    "balance-reads": "#44AA99",
    "localize-reads": "#117733",
    "mclock": "#332288",
    "jj": "#F0E442",
    "none": "#BBBBBB",
    # Divisions of microstores; the most compared ones have a cold and a warm colour.
    "favors-small": "#009E73",
    "favors-large": "#E69F00",
    "static": "#56B4E9",
    "static-microstores": "#56B4E9",
    "mos": "#0072B2",
    "mos-at-once": "#009E73",
    "mos-pp": "#D55E00",
    "mos-pp-resource": "#E69F00",
    "mos-pp-learning": "#CC79A7",
}
LABELS = {
    "default": "Ceph default",
    "reweight": "reweight-by-utilization",
    "reweight-capped": "reweight-by-utilization, limited",
    "dlr": "DLR",
    "dlr-auto": "DLR, automatic thresholds",
    "dlr-pg": "DLR per placement group",
    "upmap": "upmap balancer",
    "oracle": "oracle",
    "read-balancer": "read balancer",
    "upmap-read": "upmap-read balancer",
    "balance-reads": "balanced replica reads",
    "localize-reads": "localized replica reads",
    "mclock": "mClock, high_client_ops",
    "jj": "TheJJ's size balancer",
}
_SUBDIVIDED = ((0.5, (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)), (2.0, (1, 2, 3, 5)), (4.0, (1, 3)))
"""Ticks within a magnitude, for axes that span fewer magnitudes than the given number."""
_SPARE = ("#F0E442", "#882255", "#44AA99", "#332288", "#AA4499", "#117733")


def colour(controller: str) -> str:
    """Return the controller's colour; a user's controllers get stable spare colours."""
    return COLOURS.get(controller, _SPARE[sum(controller.encode()) % len(_SPARE)])


def label(controller: str) -> str:
    """Return the controller's name in a legend."""
    return LABELS.get(controller, controller)


def in_order(controllers: Sequence[str]) -> list[str]:
    """Return known controllers first, in the papers' order, then others by name."""
    known = [name for name in LABELS if name in controllers]
    return known + sorted(set(controllers) - set(known))


_MARK_INCHES = 0.24  # the strip below a marked figure
_MARK: ContextVar[str | None] = ContextVar("mark", default=None)


@contextmanager
def marked(text: str | None) -> Iterator[None]:
    """Mark every figure saved in the block with `text` in its corner, such as ``simulated``."""
    token = _MARK.set(text)
    try:
        yield
    finally:
        _MARK.reset(token)


_RECORD: ContextVar[dict[str, Any] | None] = ContextVar("record", default=None)
_PNG: ContextVar[bool] = ContextVar("png", default=True)
_PDF: ContextVar[bool] = ContextVar("pdf", default=True)


@contextmanager
def recorded(*, png: bool = True, pdf: bool = True) -> Iterator[dict[str, Any]]:
    """Record the content of every figure saved in the block, by the figure's name (see
    `describe`); without `pdf` figures are saved as PNG only, without `png` no file is written."""
    shown: dict[str, Any] = {}
    record, with_png, with_pdf = _RECORD.set(shown), _PNG.set(png), _PDF.set(pdf)
    try:
        yield shown
    finally:
        _RECORD.reset(record)
        _PNG.reset(with_png)
        _PDF.reset(with_pdf)


_ASIDE: ContextVar[aside.Aside | None] = ContextVar("aside", default=None)


@contextmanager
def shared() -> Iterator[None]:
    """Let two processes write the figures saved in the block, given two processors. The files exist
    after `settle`, and at the end of the block."""
    if _ASIDE.get() is not None or aside.processors() < 2:
        yield
        return
    other = aside.Aside()
    token = _ASIDE.set(other)
    try:
        yield
        other.settle()
    finally:
        _ASIDE.reset(token)
        other.kill()


def settle() -> None:
    """Wait for the files of all figures that were saved; see `shared`."""
    other = _ASIDE.get()
    if other is not None:
        other.settle()


@contextmanager
def _styled() -> Iterator[None]:
    import seaborn as sns

    with sns.axes_style("whitegrid"), sns.plotting_context("paper", font_scale=1.05):
        yield


@contextmanager
def figure(
    rows: int = 1, columns: int = 1, *, width: float = 6.4, height: float = 3.8
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Create a styled figure with `rows` x `columns` axes (row by row). pyplot does not know the
    figure, so that a report drawn in a notebook leaves the notebook's own figures alone."""
    from matplotlib.figure import Figure

    with _styled():
        drawn = Figure(figsize=(width, height), layout="constrained")
        axes = drawn.subplots(rows, columns, squeeze=False)
        yield drawn, list(axes.flat)


@_styled()  # the library makes some parts, such as ticks, when it writes a figure
def save(drawn: Figure, folder: Path, name: str) -> Path:
    """Write `name`.png (160 dpi) and `name`.pdf (see `recorded`); return the PNG's path. Within
    `shared` the files exist after `settle`."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    png = folder / f"{name}.png"
    shown = _RECORD.get()
    if shown is not None:
        shown[name] = describe(drawn)
    if not _PNG.get():
        return png
    folder.mkdir(parents=True, exist_ok=True)
    mark = _MARK.get()
    if mark is not None:
        engine = drawn.get_layout_engine()
        strip = _MARK_INCHES / drawn.get_figheight()
        if isinstance(engine, ConstrainedLayoutEngine):
            engine.set(rect=(0, strip, 1, 1 - strip))
        drawn.text(
            0.99,
            strip / 2,
            mark,
            ha="right",
            va="center",
            fontsize="small",
            color="white",
            bbox={"facecolor": "#882255", "edgecolor": "none", "boxstyle": "round,pad=0.25"},
        )
    job = aside.job_of(drawn, png, folder / f"{name}.pdf" if _PDF.get() else None)
    other = _ASIDE.get()
    if other is None:
        aside.write(job)
    else:
        other.write(job)
    return png


def paper_marker(axes: Axes, x: float, y: float, *, text: str = "paper's stated value") -> None:
    """Draw the paper's stated value as a hollow diamond."""
    axes.plot(
        [x],
        [y],
        marker="D",
        markersize=7,
        markerfacecolor="white",
        markeredgecolor="black",
        linestyle="none",
        zorder=5,
        label=text,
    )


def magnitudes(axes: Axes, which: Literal["x", "y"] = "y") -> None:
    """Set a logarithmic axis with plain numbers, also within a magnitude: the fewer magnitudes the
    drawn axis spans, the more numbers."""
    import numpy as np
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    class Spaced(LogLocator):
        def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
            spanned = np.log10(max(vmax, 1e-300) / max(vmin, 1e-300))
            self.set_params(subs=next((s for most, s in _SUBDIVIDED if spanned < most), (1.0,)))
            return super().tick_values(vmin, vmax)

    axis = axes.yaxis if which == "y" else axes.xaxis
    axes.set(**{f"{which}scale": "log"})
    axis.set_major_locator(Spaced())
    # Format each number by itself: formatting by the axis's span would show tiny numbers as 0.
    axis.set_major_formatter(
        FuncFormatter(
            lambda tick, _: np.format_float_positional(
                tick, precision=3, unique=False, fractional=False, trim="-"
            )
        )
    )
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


WIDEST = 2.0
"""An interval is cut at this many times the tallest value; a longer one would hide the data."""


def limit_intervals(
    axes: Axes, values: Sequence[float], ends: Sequence[tuple[float, float]]
) -> None:
    """Keep the vertical axis readable if few runs make an interval very wide.

    `ends` are (x, upper end) of the intervals. The axis begins at 0. Intervals beyond `WIDEST`
    times the largest of `values` are cut off there, and their end is written next to them. A NaN
    end means no interval.
    """
    ends = [(x, end) for x, end in ends if not math.isnan(end)]
    most = WIDEST * max(values)
    cut = [(x, end) for x, end in ends if end > most]
    top = most if cut else max([*values, *(end for _, end in ends)])
    axes.set_ylim(0, 1.3 * top)
    if not cut:
        return
    axes.set_ylim(0, 1.15 * top)
    for x in sorted({x for x, _ in cut}):
        axes.annotate(
            "to " + ", ".join(f"{end:.3g}" for at, end in cut if at == x),
            (x, top),
            xytext=(3, -3),
            textcoords="offset points",
            fontsize="x-small",
            va="top",
            rotation=90,
        )


def legend(drawn: Figure, axes: Sequence[Axes], columns: int = 3) -> Figure:
    """Draw one legend above all panels, or below them if the figure has a title; each text once.
    Return the figure."""
    handles: dict[str, Artist] = {}
    for panel in axes:
        for handle, text in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    if not handles:
        return drawn  # no estimate to draw
    drawn.legend(
        handles=list(handles.values()),
        labels=list(handles),
        loc="outside lower center" if drawn.get_suptitle() else "outside upper center",
        ncols=min(columns, len(handles)),
        fontsize="small",
    )
    return drawn


def describe(drawn: Figure) -> list[dict[str, Any]]:
    """Return a mapping for each of the figure's axes, of JSON types: title, axis labels and scales;
    lines (label, x, y), bars (x, y, width, height), outlines, points, images and texts. A value
    that is not a finite number is null.

    Two drawings of one figure are compared by content: pixels differ between versions of the
    drawing library."""
    return [_axes(axes) for axes in drawn.axes]


def _axes(axes: Axes) -> dict[str, Any]:
    found = {
        "title": axes.get_title(),
        "labels": [axes.get_xlabel(), axes.get_ylabel()],
        "scales": [axes.get_xscale(), axes.get_yscale()],
        "lines": [
            {
                "label": _own_label(line.get_label()),
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


def _own_label(label: object) -> str:
    """Return a line's name; empty for names that the library generates."""
    text = str(label)
    return "" if text.startswith("_") else text


def _patch(patch: Patch) -> dict[str, Any]:
    from matplotlib.patches import Rectangle

    label = {"label": _own_label(patch.get_label())}
    if isinstance(patch, Rectangle):
        x, y = patch.get_xy()
        return label | {"bar": _numbers([x, y, patch.get_width(), patch.get_height()])}
    return label | {"outline": _numbers(patch.get_path().vertices)}


def _collection(collection: Collection) -> dict[str, Any]:
    from matplotlib.collections import PathCollection

    found: dict[str, Any] = {"label": _own_label(collection.get_label())}
    if isinstance(collection, PathCollection):  # points: the paths are only their markers
        found["points"] = _numbers(collection.get_offsets())
    else:
        found["outlines"] = [_numbers(path.vertices) for path in collection.get_paths()]
    values = collection.get_array()
    if values is not None:
        found["values"] = _numbers(values)
    return found


def _numbers(values: Any) -> list[Any]:
    import numpy as np

    array: Any = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    return list(_finite(array.tolist()))


def _finite(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield list(_finite(value))
        else:
            yield value if math.isfinite(value) else None
