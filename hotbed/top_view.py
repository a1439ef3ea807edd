"""Table of `hotbed top`: its samples, columns and lines, for the terminal, pipes and notebooks."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hotbed.output import new_table
from schemas.shown import line

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from testbed.sites.contract import Testbed

HOT, CALM = 50.0, 20.0  # DLR's thresholds: a controller would call these hot and calm
CAPTION = (
    "pressure and util %; read, write, rx, tx MB/s; queue: requests in the disk\n"
    "affin: primary affinity; prim: PGs it leads; ms: its mean read latency\n"
    "* disturbed   ! fault in force   > changed by a controller in the last 10 s"
)
_BAR = 10
_CHANGED_S = 10.0
_GAP = 3  # between two columns of rich's table
Sample = Mapping[str, Any]
Value = float | str | None


def samples(
    testbed: Testbed, *, interval_s: float = 1.0, count: int | None = None
) -> Generator[dict[str, Any], None, None]:
    """Stream samples of a deployed testbed, `count` or without end, with its faults in force
    (`faults`). HotbedError: the testbed cannot be sampled."""
    from testbed.client import agent_client
    from testbed.faults import in_force

    payload = {"interval_s": interval_s} | ({} if count is None else {"count": count})
    with closing(agent_client(testbed).stream("top", payload)) as found:
        for sample in found:
            yield sample | {"faults": [fault.as_json() for fault in in_force(testbed.directory)]}


@dataclass(frozen=True)
class NodeRow:
    """Row of the table: a node, and its OSDs' metrics by name (``osd.3``). `changed` are the OSDs
    that a controller has changed just now."""

    name: str
    marks: str
    lost: bool
    metrics: Mapping[str, Any]
    osds: Mapping[str, Mapping[str, float]]
    changed: frozenset[str]

    @property
    def height(self) -> int:
        """Number of lines."""
        return max(1, len(self.osds))


@dataclass(frozen=True)
class Column:
    """Column of the table. In a narrow terminal the columns with the highest `rank` are left out.

    `values` has one value for the node, or one for each OSD; `show` is the text of one value.
    """

    title: str
    rank: int
    width: int
    values: Callable[[NodeRow], Sequence[Value]]
    show: Callable[[Any], Text]
    right: bool = True

    def cell(self, row: NodeRow) -> Text:
        """Return the cell of a row."""
        from rich.text import Text

        shown = Text("\n").join(self.show(value) for value in self.values(row))
        shown.justify = "right" if self.right else "left"
        return shown

    def order(self, row: NodeRow) -> tuple[Any, ...]:
        """Return the sort key of a row: names as people count, numbers with the largest first."""
        values = self.values(row)
        if self.right or self.title == "pressure":
            numbers = (abs(value) for value in values if isinstance(value, (int, float)))
            return (-max(numbers, default=-math.inf),)
        words = re.split(r"(\d+)", str(values[0]) if values else "\uffff")
        return tuple(int(word) if word.isdecimal() else word for word in words)


def pressure_bar(value: float | None) -> Text:
    """Return a percentage as a bar, red above DLR's upper threshold, green below its lower one."""
    from rich.text import Text

    if value is None:
        return Text("-", style="dim")
    colour = "red" if value > HOT else "green" if value < CALM else "yellow"
    full = round(value / 100 * _BAR)
    text = Text(f"{value:5.1f} ")
    text.append("█" * full, style=colour)
    text.append("·" * (_BAR - full), style="dim")
    return text


def _pressure(value: Value) -> Text:
    from rich.text import Text

    return Text("lost", style="red") if isinstance(value, str) else pressure_bar(value)


def _words(value: Value) -> Text:
    from rich.text import Text

    return Text(line(str(value)))


def _number(digits: int) -> Callable[[Value], Text]:
    return lambda value: _words("-" if value is None else f"{value:.{digits}f}")


def _affinity(value: Value) -> Text:
    from rich.text import Text

    shown = _number(2)(None if value is None else abs(float(value)))
    changed = value is not None and math.copysign(1.0, float(value)) < 0
    return Text.assemble((">", "bold yellow"), shown) if changed else shown


def _affinities(row: NodeRow) -> list[Value]:
    # The sign marks a changed affinity: affinities are 0 to 1.
    values = ((name, osd.get("primary_affinity")) for name, osd in row.osds.items())
    return [value if value is None or name not in row.changed else -value for name, value in values]


def _of_node(title: str, rank: int, width: int, metric: str, digits: int) -> Column:
    return Column(title, rank, width, lambda row: [row.metrics.get(metric)], _number(digits))


def _of_osds(title: str, rank: int, width: int, metric: str, factor: float = 1.0) -> Column:
    def values(row: NodeRow) -> list[Value]:
        found = (osd.get(metric) for osd in row.osds.values())
        return [None if value is None else value * factor for value in found]

    return Column(title, rank, width, values, _number(0))


COLUMNS = (
    Column("node", 0, 4, lambda row: [row.name + row.marks], _words, right=False),
    Column(
        *("pressure", 0, _BAR + 6),
        lambda row: ["lost" if row.lost else row.metrics.get("pressure")],
        _pressure,
        right=False,
    ),
    _of_node("read", 3, 5, "disk_read_mb_s", 1),
    _of_node("write", 3, 5, "disk_write_mb_s", 1),
    _of_node("util", 2, 4, "disk_util", 0),
    _of_node("queue", 5, 5, "disk_queue", 1),
    _of_node("rx", 6, 5, "net_rx_mb_s", 1),
    _of_node("tx", 6, 5, "net_tx_mb_s", 1),
    _of_node("cores", 7, 5, "cpu_cores", 2),
    Column("OSD", 1, 3, lambda row: [name[4:] for name in row.osds], _words, right=False),
    Column("affin", 1, 5, _affinities, _affinity),
    _of_osds("prim", 2, 4, "primaries"),
    _of_osds("ms", 4, 4, "op_r_latency_s", 1e3),
)


def rows_of(sample: Sample) -> list[NodeRow]:
    """Return the rows of a sample, in the testbed's order."""
    faulty = {fault["node"] for fault in sample.get("faults", ())}
    changed: set[str] = set()
    for steps in sample.get("controllers", {}).values():
        acted = steps.get("acted")
        if acted and sample["wall"] - acted["at"] < _CHANGED_S:
            changed |= {word.partition("=")[0] for word in acted["actions"]}
    return [
        NodeRow(
            name=name,
            marks=" *" * bool(node.get("hot")) + " !" * (name in faulty),
            lost=name in sample["lost"],
            metrics=node,
            osds={f"osd.{osd}": sample["osds"].get(f"osd.{osd}", {}) for osd in node["osds"]},
            changed=frozenset(changed),
        )
        for name, node in sample["nodes"].items()
    ]


def fitting(
    rows: Sequence[NodeRow], width: int, gap: int, *, more: int = 0
) -> list[tuple[Column, int]]:
    """Return the columns that fit into `width` whole, with their widths. `gap`: space between two
    columns; `more`: space in addition to each title."""
    shown: dict[str, int] = {}
    for column in sorted(COLUMNS, key=lambda column: column.rank):
        cells = (column.cell(row).plain.split("\n") for row in rows)
        longest = max((len(word) for words in cells for word in words), default=0)
        size = max(column.width, len(column.title) + more, longest)
        width -= size + gap
        if width < 0 and column.rank:
            break
        shown[column.title] = size
    return [(column, shown[column.title]) for column in COLUMNS if column.title in shown]


def header(sample: Sample) -> Text:
    """Return the line about the testbed and its clients."""
    from rich.text import Text

    client = sample["client"]
    clock = time.strftime("%H:%M:%S", time.localtime(sample["wall"]))
    text = Text(f"{line(sample['testbed'])}  {clock}", style="bold")
    text.append("   clients ", style="dim")
    for word in ("read", "write"):
        rate, iops = _number(1)(client.get(f"{word}_mb_s")), _number(0)(client.get(f"{word}_iops"))
        text.append(f" {word} {rate} MB/s ({iops}/s)", style="not bold")
    return text


def notes(sample: Sample) -> list[Text]:
    """Return the lines about lost nodes, faults in force and controllers."""
    from rich.text import Text

    def said(mark: str, name: str, words: str, style: str = "red") -> Text:
        return Text.assemble(mark, (line(name), style), line(words))

    found = [said("", name, f" {why}") for name, why in sample["lost"].items()]
    found += [said("! ", "", fault["sentence"]) for fault in sample.get("faults", ())]
    found += [
        said("still steered by ", name, f": {', '.join(words)}")
        for name, words in sample["steered"].items()
    ]
    for name, step in sample.get("controllers", {}).items():
        found.append(said("controller ", name, f" {_step(step, sample['wall'])}", "bold"))
    return found


def _step(step: Mapping[str, Any], wall: float) -> str:
    """Return the last step of a controller, and the last one that did something."""
    if not step:
        return "has taken no step yet"
    words = f"step {step['step']}, {max(0.0, wall - step['at']):.0f} s ago: "
    words += step["error"] or ", ".join(step["actions"]) or "no change"
    acted = step.get("acted")
    if acted and acted["step"] != step["step"]:
        ago = max(0.0, wall - acted["at"])
        words += f"; last change {ago:.0f} s ago: {', '.join(acted['actions'])}"
    return words


def top_view(sample: Sample, width: int = 10_000) -> Group:
    """Return a sample as a header line, a table of nodes that fits into `width`, and notes."""
    from rich.console import Group

    rows = rows_of(sample)
    table = new_table((), caption=CAPTION)
    columns = fitting(rows, width, _GAP)
    for column, size in columns:
        justify: Any = "right" if column.right else "left"
        table.add_column(column.title, justify=justify, no_wrap=True, min_width=size)
    for row in rows:
        style = "red" if row.lost else None
        table.add_row(*(column.cell(row) for column, _ in columns), style=style)
    found: list[Any] = [header(sample), table, *notes(sample)]
    swift = sample.get("swift")
    if swift is not None:
        from hotbed.views import microstores_view

        found.append(swift["error"] if "error" in swift else microstores_view(swift))
    return Group(*found)
