"""Table of `hotbed top`: its samples, columns and lines, for the terminal, pipes and notebooks."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

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

    def places(self, *, per_osd: bool) -> list[Mapping[str, Any]]:
        """Return the metrics and the name of the node, or those of each OSD."""
        if not per_osd:
            return [{**self.metrics, "name": self.name + self.marks}]
        return [
            {**values, "name": osd.removeprefix("osd."), "changed": osd in self.changed}
            for osd, values in self.osds.items()
        ]


@dataclass(frozen=True)
class Column:
    """Column of the table. In a narrow terminal the columns with the highest `rank` are left out.

    `metric` is a name in `NodeRow.places`, and is shown times `factor`. `digits` is None for a
    column without plain numbers. `about` is a longer title.
    """

    title: str
    rank: int
    width: int
    metric: str
    digits: int | None
    about: str
    unit: str = ""
    per_osd: bool = False
    factor: float = 1.0

    def cell(self, row: NodeRow) -> Text:
        """Return the cell of a row, with a line for each OSD if the column is `per_osd`."""
        from rich.text import Text

        if self.metric == "pressure" and row.lost:
            return Text("lost", style="red")
        shown = Text("\n").join(self._shown(each) for each in row.places(per_osd=self.per_osd))
        shown.justify = self.justify
        return shown

    @property
    def justify(self) -> Literal["left", "right"]:
        """Alignment of the cells."""
        return "left" if self.digits is None else "right"

    def _shown(self, place: Mapping[str, Any]) -> Text:
        from rich.text import Text

        value = place.get(self.metric)
        if self.metric == "pressure":
            return pressure_bar(value)
        if self.metric == "name":
            return Text(line(str(value)))
        text = Text("-" if value is None else f"{value * self.factor:.{self.digits}f}")
        changed = self.metric == "primary_affinity" and place["changed"]
        return Text.assemble((">", "bold yellow"), text) if changed else text

    def order(self, row: NodeRow) -> tuple[Any, ...]:
        """Return the sort key of a row: names as people count, numbers with the largest first."""
        values = [each.get(self.metric) for each in row.places(per_osd=self.per_osd)]
        if self.metric != "name":
            known = (value for value in values if value is not None)
            return (-max(known, default=-math.inf),)
        words = re.split(r"(\d+)", str(values[0]) if values else "\uffff")
        return tuple(int(word) if word.isdecimal() else word for word in words)


def colour_of(pressure: float) -> str:
    """Return red above DLR's upper threshold, green below its lower one, and yellow in between."""
    return "red" if pressure > HOT else "green" if pressure < CALM else "yellow"


def pressure_bar(value: float | None) -> Text:
    """Return a percentage as a bar in its colour."""
    from rich.text import Text

    if value is None:
        return Text("-", style="dim")
    full = round(value / 100 * _BAR)
    text = Text(f"{value:5.1f} ")
    text.append("█" * full, style=colour_of(value))
    text.append("·" * (_BAR - full), style="dim")
    return text


COLUMNS = (
    Column("node", 0, 4, "name", None, "node"),
    Column("pressure", 0, _BAR + 6, "pressure", None, "pressure", "%"),
    Column("read", 3, 5, "disk_read_mb_s", 1, "reads of the disks", "MB/s"),
    Column("write", 3, 5, "disk_write_mb_s", 1, "writes of the disks", "MB/s"),
    Column("util", 2, 4, "disk_util", 0, "busy time of the disks", "%"),
    Column("queue", 5, 5, "disk_queue", 1, "queue of the disks", "requests"),
    Column("rx", 6, 5, "net_rx_mb_s", 1, "received", "MB/s"),
    Column("tx", 6, 5, "net_tx_mb_s", 1, "sent", "MB/s"),
    Column("cores", 7, 5, "cpu_cores", 2, "used CPUs", "cores"),
    Column("OSD", 1, 3, "name", None, "OSD", per_osd=True),
    Column("affin", 1, 5, "primary_affinity", 2, "primary affinity", per_osd=True),
    Column("prim", 2, 4, "primaries", 0, "primaries", per_osd=True),
    Column("ms", 4, 4, "op_r_latency_s", 0, "mean read latency", "ms", per_osd=True, factor=1e3),
)


def rows_of(sample: Sample) -> list[NodeRow]:
    """Return the rows of a sample, in the testbed's order."""
    faulty = {fault["node"] for fault in sample["faults"]}
    changed: set[str] = set()
    for step in sample["controllers"].values():
        acted = step.get("acted")
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
        rate, iops = client.get(f"{word}_mb_s"), client.get(f"{word}_iops")
        shown = "-" if rate is None else f"{rate:.1f}"
        of = "-" if iops is None else f"{iops:.0f}"
        text.append(f" {word} {shown} MB/s ({of}/s)", style="not bold")
    return text


def alarms(sample: Sample) -> list[Text]:
    """Return the lines about lost nodes, faults in force, and changes of a lost store."""
    found = [_said("", name, f" {why}") for name, why in sample["lost"].items()]
    found += [_said("! ", "", fault["sentence"]) for fault in sample["faults"]]
    return found + [
        _said("still steered by ", name, f": {', '.join(words)}")
        for name, words in sample["steered"].items()
    ]


def controllers(sample: Sample) -> list[Text]:
    """Return the lines about the running controllers."""
    return [
        _said("controller ", name, f" {_step(step, sample['wall'])}", "bold")
        for name, step in sample["controllers"].items()
    ]


def notes(sample: Sample) -> list[Text]:
    """Return all lines below the table."""
    return [*alarms(sample), *controllers(sample)]


def _said(mark: str, name: str, words: str, style: str = "red") -> Text:
    from rich.text import Text

    return Text.assemble(mark, (line(name), style), line(words))


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
        table.add_column(column.title, justify=column.justify, no_wrap=True, min_width=size)
    for row in rows:
        style = "red" if row.lost else None
        table.add_row(*(column.cell(row) for column, _ in columns), style=style)
    found: list[Any] = [header(sample), table, *notes(sample)]
    swift = sample.get("swift")
    if swift is not None:
        from hotbed.views import microstores_view

        found.append(swift["error"] if "error" in swift else microstores_view(swift))
    return Group(*found)
