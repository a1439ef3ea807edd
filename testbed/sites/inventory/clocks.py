"""Machines' clocks against ours and one another's, as closely as ssh lets us see them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from schemas.errors import RemoteError
from testbed.checks import Finding
from testbed.sites.clock import Clock
from testbed.spec import CephSpec, TestbedSpec
from testbed.ssh import Shell

DRIFT_S = 0.05
"""Ceph's monitors complain beyond this offset (mon_clock_drift_allowed)."""
STRANGE_S, WRONG_S = 1.0, 60.0
"""Off ours by so much a clock is remarked on, or in the way: keys, logs and files have times."""
CLOCK_LOOKS = 3


@dataclass(frozen=True)
class Offset:
    """A machine's clock against ours: it lies between these, in seconds."""

    low_s: float
    high_s: float

    @property
    def middle_s(self) -> float:
        """The best guess."""
        return (self.low_s + self.high_s) / 2

    @property
    def half_s(self) -> float:
        """How far off the guess may be."""
        return (self.high_s - self.low_s) / 2

    def certainly_off(self, other: Offset) -> float:
        """By how much two machines' clocks differ at least."""
        return max(self.low_s - other.high_s, other.low_s - self.high_s, 0.0)


def offset_of(shell: Shell, clock: Clock) -> Offset:
    """A machine's clock, from the quickest of a few looks: it was read between asking and answer.

    Raises:
        RemoteError: the machine does not answer, or not with a time.
    """
    looks = []
    for _ in range(CLOCK_LOOKS):
        before, began = clock.now(), clock.monotonic()
        told = shell.run(["sh", "-c", "date +%s.%N"], timeout_s=30.0).text.strip()
        try:
            there = float(told)
        except ValueError:
            raise RemoteError(
                f"machine {shell.node} does not tell its time: `date +%s.%N` prints {told[:80]!r}."
            ) from None
        took = clock.monotonic() - began
        looks.append(Offset(there - before - took, there - before))
    return min(looks, key=lambda offset: offset.high_s - offset.low_s)


def monitors_of(spec: TestbedSpec) -> tuple[str, ...]:
    """Nodes with a monitor of Ceph's."""
    groups = spec.groups if isinstance(spec.store, CephSpec) else ()
    return tuple(name for group in groups if "mon" in group.roles for name in group.node_names())


def clock_finding(
    node: str, offsets: Mapping[str, Offset], kept: Mapping[str, bool], monitors: Collection[str]
) -> Finding:
    """How a machine's clock stands, to ours and, of a monitor, to the other monitors'.

    Only what is certain counts: a measurement may be off by half its round trip, a difference of
    two by both. A clock that nothing keeps is set by a deployment, which brings chrony.
    """
    mine = offsets[node]
    away_s = abs(mine.middle_s) - mine.half_s
    found = f"{mine.middle_s:+.3f} s to us, ± {mine.half_s:.3f} s; "
    found += "kept" if kept[node] else "not kept"
    how = "let chrony keep its clock and this machine's, from the same source (`date` on both)"
    how += "" if kept[node] else "; hotbed deploy brings chrony to machines without"
    apart = []
    if node in monitors and kept[node]:
        for other in monitors:
            if other in offsets and kept[other] and mine.certainly_off(offsets[other]) > DRIFT_S:
                apart.append(f"{mine.middle_s - offsets[other].middle_s:+.3f} s to {other}")
    if apart:
        found += f"; {', '.join(apart)}, and monitors bear {DRIFT_S:g} s"
    ok = away_s <= STRANGE_S and not apart
    return Finding("clock", "a clock like ours", ok, found, how, needed=away_s > WRONG_S)
