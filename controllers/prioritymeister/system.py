"""Queues, the flows through them, and the worst-case latency of each (section 4.4).

A flow enters at the first queue of its path, limited there by its arrival curve; a queue serves by
strict priority at its bandwidth. The bound is the paper's linear program in closed form:

* one queue: the horizontal distance from the flow's arrival curve to ``[B t - sum of others]+``;
* more: the arrivals of others at a later queue are the output of the queue before it,
  ``max_u [A(t + u) - [B u - rest(u)]+]``. Two queues are then solved exactly (`tandem`). For more,
  flows that share a stretch of the path are subtracted once (`nested`), or at each of its queues
  if this bounds the latency better. Neither is ever below the program.

All flows that are not of lower priority count as others. A queue with a `lag` behaves as if it
began to serve that much later in every backlog period, ``B [t - lag]+``.

Queues that mean rates load to exactly 100 % have bounds: bursts are finite, and the remaining
service equals the arrivals in the long run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from controllers.prioritymeister import curves, nested, tandem
from schemas.errors import UserError

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Path = tuple[int, ...]

ROUNDING = 1e-9
"""Share of a bandwidth by which rounding may raise a sum of rates that fills it exactly."""
_REMEMBERED = 2000  # kept curves that the next question may need again


@dataclass(frozen=True)
class QueueFlow:
    """Workload at a stage: the queues it passes in turn, and its token buckets.

    `largest` is the most work that is served in one piece: a request at a device, a packet on a
    link.
    """

    path: Path
    rates: Floats
    bursts: Floats
    largest: float = 0.0


@dataclass
class System:
    """All queues and flows of the storage stage, or of the network.

    Args:
        bandwidth: work per second of each queue; 1 for a device, with work in seconds.
        flows: in any order.
        names: names of the queues, for messages.
        lags: seconds by which each queue may be behind its bandwidth in a backlog period; empty
            for 0 everywhere.

    Raises:
        UserError: paths form a cycle: then no bound of this kind exists.
    """

    bandwidth: Sequence[float]
    flows: Sequence[QueueFlow]
    names: Sequence[str] = ()
    lags: Sequence[float] = ()
    _arrivals: list[curves.Arrival] = field(init=False, repr=False)
    _members: dict[Path, _Bundle] = field(init=False, repr=False)
    _feeders: list[dict[int, list[Path]]] = field(init=False, repr=False)
    _relevant: list[npt.NDArray[np.int64]] = field(init=False, repr=False)
    _seen: dict[Path, npt.NDArray[np.int64]] = field(init=False, repr=False)
    _through: list[npt.NDArray[np.int64]] = field(init=False, repr=False)
    _long: bool = field(init=False, repr=False)
    _known: dict[object, object] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._arrivals = [curves.arrival(flow.rates, flow.bursts) for flow in self.flows]
        by_path: dict[Path, list[int]] = {}
        for index, flow in enumerate(self.flows):
            by_path.setdefault(flow.path, []).append(index)
        self._members = {p: _Bundle.of(m, self._arrivals) for p, m in by_path.items()}
        # For each queue: paths by the queue they come from; -1 for paths that enter here.
        self._feeders = [{} for _ in self.bandwidth]
        for path in self._members:
            for before, queue in zip((-1, *path), path, strict=False):
                self._feeders[queue].setdefault(before, []).append(path)
        self._through = [
            np.array([i for i, f in enumerate(self.flows) if q in f.path], np.int64)
            for q in range(len(self.bandwidth))
        ]
        self._long = any(len(path) > 2 for path in self._members)
        order = self._sorted()
        relevant: dict[int, set[int]] = {}
        for queue in order:
            found = {
                m for paths in self._feeders[queue].values() for p in paths for m in by_path[p]
            }
            for before in self._feeders[queue]:
                found |= relevant.get(before, set())
            relevant[queue] = found
        self._relevant = [
            np.array(sorted(relevant.get(q, ())), np.int64) for q in range(len(self.bandwidth))
        ]
        self._seen = {
            path: np.concatenate([self._relevant[queue] for queue in path])
            for path in self._members
        }

    def _sorted(self) -> list[int]:
        """Return the queues so that each comes after those that feed it."""
        after: dict[int, set[int]] = {q: set() for q in range(len(self.bandwidth))}
        for queue, feeders in enumerate(self._feeders):
            after[queue] = {f for f in feeders if f >= 0}
        order: list[int] = []
        while after:
            free = [q for q, needs in after.items() if not needs & after.keys()]
            if not free:
                raise UserError(f"paths form a cycle of queues: {self._cycle(after)}")
            order += free
            for queue in free:
                del after[queue]
        return order

    def _cycle(self, after: dict[int, set[int]]) -> str:
        walk = [min(after)]
        while True:
            step = min(after[walk[-1]] & after.keys())
            if step in walk:
                names = [self.names[q] if self.names else str(q) for q in [step, *walk[::-1]]]
                return " -> ".join(names[: names.index(names[0], 1) + 1])
            walk.append(step)

    def load(self, queue: int) -> float:
        """Return the share of a queue's bandwidth that the slowest buckets of its flows reserve."""
        flows = (flow for flow in self.flows if queue in flow.path)
        return sum(float(flow.rates.min()) for flow in flows) / self.bandwidth[queue]

    def affected(self) -> list[list[int]]:
        """Return, for each flow, the other flows with bounds that depend on its priority."""
        found: list[list[int]] = [[] for _ in self.flows]
        for flow, each in enumerate(self.flows):
            seen = {int(k) for queue in each.path for k in self._relevant[queue]}
            for other in seen - {flow}:
                found[other].append(flow)
        return found

    def bound(self, flow: int, others: Mask, *, blocking: bool = False) -> float:
        """Return the most seconds from a flow's arrival until it is served.

        Args:
            flow: index of the flow.
            others: [flows] flows of higher or the same priority; the flow itself does not count.
            blocking: count also that a piece of lower priority in service is not interrupted, and
                that a piece is passed on once all of it has come.

        Returns:
            infinite if a queue cannot carry the flow and the flows of `others`.
        """
        path = self.flows[flow].path
        along = others
        if self._long and not others[flow]:
            # Beyond two queues the flow meets flows again that it may have held up before.
            along = others.copy()
            along[flow] = True
        queues = self._services(path, along, flow, blocking)
        if queues is None:
            return float("inf")
        sharing = self._members[path].parts(others, flow)
        own = self._arrivals[flow]
        slack = ROUNDING * min(self.bandwidth[queue] for queue in path)
        if len(queues) == 2:
            return float(tandem.behind(queues[0], queues[1], *sharing, own, slack))
        x, slope = queues[0]
        for service in queues[1:]:
            x, slope = curves.in_series(x, slope, *service)
        bound = curves.behind(x, slope, *sharing, *own, slack)
        if len(queues) > 2:
            for x, slope in self._shared(path, along, flow, blocking):
                bound = min(bound, curves.behind(x, slope, *sharing, *own, slack))
        return float(bound)

    def _services(
        self, path: Path, others: Mask, flow: int, blocking: bool
    ) -> list[curves.Service] | None:
        """Return the service of each queue of `path` without the flows of the same path: equal for
        all of these flows."""
        key = (path, others[self._seen[path]].tobytes(), flow if blocking else -1)
        if key not in self._known:
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            self._known[key] = self._compute_services(path, others, flow, blocking)
        found: list[curves.Service] | None = self._known[key]  # type: ignore[assignment]
        return found

    def _compute_services(
        self, path: Path, others: Mask, flow: int, blocking: bool
    ) -> list[curves.Service] | None:
        found = []
        for queue in path:
            burst, x, slope = self._inputs(queue, others, path, blocking)
            if burst == np.inf:
                return None
            if blocking:
                burst += self._blocked(queue, others, flow)
                if queue != path[-1]:
                    burst += self._largest(queue, others, flow)
            found.append(curves.left_over(*self._line(queue), burst, x, slope))
        return found

    def _shared(self, path: Path, others: Mask, flow: int, blocking: bool) -> list[curves.Service]:
        """Return services of a path without the flows of the same path; flows that share a stretch
        are subtracted once. Two if stretches cross, none if a queue before has no bound."""
        key = ("shared", path, others[self._seen[path]].tobytes(), flow if blocking else -1)
        if key not in self._known:
            blocks = []
            for place, queue in enumerate(path if blocking else ()):
                piece = self._blocked(queue, others, flow)
                if queue != path[-1]:
                    piece += self._largest(queue, others, flow)
                held = (piece, np.zeros(1), np.zeros(1))
                blocks.append(nested.SharedStretch(place, place, (), held))

            def output(one: nested.SharedStretch, place: int) -> curves.Arrival:
                return self._output(path[place], one.paths, others, blocking)

            given = self._stretches(path, others, blocking)
            ways = [nested.uncrossed(given, output)]
            if len(ways[0]) > len(given):
                ways.append(nested.uncrossed(given, output, later=True))
            lines = [self._line(queue) for queue in path]
            self._known[key] = [
                nested.service(lines, [*way, *blocks])
                for way in ways
                if all(one.arrival[0] < np.inf for one in way)
            ]
        known: list[curves.Service] = self._known[key]  # type: ignore[assignment]
        return known

    def _stretches(self, path: Path, others: Mask, blocking: bool) -> list[nested.SharedStretch]:
        """Return others' stretches on the queues of a path, without flows of the same path."""
        found = []
        for first, queue in enumerate(path):
            groups: dict[tuple[int, Path | None, int], list[Path]] = {}
            for before, paths in self._feeders[queue].items():
                if first and before == path[first - 1]:
                    continue  # came along with the flow
                for one in paths:
                    if one == path or not others[self._members[one].members].any():
                        continue
                    last, place = first, one.index(queue) + 1
                    while path[last + 1 : last + 2] == one[place : place + 1] != ():
                        last, place = last + 1, place + 1
                    groups.setdefault((before, one if before < 0 else None, last), []).append(one)
            for (before, _, last), group in groups.items():
                if before < 0:
                    arrival = self._members[group[0]].total(others, -1)
                else:
                    arrival = self._output(before, group, others, blocking)
                found.append(nested.SharedStretch(first, last, tuple(group), arrival))
        return found

    def _line(self, queue: int) -> curves.Service:
        """Return the service of a queue without any other work."""
        bandwidth, lag = float(self.bandwidth[queue]), self.lags[queue] if self.lags else 0.0
        if lag <= 0:
            return np.zeros(1), np.array([bandwidth])
        return np.array([0.0, lag]), np.array([0.0, bandwidth])

    def _blocked(self, queue: int, others: Mask, flow: int) -> float:
        """Return the largest piece of lower priority at a queue."""
        lower = (self.flows[k].largest for k in self._through[queue] if not others[k] and k != flow)
        return max(lower, default=0.0)

    def _largest(self, queue: int, others: Mask, flow: int) -> float:
        """Return the largest piece of a flow or of its others at a queue."""
        there = (k for k in self._through[queue] if others[k] or k == flow)
        return max((self.flows[k].largest for k in there), default=0.0)

    def _inputs(self, queue: int, others: Mask, without: Path, blocking: bool) -> curves.Arrival:
        """Return the arrivals of others at a queue, without path `without`."""
        seen = self._relevant[queue]
        key = (queue, others[seen].tobytes(), blocking)
        tagged = self._known.get(key)
        if tagged is None:
            tagged = _Tagged.of(self._groups(queue, others, blocking))
            self._known[key] = tagged
        assert isinstance(tagged, _Tagged)
        mixed = [g for g in tagged.groups if without in g and len(g) > 1]
        found = tagged.total(without)
        for group in mixed:  # longer paths: the group's output without the path
            rest = [p for p in group if p != without]
            before = next(
                f for f, g in self._feeders[queue].items() if f >= 0 and set(rest) <= set(g)
            )
            found = curves.added([found, self._output(before, rest, others, blocking)])
        return found

    def _groups(
        self, queue: int, others: Mask, blocking: bool
    ) -> list[tuple[tuple[Path, ...], curves.Arrival]]:
        """Return a queue's arrivals: of each path that enters here, of each queue that feeds it."""
        found: list[tuple[tuple[Path, ...], curves.Arrival]] = []
        for before, paths in self._feeders[queue].items():
            if before < 0:
                found += [((p,), self._members[p].total(others, -1)) for p in paths]
            else:
                found.append((tuple(paths), self._output(before, paths, others, blocking)))
        return found

    def _output(
        self, queue: int, paths: Sequence[Path], others: Mask, blocking: bool
    ) -> curves.Arrival:
        """Return the arrivals of the flows of `paths` at their next queue after `queue`."""
        seen = self._relevant[queue]
        key = (queue, tuple(paths), others[seen].tobytes(), blocking)
        if key not in self._known:
            self._known[key] = self._compute_output(queue, paths, others, blocking)
        found: curves.Arrival = self._known[key]  # type: ignore[assignment]
        return found

    def _compute_output(
        self, queue: int, paths: Sequence[Path], others: Mask, blocking: bool
    ) -> curves.Arrival:
        chosen: list[curves.Arrival] = []
        rest: list[curves.Arrival] = []
        for before, through in self._feeders[queue].items():
            ours = [p for p in through if p in paths]
            theirs = [p for p in through if p not in paths]
            for part, into in ((ours, chosen), (theirs, rest)):
                if part and before < 0:
                    into += [self._members[p].total(others, -1) for p in part]
                elif part:
                    into.append(self._output(before, part, others, blocking))
        burst, x, slope = curves.added(rest)
        if blocking:
            burst += self._blocked(queue, others, -1)
        free = curves.left_over(*self._line(queue), burst, x, slope)
        slack = ROUNDING * self.bandwidth[queue]
        out = curves.through(*curves.added(chosen), *free, slack)
        if blocking:
            return (out[0] + self._largest(queue, others, -1), out[1], out[2])
        return out


@dataclass(frozen=True)
class _Bundle:
    """Flows of one path: their curves' corners in one sorted list, so that sums are fast."""

    members: npt.NDArray[np.int64]
    place: dict[int, int]
    x: Floats
    drop: Floats
    owner: npt.NDArray[np.int64]
    burst: Floats
    slope: Floats

    @classmethod
    def of(cls, members: list[int], arrivals: Sequence[curves.Arrival]) -> _Bundle:
        parts = [arrivals[m] for m in members]
        first = np.array([part[2][0] for part in parts])
        return cls(
            np.array(members, np.int64),
            {member: place for place, member in enumerate(members)},
            *curves.falls(parts),
            np.array([float(part[0]) for part in parts]),
            first,
        )

    def total(self, active: Mask, skip: int) -> curves.Arrival:
        """Return the sum of the active flows, without `skip` (an index of a flow)."""
        return curves.total(*self.parts(active, skip))

    def parts(
        self, active: Mask, skip: int
    ) -> tuple[Floats, Floats, npt.NDArray[np.int64], Floats, Floats, Mask, int]:
        """Return the arguments of `curves.total`."""
        chosen = active[self.members]
        out = self.place.get(skip, -1)
        return self.x, self.drop, self.owner, self.burst, self.slope, chosen, out


@dataclass(frozen=True)
class _Tagged:
    """Arrivals at a queue by group of paths; the sum without any one of them is fast."""

    groups: list[tuple[Path, ...]]
    place: dict[Path, int]
    parts: tuple[Floats, Floats, npt.NDArray[np.int64], Floats, Floats]

    @classmethod
    def of(cls, groups: list[tuple[tuple[Path, ...], curves.Arrival]]) -> _Tagged:
        place = {path: k for k, (paths, _) in enumerate(groups) for path in paths}
        given = [arrival for _, arrival in groups]
        burst = np.array([float(part[0]) for part in given])
        slope = np.array([part[2][0] for part in given])
        return cls([paths for paths, _ in groups], place, (*curves.falls(given), burst, slope))

    def total(self, without: Path) -> curves.Arrival:
        active = np.ones(len(self.groups), np.bool_)
        return curves.total(*self.parts, active, self.place.get(without, -1))
