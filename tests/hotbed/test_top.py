"""Screen of `hotbed top`, driven by keys and clicks at two sizes of a terminal."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.console import Console
from textual.widgets import DataTable, Static

from hotbed import top_app
from hotbed.top_app import NodeDetail, TopApp, TopHelp
from hotbed.top_view import COLUMNS, fitting, rows_of, top_view
from schemas.errors import RemoteError

ALL = [column.title for column in COLUMNS]
EVIL = "o[red]\x1b[2J"


def node(osds: list[int], pressure: float, **more: Any) -> dict[str, Any]:
    rates = dict.fromkeys(("disk_read_mb_s", "disk_write_mb_s", "disk_util", "disk_queue"), 1.0)
    return rates | {"roles": ["osd"], "osds": osds, "pressure": pressure, **more}


SAMPLE: dict[str, Any] = {
    "wall": 1e9,
    "testbed": "dlr",
    "nodes": {
        "admin": node([], 1.0),
        "osd0": node([0, 1], 97.0, hot=1.0),
        EVIL: node([2], 5.0, disk_read_mb_s=70.0),
        "osd10": node([3], 50.0),
        **{f"client{number}": node([], 0.0) for number in range(24)},
    },
    "osds": {"osd.0": {"primary_affinity": 0.1, "primaries": 9.0, "op_r_latency_s": 0.41}},
    "client": {"read_mb_s": 120.5, "read_iops": 28.7},
    "lost": {"osd10": "its probe ended: [node] is down"},
    "steered": {},
    "controllers": {
        "dlr": {
            **{"step": 7, "at": 1e9 - 2, "actions": [], "error": None},
            "acted": {"step": 6, "at": 1e9 - 4, "actions": ["osd.0=0.10"]},
        }
    },
    "faults": [{"node": "osd0", "kind": "disk", "sentence": "the disk of osd0 is slow"}],
}
DETAIL = {
    "wall": 1e9,
    "processes": [
        {"pid": 7, "command": "fio [b]x", "cpu_cores": 0.1, "read_mb_s": 90.0, "write_mb_s": 0.0},
        {"pid": 3, "command": "ceph-osd", "cpu_cores": 0.9, "read_mb_s": 1.0, "write_mb_s": 2.0},
    ],
    "disks": [dict.fromkeys(("read_mb_s", "write_mb_s", "util", "queue"), 3.0) | {"disk": "sdb"}],
    "net": {"interface": "eth0", "rx_mb_s": 4.0, "tx_mb_s": 5.0},
}


class World:
    """Streams of the screen; `problem` breaks the stream of samples while it is set."""

    def __init__(self) -> None:
        self.problem = ""
        self.opened = 0
        self.asked: list[str] = []
        self.open_details = 0
        self.steps = 0

    def samples(self) -> Iterator[dict[str, Any]]:
        self.opened += 1
        while True:
            if self.problem:
                raise RemoteError(self.problem)
            self.steps += 1
            yield SAMPLE
            time.sleep(0.2)

    def detail(self, name: str) -> Callable[[], Iterator[dict[str, Any]]]:
        def stream() -> Iterator[dict[str, Any]]:
            self.asked.append(name)
            self.open_details += 1
            try:
                while True:
                    yield DETAIL
                    time.sleep(0.2)
            finally:
                self.open_details -= 1

        return stream


def shown(app: TopApp) -> tuple[list[str], list[str]]:
    """Return the titles and the nodes' names on the screen."""
    table = app.screen.query_one(DataTable)
    titles = [column.label.plain for column in table.columns.values()]
    return titles, [table.get_row_at(number)[0].plain for number in range(table.row_count)]


def words(app: TopApp, part: str) -> str:
    return str(app.screen.query_one(part, Static).content)


async def until(pilot: Any, done: Callable[[], Any]) -> None:
    for _ in range(600):
        await pilot.pause(0.05)
        if done():
            return
    raise AssertionError("never")


def drive(world: World, size: tuple[int, int], script: Callable[[Any, Any], Any]) -> TopApp:
    app = TopApp(world.samples, world.detail)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: "dlr" in words(app, "#header"))
            await pilot.pause()
            await script(app, pilot)

    asyncio.run(run())
    app.reader.join(5)
    return app


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(top_app, "AGAIN_S", 0.05)
    return World()


def test_columns_sort_order_detail_and_the_end_on_a_wide_terminal(world):
    async def script(app, pilot):
        titles, names = shown(app)
        assert titles == ALL
        assert names[:2] == ["admin", "osd0 * !"]
        assert "\x1b" not in names[2]
        assert "the disk of osd0 is slow" in words(app, "#notes")
        assert "step 7, 2 s ago: no change; last change 4 s ago: osd.0=0.10" in words(app, "#notes")
        table = app.screen.query_one(DataTable)
        assert ">0.10" in table.get_row_at(1)[ALL.index("affin")].plain
        await pilot.press(">", ">")
        assert shown(app)[1][0] == "osd0 * !"  # by pressure
        await pilot.press(">")
        assert shown(app)[1][0].startswith("o[red]")  # by what its disk reads
        assert "read▼" in shown(app)[0]
        await pilot.press("r")
        assert shown(app)[1][-1].startswith("o[red]")
        await pilot.press("o")
        await pilot.click(DataTable, offset=(3, 0))  # the title "node": names as people count
        assert shown(app)[1][0] == "admin"
        assert shown(app)[1][1:4] == ["client0", "client1", "client2"]
        await pilot.press("o", "down", "enter")
        await until(pilot, lambda: "sdb" in words(app, "#facts"))
        assert isinstance(app.screen, NodeDetail)
        assert world.asked == ["osd0"]
        processes = app.screen.query_one(DataTable)
        assert processes.get_row_at(0)[-1].plain == "ceph-osd"
        await pilot.press("i")
        assert processes.get_row_at(0)[-1].plain == "fio [b]x"
        for part in ("network eth0: rx 4.0", "primary_affinity 0.1", "osd.1: does not answer"):
            assert part in words(app, "#facts")
        await pilot.press("escape")
        await until(pilot, lambda: world.open_details == 0)
        await pilot.press("?")
        assert isinstance(app.screen, TopHelp)
        await pilot.press("escape", "q")
        await pilot.pause()
        assert not app.is_running

    drive(world, (140, 40), script)


def test_a_narrow_terminal_drops_whole_columns_and_scrolls(world):
    async def script(app, pilot):
        titles, _ = shown(app)
        table = app.screen.query_one(DataTable)
        assert {"node", "pressure", "OSD", "affin", "prim", "util", "read", "write"} <= {*titles}
        assert "cores" not in titles
        assert table.virtual_size.width <= table.size.width
        await pilot.press("end")
        await until(pilot, lambda: table.scroll_y > 0)
        place, steps = table.scroll_y, world.steps
        await until(pilot, lambda: world.steps > steps + 4)
        assert (table.scroll_y, table.cursor_row) == (place, len(SAMPLE["nodes"]) - 1)
        await pilot.resize_terminal(140, 40)
        await until(pilot, lambda: shown(app)[0] == ALL)
        await pilot.press("q")

    drive(world, (80, 24), script)


def test_a_lost_connection_is_reported_and_asked_again(world):
    async def script(app, pilot):
        world.problem = "node [admin] is down."
        await until(pilot, lambda: "node [admin] is down." in words(app, "#notes"))
        assert shown(app)[1][0] == "admin"  # the last sample stays
        world.problem = ""
        await until(pilot, lambda: "is down.;" not in words(app, "#notes"))
        assert world.opened > 1
        await pilot.press("q")

    drive(world, (80, 24), script)


def test_one_table_logic_serves_pipes_too():
    rows = rows_of(SAMPLE)
    assert [column.title for column, _ in fitting(rows, 10_000, 3)] == ALL
    assert [column.title for column, _ in fitting(rows, 10, 3)] == ["node", "pressure"]
    for width in (80, 100, 140):
        out = io.StringIO()
        Console(file=out, width=width, color_system=None).print(top_view(SAMPLE, width))
        lines = out.getvalue().splitlines()
        titles = next(text for text in lines if "pressure" in text).split()
        assert titles == [title for title in ALL if title in titles]
        assert "…" not in out.getvalue()
        assert ("cores" in titles) == (width == 140)
