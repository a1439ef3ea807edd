"""Live view of notebooks, on samples as the agent provides them."""

from __future__ import annotations

import io
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from rich.console import Console

from hotbed import live_view
from hotbed.live_view import LiveView
from hotbed.top_view import pressure_bar, top_view
from schemas.errors import RemoteError

NODE = {"disk_read_mb_s": 42.04, "disk_write_mb_s": 0.0, "disk_util": 99.6, "disk_queue": 31.2}
NODE |= {"net_rx_mb_s": 1.0, "net_tx_mb_s": 40.5, "cpu_cores": 0.31, "signal": "io_pressure"}
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
    "controllers": {},
    "faults": [],
}


class Stream:
    """Samples on demand; `go` releases one."""

    def __init__(self) -> None:
        self.asked: list[int | None] = []
        self.closed = 0
        self.go = threading.Semaphore(0)
        self.problem: RemoteError | None = None

    def free(self, count: int) -> None:
        for _ in range(count):
            self.go.release()

    def __call__(self, count: int | None) -> Generator[dict[str, Any], None, None]:
        self.asked.append(count)
        try:
            for number in range(1 if count is None else count):
                assert self.go.acquire(timeout=30)
                if self.problem is not None:
                    raise self.problem
                yield {**SAMPLE, "testbed": f"look{number}"}
        finally:
            self.closed += 1


@pytest.fixture
def stream() -> Iterator[Stream]:
    yield Stream()


def test_one_look_is_text_and_coloured_html(stream, capsys):
    stream.free(4)
    view = LiveView(stream).look()
    assert (stream.asked, stream.closed) == ([1], 1)
    assert "look0" in repr(view)
    assert "97.3 ██████████" in view.text
    assert view.html.startswith("<pre")
    assert "color: #800000" in view.html  # the hot node's bar
    assert "[node] is down" in view.html
    view._sample = {**SAMPLE, "testbed": "<script>"}
    assert "<script>" not in view.html
    LiveView(stream).watch(3)  # prints every look
    out = capsys.readouterr().out
    assert [f"look{number}" in out for number in range(4)] == [True, True, True, False]


def test_a_page_follows_until_it_is_stopped(stream, monkeypatch):
    pages: list[str] = []
    monkeypatch.setattr(live_view, "in_kernel", lambda: True)
    monkeypatch.setattr(live_view, "live", lambda html: pages.append(html) or pages.append)
    stream.free(1)
    view = LiveView(stream, most=5).look()
    view._ipython_display_()
    assert "look0" in pages[-1]
    view.follow()
    view.follow()  # once is enough
    assert view.following
    stream.free(5)
    view.stop()
    assert not view.following
    assert (stream.asked, stream.closed) == ([1, 5], 2)
    stream.go = threading.Semaphore(0)
    view.follow()
    thread = view._thread
    stream.free(5)
    assert thread is not None
    thread.join(30)
    assert stream.asked == [1, 5, 5]
    assert "look4" in pages[-1]


def test_a_testbed_that_goes_is_reported_in_the_view(stream):
    stream.free(1)
    view = LiveView(stream, most=5).look()
    stream.problem = RemoteError("node admin is down.")
    view.follow()
    thread = view._thread
    stream.free(1)
    if thread is not None:
        thread.join(30)
    assert not view.following
    assert "node admin is down." in view.text
    assert "look0" in view.text  # the last view stays


def test_top_shows_every_number_and_colours_by_the_controllers_thresholds():
    out = io.StringIO()
    Console(file=out, width=160, color_system=None).print(top_view(SAMPLE))
    text = out.getvalue()
    for part in ("dlr", "read 120.5 MB/s (29/s)", "osd0 *", "97.3 ██████████", "31.2", "0.10"):
        assert part in text
    for part in ("osd1", "its probe ended: [node] is down", "osd.0=0.10"):
        assert part in text
    osd0 = next(line for line in text.splitlines() if line.split()[:1] == ["osd0"])
    assert osd0.split()[-4:] == ["0", "0.10", "9", "410"]
    for value, colour in ((50.1, "red"), (30, "yellow"), (19.9, "green")):
        bar = pressure_bar(value)
        assert (len(bar.plain), colour in {str(span.style) for span in bar.spans}) == (16, True)
    assert pressure_bar(None).plain == "-"
