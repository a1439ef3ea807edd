"""A campaign on a testbed that ends: what still fits, extensions, and knowing when it is over.

The one rule: no cell is begun that is expected to end later than the lease, less a margin in which
an interrupted cell puts the testbed back and its files are fetched. Where it may, a campaign that
does not fit asks for more time (`Tenure.extend`) before every cell until it is granted.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.campaign import LeaseRules
from schemas.errors import HotbedError
from testbed.quantities import format_s, moment
from testbed.sites.contract import Site, SiteError, State, Status
from testbed.spec import TestbedSpec

LOOK_S = 60.0
"""A lease is looked at again when what is known of it is older."""

AGAIN_S = 5.0
"""... and no sooner than this: sites allow a poll every 5 s."""

CLOSING_SHARE = 0.5
"""Of the margin: what a cell that runs into it is left to end in."""

ROUND_S = 600.0
"""Extensions are asked for in steps of this: not another one for every late cell."""

LEAST_S = 60.0
"""What is granted beyond this counts as an extension."""


class Tenure(Protocol):
    """Until when a testbed is ours. Errors are HotbedError: it cannot be told, or is refused."""

    def status(self) -> Status:
        """See `Site.status`."""

    def extend(self, seconds: float) -> Status:
        """See `Site.extend`."""


@dataclass(frozen=True)
class SiteTenure:
    """A `Tenure`: the testbed called `name` on `site`."""

    site: Site
    name: str

    def status(self) -> Status:
        """See `Tenure.status`."""
        return self.site.status(self.name)

    def extend(self, seconds: float) -> Status:
        """See `Tenure.extend`."""
        return self.site.extend(self.name, seconds)


@dataclass(frozen=True)
class Outlook:
    """Whether a campaign fits what is left of a lease. Times in seconds, points in time since the
    epoch; `fitting` of `cells` cells would be made, in the plan's order, without an extension."""

    now_s: float
    ends_at_s: float
    margin_s: float
    needed_s: float
    cells: int
    fitting: int
    extend: bool

    @property
    def left_s(self) -> float:
        """What may be used of the lease."""
        return max(0.0, self.ends_at_s - self.now_s - self.margin_s)

    @property
    def short_s(self) -> float:
        """What is missing; 0 when everything fits."""
        return max(0.0, self.needed_s - self.left_s)

    @property
    def fits(self) -> bool:
        """Whether every cell can be made."""
        return self.short_s == 0

    @property
    def extension_s(self) -> float:
        """What would be asked for."""
        return rounded_up(self.short_s)

    @property
    def extended_end_s(self) -> float:
        """When the lease would end with that."""
        return self.ends_at_s + self.extension_s

    @property
    def sentence(self) -> str:
        """In words."""
        text = (
            f"the lease ends {moment(self.ends_at_s)}, in {format_s(self.ends_at_s - self.now_s)}"
        )
        if self.fits:
            spare = format_s(self.left_s - self.needed_s)
            return f"{text}: the campaign fits, with {spare} to spare"
        how = (
            "it will be asked for while the campaign runs"
            if self.extend
            else "--extend-lease asks for it; a new lease goes on from there"
        )
        return (
            f"{text}: {self.fitting} of {self.cells} cells fit, {format_s(self.short_s)} are "
            f"missing; an extension by {format_s(self.extension_s)} would end "
            f"{moment(self.extended_end_s)}: {how}"
        )

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "ends_at_s": round(self.ends_at_s, 1),
            "left_s": round(self.left_s, 1),
            "needed_s": round(self.needed_s, 1),
            "margin_s": self.margin_s,
            "fits": self.fits,
            "short_s": round(self.short_s, 1),
            "cells": self.cells,
            "fitting": self.fitting,
            "extend": self.extend,
            "extension_s": self.extension_s,
            "extended_end_s": round(self.extended_end_s, 1),
            "sentence": self.sentence,
        }


class Lease:
    """What a campaign knows of its testbed's lease, looked at seldom and from any thread.

    Args:
        tenure: who knows, and who is asked for more.
        status: what it said just now; its `ends_at_s` is the lease's end.
        rules: the campaign's.
        say: told of extensions, refused ones, and of looks that failed; each failure once.
        clock: seconds since the epoch. A lease ends at a time that the site knows too, so a step of
            the wall clock moves what is left of it.
        ticks: seconds that no step moves, for how old a look is and when to ask again.
        pause: waits so many seconds.
    """

    def __init__(
        self,
        tenure: Tenure,
        status: Status,
        rules: LeaseRules,
        *,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._tenure = tenure
        self._rules = rules
        self._say = say
        self._clock, self._ticks = clock, ticks
        self._pause = pause
        self._mutex = threading.RLock()
        self._status = status
        self._looked_at = ticks()
        self._not_before = -math.inf  # no extension is asked for until then
        self._most_s = math.inf  # nor a longer one than this
        self._refused = False  # whether one was, for good
        self._said: set[str] = set()
        self._over: str | None = None

    @property
    def ends_at_s(self) -> float:
        """End of the lease, as last seen."""
        with self._mutex:
            ends = self._status.ends_at_s
            return math.inf if ends is None else ends

    @property
    def usable_s(self) -> float:
        """Seconds left in which cells may run."""
        return self.ends_at_s - self._rules.margin_s - self._clock()

    def outlook(self, cells_s: Sequence[float], needed_s: float | None = None) -> Outlook:
        """Whether cells that take so many seconds each fit, one after another, in this order.

        Args:
            cells_s: seconds of each.
            needed_s: seconds of all, where it is not their sum.
        """
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
        """Why a cell must not begin now; None when it may.

        Args:
            cell_s: seconds that the cell is expected to take.
            rest_s: seconds of all that is still to be made, the cell included: where the campaign
                may and they do not fit, more time is asked for first.
        """
        with self._mutex:
            if self._judged(LOOK_S) is not None:
                return self._over
            if self._rules.extend:
                self._extend(cell_s, rest_s)
            # Somebody may have extended it meanwhile.
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
        """Why there is no testbed any more, or none to work on; None while there is one. Asked
        when a cell has failed: the lease may have ended under it, so what was seen before does
        not count. Waits until the site may be asked."""
        with self._mutex:
            early_s = self._looked_at + AGAIN_S - self._ticks()
            if self._over is None and early_s > 0:
                self._pause(early_s)
            return self._judged(0.0)

    @property
    def known_over(self) -> str | None:
        """What was said last of why there is no testbed; the site is not asked."""
        return self._over

    def due(self) -> str | None:
        """Why the cell that runs must be ended now; None when it may go on. For a watch that asks
        every few seconds: the site itself is asked once a minute, and at the end."""
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
        """As `over`, by what is known, which is not older than that."""
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
        """Ask the site, if what it said is older than this; a failed look changes nothing."""
        if self._ticks() - self._looked_at < older_than_s:
            return
        try:
            self._status = self._tenure.status()
        except (HotbedError, OSError) as error:
            self._once(f"the lease cannot be looked at ({error}); its end is taken as known")
        self._looked_at = self._ticks()  # now, not before: an answer may take a minute

    def _extend(self, cell_s: float, rest_s: float) -> None:
        """Ask for more time; again for less where that is refused and the next cell needs it."""
        while rest_s > self.usable_s and self._most_s > 0 and self._ticks() >= self._not_before:
            self._ask(rest_s - self.usable_s)
            if cell_s <= self.usable_s:
                return

    def _ask(self, short_s: float) -> None:
        seconds, before = min(rounded_up(short_s), self._most_s), self.ends_at_s
        try:
            self._status = self._tenure.extend(seconds)
        except HotbedError as error:
            retry = error.retry_after_s if isinstance(error, SiteError) else None
            if retry is None:  # a policy or somebody's reservation: less may be allowed
                self._most_s = seconds // 2 // ROUND_S * ROUND_S
            else:
                self._not_before = self._ticks() + max(retry, AGAIN_S)
            if retry is not None or not self._refused:
                told = str(error).rstrip(".")
                self._once(f"the lease is not extended by {format_s(seconds)}: {told}")
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


def open_lease(
    tenure: Tenure | None,
    rules: LeaseRules,
    *,
    say: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = time.time,
    ticks: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Lease | None:
    """The lease of a testbed; None where it never ends.

    Raises:
        HotbedError: the site cannot tell.
    """
    if tenure is None:
        return None
    status = tenure.status()
    if status.ends_at_s is None:
        return None
    return Lease(tenure, status, rules, say=say, clock=clock, ticks=ticks, pause=pause)


def asked_for(spec: TestbedSpec, needed_s: float, margin_s: float) -> str | None:
    """Whether cells of `needed_s` seconds fit the lease that the spec of a testbed that is not up
    asks for, in a sentence; None where there would be no lease, or it cannot be told."""
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
        "deploying would do, or the campaign goes on on a second lease"
    )


def rounded_up(seconds: float) -> float:
    """To whole steps of `ROUND_S`."""
    return math.ceil(seconds / ROUND_S) * ROUND_S
