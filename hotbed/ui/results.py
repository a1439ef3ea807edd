"""Pages of what was measured: runs, journals, reports and the gallery."""

from __future__ import annotations

import io
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import panel as pn
from bokeh.models import ColumnDataSource
from markupsafe import Markup
from pandas.api.types import is_float_dtype, is_numeric_dtype

from campaigns.engine.display import label_of
from campaigns.engine.job import JOURNAL_FILE
from campaigns.engine.store import read_run, read_summary
from controllers.journal import Journal, read_journal
from hotbed.ui.parts import (
    HALF,
    asked,
    follow,
    html,
    joined,
    lines,
    note,
    number,
    offer,
    pane,
    plot,
    show,
    stacked,
    table,
    text,
    wrapped,
)
from hotbed.ui.sources import PARAMETER, RESULT, Index, LiveJournal, Watched
from schemas.errors import HotbedError
from schemas.shown import line

ALL = "all"
MOST_CHOSEN = 8
"""Maximum number of runs in one figure: more colours look alike."""
POINTS = 600
"""Points of a line in a figure, which has about as many pixels."""
_SHOWN = ("chosen", "campaign", "cell", "block", "status", "why", "started", "seconds")
_HERE = "(on the testbed)"
_STEP = ("step", "seconds", "hottest", "decided", "did", "error")


class _Sheet:
    """Table that a browser gets page by page.

    A table with other columns is a new widget, and a hidden one is no widget: Panel's script fails
    if columns or visibility change before the browser has drawn the table.
    """

    def __init__(self, page_size: int, click: Callable[[Any], None] | None = None) -> None:
        self.page: Any = stacked()
        self._size, self._click = page_size, click

    def fill(self, frame: pd.DataFrame) -> None:
        """Show a table: texts in one line, numbers with four digits."""
        made = frame.apply(
            lambda column: (
                column.map(lambda value: float(f"{value:.4g}"))
                if is_float_dtype(column)
                else column
                if is_numeric_dtype(column)
                else column.map(lambda value: line(str(value)))
            )
        )
        shown: list[Any] = self.page.objects
        if shown and list(shown[0].value) == list(made):
            shown[0].value = made
            return
        heads = {name: name.removeprefix(PARAMETER).removeprefix(RESULT) for name in made}
        sheet = pn.widgets.Tabulator(
            made,
            titles={name: str(text(head)) for name, head in heads.items()},  # HTML for Tabulator
            pagination="remote",
            page_size=self._size,
            show_index=False,
            disabled=True,
            selectable=False,
            layout="fit_data_stretch",
            sizing_mode="stretch_width",
        )
        if self._click is not None:
            sheet.on_click(self._click)
        self.page.objects = [sheet]


class Runs:
    """Page of all attempts: filter, group, overlay, compare, download."""

    def __init__(self, index: Index, prefix: str) -> None:
        self._index, self._prefix = index, prefix
        self._seen = index.runs
        self._chosen: list[Path] = []
        self._drawing = False
        states = [ALL, "done", "failed", "spoiled", "interrupted"]
        self._campaign = pn.widgets.Select(name="Campaign", options=[ALL], width=200)
        self._status = pn.widgets.Select(name="Status", options=states, width=110)
        self._words = pn.widgets.TextInput(name="Contains", placeholder="cell or reason", width=150)
        self._result = pn.widgets.Select(name="Result", options={}, width=190)
        # Native lists: Panel's MultiChoice takes strangers' names as HTML.
        self._by = [
            pn.widgets.Select(name=n, options={}, width=130) for n in ("Group by", "and by")
        ]
        self._metric = pn.widgets.Select(name="Time series", options=[], width=220)
        self._head, self._compared = pane(), pane()
        self._sheet, self._grouped = _Sheet(12, self._choose), _Sheet(12)
        self._overlay = pn.pane.Bokeh(sizing_mode="stretch_width")
        csv = pn.widgets.FileDownload(
            callback=lambda: io.StringIO(self._seen.to_csv(index=False)),
            filename="runs.csv",
            label="Download as CSV",
            width=160,
            align="end",
        )
        filters = (self._campaign, self._status, self._words, self._result)
        for widget in filters:
            widget.param.watch(self._draw, "value")
        for widget in self._by:
            widget.param.watch(self._group, "value")
        self._metric.param.watch(self._draw_series, "value")
        follow(self._draw, lambda: index.version)
        self._draw_series()
        above = (self._head, wrapped(*filters, *self._by, csv), self._sheet.page)
        below = (self._metric, self._overlay, self._compared)
        self.page = stacked(*above, self._grouped.page, *below)

    def _draw(self, *_: object) -> None:
        if not self._drawing:  # new options change values, which ask for this again
            self._drawing = True
            self._draw_once()
            self._drawing = False

    def _draw_once(self) -> None:
        found, count = self._index.runs, len(self._index.runs)
        offer(self._campaign, [ALL, *self._index.campaigns()])
        for name, widget in (("campaign", self._campaign), ("status", self._status)):
            found = found if widget.value == ALL else found[found[name] == widget.value]
        if self._words.value:
            texts = found[["campaign", "cell", "run", "why"]].agg(" ".join, axis=1)
            found = found[texts.str.contains(self._words.value, case=False, regex=False)]
        self._seen = seen = found.dropna(axis="columns", how="all").reset_index(drop=True)
        names = [str(name) for name in seen]
        results = {n.removeprefix(RESULT): n for n in names if n.startswith(RESULT)}
        offer(self._result, results)
        varied = (n for n in names if n.startswith(PARAMETER) and seen[n].nunique() > 1)
        groups = (*(n for n in ("campaign", "controller", "block") if n in seen), *varied)
        for widget in self._by:
            offer(widget, {"-": "", **{name.removeprefix(PARAMETER): name for name in groups}})
        words = f"{len(seen)} of {count} attempts." if count else self._index.empty
        key = "A click on a row chooses its run (●) for the comparison and the time series below."
        show(self._head, html("<h1>Runs</h1><p>{words} {key}</p>", words=words, key=key))
        marks = ["●" if Path(folder) in self._chosen else "" for folder in seen.get("folder", ())]
        columns = [*_SHOWN, self._result.value] if results else list(_SHOWN)
        self._sheet.fill(seen.assign(chosen=marks).reindex(columns=columns, fill_value=""))
        self._group()

    def _group(self, *_: object) -> None:
        result, by = self._result.value, list(dict.fromkeys(w.value for w in self._by if w.value))
        if not (by and result):
            self._grouped.page.clear()
            return
        done = self._seen[self._seen["status"] == "done"].groupby(by, dropna=False)[result]
        made = done.agg(["count", "mean", "std", "min", "max"]).reset_index()
        heads = {"mean": f"mean {result.removeprefix(RESULT)}", "count": "n"}
        self._grouped.fill(made.rename(columns=heads))

    def _choose(self, event: Any) -> None:
        folder, chosen = Path(self._seen["folder"].iloc[event.row]), self._chosen
        if folder in chosen:
            chosen.remove(folder)
        elif len(chosen) < MOST_CHOSEN:
            chosen.append(folder)
        sheet: Any = self._sheet.page[0]
        sheet.patch({"chosen": [(event.row, "●" if folder in chosen else "")]})
        names = {str(name) for folder in chosen for name in _samples(folder)["metric"].unique()}
        offer(self._metric, sorted(names), "pressure")
        listed = _chosen(chosen, self._index.folder, self._prefix)
        show(self._compared, listed, _compared(chosen[:2]))
        self._draw_series()

    def _draw_series(self, *_: object) -> None:
        metric = self._metric.value
        self._metric.visible = self._overlay.visible = metric is not None
        self._overlay.object = None if metric is None else _overlay(metric, self._chosen)


def _chosen(chosen: Sequence[Path], folder: Path, prefix: str) -> Markup:
    rows = []
    for place, each in enumerate(chosen, start=1):
        inner = quote(str(each.relative_to(folder)), safe="")
        link = html('<a href="{p}/journal?run={inner}">journal</a>', p=prefix, inner=inner)
        rows.append((f"{place}.", _name(each), link if (each / JOURNAL_FILE).exists() else ""))
    return html("<h2>Chosen runs</h2>{t}", t=table(("", "run", ""), rows)) if rows else Markup()


def _name(folder: Path) -> str:
    run = read_run(folder)
    return folder.name if run is None else f"{run.campaign}: {label_of(run)}, block {run.block}"


def _samples(folder: Path) -> pd.DataFrame:
    """Return a run's samples; empty if it has none."""
    try:
        return pd.read_parquet(folder / "samples.parquet")
    except (OSError, ValueError):
        return pd.DataFrame(columns=["t_s", "node", "metric", "value"])


def _overlay(metric: str, folders: Sequence[Path]) -> Any:
    """Return a figure with a line for each run: the mean over its nodes."""
    drawn = []
    for place, folder in enumerate(folders, start=1):
        samples = _samples(folder)
        mean = samples[samples["metric"] == metric].groupby("t_s")["value"].mean()
        step = max(1, len(mean) // POINTS)
        mean = mean.rolling(step, min_periods=1).mean().iloc[::step]
        source = ColumnDataSource({"x": list(mean.index), "y": list(mean)})
        drawn.append((f"{place}. {_name(folder)}", source, "y"))
    made = plot(f"{metric}, mean over the nodes", "seconds since the workload's start", metric)
    lines(made, drawn, place="below")
    return made


def _compared(folders: Sequence[Path]) -> Markup:
    """Return what differs between two runs, and their results with a ratio."""
    if len(folders) < 2:
        return Markup()
    one, two = map(_facts, folders)
    rows: list[tuple[object, ...]] = []
    for name in sorted({**one, **two}, key=lambda name: not name.startswith(("param", RESULT))):
        a, b = one.get(name, "–"), two.get(name, "–")
        is_result = name.startswith(RESULT)
        if is_result or a != b:
            numbers = is_result and all(isinstance(v, int | float) and v for v in (a, b))
            shown = (f"{v:.5g}" if isinstance(v, float) else v for v in (a, b))
            rows.append((name, *shown, number(b / a, 3) if numbers else ""))
    compared = table(("", "1", "2", "2 / 1"), rows, numbers=(3,))
    return html("<h2>Runs 1 and 2: what differs, and all results</h2>{t}", t=compared)


def _facts(folder: Path) -> dict[str, Any]:
    """Return the facts by which two runs are compared, by name."""
    run, summary = read_run(folder), read_summary(folder)
    facts: dict[str, Any] = {}
    if run is not None:
        left_out = {"schema_version", "run_id", "started_at", "ended_at", "order", "provenance"}
        kept = {"commit", "versions", "site", "signal", "calibration"}
        facts |= run.model_dump(mode="json", exclude=left_out)
        facts |= run.provenance.model_dump(mode="json", include=kept)
    if summary is not None:
        results = {each.op: each.model_dump(exclude={"op"}) for each in summary.whole}
        results |= summary.model_dump(mode="json", exclude={"steady", "whole"})
        facts |= {f"{RESULT}{name}": value for name, value in results.items()}
    flat = pd.json_normalize(facts, sep=": ").iloc[0].to_dict()
    return {str(name): value for name, value in flat.items() if value not in (None, "", [])}


class Journals:
    """Page of a controller's journal: sensed, decided and done, step by step.

    The journal of a controller on the testbed grows while it runs, newest step first."""

    def __init__(self, index: Index, watched: Watched) -> None:
        self._index, self._watched = index, watched
        self._wanted = index.folder / asked("run")
        self._campaign = pn.widgets.Select(name="Campaign", options=[], width=200)
        self._run = pn.widgets.Select(name="Run with a journal", options={}, width=420)
        self._head, self._detail = pane(), pane()
        self._curves = pn.pane.Bokeh(sizing_mode="stretch_width")
        self._sheet = _Sheet(8, self._click)
        self._mark = ColumnDataSource({"t": []})
        self._journal: Journal | LiveJournal | None = None
        self._clicked: int | None = None  # number of the step
        self._campaign.param.watch(self._choices, "value")
        self._run.param.watch(self._choose, "value")
        self._chooser = wrapped(self._campaign, self._run)
        halves = (stacked(half, styles=HALF) for half in (self._curves, self._detail))
        self._body = stacked(self._sheet.page, wrapped(*halves))
        follow(self._choices, lambda: (index.version, self._names()))
        follow(self._draw, lambda: getattr(self._journal, "version", 0))
        self.page = stacked(self._chooser, self._head, self._body)

    def _names(self) -> list[str]:
        return [str(each["name"]) for each in self._watched.overview["controllers"]]

    def _choices(self, *_: object) -> None:
        rows = self._index.runs[self._index.runs["journal"].astype(bool)]
        campaigns = [*[_HERE] * bool(self._names()), *dict.fromkeys(rows["campaign"])]
        offer(self._campaign, campaigns, self._wanted.parents[1].name)
        if self._campaign.value == _HERE:
            offer(self._run, self._names())
        else:
            rows = rows[rows["campaign"] == self._campaign.value]
            names = rows["cell"] + ", block " + rows["block"].astype(str) + ", " + rows["started"]
            offer(self._run, dict(zip(names, rows["folder"], strict=True)), str(self._wanted))
        self._chooser.visible = self._body.visible = self._run.value is not None
        if self._run.value is None:
            show(self._head, html("<h1>No journal of a controller</h1>"), note(self._index.empty))

    def _choose(self, *_: object) -> None:
        self._clicked, name = None, str(self._run.value)
        try:
            if self._campaign.value == _HERE:
                self._journal = self._watched.journal(name)
            else:
                self._journal = read_journal(Path(name) / JOURNAL_FILE)
        except HotbedError as error:
            show(self._head, html("<h1>Journal</h1>"), note(error))
            return
        self._draw()

    def _steps(self) -> list[Mapping[str, Any]]:
        """Return the steps in the order of the sheet."""
        steps = [] if self._journal is None else list(self._journal.steps)
        return steps[::-1] if isinstance(self._journal, LiveJournal) else steps

    def _draw(self) -> None:
        if self._journal is not None:
            problem = getattr(self._journal, "problem", "")
            show(self._head, _about(self._journal), note(problem) if problem else "")
            self._sheet.fill(pd.DataFrame(map(_row, self._steps()), columns=list(_STEP)))
            self._curves.object = _pressures(list(self._journal.steps), self._mark)
            self._select()

    def _click(self, event: Any) -> None:
        self._clicked = int(self._steps()[event.row]["step"])
        self._select()

    def _select(self) -> None:
        """Show the clicked step; without one the newest, or the first with an action."""
        steps = self._steps()
        found = [step for step in steps if step["step"] == self._clicked]
        if not found and isinstance(self._journal, Journal):
            found = [step for step in steps if step["actions"]]
        found = (found or steps)[:1]
        self._mark.data = {"t": [float(step["t_s"]) for step in found]}
        show(self._detail, *map(_detail, found))


def _about(journal: Journal | LiveJournal) -> Markup:
    header, footer = journal.header, journal.footer
    end = "has no end yet" if footer is None else f"ended: {footer.get('reason')}"
    given = (f"{name} {value}" for name, value in (header.get("parameters") or {}).items())
    return html(
        '<h1>Journal of {policy}</h1><p>{facts}</p><p class="dim">{given}</p>',
        policy=header.get("policy"),
        facts=f"{len(journal.steps)} steps, one every {header.get('interval_s')} s; {end}",
        given=", ".join(given),
    )


def _pressure(step: Mapping[str, Any]) -> dict[str, float]:
    found = (step["observation"] or {}).get("pressure") or {}
    return {f"osd.{osd}": float(value) for osd, value in found.items()}


def _row(step: Mapping[str, Any]) -> tuple[object, ...]:
    """Return a step in few words: sensed, decided and done."""
    pressure = _pressure(step)
    hottest = sorted(pressure, key=lambda osd: -pressure[osd])[:3]
    failed = sum(not effect.get("ok") for effect in step["effects"])
    did = [str(effect.get("message")) for effect in step["effects"]]
    kinds = Counter(str(action.get("kind")) for action in step["actions"])
    return (
        step["step"],
        round(float(step["t_s"]), 1),
        ", ".join(f"{osd} {pressure[osd]:.0f} %" for osd in hottest if pressure[osd] >= 1),
        ", ".join(f"{count} {kind}" for kind, count in kinds.items()),
        f"{failed} failed; " * bool(failed) + "; ".join(did[:3]) + " ..." * (len(did) > 3),
        step["error"] or "",
    )


def _pressures(steps: Sequence[Mapping[str, Any]], mark: ColumnDataSource) -> Any:
    """Return the pressures that the steps sensed; None if the controller senses none."""
    sensed = [_pressure(step) for step in steps]
    names = list(dict.fromkeys(osd for each in sensed for osd in each))
    if not names:
        return None
    data = {str(n): [each.get(osd, math.nan) for each in sensed] for n, osd in enumerate(names)}
    source = ColumnDataSource({"x": [float(step["t_s"]) for step in steps], **data})
    acted = [float(step["t_s"]) for step in steps if step["actions"]]
    title = "Sensed pressure; dotted: the controller acted; grey: the step on the right"
    made = plot(title, "seconds since the controller's start", "%")
    made.vspan(x=acted, color="#bf3989", line_dash="dotted")
    made.vspan(x="t", source=mark, color="#57606a")
    lines(made, [(osd, source, str(n)) for n, osd in enumerate(names)])
    return made


def _detail(step: Mapping[str, Any]) -> Markup:
    """Return a step whole, as it is in the journal; of OSDs and PGs only their number."""
    seen = {name: value for name, value in (step["observation"] or {}).items() if value}
    seen |= {name: f"{len(seen[name])} of them" for name in ("osds", "pgs") if name in seen}
    before, after = step["state_before"] or {}, step["state_after"] or {}
    parts = {
        "sensed": seen,
        "state that changed": {n: v for n, v in after.items() if before.get(n) != v},
        "decided": step["actions"],
        "did": step["effects"],
        "error": step["error"],
    }
    at = time.strftime("%H:%M:%S", time.localtime(step["wall"]))
    shown = (
        html("<h2>{name}</h2><pre>{value}</pre>", name=name, value=_lines(value))
        for name, value in parts.items()
        if value
    )
    title = f"Step {step['step']} at {step['t_s']:.1f} s ({at})"
    return html("<h1>{title}</h1>{shown}", title=title, shown=joined(shown))


def _lines(value: Any) -> str:
    """Return a value of a journal as JSON with an entry a line."""
    if isinstance(value, Mapping):
        return "\n".join(f"{name}: {json.dumps(inner)}" for name, inner in value.items())
    return "\n".join(map(json.dumps, value)) if isinstance(value, list) else str(value)


def reports_page(folders: Mapping[str, Path], prefix: str) -> Any:
    """Return the page of the reports in the artifacts folder, and of the gallery's figures."""
    page = pane()
    artifacts, gallery = folders["artifacts"], folders["gallery"]

    def link(name: str, path: Path, words: str, **more: object) -> Markup:
        inner = path.relative_to(folders[name])
        place = f"{prefix}/files/{name}/{quote(str(inner))}"
        return html(words, place=place, inner=inner, **more)

    def draw() -> None:
        reports = {path: path.stat().st_mtime for path in artifacts.glob("[!.]*/*.html")}
        words = '<a href="{place}" target="_blank" rel="noopener">{inner}</a>'
        rows = [
            (link("artifacts", path, words), time.strftime("%Y-%m-%d %H:%M", time.localtime(at)))
            for path, at in sorted(reports.items(), key=lambda each: -each[1])
        ]
        none = note("There is no report yet; `hotbed report PAPER` makes one from the runs.")
        figure = (
            '<figure><a href="{place}" target="_blank" rel="noopener"><img loading="lazy" '
            'src="{place}" alt="{inner}"></a><figcaption>{inner}</figcaption></figure>'
        )
        own = [link("artifacts", path, figure) for path in sorted(artifacts.glob("[!.]*/*.png"))]
        recorded = [link("gallery", path, figure) for path in sorted(gallery.glob("*/*/*.png"))]
        reported = table(("report", "written"), rows) if rows else none
        gallery_of = html("<h2>Gallery of the recorded runs</h2>")
        show(page, html("<h1>Reports</h1>"), reported, *own, gallery_of, *recorded)

    follow(draw, lambda: int(time.time()) // 5)
    return page
