"""A running store as an instance of the load-balancing problem (definition 1).

A placement group is a partition, an OSD a node, and the place in the CRUSH tree the distance.
What may not be touched (groups that somebody else pinned, groups that are not where the map wants
them, load that no group explains) stays where it is as load that its node has anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.ursa.instance import Float32, Float64, Instance, Int32, Racks
from controllers.ursa.live.parameters import LEADER, Parameters
from testbed.stores.contract import Observation, Osd, Pg

NOISE = 0.1
"""Part of a threshold by which counters of OSDs and of PGs may differ and mean the same."""

ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Problem:
    """An instance, and what its numbers stand for.

    Attributes:
        instance: capacities are what the threshold leaves beside `fixed`.
        pgs: [P], ids in ascending order.
        osds: [N], ids in ascending order.
        fixed: [N], load that cannot be moved.
        threshold: C, above which an OSD is hot.
        hot: [N], OSDs that are.
    """

    instance: Instance
    pgs: tuple[str, ...]
    osds: tuple[int, ...]
    fixed: Float64
    threshold: float
    hot: NDArray[np.bool_]


def build(
    observation: Observation,
    loads: Mapping[str, tuple[float, float]],
    measured: Mapping[int, float],
    ours: Collection[str],
    parameters: Parameters,
) -> Problem | None:
    """The problem that `observation` poses; None where nothing can be moved or compared.

    Args:
        observation: OSDs and PGs.
        loads: (primary, secondary) by PG, see `loads.pg_loads`.
        measured: load by OSD, see `loads.osd_loads`.
        ours: PGs whose upmap is this controller's.
        parameters: thresholds and costs.
    """
    nodes = sorted((osd for osd in observation.osds if osd.up and osd.in_), key=lambda o: o.id)
    index = {osd.id: number for number, osd in enumerate(nodes)}
    free = sorted((pg for pg in observation.pgs if _movable(pg, index, ours)), key=lambda p: p.id)
    size = _common_size(free)
    free = [pg for pg in free if len(pg.up) == size]
    if len(nodes) < 2 or not free or size < 1:
        return None
    replicas = np.array([_primary_first(pg, index) for pg in free], dtype=np.int32)
    pair = np.array([loads.get(pg.id, (0.0, 0.0)) for pg in free], dtype=np.float32)
    attributed, fixed = _fixed(observation, loads, index, {pg.id for pg in free})
    threshold = _threshold(attributed, parameters)
    if parameters.background and measured:
        known = np.array([measured.get(osd.id, 0.0) for osd in nodes])
        fixed = fixed + np.maximum(0.0, known - attributed - NOISE * threshold)
    carried = _carried(replicas, pair, len(nodes))
    capacity = np.full(len(nodes), threshold) - fixed
    # Within the tolerance an OSD counts as cold, and as full.
    noise = carried + fixed <= threshold * (1 + parameters.tolerance)
    # (A sum in another order may differ in its last digits, which must not make a node hot.)
    capacity = np.where(noise, np.maximum(capacity, carried * (1 + ROUNDING)), capacity)
    limit = _float32_from_above(np.maximum(capacity, 0.0))
    instance = Instance(
        replica_node=replicas,
        primary_load=np.ascontiguousarray(pair[:, 0]),
        secondary_load=np.ascontiguousarray(pair[:, 1]),
        capacity=limit,
        fault_domain=_domains(nodes, parameters.fault_domain),
        distance=_distance(nodes, parameters),
        origin=_senders(replicas, carried > limit) if parameters.copied_by == LEADER else None,
    )
    ids = tuple(pg.id for pg in free)
    numbers = tuple(osd.id for osd in nodes)
    return Problem(instance, ids, numbers, fixed, threshold, carried > limit)


def _movable(pg: Pg, index: Mapping[int, int], ours: Collection[str]) -> bool:
    placed = bool(pg.up) and set(pg.up) == set(pg.acting)
    return placed and (not pg.upmap or pg.id in ours) and all(osd in index for osd in pg.up)


def _common_size(pgs: list[Pg]) -> int:
    """How many replicas most groups have: a plan is for groups of one size."""
    counts = Counter(len(pg.up) for pg in pgs)
    return min(counts, key=lambda size: (-counts[size], size)) if counts else 0


def _primary_first(pg: Pg, index: Mapping[int, int]) -> list[int]:
    order = [pg.primary, *(osd for osd in pg.up if osd != pg.primary)]
    return [index[osd] for osd in order]


def _senders(replicas: Int32, hot: NDArray[np.bool_]) -> Int32:
    """[P, l], who sends when a replica moves: of its group the first whose node is not hot, who
    therefore stays; `planning` has the role go to it. Where all are hot, the leader or the next."""
    rows = np.arange(len(replicas))
    origin = np.repeat(replicas[:, :1], replicas.shape[1], axis=1)
    origin[:, 0] = replicas[:, min(1, replicas.shape[1] - 1)]
    calm = ~hot[replicas]
    some = calm.any(axis=1)
    sender = replicas[rows, calm.argmax(axis=1)]
    origin[some] = sender[some, None]
    return np.ascontiguousarray(origin)


def _fixed(
    observation: Observation,
    loads: Mapping[str, tuple[float, float]],
    index: Mapping[int, int],
    free: set[str],
) -> tuple[Float64, Float64]:
    """([N] load of all PGs, [N] load of those that may not be moved)."""
    attributed, fixed = np.zeros(len(index)), np.zeros(len(index))
    for pg in sorted(observation.pgs, key=lambda pg: pg.id):
        primary, secondary = loads.get(pg.id, (0.0, 0.0))
        for osd in pg.acting:
            if osd in index:
                load = primary if osd == pg.primary else secondary
                attributed[index[osd]] += load
                if pg.id not in free:
                    fixed[index[osd]] += load
    return attributed, fixed


def _threshold(attributed: Float64, parameters: Parameters) -> float:
    if parameters.capacity > 0:
        return parameters.capacity * parameters.threshold
    return parameters.relative * float(attributed.mean())


def _carried(replicas: Int32, pair: Float32, nodes: int) -> Float64:
    """[N], load of what may be moved."""
    carried = np.zeros(nodes)
    for column in range(replicas.shape[1]):
        weights = pair[:, 0 if column == 0 else 1].astype(np.float64)
        carried += np.bincount(replicas[:, column], weights, nodes)
    return carried


def _float32_from_above(values: Float64) -> Float32:
    """Rounded up, so that a node that is full to the brim does not become hot by rounding."""
    rounded = values.astype(np.float32)
    low = rounded.astype(np.float64) < values
    rounded[low] = np.nextafter(rounded[low], np.float32(np.inf))
    return rounded


def _domains(nodes: list[Osd], kind: str) -> Int32:
    names = [osd.rack or osd.node if kind == "rack" else osd.node for osd in nodes]
    number = {name: place for place, name in enumerate(sorted(set(names)))}
    return np.array([number[name] for name in names], dtype=np.int32)


def _distance(nodes: list[Osd], parameters: Parameters) -> Racks:
    """Cost by host: within one, within its rack, beyond. OSDs of no rack are in one together."""
    hosts = sorted({(osd.rack, osd.node) for osd in nodes})
    number = {host: place for place, host in enumerate(hosts)}
    racks = np.array([rack for rack, _ in hosts])
    cost = np.where(racks[:, None] == racks[None, :], parameters.rack_cost, parameters.far_cost)
    np.fill_diagonal(cost, parameters.host_cost)
    place = np.array([number[osd.rack, osd.node] for osd in nodes], dtype=np.int32)
    return Racks(place, cost.astype(np.float32))
