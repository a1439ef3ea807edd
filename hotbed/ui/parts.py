"""Parts that the pages share: texts made safe, tables, and curves that follow a testbed."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import panel as pn
from bokeh.models import ColumnDataSource, DataRange1d, HoverTool, Range1d
from bokeh.palettes import Category20
from bokeh.plotting import figure
from markupsafe import Markup

from hotbed.top_view import Sample
from hotbed.ui.sources import HISTORY
from schemas.shown import clean, line

CSS = Path(__file__).with_name("style.css").read_text()
_COLOURS = (*Category20[20][::2], *Category20[20][1::2])
HALF = {"flex": "1 1 440px", "min-width": "320px"}
"""Styles of a part that fills half of a wide page, and all of a narrow one."""


def text(value: object) -> Markup:
    """Return any value as a text for a page: escaped, with control characters shown."""
    return value if isinstance(value, Markup) else Markup.escape(clean(str(value)))


def html(ours: str, /, **values: object) -> Markup:
    """Return HTML of our own with strangers' values filled in."""
    return Markup(ours).format(**{name: text(value) for name, value in values.items()})


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Return texts one after another, with HTML of our own in between."""
    return Markup(between).join(map(text, parts))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()
) -> Markup:
    """Return a table; the columns at the positions `numbers` are right-aligned."""
    kinds = dict.fromkeys(numbers, "n")

    def line(tag: str, values: Sequence[object]) -> Markup:
        words = '<{tag} class="{kind}">{value}</{tag}>'
        cells = (
            html(words, tag=tag, kind=kinds.get(place, ""), value=value)
            for place, value in enumerate(values)
        )
        return html("<tr>{cells}</tr>", cells=joined(cells))

    body = joined(line("td", row) for row in rows)
    return html(
        '<div class="wide"><table>{head}{body}</table></div>', head=line("th", columns), body=body
    )


def badge(words: object, status: str) -> Markup:
    """Return words on the colour of a status (style.css)."""
    return html('<span class="badge {status}">{words}</span>', status=status, words=words)


def note(words: object) -> Markup:
    """Return a sentence that a person should read first."""
    return html('<p class="note">{words}</p>', words=words)


def number(value: Any, digits: int = 1) -> str:
    """Return a number for a table; a dash if it is not known."""
    known = isinstance(value, int | float) and math.isfinite(value)
    return f"{value:.{digits}f}" if known else "–"


def pane() -> pn.pane.HTML:
    """Return an empty piece of a page."""
    return pn.pane.HTML("", sizing_mode="stretch_width", stylesheets=[CSS])


def wrapped(*parts: Any) -> pn.Row:
    """Return parts next to each other, or below each other in a narrow window. Panel's FlexBox
    evaluates strings as code, which the content policy forbids."""
    narrow = ":host { flex-wrap: wrap; min-width: 0 !important; }"
    return pn.Row(*parts, stylesheets=[narrow], sizing_mode="stretch_width")


def stacked(*parts: Any, **more: Any) -> pn.Column:
    """Return parts below each other, as narrow as the window."""
    narrow = ":host { min-width: 0 !important; }"
    return pn.Column(*parts, stylesheets=[narrow], sizing_mode="stretch_width", **more)


def show(into: pn.pane.HTML, *parts: object) -> None:
    """Fill a piece of a page."""
    into.object = str(joined(parts))  # Panel escapes for the transport, and Markup escapes that


def follow(draw: Callable[[], None], version: Callable[[], object]) -> None:
    """Call `draw` now, and within a second after each change of `version()`."""
    seen: list[object] = []

    def look() -> None:
        now = version()
        if seen != [now]:
            seen[:] = [now]
            draw()

    look()
    pn.state.add_periodic_callback(look, period=1000)


def asked(name: str) -> str:
    """Return a value of the page's address; empty without one."""
    return str(pn.state.session_args.get(name, [b""])[0].decode(errors="replace"))


def offer(widget: Any, options: Mapping[str, Any] | Sequence[Any], wanted: Any = None) -> None:
    """Give a selection widget new options. It keeps its value, or takes the `wanted` or first."""
    named = options if isinstance(options, Mapping) else {str(each): each for each in options}
    values = list(named.values())
    value = next((one for one in (widget.value, wanted, *values) if one in values), None)
    shown = {line(name): each for name, each in named.items()}
    if shown != widget.options or value != widget.value:
        widget.param.update(options=shown, value=value)


def plot(title: str, x: str, y: str, *, clock: bool = False) -> Any:
    """Return an empty figure with labelled axes."""
    made = figure(
        title=title,
        x_axis_label=x,
        y_axis_label=y,
        x_axis_type="datetime" if clock else "linear",
        y_range=Range1d(start=0, end=105) if y == "%" else DataRange1d(start=0),
        tools="xpan,xwheel_zoom,box_zoom,reset,save",
        sizing_mode="stretch_width",
        height=280,
    )
    made.toolbar.logo, made.toolbar.autohide = None, True
    return made


def lines(
    into: Any,
    drawn: Sequence[tuple[str, ColumnDataSource, str]],
    *,
    x: str = "x",
    place: str = "right",
) -> None:
    """Draw a line for each name, source and column, with a legend. A click on a name hides its
    line."""
    renderers = []
    for (name, source, column), colour in zip(drawn, itertools.cycle(_COLOURS)):
        look = {"line_width": 1.7, "color": colour}
        named = {"name": clean(name), "legend_label": clean(name)}
        renderers.append(into.line(x, column, source=source, **look, **named))
    legend = into.legend[0]
    legend.update(click_policy="hide", label_text_font_size="8pt", spacing=-2, glyph_width=14)
    legend.ncols = 1 + len(legend.items) // 16 if place == "right" else 1
    into.add_layout(legend, place)
    at = "@t{%T}" if x == "t" else "$x{0.0}"
    tips = [("", "$name"), ("time", at), ("value", "$y{0.0}")]
    into.add_tools(HoverTool(tooltips=tips, formatters={"@t": "datetime"}, renderers=renderers))


class Curves:
    """Lines of the last ten minutes, which grow with every sample.

    Args:
        title, unit: of the figure and of its values.
        pick: returns the values of a sample by name.
    """

    def __init__(self, title: str, unit: str, pick: Callable[[Sample], Mapping[str, Any]]) -> None:
        self._title, self._unit, self._pick = title, unit, pick
        self._names: list[str] = []
        self._last = 0.0
        self._source, self._marks = ColumnDataSource(), ColumnDataSource({"t": []})
        self.pane = pn.pane.Bokeh(sizing_mode="stretch_width")

    def show(self, samples: Sequence[Sample], marks: Sequence[float]) -> None:
        """Add the samples that are new; draw a dotted line at each time (epoch) of `marks`."""
        names = list(self._pick(samples[-1]))
        if names != self._names or samples[0]["wall"] > self._last:
            self._begin(names)
        new = [sample for sample in samples if sample["wall"] > self._last]
        if new:
            self._last = new[-1]["wall"]
            values = [self._pick(sample) for sample in new]
            columns: dict[str, Any] = {"t": [_on_axis(sample["wall"]) for sample in new]}
            for column, name in enumerate(names):
                columns[str(column)] = [each.get(name, math.nan) for each in values]
            self._source.stream(columns, rollover=HISTORY)
        shown = [_on_axis(mark) for mark in marks if mark >= samples[0]["wall"]]
        if shown != self._marks.data["t"]:
            self._marks.data = {"t": shown}

    def _begin(self, names: list[str]) -> None:
        self._names, self._last = names, 0.0
        columns = [str(column) for column in range(len(names))]
        self._source = ColumnDataSource({column: [] for column in ("t", *columns)})
        made = plot(self._title, "time", self._unit, clock=True)
        made.vspan(x="t", source=self._marks, color="#bf3989", line_dash="dotted")
        drawn = [(name, self._source, column) for name, column in zip(names, columns, strict=True)]
        lines(made, drawn, x="t")
        self.pane.object = made


def _on_axis(wall: float) -> float:
    """Return a time for an axis, which shows it without a time zone."""
    return (wall + time.localtime(wall).tm_gmtoff) * 1e3
