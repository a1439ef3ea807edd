"""Draw the picture in docs/architecture.md from the code's own imports, as SVG.

Run it as: python -m tools.architecture

Arrows are imports between rooms, thick where they are many.
"""

import textwrap
from collections import Counter
from pathlib import Path

import grimp

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "rooms.svg"
WIDTH = 700
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">
<style>text {{font: 14px sans-serif}} .s {{font-size: 12px; fill: #555}} .b {{font-weight: bold}}
rect {{fill: #eceff1; stroke: #607d8b}} path {{fill: none; stroke: #607d8b}}
path.tip {{fill: #607d8b}}</style>"""

ROOMS = {
    "hotbed": "command line and web view, one verb a file",
    "analysis": "figures, claims and reports of runs, and bundles",
    "campaigns": "plan, engine, and how each paper's cells are made",
    "workloads": "load, disturbance and traces",
    "controllers": "policies, one package each, and the control loop",
    "testbed": "sites, stores, agent and deployment",
    "schemas": "typed models of everything on disk, and the errors",
}
"""Rooms from top to bottom, and what is in them."""
MANY = 100
"""Imports from which an arrow is thick."""


def packages_of(graph: grimp.ImportGraph, room: str) -> str:
    """Return a room's packages, each with the packages in it."""

    def inner(package: str) -> list[str]:
        children = sorted(graph.find_children(package))
        return [child for child in children if graph.find_children(child)]

    def label(package: str) -> str:
        name, within = package.rpartition(".")[2], inner(package)
        return f"{name}: {', '.join(one.rpartition('.')[2] for one in within)}" if within else name

    return "; ".join(map(label, inner(room)))


def drawing() -> str:
    """Return the picture: rooms from top to bottom, imports as arcs on their right."""
    graph = grimp.build_graph(*ROOMS, cache_dir=None)
    between: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            between[module.partition(".")[0], imported.partition(".")[0]] += 1
    boxes, ends, y = [], {}, 10
    for room, about in ROOMS.items():
        lines = textwrap.wrap(packages_of(graph, room), 105)
        height = 34 + 16 * len(lines)
        ends[room] = y + height // 2
        boxes.append(f'<rect x="10" y="{y}" width="{WIDTH}" height="{height}" rx="6"/>')
        boxes.append(f'<text x="22" y="{y + 22}"><tspan class="b">{room}/</tspan> {about}</text>')
        for number, line in enumerate(lines, 1):
            boxes.append(f'<text class="s" x="22" y="{y + 22 + 16 * number}">{line}</text>')
        y += height + 14
    order, x = list(ROOMS), WIDTH + 10
    arcs = []
    for (room, other), imports in sorted(between.items()):
        if room != other:
            start, end = ends[room] + 5, ends[other] - 5
            away = x + 34 * (order.index(other) - order.index(room))
            wide = 3 if imports >= MANY else 1
            path = f"M{x},{start} C{away},{start} {away},{end} {x + 9},{end}"
            arcs.append(f'<path d="{path}" stroke-width="{wide}"/>')
            arcs.append(f'<path class="tip" d="M{x},{end} l10,-4 v8 z"/>')
    return "\n".join([HEAD.format(width=x + 190, height=y), *boxes, *arcs, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(drawing())
