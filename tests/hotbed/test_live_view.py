"""Live view of notebooks, on samples as the agent provides them."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from test_top import SAMPLE

from hotbed import frontend, live_view, progress
from hotbed.live_view import LiveView
from schemas.errors import RemoteError


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


def test_one_look_is_text_and_coloured_html(stream: Stream) -> None:
    stream.free(1)
    view = LiveView(stream).look()
    assert (stream.asked, stream.closed) == ([1], 1)
    assert "look0" in repr(view)
    assert "97.3 ██████████" in view.text
    assert view.html.startswith("<pre")
    assert "color: #800000" in view.html  # the hot node's bar
    assert "[node] is down" in view.html
    bundle = view._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}  # no kernel: no widget


def test_names_cannot_break_out_of_the_page(stream: Stream) -> None:
    stream.free(1)
    view = LiveView(stream).look()
    view._sample = {**SAMPLE, "testbed": "<script>"}
    assert "<script>" not in view.html


def test_watching_prints_every_look(stream: Stream, capsys: pytest.CaptureFixture[str]) -> None:
    stream.free(3)
    LiveView(stream).watch(3)
    out = capsys.readouterr().out
    assert [f"look{number}" in out for number in range(4)] == [True, True, True, False]


def test_the_widget_follows_until_it_is_stopped(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_view, "has_widgets", lambda: True)
    stream.free(1)
    view = LiveView(stream, most=5).look()
    widget = view.widget()
    page, button = widget.children
    assert "look0" in page.value
    assert button.description == "follow"
    view.follow()
    view.follow()  # once is enough
    assert view.following
    assert button.description == "stop"
    stream.free(5)
    view.stop()
    assert not view.following
    assert (stream.asked, stream.closed) == ([1, 5], 2)
    assert button.description == "follow"
    bundle = view._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "look" in bundle["text/html"]
    stream.go = threading.Semaphore(0)
    button.click()
    thread = view._thread
    stream.free(5)
    assert thread is not None
    thread.join(30)
    assert stream.asked == [1, 5, 5]
    assert "look4" in page.value


def test_a_testbed_that_goes_is_told_in_the_view(stream: Stream) -> None:
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


def test_progress_is_a_bar_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(progress, "has_widgets", lambda: True)
    monkeypatch.setattr(progress, "show", shown.append)
    with progress.progress("up dlr") as report:
        report("waiting for the lease", 0.25)
    (box,) = shown
    bar, told = box.children
    assert (bar.value, bar.description) == (0.25, "up dlr")
    assert told.value.startswith("waiting for the lease")


def test_without_a_kernel_there_are_no_widgets() -> None:
    assert not frontend.has_widgets()
