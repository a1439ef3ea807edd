"""`Services` on a modelled store: the same steps in the same order, on virtual time.

Every cell has its own simulator, which lives as long as the cell's disturbance, so there is nothing
to clean. The controller's loop is the real one (controllers/loop.py) with the simulation's clock.
It therefore runs together with the benchmark, in `workload`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from campaigns.papers.dlr.services import CellSetting, Load
from campaigns.papers.dlr.steps import disturb, fill
from controllers.decide import PolicyError
from controllers.decider import open_decider
from controllers.journal import JournalWriter
from controllers.loop import EXIT_STOPPED, Loop, Plan
from controllers.registry import code_hash, find, refuse_unoffered
from controllers.saved import Saved
from controllers.service import DECIDE_LIMIT_S
from schemas.cells.dlr import Bench
from schemas.durable import write_file
from schemas.errors import HotbedError
from schemas.run import Summary
from testbed.simulated import (
    Benchmark,
    BenchmarkResult,
    ModelParameters,
    Sample,
    SimulatedCeph,
    SimulatedClock,
)
from testbed.simulated.parameters import osd_nodes
from testbed.simulated.saved import changes
from testbed.simulated.signals import SIGNAL_NAMES
from testbed.spec import TestbedSpec

STEADY_S = 5.0
"""Virtual seconds until a load has its steady rate: queues fill in tenths of seconds."""

GRACE_S = 60.0
"""Virtual seconds after a benchmark's time for requests in flight."""

QUEUED = 5.0
"""The same as a multiple of the benchmark's time, on a store with its own size. Of 2,000 operations
in flight on 1,000 OSDs with ten hot ones, most wait at those ten."""


class SimServices:
    """See `campaigns.papers.dlr.services.Services`."""

    def __init__(self, spec: TestbedSpec, model: ModelParameters, setting: CellSetting) -> None:
        self._spec = spec
        self._model = model
        self._setting = setting
        self._plan = disturb.plan_of(setting, osd_nodes(spec))
        self._ceph: SimulatedCeph | None = None
        self._loop: Callable[[SimulatedClock], Loop] | None = None
        self._lead_s = 0.0
        self._result: BenchmarkResult | None = None
        self._samples: list[Sample] = []
        self._left: list[str] = []
        self._statistics: dict[str, float] = {}
        self._fio_s: dict[str, float] = {}

    def signal(self) -> str | None:
        """See `Services.signal`."""
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
        parameters = self._setting.parameters
        with SimulatedCeph(
            self._spec,
            seed=self._setting.seed,
            parameters=self._model,
            signal=parameters.signal,
        ) as ceph:
            self._ceph = ceph
            try:
                # For writes too, because the snapshot of a live cell contains these objects.
                objects = fill.fill_plan(self._setting, self._spec)
                ceph.prefill(objects.objects, objects.object_size)
                found = ceph.save()
                began_s = ceph.now_s
                ceph.start_disturbance((part.t_s, part.loads) for part in self._plan.stretches)
                ceph.advance(STEADY_S)
                yield
                if self._result is not None:
                    self._left = [change.words for change in changes(ceph.save(), found)]
                    self._fio_s = self._loaded_s(began_s, ceph.now_s)
                    self._result = ceph.result()  # with fio's reads until now
                    self._samples = ceph.samples()
                    self._statistics = dict(ceph.statistics())
            finally:
                self._ceph = None

    @contextmanager
    def recorder(self) -> Iterator[None]:
        """See `Services.recorder`."""
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
            plan = Plan(
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

    def wait(self, seconds: float) -> None:
        """See `Services.wait`: the benchmark begins this much later."""
        self._lead_s += seconds

    def usage(self) -> AbstractContextManager[None]:
        """See `Services.usage`: virtual time has no other load."""
        return nullcontext()

    def workload(self) -> None:
        """See `Services.workload`. The controller, which has begun, runs with it."""
        assert self._loop is not None
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
        outcome = self._loop(SimulatedClock(ceph, stop_at_s=limit_s)).run()
        if outcome.code != EXIT_STOPPED:
            raise HotbedError(f"the controller {parameters.controller} failed: {outcome.reason}")
        if not ceph.benchmark_done:
            raise HotbedError(
                f"the benchmark had not ended {grace_s:g} virtual seconds after its time: "
                "operations wait for placement groups that nobody serves."
            )
        self._result = ceph.result()
        ended = self._result.operations if parameters.osds is None else self._result.in_time
        if not ended:
            raise HotbedError(f"no operation ended within {seconds:g} virtual seconds.")

    def load(self) -> Load:
        """See `Services.load`: nothing is known."""
        return Load()

    def not_restored(self) -> list[str]:
        """See `Services.not_restored`."""
        return self._left

    def collect(self) -> Summary:
        """See `Services.collect`."""
        from campaigns.papers.dlr.steps.collect_simulated import collect

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
