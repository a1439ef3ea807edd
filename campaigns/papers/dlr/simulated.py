"""Cells on a modelled store: the same steps in the same order, on virtual time.

Every cell has its own simulator, which lives as long as the cell's disturbance, so there is nothing
to clean. The controller's loop is the real one (controllers/loop.py) with the simulation's clock.
It therefore runs together with the benchmark, in `workload`.

A run's files are a live run's files and the distribution of latencies, which rados bench does not
print. Throughput counts the operations within the benchmark's own time (`in_own_time`), as live.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from statistics import fmean
from typing import Any

from campaigns.engine.judge import MachineLoad
from campaigns.engine.write_cell import write_latency, write_samples
from campaigns.papers.dlr import loads
from campaigns.papers.dlr.cell import CellSetting, in_order
from campaigns.papers.dlr.measure import collect_writes, mean_pressure, steady_from_s
from controllers.decide import PolicyError
from controllers.decider import open_decider
from controllers.journal import JournalWriter
from controllers.loop import EXIT_STOPPED, Loop, LoopPlan
from controllers.registry import code_hash, find, refuse_unoffered
from controllers.saved import Saved
from controllers.service import DECIDE_LIMIT_S
from schemas.cells.dlr import Bench
from schemas.durable import write_file
from schemas.errors import HotbedError
from schemas.run import OpSummary, Summary
from testbed.agent.openloop.writer import Histogram
from testbed.simulated import (
    Benchmark,
    BenchmarkResult,
    ModelParameters,
    SampleRow,
    SimulatedCeph,
    SimulatedClock,
)
from testbed.simulated.clock import EPOCH_S
from testbed.simulated.loads import OpenWrites, OpenWritesResult
from testbed.simulated.parameters import osd_nodes
from testbed.simulated.store import changes
from testbed.simulated.tables import SIGNAL_NAMES
from testbed.spec import TestbedSpec
from testbed.stores.contract import OSDS, PGS
from workloads import collect as benchmarked
from workloads.open_loop import OpenLoop, OpenLoopResult, PgLatency
from workloads.rados_bench import BenchResult, RadosBench, Segment
from workloads.rados_output import RadosSample as Second

STEADY_S = 5.0
"""Virtual seconds until a load has its steady rate: queues fill in tenths of seconds."""

GRACE_S = 60.0
"""Virtual seconds after a benchmark's time for requests in flight."""

QUEUED = 5.0
"""The same as a multiple of the benchmark's time, on a store with its own size. Of 2,000 operations
in flight on 1,000 OSDs with ten hot ones, most wait at those ten."""

BEYOND = 10  # least requests beyond a reported percentile


class SimulatedServices:
    """See `campaigns.papers.dlr.cell.Services`."""

    def __init__(self, spec: TestbedSpec, model: ModelParameters, setting: CellSetting) -> None:
        self._spec = spec
        self._model = model
        self._setting = setting
        self._plan = loads.disturbance_of(setting, osd_nodes(spec))
        self._ceph: SimulatedCeph | None = None
        self._loop: Callable[[SimulatedClock], Loop] | None = None
        self._lead_s = self._began_s = 0.0
        self._worked = False
        self._result: BenchmarkResult | None = None
        self._samples: list[SampleRow] = []
        self._left: list[str] = []
        self._statistics: dict[str, float] = {}
        self._fio_s: dict[str, float] = {}

    def at_once(self, *calls: Callable[[], Any]) -> list[Any]:
        """See `Services.at_once`: virtual time has one step at a time."""
        return in_order(*calls)

    def signal(self) -> str | None:
        return SIGNAL_NAMES[self._setting.parameters.signal]

    def clean(self) -> None:
        """See `Services.clean`: the cell's store does not exist yet."""

    def restore(self) -> bool:
        """See `Services.restore`: a new store replaces a snapshot."""
        return True

    def prefill(self) -> None:
        """See `Services.prefill`: it happens when the store is made."""

    def drop_caches(self) -> None:
        """See `Services.drop_caches`: caches are not modelled."""

    @contextmanager
    def disturbance(self) -> Iterator[None]:
        """See `Services.disturbance`. The store exists only inside it."""
        setting = self._setting
        with SimulatedCeph(
            self._spec,
            seed=setting.seed,
            parameters=self._model,
            signal=setting.parameters.signal,
        ) as ceph:
            self._ceph = ceph
            try:
                self._fill(ceph)
                found = ceph.save()
                self._disturb(ceph)
                yield
                if self._worked:
                    self._left = [change.words for change in changes(ceph.save(), found)]
                    self._keep(ceph)
                    self._samples = ceph.samples()
                    self._statistics = dict(ceph.statistics())
            finally:
                self._ceph = None

    def _fill(self, ceph: SimulatedCeph) -> None:
        """Write a cell's objects; for writes too, as the snapshot of a live cell contains them."""
        objects = loads.objects_to_read(self._setting, self._spec)
        ceph.prefill(objects.objects, objects.object_size)

    def _disturb(self, ceph: SimulatedCeph) -> None:
        """Start the load next to the workload, or the workload itself."""
        self._began_s = ceph.now_s
        ceph.start_disturbance((part.t_s, part.loads) for part in self._plan.stretches)
        ceph.advance(STEADY_S)

    def _keep(self, ceph: SimulatedCeph) -> None:
        """Keep the workload's results, at the end of the load."""
        self._fio_s = self._loaded_s(self._began_s, ceph.now_s)
        self._result = ceph.result()  # with fio's reads until now

    @contextmanager
    def recorder(self) -> Iterator[None]:
        self._store.start_recorder()
        yield
        self._store.stop_recorder()

    @contextmanager
    def controller(self) -> Iterator[None]:
        """See `Services.controller`. A failed controller fails the cell."""
        name = self._setting.parameters.controller
        dirs = [] if self._setting.controllers_dir is None else [self._setting.controllers_dir]
        try:
            controller = find(name, dirs)
            decider = open_decider(
                controller,
                self._setting.parameters.controller_parameters,
                self._setting.seed,
                limit_s=DECIDE_LIMIT_S,
            )
        except PolicyError as error:
            raise HotbedError(f"the controller {name} failed: {error}") from error
        folder = self._setting.folder
        try:
            refuse_unoffered(name, decider.needs, self._store.offers(), "modelled Ceph")
            plan = LoopPlan(
                policy=name,
                needs=decider.needs,
                parameters=decider.parameters,
                seed=self._setting.seed,
                interval_s=self._setting.interval_s,
                signal=self._setting.parameters.signal,
                code_hash=code_hash(controller),
            )
            with JournalWriter(folder / "journal.jsonl", sync=False) as journal:
                self._loop = lambda clock: Loop(
                    plan,
                    decider=decider,
                    store=self._store,
                    journal=journal,
                    saved=Saved(folder / "logs" / "saved.json"),
                    clock=clock,
                )
                yield
        finally:
            self._loop = None
            decider.close()

    def steady(self) -> None:
        """See `Services.steady`: the load is steady when its step has started."""

    def wait(self, seconds: float) -> None:
        """See `Services.wait`: the benchmark begins this much later."""
        self._lead_s += seconds

    def usage(self) -> AbstractContextManager[None]:
        """See `Services.usage`: virtual time has no other load."""
        return nullcontext()

    def workload(self) -> None:
        """See `Services.workload`. The controller, which has begun, runs with it."""
        ceph, parameters = self._store, self._setting.parameters
        assert isinstance(parameters, Bench), "other operations have services of their own"
        seconds = self._setting.duration_s
        benchmark = Benchmark(
            op=parameters.op,
            object_size=parameters.object_size,
            concurrency=parameters.concurrency,
            duration_s=seconds,
        )
        ceph.start_benchmark(benchmark, in_s=self._lead_s)
        grace_s = GRACE_S if parameters.osds is None else max(GRACE_S, QUEUED * seconds)
        limit_s = ceph.now_s + self._lead_s + seconds + grace_s
        self._run_controller(limit_s)
        if not ceph.benchmark_done:
            raise HotbedError(
                f"the benchmark had not ended {grace_s:g} virtual seconds after its time: "
                "operations wait for placement groups that nobody serves."
            )
        self._result, self._worked = ceph.result(), True
        if not self._result.in_time:
            raise HotbedError(f"no operation ended within {seconds:g} virtual seconds.")

    def _run_controller(self, limit_s: float) -> None:
        """Run the controller's loop until the workload ends, at most to a virtual second."""
        assert self._loop is not None
        outcome = self._loop(SimulatedClock(self._store, stop_at_s=limit_s)).run()
        if outcome.code != EXIT_STOPPED:
            name = self._setting.parameters.controller
            raise HotbedError(f"the controller {name} failed: {outcome.reason}")

    def load(self) -> MachineLoad:
        """See `Services.load`: nothing is known."""
        return MachineLoad()

    def not_restored(self) -> list[str]:
        return self._left

    def collect(self) -> Summary:
        assert self._result is not None
        self._write_log()
        return collect(
            self._setting,
            self._result,
            self._samples,
            fio_s=self._fio_s,
            statistics=self._statistics,
            detail_nodes=self._model.detail_nodes,
        )

    @property
    def _store(self) -> SimulatedCeph:
        assert self._ceph is not None, "the store lives within disturbance()"
        return self._ceph

    def _loaded_s(self, began_s: float, now_s: float) -> dict[str, float]:
        """Return the seconds of load on each node; the plan's times count from the benchmark."""
        assert self._result is not None
        starts = [began_s] + [
            self._result.started_s + part.t_s for part in self._plan.stretches if part.t_s > 0
        ]
        ends = [*starts[1:], now_s]
        found: dict[str, float] = {}
        for part, start, end in zip(self._plan.stretches, starts, ends, strict=True):
            for node in part.loads:
                found[node] = found.get(node, 0.0) + max(0.0, min(end, now_s) - start)
        return found

    def _write_log(self) -> None:
        """Write the plan of the disturbance, as in a live run."""
        stretches = [{"t_s": s.t_s, "loads": dict(s.loads)} for s in self._plan.stretches]
        body = {"scenario": self._plan.scenario, "simulated": True, "stretches": stretches}
        file = self._setting.folder / "logs" / "disturbance.json"
        write_file(file, json.dumps(body, indent=1) + "\n")


class SimulatedOpenLoopServices(SimulatedServices):
    """See `campaigns.papers.dlr.cell.Services`. The load is the disturbance."""

    def __init__(self, spec: TestbedSpec, model: ModelParameters, setting: CellSetting) -> None:
        super().__init__(spec, model, setting)
        self._config: OpenLoop | None = None
        self._written: OpenLoopResult | None = None

    def _fill(self, ceph: SimulatedCeph) -> None:
        parameters = loads.cell_of(self._setting)
        # The model has one size of objects: their number and total bytes are right.
        objects = parameters.objects_per_pg + loads.ballast_per_pg(parameters)
        ceph.prefill_each(objects, loads.bytes_per_pg(parameters) // objects)

    def wait(self, seconds: float) -> None:
        self._store.advance(seconds)

    def workload(self) -> None:
        """See `Services.workload`. The controller runs until the load ends."""
        assert self._config is not None
        ceph, config = self._store, self._config
        self._run_controller(ceph.now_s + config.duration_s + config.drain_s + GRACE_S)
        self._written, self._worked = as_open_loop(ceph.open_writes_result(), config), True
        if not self._written.done:
            raise HotbedError("not one write was done: the store did not take the load.")

    def collect(self) -> Summary:
        assert self._written is not None
        own = {f"simulated.{name}": self._statistics[name] for name in ("now_s", "events", "epoch")}
        return collect_writes(
            self._setting, self._written, self._samples, nodes=osd_nodes(self._spec), extra=own
        )

    def _disturb(self, ceph: SimulatedCeph) -> None:
        seen = ceph.sense(frozenset({OSDS, PGS}))
        placement = {
            "pgs": {pg.id: {"up": list(pg.up), "bytes": pg.bytes} for pg in seen.pgs},
            "osds": {str(osd.id): {"node": osd.node, "rack": osd.rack} for osd in seen.osds},
        }
        pool = self._spec.ceph().pools[0].name
        self._config = config = loads.placed_writer(self._setting, pool, placement)
        ceph.start_open_writes(
            OpenWrites(config.rates, config.object_bytes, config.duration_s, config.drain_s)
        )

    def _keep(self, ceph: SimulatedCeph) -> None:
        """Keep nothing: the writes ended before the load did."""


def as_open_loop(result: OpenWritesResult, config: OpenLoop) -> OpenLoopResult:
    """Return the results of modelled writes as the real writer's."""
    histogram, ages = Histogram(), Histogram()
    end_s = config.duration_s + config.drain_s
    pgs: dict[str, PgLatency] = {}
    by_pg: dict[str, list[tuple[float, float | None]]] = {}
    for at, took, pg in result.requests:
        by_pg.setdefault(pg, []).append((at, took))
        if took is None:
            ages.add(end_s - at)
        else:
            histogram.add(took)
    for pg, rows in sorted(by_pg.items()):
        mine = Histogram()
        for _, took in rows:
            if took is not None:
                mine.add(took)
        left = len(rows) - mine.total
        pgs[pg] = PgLatency(len(rows), mine.total, 0, left, mine)
    return OpenLoopResult(
        config=config,
        started_wall=EPOCH_S + result.started_s,
        prefill_s=0.0,
        series=list(result.series),
        histogram=histogram,
        ages=ages,
        intended=len(result.requests),
        done=histogram.total,
        failed=0,
        outstanding=ages.total,
        late=0,
        late_max_s=0.0,
        held=0,
        pgs=pgs,
        requests=result.requests,
    )


def collect(
    setting: CellSetting,
    result: BenchmarkResult,
    samples: Sequence[SampleRow],
    *,
    fio_s: Mapping[str, float],
    statistics: Mapping[str, float],
    detail_nodes: int,
) -> Summary:
    """Write `samples.parquet` and `latency.parquet`, and return the run's summary.

    Args:
        setting: the cell.
        result: result of the benchmark.
        samples: samples of the recorder and the benchmark.
        fio_s: virtual seconds of load on each node.
        statistics: the simulator's statistics.
        detail_nodes: with more nodes, only means are kept.
    """
    folder = setting.folder
    table = write_samples(folder, samples)
    op = result.benchmark.op
    write_latency(
        folder, ((0.0, op, "bench", benchmarked.CLIENT, *bucket) for bucket in result.histogram)
    )
    bench = in_own_time(as_rados_bench(result), result.in_time)
    reads = {
        f"hot_iops.{node}": result.fio_reads[node] / seconds
        for node, seconds in sorted(fio_s.items())
        if seconds > 0
    }
    if len(result.fio_reads) > detail_nodes and reads:
        reads = {"hot_iops": fmean(reads.values())}
    own = {f"simulated.{name}": statistics[name] for name in ("now_s", "events", "epoch")}
    return Summary(
        whole=[with_percentiles(benchmarked.whole(bench), result)],
        steady=[benchmarked.steady(bench, steady_from_s(setting))],
        pressure_mean=mean_pressure(table, sorted(set(table["node"])), bench.seconds),
        extra=reads | own,
    )


def as_rados_bench(result: BenchmarkResult) -> BenchResult:
    """Return the result as rados bench's, so that the same code summarizes both."""
    benchmark = result.benchmark
    return BenchResult(
        bench=RadosBench(
            op=benchmark.op,
            object_size=benchmark.object_size,
            concurrency=benchmark.concurrency,
            duration_s=benchmark.duration_s,
            run_name="simulated",
        ),
        seconds=result.seconds,
        operations=result.operations,
        bytes=result.bytes,
        latency_mean_s=result.latency_mean_s or 0.0,
        latency_sd_s=None,
        latency_max_s=result.latency_max_s or 0.0,
        latency_min_s=result.latency_min_s or 0.0,
        incorrect=0,
        series=tuple(
            Second(s.t_s, None, s.throughput_mb_s, s.iops, s.latency_s, s.in_flight)
            for s in result.series
        ),
        segments=(Segment(result.started_s, 0.0, result.seconds),),
        cpu_s=None,
        raw=(),
    )


def in_own_time(bench: BenchResult, operations: int) -> BenchResult:
    """Return `bench` with the throughput of its own duration, in which `operations` finished.

    Latencies remain those of all operations, because without late operations they would be too
    short. The series ends with the last second that began within the duration.
    """
    duration_s = bench.bench.duration_s
    # A second's time is its end, and the last second is shorter.
    seconds = math.ceil(duration_s - 1e-6)
    return replace(
        bench,
        seconds=duration_s,
        operations=operations,
        bytes=operations * bench.bench.object_size,
        series=tuple(second for second in bench.series if second.t_s <= seconds),
        segments=tuple(replace(part, seconds=duration_s) for part in bench.segments),
    )


def with_percentiles(summary: OpSummary, result: BenchmarkResult) -> OpSummary:
    """Return the summary with median and 99th percentile, if enough requests are beyond them."""
    found = {
        name: result.quantile_s(q)
        for name, q in (("latency_p50_s", 0.5), ("latency_p99_s", 0.99))
        if result.operations * (1 - q) >= BEYOND
    }
    return summary.model_copy(update=found)
