"""Types for what a controller can sense and change on a real or modelled store.

The same types cross every boundary: a real Ceph (testbed/stores/ceph), a modelled one
(testbed/simulated), a policy, the journal and its replay. Standard library only: the module runs on
the admin node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from testbed.stores.microstores import (
    AssignMachine,
    MapTenant,
    Microstores,
    Resources,
    SetResources,
    microstores_from_json,
    microstores_to_json,
)

# Senses that a policy may ask for (`Needs.senses`) ...
PRESSURE = "pressure"  # Observation.pressure: the signal of every OSD's node, percent
OSDS = "osds"  # Observation.osds: the OSD tree with weights and affinities
PGS = "pgs"  # Observation.pgs: the PG map with acting sets and primaries
HOT = "hot"  # Observation.hot: OSDs under the disturbance, for the oracle policy only
ACTIVITY = "activity"  # Observation.activity: client operations of each PG and OSD
LATENCY = "latency"  # Observation.latency: service latency of each OSD
READ_BALANCE = "read-balance"  # Observation.read_balance: the manager's score of each pool
# ... and acts (`Needs.acts`).
PRIMARY_AFFINITY = "primary-affinity"
REWEIGHT_BY_UTILIZATION = "reweight-by-utilization"
PG_UPMAP = "pg-upmap"
BALANCER = "balancer"
BALANCER_READ = "balancer-read"  # in addition to BALANCER, for its modes read and upmap-read
PG_UPMAP_PRIMARY = "pg-upmap-primary"
READ_BALANCER = "read-balancer"
SIZE_BALANCER = "size-balancer"
# Acts with the name of an option of Ceph, see `SetOption`.
MCLOCK_PROFILE = "osd_mclock_profile"
READ_POLICY = "rados_replica_read_policy"
CRUSH_LOCATION = "crush_location"

BALANCER_MODES = ("upmap", "read", "upmap-read", "none")
READ_MODES = frozenset({"read", "upmap-read"})


@dataclass(frozen=True)
class Option:
    """An option of Ceph that a controller may set: the section of the configuration database, and
    a pattern for its values."""

    section: str
    pattern: str


OPTIONS: Mapping[str, Option] = {
    MCLOCK_PROFILE: Option("osd", "balanced|high_client_ops|high_recovery_ops"),
    READ_POLICY: Option("client", "default|balance|localize"),
    CRUSH_LOCATION: Option("client", r"[a-z]+=[A-Za-z0-9_.-]+( [a-z]+=[A-Za-z0-9_.-]+)*"),
}
"""Every option that `SetOption` may set."""


@dataclass(frozen=True, slots=True)
class Osd:
    """One object storage daemon, its node and its place in the OSD map. `rack` is the name of the
    CRUSH rack above the OSD, "" without a rack."""

    id: int
    node: str
    up: bool = True
    in_: bool = True
    primary_affinity: float = 1.0
    reweight: float = 1.0
    crush_weight: float = 1.0
    rack: str = ""


class Pg(NamedTuple):
    """One placement group. `up` is the set that CRUSH (with upmaps) wants; `acting` serves now. The
    first of `acting` is the primary. `upmap` is True if a pg-upmap pins the PG.

    A tuple: it takes a quarter of a frozen dataclass's creation time; a step may change thousands.
    """

    id: str
    up: tuple[int, ...]
    acting: tuple[int, ...]
    upmap: bool = False
    bytes: int = 0

    @property
    def primary(self) -> int:
        """The OSD that serves reads, -1 without one."""
        return self.acting[0] if self.acting else -1


@dataclass(frozen=True, slots=True)
class OpRates:
    """Operations per second. For a PG: operations of its clients. For an OSD: reads and writes for
    clients and for replicas of other OSDs' PGs, without recovery."""

    reads: float = 0.0
    writes: float = 0.0


@dataclass(frozen=True)
class Activity:
    """Load of each PG and OSD, and the PGs that are still moving.

    A PG or OSD that could not be sensed is absent. `unclean` holds PGs that are not known to be
    active+clean where the map wants them. A moved PG stays in `unclean` until its primary reports
    it clean in its new place.
    """

    pgs: Mapping[str, OpRates] = field(default_factory=dict)
    osds: Mapping[int, OpRates] = field(default_factory=dict)
    unclean: tuple[str, ...] = ()


class OsdLatency(NamedTuple):
    """Client operations of one OSD in an interval, and their mean seconds, None without any.

    `read_s` and `write_s` count from arrival to reply, a write's replicas included.
    `read_service_s` leaves out the wait in the OSD's own queue; the disk's queue is in it."""

    reads: int = 0
    read_s: float | None = None
    read_service_s: float | None = None
    writes: int = 0
    write_s: float | None = None


@dataclass(frozen=True)
class Observation:
    """Values sensed in one control interval. Each rate is the mean over the interval.

    `t_s` counts from the controller's start. `pressure` maps an OSD to the percentage (0 to 100) of
    its node's signal. An OSD that could not be sensed is absent. `signal` is the signal's name.
    `read_balance` maps a replicated pool to its read balance score: 1 if primaries are even.
    """

    t_s: float
    interval_s: float
    signal: str = "io_pressure"
    pressure: Mapping[int, float] = field(default_factory=dict)
    osds: tuple[Osd, ...] = ()
    pgs: Sequence[Pg] = ()
    hot: frozenset[int] | None = None
    activity: Activity | None = None
    microstores: Microstores | None = None
    latency: Mapping[int, OsdLatency] | None = None
    read_balance: Mapping[str, float] | None = None


@dataclass(frozen=True)
class SetPrimaryAffinity:
    """Action `ceph osd primary-affinity`: 0 to 1, the chance that the OSD is primary of its PGs."""

    osd: int
    value: float
    kind: str = PRIMARY_AFFINITY


@dataclass(frozen=True)
class SwapPrimary:
    """Action `ceph osd pg-upmap` with the same OSDs in another order: `osd` becomes the primary.

    No data moves. A store sends all swaps of one step concurrently, as one map epoch."""

    pg: str
    osd: int
    kind: str = PG_UPMAP


@dataclass(frozen=True)
class ClearUpmap:
    """Action `ceph osd rm-pg-upmap`: the PG returns to the set that CRUSH computes."""

    pg: str
    kind: str = PG_UPMAP


@dataclass(frozen=True)
class MoveReplica:
    """Action `ceph osd pg-upmap-items`: `target` replaces `source`, and data moves. If a pg-upmap
    already pins the PG, the PG gets a new pg-upmap with `target` in place of `source`."""

    pg: str
    source: int
    target: int
    kind: str = PG_UPMAP


@dataclass(frozen=True)
class ReweightByUtilization:
    """Action `ceph osd reweight-by-utilization OLOAD MAX_CHANGE MAX_OSDS`, with Ceph's defaults."""

    oload: int = 120
    max_change: float = 0.05
    max_osds: int = 4
    kind: str = REWEIGHT_BY_UTILIZATION


@dataclass(frozen=True)
class SetBalancer:
    """Action that switches Ceph's balancer module to one of `BALANCER_MODES`; ``none`` is off."""

    mode: str
    kind: str = BALANCER


@dataclass(frozen=True)
class SetUpmapPrimary:
    """Action `ceph osd pg-upmap-primary`: `osd`, which holds a replica, becomes the primary. No
    data moves. A store sends all of one step concurrently, as one map epoch."""

    pg: str
    osd: int
    kind: str = PG_UPMAP_PRIMARY


@dataclass(frozen=True)
class ClearUpmapPrimary:
    """Action `ceph osd rm-pg-upmap-primary`: the PG returns to the primary that CRUSH computes."""

    pg: str
    kind: str = PG_UPMAP_PRIMARY


@dataclass(frozen=True)
class RunReadBalancer:
    """Action that lets Ceph's read balancer even out the primaries of each replicated pool: the
    manager's balancer in mode ``read`` if it has this mode, else one run of `osdmaptool --read`
    with its pg-upmap-primary commands carried out."""

    kind: str = READ_BALANCER


@dataclass(frozen=True)
class RunSizeBalancer:
    """Action that runs the program `placementoptimizer.py` (TheJJ/ceph-balancer) and carries out
    its pg-upmap-items commands, for at most `moves` placement groups. Data moves."""

    moves: int = 10
    kind: str = SIZE_BALANCER


@dataclass(frozen=True)
class SetOption:
    """Action `ceph config set` of one of `OPTIONS`, for its whole section. Clients that start
    later, and running daemons, take it from the monitors. The act's name is the option's."""

    option: str
    value: str

    @property
    def kind(self) -> str:
        """The option's name: a store offers each option for itself."""
        return self.option


CephAction: TypeAlias = (
    SetPrimaryAffinity
    | SwapPrimary
    | ClearUpmap
    | MoveReplica
    | ReweightByUtilization
    | SetBalancer
    | SetUpmapPrimary
    | ClearUpmapPrimary
    | RunReadBalancer
    | RunSizeBalancer
    | SetOption
)
Action: TypeAlias = CephAction | SetResources | AssignMachine | MapTenant
_ACTIONS: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        SetPrimaryAffinity,
        SwapPrimary,
        ClearUpmap,
        MoveReplica,
        ReweightByUtilization,
        SetBalancer,
        SetUpmapPrimary,
        ClearUpmapPrimary,
        RunReadBalancer,
        RunSizeBalancer,
        SetOption,
        SetResources,
        AssignMachine,
        MapTenant,
    )
}


@dataclass(frozen=True)
class Effect:
    """Result of one action: `ok`, the store's message, and the duration in seconds.

    `detail` holds further numbers, such as ``weights_changed`` or ``stall_s``."""

    ok: bool
    message: str = ""
    seconds: float = 0.0
    detail: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Needs:
    """Senses and acts that a policy requires. A store that lacks any is refused by name."""

    senses: frozenset[str] = frozenset({PRESSURE, OSDS})
    acts: frozenset[str] = frozenset({PRIMARY_AFFINITY})


class Store(Protocol):
    """A store that can be sensed and changed."""

    def offers(self) -> Needs:
        """Return everything that this store, in this version, can sense and change."""

    def sense(self, senses: frozenset[str]) -> Observation:
        """Return one observation; rates are means since the previous call. Raises StoreError."""

    def act(self, actions: Sequence[Action]) -> Sequence[Effect]:
        """Carry out `actions`, alike ones concurrently; return one effect each, in order."""

    def save(self) -> Mapping[str, Any]:
        """Return everything that a controller may change, as JSON-able data for `restore`."""

    def restore(self, saved: Mapping[str, Any]) -> Sequence[Effect]:
        """Restore the state that `save` returned."""


def action_to_json(action: Action) -> dict[str, Any]:
    """Return an action as a flat mapping with its class name under ``action``."""
    name = type(action).__name__
    if isinstance(action, SetResources):
        return {"action": name} | asdict(action)
    return {"action": name, **vars(action)}  # the others are flat


def action_from_json(data: Mapping[str, Any]) -> Action:
    """Invert `action_to_json`; raise ValueError for an unknown action or field."""
    fields = {key: value for key, value in data.items() if key not in ("action", "kind")}
    try:
        if "resources" in fields:
            fields["resources"] = Resources(**fields["resources"])
        action: Action = _ACTIONS[str(data["action"])](**fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an action: {data!r}") from error
    return action


def osd_to_json(osd: Osd) -> dict[str, Any]:
    """Return `asdict` of an OSD, five times as fast: there may be 10,000 OSDs."""
    return {
        "id": osd.id,
        "node": osd.node,
        "up": osd.up,
        "in_": osd.in_,
        "primary_affinity": osd.primary_affinity,
        "reweight": osd.reweight,
        "crush_weight": osd.crush_weight,
        "rack": osd.rack,
    }


def pg_to_json(pg: Pg) -> dict[str, Any]:
    """Return `asdict` of a PG, faster as in `osd_to_json`: there may be 65,536 PGs."""
    return {"id": pg.id, "up": pg.up, "acting": pg.acting, "upmap": pg.upmap, "bytes": pg.bytes}


def osd_from_json(data: Mapping[str, Any]) -> Osd:
    """Invert `osd_to_json`."""
    return Osd(**data)


def pg_from_json(data: Mapping[str, Any]) -> Pg:
    """Invert `pg_to_json`."""
    up, acting = tuple(data["up"]), tuple(data["acting"])
    return Pg(data["id"], up, acting, data["upmap"], data["bytes"])


def observation_to_json(
    observation: Observation,
    osds: Sequence[Mapping[str, Any]] | None = None,
    pgs: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return an observation as JSON-able data (OSD numbers become strings, as JSON keys are).
    `osds` and `pgs` are ready results of `osd_to_json` and `pg_to_json`, if the caller has them."""
    if osds is None:
        osds = [osd_to_json(osd) for osd in observation.osds]
    if pgs is None:
        pgs = [pg_to_json(pg) for pg in observation.pgs]
    data: dict[str, Any] = {
        "t_s": observation.t_s,
        "interval_s": observation.interval_s,
        "signal": observation.signal,
        "pressure": {str(osd): value for osd, value in observation.pressure.items()},
        "osds": osds,
        "pgs": pgs,
        "hot": None if observation.hot is None else sorted(observation.hot),
    }
    if observation.activity is not None:
        data["activity"] = _activity_to_json(observation.activity)
    if observation.microstores is not None:
        data["microstores"] = microstores_to_json(observation.microstores)
    if observation.latency is not None:
        data["latency"] = {str(osd): list(found) for osd, found in observation.latency.items()}
    if observation.read_balance is not None:
        data["read_balance"] = dict(observation.read_balance)
    return data


def _activity_to_json(activity: Activity) -> dict[str, Any]:
    """Return a pair of rates per PG and OSD: a thousand PGs are journalled every step."""
    return {
        "pgs": {pg: [rates.reads, rates.writes] for pg, rates in activity.pgs.items()},
        "osds": {str(osd): [rates.reads, rates.writes] for osd, rates in activity.osds.items()},
        "unclean": list(activity.unclean),
    }


def _activity_from_json(data: Mapping[str, Any]) -> Activity:
    return Activity(
        pgs={pg: OpRates(*rates) for pg, rates in data["pgs"].items()},
        osds={int(osd): OpRates(*rates) for osd, rates in data["osds"].items()},
        unclean=tuple(data["unclean"]),
    )


def observation_from_json(
    data: Mapping[str, Any],
    osds: tuple[Osd, ...] | None = None,
    pgs: tuple[Pg, ...] | None = None,
) -> Observation:
    """Invert `observation_to_json`; `osds` and `pgs` are already parsed parts of `data`, if any."""
    return Observation(
        t_s=data["t_s"],
        interval_s=data["interval_s"],
        signal=data["signal"],
        pressure={int(osd): value for osd, value in data["pressure"].items()},
        osds=tuple(map(osd_from_json, data["osds"])) if osds is None else osds,
        pgs=tuple(map(pg_from_json, data["pgs"])) if pgs is None else pgs,
        hot=None if data["hot"] is None else frozenset(data["hot"]),
        activity=_activity_from_json(data["activity"]) if data.get("activity") else None,
        microstores=microstores_from_json(data["microstores"]) if data.get("microstores") else None,
        latency=_latency_from_json(data["latency"]) if "latency" in data else None,
        read_balance=data.get("read_balance"),
    )


def _latency_from_json(data: Mapping[str, Any]) -> dict[int, OsdLatency]:
    return {int(osd): OsdLatency(*found) for osd, found in data.items()}
