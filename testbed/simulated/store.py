"""`SimulatedCeph`: a modelled Ceph that a controller senses and changes (testbed/stores/contract).

    spec = load_spec(Path("testbed/specs/dlr.yaml"))
    with SimulatedCeph(spec, seed=7) as ceph:
        ceph.prefill(1433, 4 * 2**20)
        ceph.start_disturbance([(0.0, {"osd1": None, "osd4": None})])
        ceph.advance(5)
        ceph.start_recorder()
        ceph.start_benchmark(Benchmark("rand", duration_s=60), in_s=2 * 20 / 6)
        Loop(plan, decider=..., store=ceph, journal=..., saved=...,
             clock=SimulatedClock(ceph)).run()      # ends when the benchmark does
        result, samples = ceph.result(), ceph.samples()

Everything happens on the simulation's virtual time, which only `advance`, `advance_to`, `act` and
`settle` move. Equal specs, parameters, seeds and calls give equal results on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from schemas.errors import StoreError, UserError
from testbed.simulated import sources
from testbed.simulated.benchmark import Benchmark, BenchmarkResult, SampleRow, seconds_of
from testbed.simulated.loads import (
    Loads,
    OpenWrites,
    OpenWritesResult,
    Stretches,
    result_of_writes,
    start_writes,
)
from testbed.simulated.parameters import (
    MODEL_VERSION,
    ModelParameters,
    client_node,
    configuration,
    effective,
    osd_nodes,
)
from testbed.simulated.process import LIMIT_S, PROGRAM, PROTOCOL, SimulatorProcess, rows_of
from testbed.simulated.tables import (
    SIGNAL_NAMES,
    ActivityTable,
    MapTable,
    Signal,
    latency,
    pressure,
    sample_rows,
)
from testbed.spec import TestbedSpec
from testbed.stores.contract import (
    ACTIVITY,
    BALANCER,
    BALANCER_READ,
    CRUSH_LOCATION,
    HOT,
    LATENCY,
    MCLOCK_PROFILE,
    OSDS,
    PG_UPMAP,
    PG_UPMAP_PRIMARY,
    PGS,
    PRESSURE,
    PRIMARY_AFFINITY,
    READ_BALANCE,
    READ_BALANCER,
    READ_POLICY,
    REWEIGHT_BY_UTILIZATION,
    Action,
    Effect,
    Needs,
    Observation,
    SetOption,
    action_to_json,
)

# ----------------------------------------------------------------------------------------------
# Save and restore of everything that a controller may change on a modelled Ceph.

SAVED_VERSION = 2
_TOLERANCE = 1e-3  # weights are kept in 16 bits


@dataclass(frozen=True)
class RestoreAction:
    """An action (for the simulator) that restores one thing, and a description of it in words."""

    words: str
    action: dict[str, Any]


def saved_from(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the simulator's state in the form of `Store.save`: JSON values, OSDs by number."""
    return {
        "version": SAVED_VERSION,
        "primary_affinity": {str(i): value for i, value in enumerate(state["primary_affinity"])},
        "reweight": {str(i): value for i, value in enumerate(state["reweight"])},
        "pg_upmap": dict(sorted(state["pg_upmap"].items())),
        "pg_upmap_items": dict(sorted(state["pg_upmap_items"].items())),
        "pg_upmap_primary": dict(sorted(state["pg_upmap_primary"].items())),
        "balancer": state["balancer"],
        "options": dict(sorted(state["options"].items())),
    }


def changes(now: Mapping[str, Any], saved: Mapping[str, Any]) -> list[RestoreAction]:
    """Return the changes from `now` to `saved`, the balancer first so that it does not undo others.
    StoreError: `saved` was not saved by this version."""
    if saved.get("version") != SAVED_VERSION:
        raise StoreError(
            "the saved settings are of another version of the simulator: begin the run anew"
        )
    return [
        *_balancer(now, saved),
        *_weights(now, saved),
        *_upmaps(now, saved),
        *_primaries(now, saved),
        *_options(now, saved),
    ]


def _balancer(now: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterable[RestoreAction]:
    if now["balancer"] != saved["balancer"]:
        mode = saved["balancer"]
        yield RestoreAction(f"balancer to {mode}", {"action": "SetBalancer", "mode": mode})


def _weights(now: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterable[RestoreAction]:
    kinds = (
        ("primary_affinity", "primary affinity", "SetPrimaryAffinity"),
        ("reweight", "reweight", "SetReweight"),
    )
    for key, words, action in kinds:
        for osd, there in now[key].items():
            wanted = saved[key].get(osd, there)
            if abs(wanted - there) > _TOLERANCE:
                yield RestoreAction(
                    f"{words} of osd.{osd} to {wanted:g}",
                    {"action": action, "osd": int(osd), "value": wanted},
                )


def _primaries(now: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterable[RestoreAction]:
    there, kept = now["pg_upmap_primary"], saved["pg_upmap_primary"]
    for pg in sorted(there.keys() - kept.keys()):
        action = {"action": "ClearUpmapPrimary", "pg": pg}
        yield RestoreAction(f"pg-upmap-primary of {pg} removed", action)
    for pg, osd in sorted(kept.items()):
        if there.get(pg) != osd:
            action = {"action": "SetUpmapPrimary", "pg": pg, "osd": osd}
            yield RestoreAction(f"pg-upmap-primary of {pg} to osd.{osd}", action)


def _options(now: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterable[RestoreAction]:
    for name, value in saved["options"].items():
        if now["options"][name] != value:
            action = {"action": "SetOption", "option": name, "setting": value}
            yield RestoreAction(f"{name} to {value or 'its default'}", action)


def _upmaps(now: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterable[RestoreAction]:
    kept = saved["pg_upmap"].keys() | saved["pg_upmap_items"].keys()
    there = now["pg_upmap"].keys() | now["pg_upmap_items"].keys()
    for pg in sorted(there):
        whole, parts = saved["pg_upmap"].get(pg), saved["pg_upmap_items"].get(pg)
        if now["pg_upmap"].get(pg) == whole and now["pg_upmap_items"].get(pg) == parts:
            continue
        yield RestoreAction(f"upmap of {pg} removed", {"action": "ClearUpmap", "pg": pg})
    for pg in sorted(kept):
        whole, parts = saved["pg_upmap"].get(pg), saved["pg_upmap_items"].get(pg)
        if now["pg_upmap"].get(pg) == whole and now["pg_upmap_items"].get(pg) == parts:
            continue
        if whole is not None:
            yield RestoreAction(
                f"upmap of {pg} to {whole}", {"action": "SetUpmap", "pg": pg, "osds": whole}
            )
        if parts is not None:
            yield RestoreAction(
                f"upmap items of {pg} to {parts}", {"action": "SetItems", "pg": pg, "items": parts}
            )


SENSES = frozenset({PRESSURE, OSDS, PGS, HOT, ACTIVITY, LATENCY, READ_BALANCE})
ACTS = frozenset(
    {
        *(PRIMARY_AFFINITY, REWEIGHT_BY_UTILIZATION, PG_UPMAP, PG_UPMAP_PRIMARY),
        *(BALANCER, BALANCER_READ, READ_BALANCER, READ_POLICY, CRUSH_LOCATION),
    }
)


def offers(parameters: ModelParameters) -> Needs:
    """Return the senses and changes of a simulated Ceph; it has mClock profiles if its OSDs
    schedule by mClock."""
    profile = {MCLOCK_PROFILE} if parameters.op_queue == "mclock_scheduler" else set()
    return Needs(SENSES, ACTS | profile)


def _to_simulator(action: Action) -> dict[str, Any]:
    body = action_to_json(action)
    if isinstance(action, SetOption):
        body["setting"] = body.pop("value")  # the simulator's `value` is a number
    return body


class SimulatedCeph:
    """A modelled Ceph on the nodes of a testbed's spec, at rest at virtual time 0.

    Implements `testbed.stores.contract.Store`. Not thread-safe. Close it, or use it as a context
    manager.

    Args:
        spec: nodes, disks, links, the first pool, and ceph.conf settings that the model knows.
        seed: seed of all randomness.
        parameters: constants of the model.
        signal: the source of `Observation.pressure`.
        program, limit_s: see `SimulatorProcess`. The sources of a program given here are not
            checked.

    Raises:
        UserError: the spec cannot be simulated.
        StoreError: also in every method: the simulator refused, died, hung or sent nonsense.
    """

    def __init__(
        self,
        spec: TestbedSpec,
        *,
        seed: int = 0,
        parameters: ModelParameters | None = None,
        signal: Signal = "node",
        program: Path | None = None,
        limit_s: float = LIMIT_S,
    ) -> None:
        if signal not in SIGNAL_NAMES:
            raise UserError(f"there is no signal {signal!r}", allowed=", ".join(SIGNAL_NAMES))
        model = parameters or ModelParameters()
        config = configuration(spec, model, seed % 2**64)
        self.spec = spec
        self.seed = seed
        self.parameters = effective(spec, model)
        self.signal_name = SIGNAL_NAMES[signal]
        self.nodes = osd_nodes(spec)
        self.client = client_node(spec)
        self._signal = signal
        self._pool = spec.ceph().pools[0].name
        self._now_s = 0.0
        self._benchmark: Benchmark | None = None
        self._begins_s: float | None = None
        self._done = False
        self._map = MapTable(
            self.nodes, config["pool"], config["pgs"], config["size"], spec.rack_of()
        )
        self._process = SimulatorProcess("ceph", program=program, limit_s=limit_s)
        self._activity = ActivityTable(self._process, self._map.names())
        self._fio = Loads(self._process, spec.name, self.nodes)
        try:
            opened = self._process.ask("open", protocol=PROTOCOL, config=config).result
            if program is None:
                sources.check(opened.get("sources", ""), PROGRAM)
            self.capacity_iops = float(opened["capacity_iops"])
            self._signals = self._observe(pgs=False)[0]
        except BaseException:
            self._process.close()
            raise
        self._sensed_s = 0.0

    def __enter__(self) -> SimulatedCeph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the simulator; safe to repeat."""
        self._process.close()

    @property
    def simulator_pid(self) -> int:
        """Simulator's process id, for measurements of it."""
        return self._process.pid

    def versions(self) -> dict[str, str]:
        """Return the entries of a run's provenance in place of a store's version."""
        return {"hotbedsim": f"model {MODEL_VERSION}, protocol {PROTOCOL}"}

    # --- virtual time ---------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Virtual seconds since the store was made."""
        return self._now_s

    def advance(self, seconds: float) -> bool:
        """Run for `seconds`; see `advance_to`."""
        return self.advance_to(self._now_s + seconds)

    def advance_to(self, t_s: float) -> bool:
        """Run until `t_s`, or until the benchmark ends; return True in the second case."""
        if not math.isfinite(t_s):
            raise UserError(f"the simulation cannot be advanced to {t_s} s", do="give a time")
        if t_s <= self._now_s:
            return False
        before = self._done
        answer = self._process.ask("advance", to_s=t_s).result
        # Virtual time has whole nanoseconds: `t_s` counts as reached if both agree.
        now = float(answer["now_s"])
        self._now_s = t_s if abs(now - t_s) < 1e-8 else now
        self._done = bool(answer["done"])
        return self._done and not before

    def settle(self, limit_s: float = 3600.0) -> bool:
        """Run until every OSD is up and in, every PG active and no data moves; True on success."""
        answer = self._process.ask("settle", for_s=limit_s).result
        self._now_s = float(answer["now_s"])
        return bool(answer["at_rest"])

    # --- Store ----------------------------------------------------------------------------------

    def offers(self) -> Needs:
        """See `Store.offers`."""
        return offers(self.parameters)

    def sense(self, senses: frozenset[str]) -> Observation:
        """Return an observation, in no virtual time. See `Store.sense`."""
        refused = senses - SENSES
        if refused:
            raise StoreError(f"this store cannot sense {', '.join(sorted(refused))}")
        before, then = self._signals, self._sensed_s
        self._signals, hot = self._observe(pgs=bool(senses & {PGS, READ_BALANCE}))
        interval, self._sensed_s = self._now_s - then, self._now_s
        waited = PRESSURE in senses
        return Observation(
            t_s=self._now_s,
            interval_s=interval,
            signal=self.signal_name,
            pressure=pressure(self._signal, before, self._signals, interval) if waited else {},
            osds=self._map.osds(),
            pgs=self._map.pgs() if PGS in senses else (),
            hot=frozenset(i for i, on in enumerate(hot) if on) if HOT in senses else None,
            activity=self._activity.read() if ACTIVITY in senses else None,
            latency=latency(before, self._signals) if LATENCY in senses else None,
            read_balance={self._pool: self._map.read_balance()} if READ_BALANCE in senses else None,
        )

    def act(self, actions: Sequence[Action]) -> list[Effect]:
        """See `Store.act`. Consecutive actions of one kind are one step, one map epoch. Virtual
        time advances by a step's duration; a step of upmaps ends when their PGs serve again."""
        effects: list[Effect] = []
        for _, group in groupby(actions, key=lambda action: action.kind):
            effects += self._act([_to_simulator(action) for action in group])
        return effects

    def save(self) -> Mapping[str, Any]:
        """Return the affinities, weights, upmaps and balancer. See `Store.save`."""
        return saved_from(self._process.ask("save").result)

    def restore(self, saved: Mapping[str, Any]) -> list[Effect]:
        """Restore a saved state; return one effect for each restored thing. See `Store.restore`."""
        wanted = changes(self.save(), saved)
        effects = self._act([change.action for change in wanted]) if wanted else []
        return [
            Effect(effect.ok, f"{change.words}{'' if effect.ok else ': ' + effect.message}")
            for change, effect in zip(wanted, effects, strict=True)
        ]

    # --- load -----------------------------------------------------------------------------------

    def prefill(self, objects: int, object_size: int) -> None:
        """Put `objects` of `object_size` bytes into the pool, for ``seq`` and ``rand``, in place of
        an earlier prefill's. It takes no virtual time."""
        self._process.ask(
            "fill",
            count=objects,
            bytes=object_size,
            host=self.client,
            pid=self.parameters.prefill_pid,
        )

    def prefill_each(self, objects: int, object_size: int) -> None:
        """Prefill as `prefill` does, with `objects` in every PG, for open-loop writes."""
        self._process.ask("fill-each", count=objects, bytes=object_size)

    def start_open_writes(self, writes: OpenWrites) -> None:
        """Start open-loop writes now; `advance_to` reports their end. UserError for an unknown
        PG."""
        start_writes(self._process, self._map.names(), writes)
        self._benchmark, self._done = None, False
        self._begins_s = self._now_s

    def open_writes_result(self) -> OpenWritesResult:
        """Return the result of finished open-loop writes."""
        return result_of_writes(self._process, self._map.names())

    def start_disturbance(self, stretches: Stretches) -> None:
        """Load nodes by a plan. Its first stretch begins now; the others count from the benchmark's
        start (`start_benchmark`), as on a real testbed. UserError: a node is unknown, or a share is
        invalid."""
        running = self._begins_s is not None and not self._done
        self._fio.start(stretches, self._begins_s if running else None)

    def stop_disturbance(self) -> None:
        """Stop every load and forget the plan."""
        self._fio.stop()

    def start_benchmark(self, benchmark: Benchmark, *, in_s: float = 0.0) -> None:
        """Start a benchmark in `in_s` virtual seconds; `advance_to` reports its end. The
        disturbance plan's stretches after 0 count from its start."""
        self._process.ask(
            "start",
            bench={
                "op": benchmark.op,
                "object_size": benchmark.object_size,
                "concurrency": benchmark.concurrency,
                "duration_s": benchmark.duration_s,
                "start_in_s": in_s,
            },
        )
        self._benchmark, self._done = benchmark, False
        self._begins_s = self._now_s + in_s
        self._fio.begin(self._begins_s)

    @property
    def benchmark_done(self) -> bool:
        """True if the last benchmark has ended."""
        return self._done

    def run_benchmark(self, *, grace_s: float = 30.0) -> BenchmarkResult:
        """Advance until the benchmark has ended. StoreError: it has not ended `grace_s` after its
        time (operations hang)."""
        if self._benchmark is None or self._begins_s is None:
            raise StoreError("no benchmark was started.")
        limit = self._begins_s + self._benchmark.duration_s + grace_s
        while not self._done and self._now_s < limit:
            self.advance_to(limit)
        if not self._done:
            raise StoreError(
                f"the benchmark has not ended {grace_s:g} s after its time: operations wait for "
                "placement groups that nobody serves."
            )
        return self.result()

    def result(self) -> BenchmarkResult:
        """Return the benchmark's result, a preliminary one while it runs."""
        answer = self._process.ask("result")
        body, blocks = answer.result, answer.blocks
        assert self._benchmark is not None
        operations = int(body["operations"])
        return BenchmarkResult(
            benchmark=self._benchmark,
            started_s=float(body["start_s"]),
            seconds=float(body["seconds"]),
            operations=operations,
            in_time=int(body["in_time"]),
            bytes=int(body["bytes"]),
            latency_mean_s=body["latency_sum_s"] / operations if operations else None,
            latency_min_s=body["latency_min_s"] if operations else None,
            latency_max_s=body["latency_max_s"] if operations else None,
            histogram=tuple((low, high, n) for low, high, n in rows_of(blocks["histogram"], 3)),
            series=seconds_of(blocks["series"], self._benchmark, float(body["seconds"])),
            fio_reads=dict(zip(self.nodes, blocks["fio_reads"], strict=True)),
        )

    # --- recording and faults -------------------------------------------------------------------

    def start_recorder(self) -> None:
        """Take a sample of everything each virtual second from now on."""
        self._process.ask("record", on=True)

    def stop_recorder(self) -> None:
        """Stop taking samples."""
        self._process.ask("record", on=False)

    def samples(self) -> list[SampleRow]:
        """Return the recorder's samples and the benchmark's seconds as rows of samples.parquet,
        with the metrics of testbed/agent/sampler.py (no cpu_cores: the model has no processors).

        Above `ModelParameters.detail_nodes` nodes there are no rows of single nodes, but means over
        the nodes with and without a disturbance, as nodes ``hot`` and ``calm``.
        """
        answer = self._process.ask("samples")
        rows = sample_rows(answer, self.nodes)
        if self._benchmark is not None:
            rows += [
                SampleRow(second.t_s, "client", metric, value)
                for second in self.result().series
                for metric, value in (
                    ("throughput_mb_s", second.throughput_mb_s),
                    ("iops", second.iops),
                    ("latency_s", second.latency_s),
                    ("in_flight", float(second.in_flight)),
                )
                if value is not None
            ]
        return rows

    def fault(
        self,
        kind: Literal["crash", "restart", "slow", "cut", "heal", "delay"],
        node: str,
        *,
        factor: float = 1.0,
        seconds: float = 0.0,
    ) -> None:
        """Break or repair something on a node now: its OSD's process (crash, restart), its disk
        (slow by `factor`), its link (cut, heal, `seconds` more delay)."""
        fault = {"kind": kind, "osd": self._fio.number(node), "factor": factor, "seconds": seconds}
        self._process.ask("break", fault=fault)

    def statistics(self) -> Mapping[str, float]:
        """Return the simulator's events, now_s, heap_bytes, system_bytes, moves, epoch, stall_s."""
        found: Mapping[str, float] = self._process.ask("stats").result
        return found

    # --- internals ------------------------------------------------------------------------------

    def _act(self, actions: list[dict[str, Any]]) -> list[Effect]:
        answer = self._process.ask("act", actions=actions).result
        self._now_s = float(answer["now_s"])
        return [
            Effect(e["ok"], e["message"], e["seconds"], dict(e["detail"] or {}))
            for e in answer["effects"]
        ]

    def _observe(self, *, pgs: bool) -> tuple[Sequence[float], bytes]:
        answer = self._process.ask("observe", pgs=pgs)
        self._map.update(answer.blocks, pgs=pgs)
        return answer.blocks["signals"], bytes(answer.blocks["hot"])
