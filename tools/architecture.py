"""Draw the picture in docs/architecture.md from the code's own imports, as Mermaid.

Run it as: python -m tools.architecture

Arrows are imports between rooms, thick where they are many.
"""

import re
from collections import Counter
from pathlib import Path

import grimp

PAGE = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"

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
    """Return the picture as a block of Markdown."""
    graph = grimp.build_graph(*ROOMS, cache_dir=None)
    between: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            between[module.partition(".")[0], imported.partition(".")[0]] += 1
    lines = ["```mermaid", "flowchart TD"]
    for room, about in ROOMS.items():
        packages = packages_of(graph, room)
        lines.append(f'{room}["<b>{room}/</b> {about}{"<br>" if packages else ""}{packages}"]')
    for (room, other), imports in sorted(between.items()):
        if room != other:
            lines.append(f"{room}{'-->' if imports < MANY else '==>'}{other}")
    return "\n".join([*lines, "```\n"])


if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(re.sub(r"^```mermaid\n.*?^```\n", drawing(), page, flags=re.M | re.S))
