"""Pages of what happens now: the testbed, and the campaign."""

from __future__ import annotations

import time
from typing import Any

import panel as pn
from markupsafe import Markup

from hotbed.top_view import (
    COLUMNS,
    NodeRow,
    Sample,
    alarms,
    colour_of,
    controllers,
    header,
    rows_of,
)
from hotbed.ui.parts import (
    HALF,
    Curves,
    asked,
    badge,
    follow,
    html,
    joined,
    note,
    offer,
    pane,
    show,
    stacked,
    table,
    wrapped,
)
from hotbed.ui.sources import CampaignState, CellState, Index, Watched, campaign_state
from hotbed.views import amiss, in_force
from testbed.spec.quantities import format_s

LATE_S = 5.0
"""Age of the last sample from which the page says that it is old."""
_LATER = "As soon as a testbed is up, this page shows it. The other pages work without one."
_MARKS = {"*": "disturbed", "!": "fault"}
_HEALTH = {"HEALTH_OK": "done", "HEALTH_WARN": "spoiled", "HEALTH_ERR": "failed"}
_SIGNS = {"done": "✓", "running": "▶", "spoiled": "~", "failed": "✗", "interrupted": "‖"}
_SIGNS["pending"] = ""


def testbed_page(watched: Watched) -> Any:
    """Return the page of the testbed: its nodes, pressure, OSDs, health, faults and loads."""
    head, nodes, facts = pane(), pane(), pane()
    metrics = {column.about: column for column in COLUMNS if column.unit and not column.per_osd}
    metric = pn.widgets.Select(name="Shown for every node", options=list(metrics), width=280)
    clients = Curves(
        "Throughput of the clients",
        "MB/s",
        lambda sample: {word: sample["client"].get(f"{word}_mb_s") for word in ("read", "write")},
    )
    by_node = stacked(styles=HALF)
    curves = [clients]

    def choose(*_: object) -> None:
        column = metrics[metric.value]
        made = Curves(column.about, column.unit, lambda sample: _by_node(sample, column.metric))
        curves[1:] = [made]
        by_node[:] = [made.pane]
        draw()

    def draw() -> None:
        samples = list(watched.samples)
        if not samples:
            show(head, html("<h1>No testbed to show</h1>"), note(watched.problem), _LATER)
            return
        last = samples[-1]
        show(head, _head(last, watched))
        columns = [f"{column.about}, {column.unit}".rstrip(", ") for column in COLUMNS]
        numbers = [n for n, column in enumerate(COLUMNS) if column.justify == "right"]
        show(nodes, table(columns, map(_cells, rows_of(last)), numbers))
        rows = [*amiss(watched.overview), *in_force(watched.overview)]
        title = html("<h2>Store, control and load</h2>")
        show(facts, *([title, table(("", ""), rows)] if rows else []))
        steps = (step for sample in samples for step in sample["controllers"].values())
        began = {step["acted"]["at"] for step in steps if step.get("acted")}
        began |= {fault["since_s"] for fault in last["faults"]}
        for each in curves:
            each.show(samples, sorted(began))

    key = "Dotted lines: a controller acted, or a fault began. A click on a name hides its line."
    legend = pane()
    show(legend, html('<p class="dim">{key}</p>', key=key))
    right = stacked(clients.pane, legend, styles=HALF)
    body = stacked(nodes, metric, wrapped(by_node, right), facts)
    metric.param.watch(choose, "value")
    choose()
    follow(draw, lambda: (watched.version, int(time.time() / LATE_S)))
    return stacked(head, body)


def _head(sample: Sample, watched: Watched) -> Markup:
    state = (watched.overview["health"] or {}).get("status", "health not known")
    age, problem = time.time() - sample["wall"], watched.problem
    late = f"The last sample is {format_s(age)} old. {problem}" if problem or age > LATE_S else ""
    return html(
        "<h1>Testbed {header} {health}</h1>{alarms}{steps}",
        header=header(sample).plain.replace("   ", " · "),
        health=badge(state, _HEALTH.get(state, "interrupted")),
        alarms=joined(map(note, [late] * bool(late) + [text.plain for text in alarms(sample)])),
        steps=joined(html("<p>{step}</p>", step=text.plain) for text in controllers(sample)),
    )


def _by_node(sample: Sample, metric: str) -> dict[str, Any]:
    return {name: node.get(metric) for name, node in sample["nodes"].items()}


def _cells(row: NodeRow) -> list[Markup]:
    """Return the cells of a node, in the order of `COLUMNS`."""
    cells = {
        column.metric: joined(column.cell(row).plain.split("\n"), "<br>") for column in COLUMNS[1:]
    }
    value = row.metrics.get("pressure")
    if value is not None and not row.lost:
        bar = '{value} <i class="bar {colour}" style="width: {width}px"></i>'
        shown = {"value": f"{value:.1f}", "colour": colour_of(value), "width": round(value)}
        cells["pressure"] = html(bar, **shown)
    words = ", ".join(each for mark, each in _MARKS.items() if mark in row.marks)
    node = '{node} <span class="dim">{roles}</span> <b class="bad">{words}</b>'
    return [
        html(node, node=row.name, roles=", ".join(row.metrics["roles"]), words=words),
        *cells.values(),
    ]


def campaign_page(index: Index) -> Any:
    """Return the page of a campaign: its cells, the time left, and the running cell's log."""
    choice = pn.widgets.Select(name="Campaign", options=[], width=320)
    page = pane()

    def draw(*_: object) -> None:
        names = index.campaigns()
        offer(choice, names, asked("campaign"))
        choice.visible = bool(names)
        if names:
            state = campaign_state(index, str(choice.value))
            show(page, _progress(state), _log(state), _grid(state), _ends(state))
        else:
            show(page, html("<h1>No runs yet</h1>"), note(index.empty))

    choice.param.watch(draw, "value")
    # Every two seconds, because an engine that is killed changes no file.
    follow(draw, lambda: (index.version, int(time.time()) // 2))
    return stacked(choice, page)


def _progress(state: CampaignState) -> Markup:
    total, done = len(state.cells), state.count("done")
    if state.engine is not None:
        left = "not known yet" if state.left_s is None else f"about {format_s(state.left_s)}"
        doing = f"{state.engine} runs it; time left: {left}"
    elif done == total:
        doing = "Every cell is done."
    else:
        doing = f"No engine runs it; `hotbed run {state.name}` resumes it."
    counts = [
        html("{sign} {n} {status}", sign=badge(sign or "\u00a0", status), n=n, status=status)
        for status, sign in _SIGNS.items()
        if (n := state.count(status))
    ]
    return html(
        "<h1>{name}: {done} of {total} cells done</h1><p>{doing}</p><p>{counts}</p>",
        name=state.name,
        done=done,
        total=total,
        doing=doing,
        counts=joined(counts, "&emsp;"),
    )


def _grid(state: CampaignState) -> Markup:
    """Return a row for each measurement, and a column for each block; a tooltip says more."""
    blocks = sorted({cell.block for cell in state.cells})
    rows: dict[str, dict[int, list[CellState]]] = {}
    for cell in state.cells:
        rows.setdefault(cell.label, {}).setdefault(cell.block, []).append(cell)
    made = [
        (label, *(joined(map(_square, mine.get(block, ()))) for block in blocks))
        for label, mine in rows.items()
    ]
    grid = table(("cell, by block", *map(str, blocks)), made)
    return html('<h2>Cells</h2><div class="grid">{grid}</div>', grid=grid)


def _square(cell: CellState) -> Markup:
    took = "" if cell.seconds is None else f", {format_s(cell.seconds)}"
    about = f"{cell.status}{took}, attempts: {cell.attempts}, run {cell.run_id}. {cell.why}"
    square = '<i class="{status}" title="{about}">{sign}</i>'
    return html(square, status=cell.status, about=about, sign=_SIGNS[cell.status])


def _ends(state: CampaignState) -> Markup:
    """Return the cells with attempts that are no result, and why."""
    rows = [
        (cell.label, cell.block, cell.attempts, badge(cell.status, cell.status), cell.why)
        for cell in state.cells
        if cell.why
    ]
    if not rows:
        return Markup()
    columns = ("cell", "block", "attempts", "now", "why an attempt was spoiled or failed")
    return html("<h2>Attempts that are no result</h2>{t}", t=table(columns, rows, numbers=(1, 2)))


def _log(state: CampaignState) -> Markup:
    if not state.running:
        return Markup()
    lines = state.log().splitlines()[-40:] or ["(empty so far)"]
    words = "<h2>Log of the running cell: {cell}</h2><pre>{lines}</pre>"
    running = next(cell.label for cell in state.cells if cell.status == "running")
    return html(words, cell=running, lines="\n".join(lines))
