"""Synthetic instances after section 5.1: power-law loads, uniform nodes, skewed capacities.

1. Every partition's load is Pareto with the given tail exponent (P(load > x) = x^-tail); a
   secondary carries a part of it (one half: two reads to one write).
2. Nodes are uniform in the unit square. With racks they are cut into compact racks of equal size
   and these into clusters, and a move costs as the tree's level that it crosses.
3. Replicas are on nodes drawn uniformly, no two of a partition in one fault domain.
4. Capacities follow from the ratio of load to capacity: truncated lognormal, heavier in hot discs.
   The threshold that is stored is 0.7 of the capacity, as the paper calls nodes above 0.7 hot.
5. With more dimensions than that (cpu): bandwidth is cpu times a lognormal factor, with the same
   roles; bytes are lognormal, and a secondary stores as many as its primary. Every dimension has
   ratios of its own.

All is drawn in blocks of rows, each from a stream of its own, so that little memory is needed and
the same seed gives the same instance (to the last digit of the machine's power function).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from controllers.ursa.instance import Distance, Euclidean, Float32, Float64, Instance, Int32, Racks
from controllers.ursa.state import initial_state
from schemas.errors import UserError, not_allowed

ROWS = 1 << 20
LOADS, PLACES, NODES, RATIOS, DISCS, MORE_LOADS = range(6)  # streams
DIMENSIONS = ("cpu", "bandwidth", "bytes")
BANDWIDTH_SIGMA = 0.5
BYTES_SIGMA = 1.0
MAX_REDRAWS = 1000
DISC_TRIES = 100
TREE_COSTS = (1.0, 5.0, 20.0)
"""Cost of a move within a rack, within a cluster of racks, and between clusters."""


@dataclass(frozen=True)
class InstanceShape:
    """Parameters of an instance.

    Attributes:
        nodes, partitions, replicas: N, P and l.
        tail: exponent of the loads' power law.
        load_max: heaviest possible load over the lightest; infinite for no cut-off.
        primary_factor: load of a primary over that of a secondary.
        ratio_median, ratio_sigma, ratio_max: of the lognormal load/capacity, and its cut-off.
        threshold: ratio above which a node is hot; the file's `capacity` is this part of a node's.
        discs, disc_area: hot discs, and the part of the square that they cover together.
        disc_median, disc_sigma: of the ratio within a hot disc.
        racks: 0 for distances in the plane, else the number of racks.
        domain: kind of fault domain; "nested": clusters of racks, and racks in them.
        dimensions: number of DIMENSIONS of the load.
        group_size: partitions on the same nodes that form a group; 1 for none.
        sizes: True if the file holds the bytes of each replica.
    """

    nodes: int
    partitions: int
    replicas: int = 3
    tail: float = 1.5
    load_max: float = np.inf
    primary_factor: float = 2.0
    ratio_median: float = 0.3
    ratio_sigma: float = 0.6
    ratio_max: float = 1.0
    threshold: float = 0.7
    discs: int = 0
    disc_area: float = 0.06
    disc_median: float = 0.8
    disc_sigma: float = 0.3
    racks: int = 0
    domain: Literal["node", "rack", "nested"] = "node"
    dimensions: int = 1
    group_size: int = 1
    sizes: bool = False


KINDS: dict[str, dict[str, float | int]] = {
    "s1": {},
    "s2": {"ratio_median": 0.55, "ratio_sigma": 0.25, "ratio_max": 1.5},
    "s3": {"discs": 10},
    "giants": {
        "primary_factor": 1.0,
        "ratio_sigma": 0.3,
        "discs": 4,
        "disc_area": 0.5,
        "disc_median": 0.66,
        "disc_sigma": 0.04,
    },
}
"""Parameters of each kind: s1 is like the paper's data, s2 is tight, s3 has its hot nodes together.

In giants, regions of nodes that are almost full surround the hot nodes: a very hot object of these
fits only beyond, where several cooler ones find room next door. Swaps are of no use there.
"""


def shape(kind: str, nodes: int, partitions: int, **changes: object) -> InstanceShape:
    """Return the parameters of a kind, with `changes` that are not None."""
    if kind not in KINDS:
        raise not_allowed("kind", kind, ", ".join(KINDS))
    made = InstanceShape(nodes, partitions, **KINDS[kind])  # type: ignore[arg-type]
    given = {name: value for name, value in changes.items() if value is not None}
    return checked(replace(made, **given))  # type: ignore[arg-type]


def checked(wanted: InstanceShape) -> InstanceShape:
    """Return `wanted`; raise UserError if no such instance can be made."""

    def check(allowed: str, ok: Callable[[float], bool], *names: str) -> None:
        for name in names:
            if not ok(getattr(wanted, name)):
                raise not_allowed(name, getattr(wanted, name), allowed)

    check("1 to 2^31 - 1", lambda value: 1 <= value < 2**31, "nodes")
    check("0 to 2^31 - 1", lambda value: 0 <= value < 2**31, "partitions")
    check("1 to 127", lambda value: 1 <= value <= 127, "replicas")
    check("at least 1", lambda value: 1 <= value < np.inf, "group_size", "primary_factor")
    from_0 = "discs", "racks", "ratio_sigma", "disc_sigma"
    check("at least 0", lambda value: 0 <= value < np.inf, *from_0)
    above_0 = "tail", "ratio_median", "ratio_max", "threshold", "disc_median"
    check("above 0", lambda value: 0 < value < np.inf, *above_0)
    check("above 1", lambda value: value > 1, "load_max")
    check("0 to 1, a part of the square", lambda value: 0 <= value <= 1, "disc_area")
    known = f"1 to {len(DIMENSIONS)} ({', '.join(DIMENSIONS)})"
    check(known, lambda value: 1 <= value <= len(DIMENSIONS), "dimensions")
    if wanted.domain not in ("node", "rack", "nested"):
        raise not_allowed("domain", wanted.domain, "node, rack, nested")
    if wanted.domain != "node" and wanted.racks == 0:
        raise UserError("fault domains are racks, but there are no racks", do="give their number")
    if wanted.racks > wanted.nodes:
        raise UserError(
            f"{wanted.racks} racks for {wanted.nodes} nodes", allowed="at most one rack a node"
        )
    domains = wanted.nodes if wanted.domain == "node" else wanted.racks
    if wanted.replicas > domains:
        raise UserError(
            f"{wanted.replicas} replicas of a partition do not fit into {domains} fault domains",
            do="ask for fewer replicas or more nodes",
        )
    return wanted


def generate(wanted: InstanceShape, seed: int) -> Instance:
    """Return an instance of that shape; the same seed gives the same one."""
    checked(wanted)
    xy = _rng(seed, NODES).random((wanted.nodes, 2), dtype=np.float32)
    distance: Distance = Euclidean(xy)
    domain: Int32 = np.arange(wanted.nodes, dtype=np.int32)
    if wanted.racks:
        distance = _racks(xy, wanted.racks)
        if wanted.domain != "node":
            domain = distance.rack
    primary = np.empty(wanted.partitions, np.float32)
    least = wanted.load_max**-wanted.tail
    for block, rows in _blocks(wanted.partitions):
        # From least, where the load would be `load_max`, to 1, where it is 1.
        draws = 1.0 - (1.0 - least) * _rng(seed, LOADS, block).random(rows.stop - rows.start)
        primary[rows] = draws ** (-1.0 / wanted.tail)
    secondary = (primary / np.float32(wanted.primary_factor)).astype(np.float32)
    made = Instance(
        replica_node=_places(wanted, domain, seed),
        primary_load=primary,
        secondary_load=secondary,
        capacity=np.zeros(wanted.nodes, np.float32),
        fault_domain=domain,
        distance=distance,
    )
    made = replace(made, capacity=_capacity(wanted, made, xy, seed, 0))
    for d in range(1, wanted.dimensions):
        made = _with_dimension(wanted, made, xy, seed, d)
    return replace(
        made,
        fault_domain=_clusters(wanted, domain) if wanted.domain == "nested" else domain,
        dimension=DIMENSIONS[: wanted.dimensions] if wanted.dimensions > 1 else (),
        group=np.arange(wanted.partitions, dtype=np.int32) // np.int32(wanted.group_size)
        if wanted.group_size > 1
        else None,
        size=_more_load(wanted, primary, seed, DIMENSIONS.index("bytes")) if wanted.sizes else None,
    )


def _capacity(wanted: InstanceShape, made: Instance, xy: Float32, seed: int, d: int) -> Float32:
    """Return [N], the threshold of each node for loads of one dimension, the d-th."""
    ratio = _ratios(wanted, xy, seed, d)
    load = initial_state(made).load
    # A node that happens to hold nothing gets the capacity of an average one.
    load = np.where(load > 0, load, load.mean() if len(load) and load.any() else 1.0)
    return np.asarray((wanted.threshold * load / ratio).astype(np.float32))


def _with_dimension(
    wanted: InstanceShape, made: Instance, xy: Float32, seed: int, d: int
) -> Instance:
    cpu = made.primary_load if made.primary_load.ndim == 1 else made.primary_load[:, 0]
    primary = _more_load(wanted, cpu, seed, d)
    factor = np.float32(1.0 if DIMENSIONS[d] == "bytes" else wanted.primary_factor)
    secondary = (primary / factor).astype(np.float32)
    alone = replace(made, primary_load=primary, secondary_load=secondary)
    return replace(
        made,
        primary_load=np.column_stack([made.primary_load, primary]),
        secondary_load=np.column_stack([made.secondary_load, secondary]),
        capacity=np.column_stack([made.capacity, _capacity(wanted, alone, xy, seed, d)]),
    )


def _more_load(wanted: InstanceShape, cpu: Float32, seed: int, d: int) -> Float32:
    """Return [P], load of each primary in dimension d, 1 or 2."""
    found = np.empty(wanted.partitions, np.float32)
    for block, rows in _blocks(wanted.partitions):
        draws = _rng(seed, MORE_LOADS, d, block).standard_normal(rows.stop - rows.start)
        if DIMENSIONS[d] == "bytes":
            found[rows] = np.exp(BYTES_SIGMA * draws)
        else:
            found[rows] = cpu[rows] * np.exp(BANDWIDTH_SIGMA * draws)
    return found


def _rng(seed: int, *stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=stream)))


def _blocks(rows: int) -> Iterator[tuple[int, slice]]:
    for block, first in enumerate(range(0, rows, ROWS)):
        yield block, slice(first, min(first + ROWS, rows))


def _places(wanted: InstanceShape, domain: Int32, seed: int) -> Int32:
    """Return [P, l] nodes drawn uniformly; rows with a fault domain twice are drawn again."""
    count = -(-wanted.partitions // wanted.group_size)
    found = np.empty((count, wanted.replicas), np.int32)
    for block, rows in _blocks(count):
        rng = _rng(seed, PLACES, block)
        part = found[rows]
        again = np.arange(len(part))
        for _ in range(MAX_REDRAWS):
            if len(again) == 0:
                break
            part[again] = rng.integers(
                wanted.nodes, size=(len(again), wanted.replicas), dtype=np.int32
            )
            again = again[_domain_twice(domain[part[again]])]
        # So few domains that chance does not find distinct ones: permute them.
        for row in again:
            part[row] = _distinct(rng, domain, wanted.replicas)
    if wanted.group_size > 1:
        found = np.repeat(found, wanted.group_size, axis=0)[: wanted.partitions]
    return found


def _domain_twice(domains: Int32) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    twice = np.zeros(len(domains), dtype=np.bool_)
    for first in range(domains.shape[1]):
        for second in range(first):
            twice |= domains[:, first] == domains[:, second]
    return twice


def _distinct(rng: np.random.Generator, domain: Int32, replicas: int) -> Int32:
    nodes = rng.permutation(len(domain)).astype(np.int32)
    _, first = np.unique(domain[nodes], return_index=True)
    return nodes[np.sort(first)[:replicas]]


def _racks(xy: Float32, racks: int) -> Racks:
    """Cut the square into strips (clusters) and these into racks: near nodes share a rack."""
    nodes = len(xy)
    cluster_of_rack = _cluster_of_rack(racks)
    racks_in = np.bincount(cluster_of_rack)
    ends = np.round(np.cumsum(racks_in) / racks * nodes).astype(int)
    rack = np.empty(nodes, np.int32)
    start = first_rack = 0
    by_x = np.argsort(xy[:, 0], kind="stable")
    for end, count in zip(ends, racks_in, strict=True):
        strip = by_x[start:end]
        strip = strip[np.argsort(xy[strip, 1], kind="stable")]
        rack[strip] = first_rack + np.arange(len(strip)) * count // max(1, len(strip))
        start, first_rack = end, first_rack + count
    same_cluster = cluster_of_rack[:, None] == cluster_of_rack[None, :]
    table = np.where(same_cluster, TREE_COSTS[1], TREE_COSTS[2])
    np.fill_diagonal(table, TREE_COSTS[0])
    return Racks(rack, table.astype(np.float32))


def _cluster_of_rack(racks: int) -> Int32:
    """Return [racks], about as many clusters as there are racks in each."""
    clusters = max(1, round(np.sqrt(racks)))
    return np.asarray((np.arange(racks) * clusters // racks).astype(np.int32))


def _clusters(wanted: InstanceShape, rack: Int32) -> Int32:
    """Return [N, 2], cluster and rack of each node."""
    return np.column_stack([_cluster_of_rack(wanted.racks)[rack], rack]).astype(np.int32)


def _ratios(wanted: InstanceShape, xy: Float32, seed: int, d: int) -> Float64:
    """Return [N], load over capacity in dimension d: lognormal, cut off at `ratio_max`."""
    from scipy.special import ndtr, ndtri

    draws = _rng(seed, RATIOS, *([d] if d else [])).random(wanted.nodes)

    def ratio(median: float, sigma: float) -> Float64:
        if sigma == 0:
            return np.full(wanted.nodes, min(median, wanted.ratio_max))
        most = ndtr(np.log(wanted.ratio_max / median) / sigma)
        return np.asarray(median * np.exp(sigma * ndtri(np.maximum(draws, 1e-12) * most)))

    made = ratio(wanted.ratio_median, wanted.ratio_sigma)
    if wanted.discs:
        radius = np.sqrt(wanted.disc_area / wanted.discs / np.pi)
        inside = np.zeros(wanted.nodes, dtype=np.bool_)
        for centre in _centres(wanted.discs, radius, _rng(seed, DISCS)):
            inside |= ((xy - centre) ** 2).sum(axis=1) <= radius**2
        made = np.where(inside, ratio(wanted.disc_median, wanted.disc_sigma), made)
    return made


def _centres(discs: int, radius: float, rng: np.random.Generator) -> list[Float64]:
    """Return centres of discs that lie within the square and, where there is room, apart."""
    margin = min(radius, 0.5)
    found: list[Float64] = []
    while len(found) < discs:
        for _ in range(DISC_TRIES):
            centre = margin + rng.random(2) * (1 - 2 * margin)
            if all(((centre - other) ** 2).sum() >= 4 * radius**2 for other in found):
                break
        found.append(centre)
    return found
