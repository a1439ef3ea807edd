"""`hotbed top` in a notebook: a part of the page that follows the testbed, or plain text."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from schemas.errors import HotbedError
from testbed.html import in_kernel, live
from testbed.terminal import console

if TYPE_CHECKING:
    from rich.console import Console

    from testbed.sites.contract import Testbed

Sample = Mapping[str, Any]
Looks = Callable[[int], Generator[Sample, None, None]]
"""Opens the stream of samples of `hotbed top`, with a maximum count."""

WIDTH = 118
"""Width of a view in columns: the width of a notebook's page."""
PATIENCE_S = 10.0
"""Maximum wait for a stopped view, which ends with its next sample."""
_PAGE = '<pre style="font-family:monospace;line-height:1.2;white-space:pre">{code}</pre>'


def live_view(testbed: Testbed, *, seconds: float = 600.0, interval_s: float = 1.0) -> LiveView:
    """Return a live view of a deployed testbed, with samples every `interval_s`. In a notebook it
    follows the testbed for `seconds`, so that a forgotten notebook does not load a testbed for
    days; `LiveView.stop` ends it. Elsewhere it is one sample, and `LiveView.watch` prints more.
    The first sample is taken at once. HotbedError: the testbed cannot be sampled."""
    from hotbed.top_view import samples

    def looks(count: int) -> Generator[Sample, None, None]:
        return samples(testbed, interval_s=interval_s, count=count)

    view = LiveView(looks, most=max(1, round(seconds / interval_s)))
    view.look()
    if in_kernel():
        view.follow()
    return view


class LiveView:
    """The last sample of a testbed, and a thread that may update it. `looks` opens the stream of
    samples; `most` is the maximum number of samples of a thread."""

    def __init__(self, looks: Looks, *, most: int = 600) -> None:
        self._looks, self._most = looks, most
        self._sample: Sample | None = None
        self._problem = ""
        self._ended = threading.Event()
        self._thread = threading.Thread()
        self._pages: list[Callable[[str], None]] = []

    @property
    def following(self) -> bool:
        """True if a thread updates the view."""
        return self._thread.is_alive()

    def look(self) -> LiveView:
        """Take one sample."""
        for _ in self._samples(1):
            pass
        return self

    def watch(self, count: int) -> None:
        """Take `count` samples, and print each."""
        for _ in self._samples(count):
            print(self.text)

    def follow(self) -> None:
        """Update the view in a thread, until `stop` or the last sample."""
        if not self.following:
            self._problem = ""
            self._ended.clear()
            self._thread = threading.Thread(target=self._follow, name="live view", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop following, and wait for the thread."""
        self._ended.set()
        if self.following:
            self._thread.join(PATIENCE_S)

    @property
    def text(self) -> str:
        """The last sample as plain text."""
        return self._drawn().export_text()

    @property
    def html(self) -> str:
        """The last sample as coloured HTML."""
        return self._drawn().export_html(inline_styles=True, code_format=_PAGE)

    def __repr__(self) -> str:
        return self.text

    def _ipython_display_(self) -> None:
        """Show the view in the running cell and update it there; print it outside of notebooks."""
        if in_kernel():
            self._pages.append(live(self.html))
        else:
            print(self.text)

    def _follow(self) -> None:
        try:
            for _ in self._samples(self._most):
                if self._ended.is_set():
                    break
        except HotbedError as error:
            self._problem = str(error)
            self._show()

    def _samples(self, count: int) -> Iterator[Sample]:
        """Take samples, and show each."""
        with closing(self._looks(count)) as samples:
            for self._sample in samples:
                self._show()
                yield self._sample

    def _show(self) -> None:
        for update in self._pages:
            update(self.html)

    def _drawn(self) -> Console:
        from rich.text import Text

        from hotbed.top_view import top_view

        shown = console(
            width=WIDTH,
            file=io.StringIO(),
            record=True,
            force_jupyter=False,
            color_system="standard",
        )
        if self._sample is not None:
            shown.print(top_view(self._sample, WIDTH))
        if self._problem:
            shown.print(Text(self._problem, style="red"))
        return shown
