"""Draw docs/architecture.svg from the code's own imports.

Run it as: python -m tools.architecture

Rooms are stacked so that imports point down. Arrows are imports between rooms, thicker for more of
them, in steps, so that a single import more does not change the picture.
"""

import sys
from collections import Counter
from dataclasses import dataclass
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "architecture.svg"

ROOMS = {
    "hotbed": ("command line and web view, one verb a file", "#5b6672"),
    "analysis": ("figures, claims and reports of runs, and bundles", "#009e73"),
    "campaigns": ("plan, engine, and how each paper's cells are made", "#0072b2"),
    "workloads": ("load, disturbance and traces", "#d55e00"),
    "controllers": ("policies, one package each, and the control loop", "#cc79a7"),
    "testbed": ("sites, stores, agent and deployment", "#a67c00"),
    "schemas": ("typed models of everything on disk, and the errors", "#1c2530"),
}
"""Rooms from top to bottom: what is in them, and the colour of their arrows."""

STEPS = ((10, 1.2), (40, 2.4), (160, 4.2), (sys.maxsize, 7.0))
"""Width of an arrow by the number of imports, which is below the first value."""

LEFT, WIDTH, GAP = 16.0, 640.0, 18.0
LINE, CHARACTER, PAD = 24.0, 6.6, 8.0
PORT = 11.0


@dataclass
class Room:
    """Room in the picture: its packages, and its place from top to bottom."""

    name: str
    packages: dict[str, list[str]]
    top: float
    rows: list[list[str]]
    ports: int = 0

    @property
    def height(self) -> float:
        return max(34 + LINE * len(self.rows) + PAD, 20 + PORT * self.ports)

    def port(self, number: int) -> float:
        """Return the height at which the room's arrow `number` begins or ends."""
        return self.top + self.height * (number + 1) / (self.ports + 1)


def packages_of(graph: grimp.ImportGraph, room: str) -> dict[str, list[str]]:
    """Return a room's packages, each with the packages in it."""

    def inner(package: str) -> list[str]:
        children = sorted(graph.find_children(package))
        return [child for child in children if graph.find_children(child)]

    def last(package: str) -> str:
        return package.rpartition(".")[2]

    return {last(package): [last(one) for one in inner(package)] for package in inner(room)}


def imports_between(graph: grimp.ImportGraph) -> Counter[tuple[str, str]]:
    """Return the number of imports from one room to another."""
    found: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        room = module.partition(".")[0]
        for imported in graph.find_modules_directly_imported_by(module):
            other = imported.partition(".")[0]
            if other != room:
                found[room, other] += 1
    return found


def label_of(package: str, inner: list[str]) -> str:
    """Return a package's text in its box."""
    return f"{package}: {', '.join(inner)}" if inner else package


def wrapped(labels: list[str]) -> list[list[str]]:
    """Return labels in rows that fit into a room."""
    rows: list[list[str]] = []
    left = 0.0
    for label in labels:
        width = CHARACTER * len(label) + 2 * PAD
        if not rows or width > left:
            rows.append([])
            left = WIDTH - 2 * PAD
        rows[-1].append(label)
        left -= width + PAD
    return rows


def box(room: Room) -> list[str]:
    """Draw a room with its packages."""
    about, colour = ROOMS[room.name]
    lines = [
        f'<rect x="{LEFT}" y="{room.top:.0f}" width="{WIDTH}" height="{room.height:.0f}" rx="7" '
        f'fill="#f5f7f9" stroke="{colour}" stroke-width="1.4"/>',
        f'<text x="{LEFT + 10}" y="{room.top + 20:.0f}"><tspan font-weight="bold">{room.name}/'
        f'</tspan><tspan dx="9" fill="#5b6672">{escape(about)}</tspan></text>',
    ]
    for number, row in enumerate(room.rows):
        x, y = LEFT + PAD, room.top + 30 + LINE * number
        for label in row:
            width = CHARACTER * len(label) + 2 * PAD
            lines += [
                f'<rect x="{x:.1f}" y="{y:.0f}" width="{width:.1f}" height="{LINE - 5:.0f}" rx="4" '
                'fill="#ffffff" stroke="#c3ccd5"/>',
                f'<text x="{x + PAD:.1f}" y="{y + 14:.0f}">{escape(label)}</text>',
            ]
            x += width + PAD
    return lines


def arrow(source: str, target: str, imports: int, start: float, end: float) -> str:
    """Draw the imports from one room to another as an arc at the right, between two heights."""
    width = next(width for below, width in STEPS if imports < below)
    out = 40 + 0.42 * abs(end - start)
    x = LEFT + WIDTH
    tip = 5 + width
    points = f"{x},{end:.1f} {x + tip},{end - tip / 1.6:.1f} {x + tip},{end + tip / 1.6:.1f}"
    colour = ROOMS[source][1]
    return (
        f'<path d="M{x} {start:.1f} C{x + out:.0f} {start:.1f} {x + out:.0f} {end:.1f} '
        f'{x + tip:.1f} {end:.1f}" fill="none" stroke="{colour}" stroke-width="{width}" '
        f'stroke-opacity="0.75"><title>{source} imports {target}</title></path>'
        f'<polygon points="{points}" fill="{colour}"/>'
    )


def drawing() -> str:
    """Return the picture as SVG."""
    graph = grimp.build_graph(*ROOMS, cache_dir=None)
    between = imports_between(graph)
    order = list(ROOMS)
    # At a room, arrows that come in are above those that go out, near ones nearest to the edge.
    ends: dict[str, list[tuple[str, str]]] = {
        name: sorted(
            (pair for pair in between if pair[1] == name), key=lambda pair: -order.index(pair[0])
        )
        + sorted(
            (pair for pair in between if pair[0] == name), key=lambda pair: -order.index(pair[1])
        )
        for name in order
    }
    rooms: dict[str, Room] = {}
    top = GAP
    for name in order:
        packages = packages_of(graph, name)
        rows = wrapped([label_of(*one) for one in packages.items()])
        rooms[name] = Room(name, packages, top, rows, len(ends[name]))
        top += rooms[name].height + GAP
    lines = [line for room in rooms.values() for line in box(room)]
    for (name, other), imports in sorted(between.items()):
        start, end = (rooms[room].port(ends[room].index((name, other))) for room in (name, other))
        lines.append(arrow(name, other, imports, start, end))
    lines += legend(top)
    width, height = LEFT + WIDTH + 280, top + 40
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            'font-family="DejaVu Sans, Helvetica, sans-serif" font-size="11" fill="#1c2530">',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
            *lines,
            "</svg>\n",
        ]
    )


def legend(top: float) -> list[str]:
    """Draw what an arrow's width means."""
    lines, x, above = [], LEFT, 1
    for below, width in STEPS:
        text = f"{above} to {below - 1} imports" if below < sys.maxsize else f"{above} or more"
        lines += [
            f'<path d="M{x} {top + 12:.0f} h34" stroke="#5b6672" stroke-width="{width}"/>',
            f'<text x="{x + 42}" y="{top + 16:.0f}" fill="#5b6672">{text}</text>',
        ]
        x, above = x + 165, below
    return lines


if __name__ == "__main__":
    PICTURE.write_text(drawing())
