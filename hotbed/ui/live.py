"""Pages of what happens now: the testbed, and the campaign."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import panel as pn
from markupsafe import Markup

from hotbed.top_view import CALM, HOT
from hotbed.ui.parts import (
    HALF,
    Curves,
    asked,
    badge,
    follow,
    html,
    joined,
    note,
    number,
    offer,
    pane,
    show,
    stacked,
    table,
    wrapped,
)
from hotbed.ui.sources import CampaignState, CellState, Index, Sample, Watched, campaign_state
from testbed.spec.quantities import format_s

METRICS = {
    "pressure": ("Pressure of the nodes", "%"),
    "disk_util": ("Time in which the disks are busy", "%"),
    "disk_queue": ("Requests in the disks' queues", "requests"),
    "disk_read_mb_s": ("Reads of the disks", "MB/s"),
    "disk_write_mb_s": ("Writes of the disks", "MB/s"),
    "net_rx_mb_s": ("Received by the nodes", "MB/s"),
    "net_tx_mb_s": ("Sent by the nodes", "MB/s"),
    "cpu_cores": ("Cores used by the nodes", "cores"),
}
_COLUMNS = (
    *("node", "", "roles", "pressure, %", "busy, %", "queue", "reads, MB/s", "writes, MB/s"),
    *("in, MB/s", "out, MB/s", "cores", "OSD", "affinity", "primaries", "read, ms"),
)
LATE_S = 5.0
"""Age of the last sample from which the page says that it is old."""
_BREAK = "<br>"
_HEALTH = {"HEALTH_OK": "done", "HEALTH_WARN": "spoiled", "HEALTH_ERR": "failed"}
_SIGNS = {"done": "✓", "running": "▶", "spoiled": "~", "failed": "✗", "interrupted": "‖"}
_SIGNS["pending"] = ""


def testbed_page(watched: Watched) -> Any:
    """Return the page of the testbed: its nodes, pressure, OSDs, health, faults and loads."""
    head, nodes, facts = pane(), pane(), pane()
    options = {title: name for name, (title, _) in METRICS.items()}
    metric = pn.widgets.Select(name="Shown for every node", options=options, width=280)
    clients = Curves(
        "Throughput of the clients",
        "MB/s",
        lambda sample: (
            {"read": sample["client"].get("read_mb_s")}
            | {"write": sample["client"].get("write_mb_s")}
        ),
    )
    by_node = stacked(styles=HALF)
    curves = [clients]

    def choose(*_: object) -> None:
        name = str(metric.value)
        made = Curves(
            *METRICS[name],
            lambda sample: {node: each.get(name) for node, each in sample["nodes"].items()},
        )
        curves[1:] = [made]
        by_node[:] = [made.pane]
        draw()

    def draw() -> None:
        samples, overview = list(watched.samples), watched.overview
        show(head, _head(samples[-1] if samples else None, overview, watched.problem))
        body.visible = bool(samples)
        if samples:
            show(nodes, _nodes(samples[-1], overview))
            show(facts, _facts(overview))
            faults = [float(fault["since_s"]) for fault in overview.get("faults") or ()]
            for each in curves:
                each.show(samples, [*_acted(samples), *faults])

    key = "Dotted lines: a controller acted, or a fault began. A click on a name hides its line."
    legend = pane()
    show(legend, html('<p class="dim">{key}</p>', key=key))
    right = stacked(clients.pane, legend, styles=HALF)
    body = stacked(nodes, metric, wrapped(by_node, right), facts)
    metric.param.watch(choose, "value")
    choose()
    follow(draw, lambda: (watched.version, int(time.time() / LATE_S)))
    return stacked(head, body)


def _head(sample: Sample | None, overview: Mapping[str, Any], problem: str) -> Markup:
    if sample is None:
        words = "As soon as a testbed is up, this page shows it. The other pages work without one."
        return html("<h1>No testbed to show</h1>{n}<p>{w}</p>", n=note(problem), w=words)
    state = str((overview.get("health") or {}).get("status", "health not known"))
    client, age = sample["client"], time.time() - sample["wall"]
    parts = [
        html("Testbed {name}", name=sample["testbed"]),
        badge(state, _HEALTH.get(state, "interrupted")),
        time.strftime("%H:%M:%S", time.localtime(sample["wall"])),
        f"clients read {number(client.get('read_mb_s'))} MB/s, "
        f"write {number(client.get('write_mb_s'))} MB/s",
    ]
    for name, step in (sample.get("controllers") or {}).items():
        parts.append(f"controller {name} at step {step.get('step')}")
    late = f"The last sample is {format_s(age)} old. {problem}" if problem or age > LATE_S else ""
    notes = [late] * bool(late) + [fault["sentence"] for fault in overview.get("faults") or ()]
    return html("<h1>{p}</h1>{n}", p=joined(parts, " &middot; "), n=joined(map(note, notes)))


def _nodes(sample: Sample, overview: Mapping[str, Any]) -> Markup:
    faulty = {fault["node"] for fault in overview.get("faults") or ()}
    rows: list[tuple[object, ...]] = []
    for name, node in sample["nodes"].items():
        why = sample["lost"].get(name)
        marks = ["disturbed"] * bool(node.get("hot")) + ["fault"] * (name in faulty)
        osds = {f"osd.{osd}": sample["osds"].get(f"osd.{osd}", {}) for osd in node["osds"]}
        names = (f"{osd} lost" if osd in sample["lost"] else osd for osd in osds)
        values: list[list[str]] = [
            [number(osd.get("primary_affinity"), 2) for osd in osds.values()],
            [number(osd.get("primaries"), 0) for osd in osds.values()],
            [number(1e3 * osd.get("op_r_latency_s", float("nan")), 0) for osd in osds.values()],
        ]
        rows.append(
            (
                name,
                html('<b class="bad">{marks}</b>', marks=", ".join(marks)),
                ", ".join(node["roles"]),
                html('<b class="bad">lost: {why}</b>', why=why) if why else _bar(node),
                *(number(node.get(metric)) for metric in list(METRICS)[1:]),
                *(joined(each, _BREAK) for each in (names, *values)),
            )
        )
    return table(_COLUMNS, rows, numbers=(*range(4, 11), 12, 13, 14))


def _bar(node: Mapping[str, Any]) -> Markup | str:
    value = node.get("pressure")
    if value is None:
        return number(value)
    kind = "failed" if value > HOT else "done" if value < CALM else "spoiled"
    bar = '<span class="line">{value} <i class="bar {kind}" style="width: {width}px"></i></span>'
    return html(bar, value=number(value), kind=kind, width=round(value))


def _facts(overview: Mapping[str, Any]) -> Markup:
    """Return the rest of the overview: the store, what steers, and what disturbs."""
    health = overview.get("health") or {}
    named = {
        "health": [f"{one['code']}: {one['summary']}" for one in health.get("checks") or ()],
        "OSDs down": [
            f"osd.{each['osd']} of {each['node']}" for each in overview.get("osds_down") or ()
        ],
        "monitors down": overview.get("mons_down"),
        "disks full": [
            f"{each['path']} of {each['node']}: {each['used_share']:.0%} used"
            for each in overview.get("disks_full") or ()
        ],
        "controllers": [
            f"{each['name']} {'runs' if each['running'] else 'does not run'}; in force: "
            f"{', '.join(each.get('steered') or ()) or 'nothing'}"
            for each in overview.get("controllers") or ()
        ],
        "loads": [f"{each['name']} on {each['node']}" for each in overview.get("loads") or ()],
        "snapshots": overview.get("snapshots"),
        "lease": [overview["lease"]] if overview.get("lease") else [],
        "did not answer": overview.get("unanswered"),
    }
    rows = [(name, joined(map(_words, each), _BREAK)) for name, each in named.items() if each]
    return (
        html("<h2>Store, control and load</h2>{t}", t=table(("", ""), rows)) if rows else Markup()
    )


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return str(value.get("sentence") or ", ".join(f"{n} {v}" for n, v in value.items()))
    return str(value)


def _acted(samples: Sequence[Sample]) -> Iterator[float]:
    """Yield the times of the controllers' steps with actions."""
    seen: dict[str, Any] = {}
    for sample in samples:
        for name, step in (sample.get("controllers") or {}).items():
            if seen.get(name) != step.get("step") and step.get("actions"):
                yield sample["wall"]
            seen[name] = step.get("step")


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
