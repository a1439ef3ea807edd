"""Lease of a campaign's testbed: cells that still fit, extensions, and the end.

The main rule: a cell does not begin if it is expected to end after the lease minus a margin. In the
margin, an interrupted cell restores the testbed and its files are fetched. If a campaign does not
fit and may extend the lease, it asks for more time (`Site.extend`) before every cell until the
site grants it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from schemas.campaign import LeaseRules
from schemas.errors import HotbedError
from testbed.sites.contract import Site, SiteError, State, Status
from testbed.spec import TestbedSpec
from testbed.spec.quantities import format_s, moment

LOOK_S = 60.0
"""Age after which the lease's status is polled again."""

AGAIN_S = 5.0
"""Least seconds between two polls: sites allow a poll every 5 s."""

WATCH_S = AGAIN_S
"""Seconds between two checks of the lease while a cell runs (`watching`)."""

CLOSING_SHARE = 0.5
"""Share of the margin that is left for a late cell to end in."""

ROUND_S = 600.0
"""Step of extensions, so that not every late cell asks for another one."""

GRACE_S = 90.0
"""Time for an interrupted cell to restore the testbed, as after Ctrl-C."""

LEAST_S = 60.0
"""Least gain in seconds that counts as an extension."""


@dataclass(frozen=True)
class Outlook:
    """Forecast: does a campaign fit into the rest of a lease? Times are in seconds, points in time
    since the epoch. `fitting` of `cells` cells fit without an extension, in the plan's order."""

    now_s: float
    ends_at_s: float
    margin_s: float
    needed_s: float
    cells: int
    fitting: int
    extend: bool

    @property
    def left_s(self) -> float:
        """Usable seconds of the lease."""
        return max(0.0, self.ends_at_s - self.now_s - self.margin_s)

    @property
    def short_s(self) -> float:
        """Missing seconds; 0 if everything fits."""
        return max(0.0, self.needed_s - self.left_s)

    @property
    def fits(self) -> bool:
        """True if every cell can be made."""
        return self.short_s == 0

    @property
    def extension_s(self) -> float:
        """Seconds of the extension that would be requested."""
        return rounded_up(self.short_s)

    @property
    def extended_end_s(self) -> float:
        """End of the lease after that extension."""
        return self.ends_at_s + self.extension_s

    @property
    def sentence(self) -> str:
        """The forecast as a sentence."""
        text = (
            f"the lease ends {moment(self.ends_at_s)}, in {format_s(self.ends_at_s - self.now_s)}"
        )
        if self.fits:
            spare = format_s(self.left_s - self.needed_s)
            return f"{text}: the campaign fits, with {spare} to spare"
        how = (
            "it will be asked for while the campaign runs"
            if self.extend
            else "--extend-lease asks for it; a new lease resumes from there"
        )
        return (
            f"{text}: {self.fitting} of {self.cells} cells fit, {format_s(self.short_s)} are "
            f"missing; an extension by {format_s(self.extension_s)} would end "
            f"{moment(self.extended_end_s)}: {how}"
        )

    def as_json(self) -> dict[str, object]:
        """Return the forecast for programs."""
        shown: tuple[str, ...] = (
            "ends_at_s",
            "left_s",
            "needed_s",
            "margin_s",
            "fits",
            "short_s",
            "cells",
        )
        shown += ("fitting", "extend", "extension_s", "extended_end_s", "sentence")
        found = {name: getattr(self, name) for name in shown}
        return {n: round(v, 1) if isinstance(v, float) else v for n, v in found.items()}


class Lease:
    """Status of the testbed's lease, polled rarely and usable from any thread.

    Args:
        site: reports the status of the testbed `name` and grants extensions.
        status: the testbed's latest status; its `ends_at_s` is the lease's end.
        rules: the campaign's lease rules.
        say: reports extensions, refusals and failed polls; each failure once.
        clock: seconds since the epoch. The site knows the lease's end as a wall-clock time, so a
            step of the wall clock changes the time left.
        ticks: monotonic seconds, for the age of the status and the time of the next request.
        pause: waits for a number of seconds.
    """

    def __init__(
        self,
        site: Site,
        name: str,
        status: Status,
        rules: LeaseRules,
        *,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._site, self._name = site, name
        self._rules = rules
        self._say = say
        self._clock, self._ticks = clock, ticks
        self._pause = pause
        self._mutex = threading.RLock()
        self._status = status
        self._looked_at = ticks()
        self._not_before = -math.inf  # no extension is requested until then
        self._most_s = math.inf  # longest extension to request
        self._refused = False  # True if an extension was refused for good
        self._said: set[str] = set()
        self._over: str | None = None

    @property
    def ends_at_s(self) -> float:
        """End of the lease at the last poll."""
        with self._mutex:
            ends = self._status.ends_at_s
            return math.inf if ends is None else ends

    @property
    def usable_s(self) -> float:
        """Seconds left in which cells may run."""
        return self.ends_at_s - self._rules.margin_s - self._clock()

    def outlook(self, cells_s: Sequence[float], needed_s: float | None = None) -> Outlook:
        """Forecast how many cells with these durations fit, one after another, in this order.
        `needed_s`: seconds of all cells, if not the sum."""
        with self._mutex:
            usable, spent, fitting = self.usable_s, 0.0, 0
            for seconds in cells_s:
                spent += seconds
                if spent > usable:
                    break
                fitting += 1
            return Outlook(
                now_s=self._clock(),
                ends_at_s=self.ends_at_s,
                margin_s=self._rules.margin_s,
                needed_s=sum(cells_s) if needed_s is None else needed_s,
                cells=len(cells_s),
                fitting=fitting,
                extend=self._rules.extend,
            )

    def refuses(self, cell_s: float, rest_s: float) -> str | None:
        """Return why a cell of `cell_s` expected seconds must not begin now; None if it may. If all
        pending cells (`rest_s`) do not fit and the campaign may extend the lease, more time is
        requested first."""
        with self._mutex:
            if self._judged(LOOK_S) is not None:
                return self._over
            if self._rules.extend:
                self._extend(cell_s, rest_s)
            # Someone else may have extended the lease meanwhile.
            if cell_s > self.usable_s and self._judged(AGAIN_S) is not None:
                return self._over
            if cell_s <= self.usable_s:
                return None
            return (
                f"the lease ends {moment(self.ends_at_s)}, in "
                f"{format_s(self.ends_at_s - self._clock())}, and the next cell takes "
                f"{format_s(cell_s)} and {format_s(self._rules.margin_s)} are kept for cleaning up"
            )

    def over(self) -> str | None:
        """Return why the testbed is lost or not ready; None if it is ready. Called after a cell
        failed. The lease may have ended meanwhile, so the site is polled again, after a wait until
        it allows a poll."""
        with self._mutex:
            early_s = self._looked_at + AGAIN_S - self._ticks()
            if self._over is None and early_s > 0:
                self._pause(early_s)
            return self._judged(0.0)

    @property
    def known_over(self) -> str | None:
        """Latest reason for the loss of the testbed; the site is not polled."""
        return self._over

    def due(self) -> str | None:
        """Return why the running cell must end now; None if it may continue. A watch calls this
        every few seconds; the site is polled once a minute, and at the end."""
        with self._mutex:
            closing = CLOSING_SHARE * self._rules.margin_s
            if self._judged(LOOK_S) is None and self.ends_at_s - self._clock() <= closing:
                self._look(AGAIN_S)
                if self.ends_at_s - self._clock() <= closing:
                    self._over = self._ended() or (
                        f"the lease ends {moment(self.ends_at_s)}, and the cell took longer than "
                        "expected"
                    )
            return self._over

    def _judged(self, older_than_s: float) -> str | None:
        """Return the same as `over`, from a status that is at most `older_than_s` old."""
        if self._over is None:
            self._look(older_than_s)
            self._over = self._ended()
        return self._over

    def _ended(self) -> str | None:
        if self.ends_at_s <= self._clock():
            return f"the lease ended {moment(self.ends_at_s)}"
        if self._status.state is not State.READY:
            return f"the testbed is no longer ready: {self._status.state} ({self._status.detail})"
        return None

    def _look(self, older_than_s: float) -> None:
        """Poll the site if the status is older than this; a failed poll changes nothing."""
        if self._ticks() - self._looked_at < older_than_s:
            return
        try:
            self._status = self._site.status(self._name)
        except (HotbedError, OSError) as error:
            self._once(f"the lease cannot be looked at ({error}); its end is taken as known")
        self._looked_at = self._ticks()  # now, not before: an answer may take a minute

    def _extend(self, cell_s: float, rest_s: float) -> None:
        """Request more time; after a refusal request less, if the next cell needs it."""
        while rest_s > self.usable_s and self._most_s > 0 and self._ticks() >= self._not_before:
            self._ask(rest_s - self.usable_s)
            if cell_s <= self.usable_s:
                return

    def _ask(self, short_s: float) -> None:
        seconds, before = min(rounded_up(short_s), self._most_s), self.ends_at_s
        try:
            self._status = self._site.extend(self._name, seconds)
        except HotbedError as error:
            retry = error.retry_after_s if isinstance(error, SiteError) else None
            if retry is None:  # a policy or another reservation: less time may be allowed
                self._most_s = seconds // 2 // ROUND_S * ROUND_S
            else:
                self._not_before = self._ticks() + max(retry, AGAIN_S)
            if retry is not None or not self._refused:
                refusal = str(error).rstrip(".")
                self._once(f"the lease is not extended by {format_s(seconds)}: {refusal}")
            self._refused = self._refused or retry is None
            return
        self._looked_at = self._ticks()
        more = self.ends_at_s - before
        if more < LEAST_S:
            self._most_s = 0
            self._once("the lease is not extended: the site left its end as it was")
            return
        nodes = len(self._status.nodes)
        cost = f", {nodes * more / 3600:.1f} node-hours more" if nodes else ""
        self._say(f"lease extended by {format_s(more)} to {moment(self.ends_at_s)}{cost}")

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)


def open_lease(site: Site | None, name: str, rules: LeaseRules, **how: Any) -> Lease | None:
    """Return the lease of the testbed `name` (`how` as in `Lease`); None if it never ends, as
    without a site. HotbedError: the site cannot report its status."""
    status = None if site is None else site.status(name)
    if site is None or status is None or status.ends_at_s is None:
        return None
    return Lease(site, name, status, rules, **how)


def asked_for(spec: TestbedSpec, needed_s: float, margin_s: float) -> str | None:
    """Return a sentence: do cells of `needed_s` seconds fit the lease in the spec of a testbed that
    is not up? None if there would be no lease or its length is unknown."""
    from testbed.sites import open_site

    try:
        cost = open_site(spec.site.kind, spec.site.options).plan(spec)
    except (HotbedError, OSError):
        return None
    if cost.hours is None:
        return None
    left_s = cost.hours * 3600 - margin_s - needed_s
    text = f"the spec asks for a lease of {cost.hours:g} h ({cost.node_hours:g} node-hours)"
    if left_s >= 0:
        return f"{text}: the cells fit, which leaves {format_s(left_s)} for deploying"
    hours = math.ceil((needed_s + margin_s) / 3600)
    return (
        f"{text}: the cells do not fit by {format_s(-left_s)}; {hours} h and the time for "
        "deploying are enough, or a second lease for the rest of the campaign"
    )


def rounded_up(seconds: float) -> float:
    """Return the seconds rounded up to whole steps of `ROUND_S`."""
    return math.ceil(seconds / ROUND_S) * ROUND_S


@contextmanager
def watching(
    lease: Lease | None, over: Callable[[str], None], kill: Callable[[], None]
) -> Iterator[None]:
    """Watch the lease while the block runs. If the lease is about to end or the testbed is lost,
    call `over` once with the reason. If the block has not ended `GRACE_S` later, call `kill`: a
    cell may hang on lost machines. A separate thread makes the calls; without a lease there are
    none."""
    if lease is None:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(WATCH_S):
            why = lease.due()
            if why is not None:
                over(why)
                if not ended.wait(GRACE_S):
                    kill()
                return

    thread = threading.Thread(target=watch, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
