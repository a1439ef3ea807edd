"""Content of a figure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.bundle.publish import RECORDS, TABLES
from analysis.core import aside, report, style
from analysis.core.claims import Evidence
from analysis.core.figures import Drawn, FigureEntry
from analysis.core.load import LoadedRun


def texts_by_figure(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Return a dictionary that collects the texts of every figure saved from now on, by name."""
    found: dict[str, list[str]] = {}
    save = style.save

    def saved(drawn: Any, folder: Path, name: str) -> Path:
        from matplotlib.text import Text

        path = save(drawn, folder, name)
        texts = [str(text.get_text()) for text in drawn.findobj(Text)]
        found.setdefault(name, []).extend(texts)
        return path

    monkeypatch.setattr(style, "save", saved)
    return found


def texts_of(figures: dict[str, list[str]]) -> set[str]:
    """Return every text of all figures."""
    return {text for texts in figures.values() for text in texts}


Look = tuple[str, str, str]
"""Kind or marker, line style or hatch, colour."""
MARKS = {"diamond": "D #ffffff", "triangle": "^v", "square": "s"}
"""Markers and their inside colours, by their names in captions."""


def misleading(drawn: Any) -> list[str]:
    """Return the misleading parts of a figure: an empty panel, a wrong mark in the legend, one mark
    on two vertical axes, an interval without width, a legend over data."""
    panels = [axes for axes in drawn.axes if axes.get_visible()]
    found = [f"panel {at} is empty" for at, axes in enumerate(panels) if _is_empty(axes)]
    there = {look[:2] for axes in panels for look in _looks(axes)}
    named: dict[str, set[Look]] = {}
    for axes in panels:
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(text, set()).add(_look(handle))
    found += [f"{text!r} is drawn as {its}" for text, its in named.items() if len(its) > 1]
    found += [
        f"{text!r} is a mark that is not drawn"
        for text, its in named.items()
        if not {look[:2] for look in its} & there
    ]
    for at, axes in enumerate(panels):
        legend = axes.get_legend()
        if legend is not None and legend.get_bbox_to_anchor() is axes.bbox:
            found.append(f"a legend lies on panel {at}, and may hide what is drawn there")
        for other in panels[:at]:
            if axes.get_subplotspec() == other.get_subplotspec():
                both = {look for look in _looks(axes) & _looks(other) if look[0] in MARKERS}
                found += [f"{look} is on two vertical axes" for look in both]
    return found + ["an interval has no width"] * any(map(_has_flat_interval, panels))


def unlike(caption: str, drawn: Any) -> list[str]:
    """Return the panels, marks and units that a caption names and its figure lacks."""
    panels = [axes for axes in drawn.axes if axes.get_visible()]
    texts = [str(text.get_text()) for text in drawn.findobj(match=lambda a: hasattr(a, "get_text"))]
    looks = {look for axes in panels for look in _looks(axes)}
    found = [
        f"panel ({letter})"
        for letter in re.findall(r"\(([a-h])\)", caption)
        if not any(f"({letter})" in text for text in texts)
    ]
    for name, its in MARKS.items():
        markers, _, inside = its.partition(" ")
        drawn_so = any(look[0] in markers and look[2].endswith(inside) for look in looks)
        found += [name] * (name in caption.lower() and not drawn_so)
    return found + [
        unit
        for unit in ("MB/s", "GB/s", "IOPS", "QPS")
        if unit in caption and not any(unit in text for text in texts)
    ]


MARKERS = frozenset("osD^vPX*x.d<>p")


def _look(artist: Any) -> Look:
    from matplotlib.colors import to_hex
    from matplotlib.container import BarContainer, ErrorbarContainer
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if isinstance(artist, ErrorbarContainer | BarContainer):
        artist = artist[0]
    if isinstance(artist, Line2D):
        face = artist.get_markerfacecolor()
        dashes = str(artist.get_linestyle())
        colour = artist.get_markeredgecolor() if dashes == "None" else artist.get_color()
        inside = "none" if face == "none" else to_hex(face)
        return str(artist.get_marker()), dashes, f"{to_hex(colour)} {inside}"
    if isinstance(artist, Patch):
        return "bar", str(artist.get_hatch()), to_hex(artist.get_facecolor())
    return type(artist).__name__, "", str([to_hex(one) for one in artist.get_facecolor()[:1]])


def _looks(axes: Any) -> set[Look]:
    """Return the looks of all elements with data."""
    lines = [line for line in axes.lines if np.isfinite(_data(line)).all(axis=1).any()]
    return {_look(one) for one in (*lines, *axes.patches, *axes.collections)}


def _data(line: Any) -> Any:
    return np.asarray(line.get_xydata(), dtype=float)


def _is_empty(axes: Any) -> bool:
    """Return True if a panel shows no data and does not state this."""
    lines = [line for line in axes.lines if line.get_transform() == axes.transData]
    if any(np.isfinite(_data(line)).all(axis=1).any() for line in lines):
        return False
    return not (axes.patches or axes.collections or axes.images or axes.texts)


def _has_flat_interval(axes: Any) -> bool:
    from matplotlib.container import ErrorbarContainer

    ends = [
        segment
        for container in axes.containers
        if isinstance(container, ErrorbarContainer)
        for bars in container.lines[2]
        for segment in bars.get_segments()
    ]
    return any(len(one) == 2 and np.array_equal(one[0], one[1]) for one in ends)


FILES = {*RECORDS, *TABLES, "job.json", "logs"}
"""Files of a run that figures and claims may read: those that a bundle packs, its job, and logs,
which are packed on request."""


@pytest.fixture(scope="session", autouse=True)
def no_figure_misleads() -> Iterator[None]:
    """Check that every drawn figure of a report agrees with its legend and caption, and reads no
    file that bundles leave out."""
    save, draw, file = style.save, report.draw, LoadedRun.file
    drawn: dict[str, Any] = {}
    read: set[str] = set()

    def reading(run: LoadedRun, name: str) -> Path:
        read.add(name)
        return file(run, name)

    def saved(figure: Any, folder: Path, name: str) -> Path:
        drawn[name] = figure
        assert misleading(figure) == [], name
        return save(figure, folder, name)

    def captioned(entry: FigureEntry, evidence: Evidence, folder: Path, prefix: str) -> Drawn:
        made = draw(entry, evidence, folder, prefix)
        assert read <= FILES
        if made.path is not None:
            assert unlike(made.entry.caption, drawn[made.path.stem]) == [], made.path.stem
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "save", saved)
        patch.setattr(report, "draw", captioned)
        patch.setattr(LoadedRun, "file", reading)
        # Each of the tests' processes has a processor: a second one for figures only costs time.
        patch.setattr(aside, "processors", lambda: 1)
        yield
