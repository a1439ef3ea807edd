"""CPU shares by the speed of a core: the factor, and one factor a block."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaigns.engine.job import Job, Phases
from campaigns.engine.kind import Prepared
from campaigns.engine.store import RunStore
from campaigns.engine.write_cell import write_cell
from campaigns.grounds.cores import factor_of, lacking, warnings
from campaigns.grounds.live import LiveTestbed, LoadMeter
from campaigns.grounds.testbed import shares_by_speed
from campaigns.papers.mos.swift import Division, Share, recorded
from schemas.errors import HotbedError
from schemas.run import Run
from testbed.agent.speed import REFERENCE_UNITS_S
from testbed.sites.contract import EnforcedSetting
from testbed.spec import load_spec
from tests.campaigns.tiny_kinds import job
from tests.errors import raises
from tests.papers.live_fakes import RecordingAgent
from tests.testbed.fake_site import FakeSite

PROCESSORS = 2
SPECS = [Path("testbed/specs") / f"{name}.yaml" for name in ("mos", "pm-local", "twochoice-64")]


class SharedSite(FakeSite):
    """Site with two processors that records the nodes' cores."""

    cpus: dict[str, float]

    def processors(self) -> int:
        return PROCESSORS

    def scale_cpus(self, name: str, factor: float) -> None:
        nodes = self._describe(self._of(name)).nodes
        self.cpus = {node.name: (node.cpus or 0.0) * factor for node in nodes}

    def settings(self, name: str, disks: Mapping[str, object]) -> list[EnforcedSetting]:
        where = "client", "groups.client", "cpus"
        return [EnforcedSetting(*where, self.cpus["client0"], 1.0, "cores", lambda: None)]


class Speeds(RecordingAgent):
    """Agent of an admin node whose next speeds a test chooses."""

    def __init__(self, *speeds: float) -> None:
        super().__init__()
        self.speeds = list(speeds)

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        found = super().call(verb, payload)
        return {"units_s": self.speeds.pop(0)} if verb == "core-speed" else found


def live_of(folder: Path, agent: RecordingAgent, file: Path = SPECS[0]) -> LiveTestbed:
    site, spec = SharedSite(folder / "site"), load_spec(file)
    return LiveTestbed(site, site.provision(spec), spec, agent, lambda node: None)  # type: ignore


SPEED = st.floats(1e-3, 1e6)


@given(SPEED, SPEED)
def test_effective_cores_do_the_same_work_at_any_speed(one, other):
    assert factor_of(one) * one == pytest.approx(REFERENCE_UNITS_S)
    assert (factor_of(one) > factor_of(other)) <= (one < other)
    assert factor_of(REFERENCE_UNITS_S) == 1


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_speed_has_no_factor(speed):
    with pytest.raises(ValueError):
        factor_of(speed)


@given(st.sampled_from(SPECS), st.floats(0.1, 10), st.integers(1, 64))
def test_lacking_is_exactly_what_exceeds_the_processors(file, factor, processors):
    spec = load_spec(file)
    found = lacking(spec, factor, processors)
    assert all(cores > processors for cores in found.values())
    largest = max(group.cpus for group in spec.groups)
    if largest * factor > processors + 1e-3:
        assert found
    assert lacking(spec, factor, 10_000) == {}
    # A pool of microstores needs its cores together.
    assert lacking(load_spec(SPECS[0]), 1.5, PROCESSORS) == {"pool of microstores": 2.4}


def prepared_in(folder: Path, *ids: str) -> Prepared:
    plan = SimpleNamespace(cells=[SimpleNamespace(run_id=one) for one in ids])
    found: Any = SimpleNamespace(full_plan=plan, store=RunStore(folder / "runs"))
    return found  # type: ignore[no-any-return]


def keep(prepared: Prepared, block: int, run_id: str, settings: Mapping[str, Any]) -> None:
    """Store a finished run."""
    prepared.store.prepare()
    _, partial = prepared.store.begin(run_id)
    made = job({}, block=block, run_id=run_id)
    write_cell(partial, made, {}, Phases(), settings=settings)
    prepared.store.commit(partial)


def test_a_block_has_one_factor_and_the_spec_s_shares_come_back(tmp_path):
    agent = Speeds(*[275.0] * 5, *[1.0, 1100.0, 1100.0, 1100.0, 9999.0])
    live, said = live_of(tmp_path, agent), list[str]()
    made = list[tuple[int, float, Mapping[str, Any]]]()

    def make(job: Job, folder: Path) -> None:
        made.append((job.block, site.cpus["client0"], dict(live.cores.record)))

    site: Any = live.site
    with (
        pytest.raises(KeyError),
        shares_by_speed(live, prepared_in(tmp_path), said.append) as scaled,
    ):
        for block in (0, 0, 1, 0):
            scaled(make)(job({}, block=block), tmp_path)
        raise KeyError
    assert [(block, cores) for block, cores, _ in made] == [(0, 2.0), (0, 2.0), (1, 0.5), (0, 2.0)]
    assert agent.called == ["core-speed"] * 10
    records = [record for *_, record in made]
    assert records[0] == records[1] == records[3]
    assert (records[0]["cores.factor"], records[0]["cores.units_s"]) == (2.0, 275.0)
    assert records[0]["cores.reference_units_s"] == REFERENCE_UNITS_S
    assert records[0]["cores.lacking"] == {"pool of microstores": 3.2}
    assert (records[2]["cores.factor"], records[2]["cores.lacking"]) == (0.5, {})
    assert len(said) == 2
    assert "3.2 of 2 processors" in said[0]
    assert site.cpus["client0"] == 1.0
    assert (live.cores.factor, live.cores.record) == (1.0, {})


def test_a_resumed_block_keeps_the_factor_of_its_runs(tmp_path):
    prepared, said = prepared_in(tmp_path, "a" * 12, "b" * 12), list[str]()
    keep(prepared, 0, "a" * 12, {"cores.units_s": 1100.0})
    keep(prepared, 1, "b" * 12, {})
    keep(prepared, 2, "c" * 12, {"cores.units_s": 1.0})  # not in the plan: other code
    agent = Speeds(*[275.0] * 5, *[550.0] * 5)
    live, factors = live_of(tmp_path, agent), list[tuple[float, str | None]]()

    def make(job: Job, folder: Path) -> None:
        factors.append((live.cores.factor, live.cores.record["cores.from_run"]))

    with shares_by_speed(live, prepared, said.append) as scaled:
        for block in (0, 1, 2):
            scaled(make)(job({}, block=block), tmp_path)
    assert factors == [(0.5, "a" * 12), (2.0, None), (1.0, None)]
    assert "a" * 12 in said[0]
    assert "anew" in said[1]
    assert "b" * 12 in said[1]


@pytest.mark.parametrize("file", ["dlr.yaml", "twochoice-rados.yaml"])
def test_cells_on_a_ceph_keep_the_spec_s_shares(tmp_path, file):
    agent = Speeds()
    live = live_of(tmp_path, agent, SPECS[0].with_name(file))

    def make(job: Job, folder: Path) -> None:
        raise AssertionError

    with shares_by_speed(live, prepared_in(tmp_path), print) as scaled:
        assert scaled(make) is make
    assert agent.called == []


def test_run_json_has_nominal_and_effective_shares_and_the_speed(tmp_path):
    live = live_of(tmp_path, Speeds())
    live.scale_cores(275.0)
    meter = LoadMeter(live.site, live.testbed, units_s=280.0, cores=live.cores)
    with meter.measured():
        pass
    division = Division("static", {"small": Share(0.4, 0.2, 1e6)})
    settings = {**meter.load.settings, **recorded(division, live.cores)}
    base = job({}).with_settings({"groups.client.cpus": 1.0})
    run = base.with_settings(settings).record("done", None)
    calibration = Run.model_validate_json(run.model_dump_json()).provenance.calibration
    assert calibration["core_units_s"] == 280.0
    assert calibration["groups"] == {"client": {"cpus": 1.0}}
    cores = calibration["cores"]
    assert (cores["factor"], cores["units_s"]) == (2.0, 275.0)
    assert cores["effective"] == {"client": {"cpus": 2.0}}
    assert cores["microstores"]["small"] == {
        "nominal": {"proxy_cores": 0.4, "storage_cores": 0.2},
        "effective": {"proxy_cores": 0.8, "storage_cores": 0.4},
    }
    site: Any = live.site
    site.cpus["client0"] = 1.0
    with raises(HotbedError, "cpus of node client"):
        meter.require_settings()
    live.scale_cores(None)
    assert recorded(division, live.cores) == {}
    assert LoadMeter(live.site, live.testbed, cores=live.cores).require_settings() == {
        "groups.client.cpus": 1.0
    }


@pytest.mark.parametrize(("speed", "warned"), [(550.0, False), (275.0, True)])
def test_the_plan_warns_of_a_machine_that_is_too_slow(tmp_path, monkeypatch, speed, warned):
    monkeypatch.setattr("campaigns.grounds.cores.measured_units_s", lambda: speed)
    live = live_of(tmp_path, Speeds())
    found = warnings(live.site, live.spec)
    assert bool(found) == warned
    assert warnings(FakeSite(tmp_path), live.spec) == []
