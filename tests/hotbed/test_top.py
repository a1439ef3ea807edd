"""Appearance of `hotbed top`."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hotbed.top_view import pressure_bar, top_view

NODE = {
    "disk_read_mb_s": 42.04,
    "disk_write_mb_s": 0.0,
    "disk_util": 99.6,
    "disk_queue": 31.2,
    "net_rx_mb_s": 1.0,
    "net_tx_mb_s": 40.5,
    "cpu_cores": 0.31,
    "signal": "io_pressure",
}
SAMPLE = {
    "wall": 1e9,
    "testbed": "dlr",
    "nodes": {
        "admin": {"roles": ["admin"], "osds": [], "signal": "iowait", "pressure": 1.0},
        "osd0": NODE | {"roles": ["osd"], "osds": [0, 1], "pressure": 97.3, "hot": 1.0},
        "osd1": {"roles": ["osd"], "osds": [2], "signal": "io_pressure"},
    },
    "osds": {
        "osd.0": {"primary_affinity": 0.1, "primaries": 9.0, "op_r_latency_s": 0.41},
        "osd.1": {"primary_affinity": 1.0, "primaries": 30.0},
    },
    "client": {"read_mb_s": 120.5, "read_iops": 28.7, "write_mb_s": 0.0, "write_iops": 0.0},
    "lost": {"osd1": "its probe ended: [node] is down"},
    "steered": {"dlr": ["osd.0=0.10"]},
}


def shown(sample) -> str:
    out = io.StringIO()
    Console(file=out, width=160, color_system=None).print(top_view(sample))
    return out.getvalue()


def test_every_number_is_there():
    text = shown(SAMPLE)
    for part in ("dlr", "read 120.5 MB/s (29/s)", "osd0 *", "97.3 ██████████", "31.2", "0.10"):
        assert part in text
    osd0 = next(line for line in text.splitlines() if line.split()[:1] == ["osd0"])
    assert osd0.split()[-4:] == ["0", "0.10", "9", "410"]


def test_a_lost_node_says_why_and_brackets_are_shown():
    text = shown(SAMPLE)
    assert "osd1" in text
    assert "its probe ended: [node] is down" in text
    assert "osd.0=0.10" in text


@pytest.mark.parametrize(("value", "colour"), [(50.1, "red"), (30, "yellow"), (19.9, "green")])
def test_bar_takes_the_controllers_thresholds(value, colour):
    bar = pressure_bar(value)
    assert any(str(span.style) == colour for span in bar.spans)
    assert len(bar.plain) == 16


def test_unknown_pressure_is_a_dash():
    assert pressure_bar(None).plain == "-"
