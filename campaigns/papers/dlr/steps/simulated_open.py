"""`Services` of a cell with open-loop writes on a modelled store, on virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from campaigns.papers.dlr.services import CellSetting
from campaigns.papers.dlr.steps import open_load
from campaigns.papers.dlr.steps.simulated import GRACE_S, SimServices
from controllers.loop import EXIT_STOPPED
from schemas.errors import HotbedError
from schemas.run import Summary
from testbed.agent.openloop.histogram import Histogram
from testbed.simulated import ModelParameters, SimulatedCeph, SimulatedClock
from testbed.simulated.clock import EPOCH_S
from testbed.simulated.open_loop import OpenWrites, OpenWritesResult
from testbed.simulated.parameters import osd_nodes
from testbed.simulated.saved import changes
from testbed.spec import TestbedSpec
from testbed.stores.contract import OSDS, PGS
from workloads.open_loop import OpenLoop, OpenLoopResult, PgLatency


class SimOpenLoopServices(SimServices):
    """See `campaigns.papers.dlr.services.Services`. The load is the disturbance."""

    def __init__(self, spec: TestbedSpec, model: ModelParameters, setting: CellSetting) -> None:
        super().__init__(spec, model, setting)
        self._config: OpenLoop | None = None
        self._written: OpenLoopResult | None = None

    @contextmanager
    def disturbance(self) -> Iterator[None]:
        """See `Services.disturbance`. The store exists only inside it."""
        parameters = open_load.cell_of(self._setting)
        with SimulatedCeph(
            self._spec, seed=self._setting.seed, parameters=self._model, signal=parameters.signal
        ) as ceph:
            self._ceph = ceph
            try:
                # The model has one size of objects: their number and total bytes are right.
                objects = parameters.objects_per_pg + open_load.ballast_per_pg(parameters)
                ceph.prefill_each(objects, open_load.bytes_per_pg(parameters) // objects)
                found = ceph.save()
                self._begin(ceph)
                yield
                if self._written is not None:
                    self._left = [change.words for change in changes(ceph.save(), found)]
                    self._samples = ceph.samples()
                    self._statistics = dict(ceph.statistics())
            finally:
                self._ceph = None

    def wait(self, seconds: float) -> None:
        """See `Services.wait`."""
        self._store.advance(seconds)

    def workload(self) -> None:
        """See `Services.workload`. The controller runs until the load ends."""
        assert self._loop is not None
        assert self._config is not None
        ceph, config = self._store, self._config
        limit_s = ceph.now_s + config.duration_s + config.drain_s + GRACE_S
        outcome = self._loop(SimulatedClock(ceph, stop_at_s=limit_s)).run()
        if outcome.code != EXIT_STOPPED:
            name = self._setting.parameters.controller
            raise HotbedError(f"the controller {name} failed: {outcome.reason}")
        self._written = as_open_loop(ceph.open_writes_result(), config)
        if not self._written.done:
            raise HotbedError("not one write was done: the store did not take the load.")

    def collect(self) -> Summary:
        """See `Services.collect`."""
        from campaigns.papers.dlr.steps.collect_open import collect

        assert self._written is not None
        own = {f"simulated.{name}": self._statistics[name] for name in ("now_s", "events", "epoch")}
        return collect(
            self._setting, self._written, self._samples, nodes=osd_nodes(self._spec), extra=own
        )

    def _begin(self, ceph: SimulatedCeph) -> None:
        seen = ceph.sense(frozenset({OSDS, PGS}))
        where = {pg.id: list(pg.up) for pg in seen.pgs}
        load = open_load.load_of(open_load.cell_of(self._setting), where, self._setting.seed)
        told = {
            "pgs": {pg.id: {"up": list(pg.up), "bytes": pg.bytes} for pg in seen.pgs},
            "osds": {str(osd.id): {"node": osd.node, "rack": osd.rack} for osd in seen.osds},
        }
        open_load.write_load(self._setting, load, told)
        pool = self._spec.ceph().pools[0].name
        self._config = config = open_load.open_loop(self._setting, pool, load.rates)
        ceph.start_open_writes(
            OpenWrites(config.rates, config.object_bytes, config.duration_s, config.drain_s)
        )


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
