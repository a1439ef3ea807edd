"""View of `hotbed top`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hotbed.output import new_table

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

HOT, CALM = 50.0, 20.0  # DLR's thresholds: a controller would call these hot and calm
_BAR = 10
_CAPTION = (
    "pressure and util %; read, write, rx, tx MB/s; queue: requests in the disk\n"
    "affin: primary affinity; prim: PGs it leads; ms: its mean read latency"
)


def top_view(sample: Mapping[str, Any]) -> Group:
    """Return a sample of the agent's verb `top`: a header line, a table of nodes, lost nodes."""
    from rich.console import Group
    from rich.text import Text

    table = new_table(caption=_CAPTION)
    table.add_column("node", no_wrap=True)
    table.add_column("pressure", no_wrap=True, min_width=_BAR + 6)
    for title in ("read", "write", "util", "queue", "rx", "tx", "cores"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("OSD", no_wrap=True)
    for title in ("affin", "prim", "ms"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, node in sample["nodes"].items():
        osds = [(osd, sample["osds"].get(f"osd.{osd}", {})) for osd in node["osds"]]
        gone = name in sample["lost"]
        table.add_row(
            Text(name + (" *" if node.get("hot") else ""), style="red" if gone else ""),
            Text("lost", style="red") if gone else pressure_bar(node.get("pressure")),
            *(
                _number(node.get(metric), digits)
                for metric, digits in (
                    ("disk_read_mb_s", 1),
                    ("disk_write_mb_s", 1),
                    ("disk_util", 0),
                    ("disk_queue", 1),
                    ("net_rx_mb_s", 1),
                    ("net_tx_mb_s", 1),
                    ("cpu_cores", 2),
                )
            ),
            "\n".join(str(osd) for osd, _ in osds),
            "\n".join(_number(values.get("primary_affinity"), 2) for _, values in osds),
            "\n".join(_number(values.get("primaries"), 0) for _, values in osds),
            "\n".join(_number(_ms(values.get("op_r_latency_s")), 0) for _, values in osds),
        )
    lost: list[Any] = [
        Text.assemble((name, "red"), f" {why}") for name, why in sample["lost"].items()
    ]
    lost += [
        Text.assemble("still steered by ", (name, "red"), f": {', '.join(words)}")
        for name, words in sample["steered"].items()
    ]
    swift = sample.get("swift")
    if swift is not None:
        from hotbed.views import microstores_view

        lost.append(swift["error"] if "error" in swift else microstores_view(swift))
    return Group(_header(sample), table, *lost)


def _header(sample: Mapping[str, Any]) -> Text:
    from rich.text import Text

    client = sample["client"]
    clock = time.strftime("%H:%M:%S", time.localtime(sample["wall"]))
    line = Text(f"{sample['testbed']}  {clock}", style="bold")
    line.append("   clients ", style="dim")
    for word, metric, unit in (("read", "read_mb_s", "MB/s"), ("write", "write_mb_s", "MB/s")):
        line.append(f" {word} {_number(client.get(metric), 1)} {unit}", style="not bold")
        iops = client.get(f"{word}_iops")
        line.append(f" ({_number(iops, 0)}/s)", style="not bold")
    if any(node.get("hot") for node in sample["nodes"].values()):
        line.append("   * disturbed", style="not bold yellow")
    return line


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


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
