"""One process's hold of a testbed: its record, the cloud, and how calls are made so that nothing is
made twice or forgotten.

Everything that is made bears a name that begins with ``hotbed-<testbed>-<tag>``, the tag being the
record's own, and is journalled before it is asked for and after it is there. What is not known to
be there is looked up before it is asked for, also after an answer that got lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from testbed.sites.chameleon.cloud import Cloud, CloudError, Fault
from testbed.sites.chameleon.errors import explain
from testbed.sites.chameleon.options import Options
from testbed.sites.clock import Clock
from testbed.sites.contract import Progress, SiteError, silent
from testbed.sites.records import Record
from testbed.spec import TestbedSpec

T = TypeVar("T")

POLL_S = 5.0
"""Pause between two looks at what is being made: the site asks no more often."""
PAUSES_S = (5.0, 15.0, 30.0)
"""Before a call that failed in passing is made again."""
SKEW_S = 60.0
"""Two clocks that differ by less are taken for one."""


@dataclass
class Work:
    """See the module."""

    record: Record
    spec: TestbedSpec
    options: Options
    cloud: Cloud
    clock: Clock
    progress: Progress = silent
    pauses_s: tuple[float, ...] = PAUSES_S
    skew_s: float = field(default=0.0)

    @property
    def base(self) -> str:
        """What all names begin with."""
        return base_name(self.record.name, str(self.record.data["tag"]))

    @property
    def tag(self) -> str:
        """Eight hexadecimal digits that no other testbed has."""
        return str(self.record.data["tag"])

    def server_name(self, node: str) -> str:
        """Name of a node's server."""
        return f"{self.base}-{node}"

    def set_clock(self) -> None:
        """Learn how far the cloud's clock is from ours."""
        skew = self.ask("asking for the time", self.cloud.now) - self.clock.now()
        self.skew_s = skew if abs(skew) > SKEW_S else 0.0
        self.record.data["skew_s"] = self.skew_s

    def now(self) -> float:
        """Seconds since the epoch by the cloud's clock."""
        return self.clock.now() + self.skew_s

    def ours(self, cloud_s: float) -> float:
        """A time of the cloud's by our clock."""
        return cloud_s - self.skew_s

    def ask(self, doing: str, call: Callable[[], T]) -> T:
        """A call that may be repeated: one that only looks, or removes.

        Raises:
            SiteError, UserError: it failed, also after `pauses_s` where that may help.
        """
        for pause in (*self.pauses_s, None):
            try:
                return call()
            except CloudError as error:
                if error.fault is not Fault.PASSING or pause is None:
                    raise explain(error, doing, self.options.site) from error
                self.clock.sleep(pause)
        raise AssertionError("the last pause is None")

    def if_allowed(self, doing: str, call: Callable[[], T]) -> T | None:
        """A call that only tells more than is needed; None where the cloud's rules forbid it.

        Raises:
            SiteError, UserError: see `ask`.
        """
        try:
            return self.ask(doing, call)
        except SiteError as error:
            cause = error.__cause__
            if isinstance(cause, CloudError) and cause.fault in (Fault.REFUSED, Fault.MISSING):
                return None
            raise

    def ensure(
        self,
        what: str,
        name: str,
        look: Callable[[], T | None],
        make: Callable[[], T],
        id_of: Callable[[T], str],
    ) -> T:
        """What `look` finds, or else what `make` makes, journalled under `what` and `name`: ``ask``
        before, ``made`` or ``refused`` after it, neither when the answer got lost.

        Raises:
            SiteError, UserError: see `ask`.
        """
        for pause in (*self.pauses_s, None):
            found = self.ask(f"looking for {what} {name}", look)
            if found is not None:
                return found
            self.record.journal("ask", what=what, name=name, at_s=self.now())
            try:
                made = make()
            except CloudError as error:
                if error.fault is not Fault.PASSING:
                    self.record.journal("refused", what=what, name=name)
                if error.fault is not Fault.PASSING or pause is None:
                    raise explain(error, f"making {what} {name}", self.options.site) from error
                self.clock.sleep(pause)
                continue
            self.made(what, name, id_of(made))
            return made
        raise AssertionError("the last pause is None")

    def made(self, what: str, name: str, identity: str) -> None:
        """Journal that something is there now."""
        self.record.journal("made", what=what, name=name, id=identity)

    def journalled(self, entry: str, what: str) -> list[dict[str, Any]]:
        """The journal's lines of one sort."""
        return [
            line
            for line in self.record.entries()
            if line.get("entry") == entry and line.get("what") == what
        ]


def base_name(testbed: str, tag: str) -> str:
    """``hotbed-<testbed>-<tag>``."""
    return f"hotbed-{testbed}-{tag}"


def belongs(name: str, base: str) -> bool:
    """Is `name` one of those that begin with `base`?"""
    return name == base or name.startswith(f"{base}-")


def left(seconds: float) -> str:
    """A span for people: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
