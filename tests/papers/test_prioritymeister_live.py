"""PriorityMeister's testbed experiments on fakes of agent, proxies and shells: an experiment from
parameters to results, profiles of servers, and proofs of bounds on real machines.

Tests name the section or figure of the paper that they hold.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import yaml

from campaigns.engine.plan import Cell
from campaigns.papers.prioritymeister import replays
from campaigns.papers.prioritymeister.cell import AloneLatencies, PmCellMaker, bound_holds, numbers
from campaigns.papers.prioritymeister.experiment import Conditions, PmExperiment, PmOutcome
from campaigns.papers.prioritymeister.live import (
    conditions_of,
    laid_out,
    machines_of,
    network_differs,
    parameters_on,
    places_of,
    require_hosts,
    result_of,
    server_of,
)
from campaigns.papers.prioritymeister.measure import (
    FIRST,
    LATER,
    MORE,
    allowed,
)
from campaigns.papers.prioritymeister.mixes import Mix, PmMachines, build, larger
from campaigns.papers.prioritymeister.plan import MeasuredTraces, planned
from campaigns.papers.prioritymeister.topology import htb_links
from controllers.prioritymeister.estimators import load_profile
from schemas.cells.prioritymeister import PM, PmCell
from schemas.errors import HotbedError, UserError
from testbed.spec import TestbedSpec
from testbed.stores.nfs.shaping import FRAME
from tests.campaigns.read_settings import SET_BY_HAND, SPEC_S, fails_by_name, reads
from tests.errors import raises
from tests.papers.prioritymeister_bench import (
    PROFILE,
    Bench,
    FakeAgent,
    a_testbed,
    experiment_in,
    part,
    report,
    spec_of_two,
)
from workloads.traces.reader import load as read


def test_an_experiment_from_parameters_to_results(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    outcome = bench.ground.carry_out(experiment_in(tmp_path))
    assert (outcome.spoiled, outcome.conditions) == (None, {})  # without a plan, no proof
    assert outcome.results["A"].requests == 20
    (served,) = bench.enforcement.given["storage"].values()
    clients = {one["name"]: one["clients"] for one in served["workloads"]}
    assert clients == {"A": ["10.77.0.13"], "L": ["10.77.0.14"]}
    assert outcome.extra["outside_cores"] == 0.1
    assert outcome.extra["client_share"] == pytest.approx(0.4)
    assert outcome.extra["cores.server"] == 0.3
    assert outcome.extra["charged_s.server"] == 2.5
    assert set(outcome.logs) >= {"parameters.json", "profile-server.json", "replay-A.json"}
    assert json.loads(outcome.logs["proxy-server.json"])["queued"] == 0
    profile = "profile server storageConstant"
    assert bench.enforcement.calls == ["removed", "caches", profile, "apply", "removed"]
    sent = {node: list(argv) for node, name, argv in bench.agent.started if name == replays.UNIT}
    assert sent["client0"][-2:] == ["--slo", "50000000ns"]
    assert sent["client1"][-3:] == ["--closed", "4", "--repeat"]
    starts = {argv[argv.index("--start-at") + 1] for argv in sent.values()}
    assert len(starts) == 1
    assert "10.77.0.11:2050" in sent["client0"]
    shell = bench.shells["client0"]
    assert gzip.decompress(shell.files[f"{replays.FOLDER}/A.csv.gz"]).startswith(b"0,0x1000")
    assert shell.removed == [replays.FOLDER]


@SET_BY_HAND
def test_a_disk_set_by_hand_fails_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: tuple[float, ...]
) -> None:
    reads(monkeypatch, SPEC_S)
    outcome = Bench(tmp_path).ground.carry_out(experiment_in(tmp_path))
    assert outcome.settings == {"groups.osd.disk.positioning": SPEC_S}
    reads(monkeypatch, *found)
    bench = Bench(tmp_path)
    with fails_by_name():
        bench.ground.carry_out(experiment_in(tmp_path))
    assert bench.enforcement.calls[-1] == "removed"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((1, "", "replay: the connection to 10.77.0.11:2049 was lost: EOF\n"), "was lost: EOF"),
        ((None, "", ""), "it was stopped"),
        ((0, "garbage", ""), "printed no result"),
        ((0, json.dumps(report(errors={"NFS status 5": 3})), ""), "3 requests failed (NFS sta"),
    ],
)
def test_a_fault_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, said: tuple[int | None, str, str], words: str
) -> None:
    bench = Bench(tmp_path, FakeAgent({"client0": said}))
    with raises(HotbedError, "the replayer of A on node client0", words):
        bench.ground.carry_out(experiment_in(tmp_path))
    assert ("client1", replays.UNIT) in bench.agent.stopped
    assert bench.enforcement.calls[-2:] == ["apply", "removed"]
    assert bench.shells["client1"].removed == [replays.FOLDER]


def test_a_network_with_other_parameters_is_a_failure(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.enforcement.differences = {"client0": [], "server": ["class 1:11 is missing"]}
    with raises(HotbedError, "node server differs", "class 1:11"):
        bench.ground.carry_out(experiment_in(tmp_path))
    assert bench.enforcement.calls[-1] == "removed"


def test_late_replayers_and_other_load_spoil_a_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeAgent({"client0": (0, json.dumps(report(lag=2e-3)), "")}))
    outcome = bench.ground.carry_out(experiment_in(tmp_path))
    assert outcome.spoiled is not None and "the replayer of A was late" in outcome.spoiled
    noisy = Bench(tmp_path)
    cast(Any, noisy.nfs.live.site).outside = 1.5
    outcome = noisy.ground.carry_out(experiment_in(tmp_path))
    assert outcome.spoiled is not None and "1.5" in outcome.spoiled


def test_load_that_is_not_ours_and_clocks_that_are_off(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.agent.stray = {"client0": ["77 fio --name=x"]}
    bench.agent.live = {"client1": ["load-replay"]}
    with raises(HotbedError, "node client0 runs load that is not Hotbed's"):
        bench.ground.carry_out(experiment_in(tmp_path))
    assert bench.agent.stopped == [("client1", "load-replay")]
    with raises(UserError, "3.0", "s off", where="node client0"):
        Bench(tmp_path, off=3.0).ground.carry_out(experiment_in(tmp_path))


def test_files_are_laid_out_and_disks_measured_once(tmp_path: Path) -> None:
    bench, heard = Bench(tmp_path), list[str]()
    made = laid_out(bench.nfs, heard.append)
    assert made.disk == tmp_path / "pm-profile-server.json"
    assert made.ramdisk == tmp_path / "pm-profile-ram.json"
    assert load_profile(made.disk).storage is not None
    assert list(cast(Any, bench.nfs.live.site).shaping) == [False, True, False, True]
    made_files = [argv for _, name, argv in bench.agent.started if name == replays.PREPARE_UNIT]
    sizes = {tuple(argv)[-1] for argv in made_files}
    assert sizes == {f"{1 << 28}B", f"{1 << 27}B"}
    assert any("measuring" in words for words in heard)
    document = json.loads(made.disk.read_text())
    assert document["overhead"]["request"] == 0
    assert document["overhead"]["latency"] == pytest.approx(0.01)  # the charge equals the real time
    assert document["rounds"]["lag_seconds"] == [0.01] * LATER
    took = [
        row["requestSize"] / row[kind]
        for row in document["bandwidthTable"]
        for kind in ("readBandwidth", "writeBandwidth")
    ]
    # 512-byte requests were not seen: charge fio's 5 ms plus the excess of the other sizes.
    assert took == pytest.approx([MORE * 0.0304] * len(took))
    assert load_profile(made.disk).overhead.latency == pytest.approx(0.01)
    runs = [argv for _, name, argv in bench.agent.started if name == replays.UNIT]
    assert len(runs) == 2 * 2 * (FIRST + LATER)  # two clients, two servers
    assert not any("--closed" in argv for argv in runs)
    assert bench.shells["client0"].removed
    heard.clear()
    laid_out(bench.nfs, heard.append)
    assert not any("measuring" in words for words in heard)


def test_only_servers_that_cells_ask_are_measured(tmp_path: Path) -> None:
    bench, heard = Bench(tmp_path), list[str]()
    places = bench.nfs.places
    asked = {server_of(cell("disk"), places), server_of(cell("misbehave"), places)}
    assert asked == {"server"}
    made = laid_out(bench.nfs, heard.append, asked)
    assert made.disk == tmp_path / "pm-profile-server.json"
    assert made.ramdisk is None and not any("ram" in words for words in heard)
    assert server_of(cell("network"), places) == "ram"
    assert server_of(cell("levels"), places) == "server"
    assert server_of(cell("network"), replace(places, ram=None)) == "server"
    whole = laid_out(bench.nfs, heard.append)
    assert whole.ramdisk == tmp_path / "pm-profile-ram.json"


def test_traces_too_short_for_their_slos_are_refused_before_anything_runs(tmp_path: Path) -> None:
    class Unasked(NoisyGround):
        def carry_out(self, experiment: PmExperiment) -> PmOutcome:
            raise AssertionError("nothing runs")

    (tmp_path / "disk.json").write_text(json.dumps(PROFILE))
    ground = Unasked(0)
    ground.machines = PmMachines(disk=tmp_path / "disk.json", link=2e8)
    maker = PmCellMaker(ground)
    short, long = cell("disk", slo_percentile=90), cell("disk", slo_percentile=50)
    cells = [
        Cell(name, parameters, 2, 5, order, ("disk",), ("5",), 1.0)
        for order, (name, parameters) in enumerate((("a", short), ("b", long)))
    ]
    try:
        maker.foresee(cells[1:])
        with raises(UserError, "workload A", "90th", "needs 100", where="block 2 of disk"):
            maker.foresee(cells)
    finally:
        maker.close()


def cell(scenario: Any, **more: Any) -> PmCell:
    return PM.of(scenario=scenario, seconds=20, **more)


def test_places_come_from_roles_and_disks(tmp_path: Path) -> None:
    spec = spec_of_two(tmp_path)
    places = places_of(spec)
    assert (places.disk, places.ram, places.clients) == ("server", "ram", ("client0", "client1"))
    assert places.servers["server"] == 1 << 29
    machines = machines_of(spec, places)
    assert (machines.link, machines.server) == (2e8, "server")
    assert machines.network["K"] == ("ram", "ram")
    lonely = spec.model_copy(update={"groups": spec.groups[:3]})
    with raises(UserError, "2 nodes of role nfs and 0 of role client"):
        places_of(lonely)


def test_figure_9_is_made_for_its_own_servers_link(tmp_path: Path) -> None:
    spec_of_two(tmp_path)
    body = yaml.safe_load((tmp_path / "pm.yaml").read_text())
    sent, links = {}, {}
    for link in ("200Mbit", "50Mbit"):
        next(group for group in body["groups"] if group["name"] == "ram")["network"] = link
        spec = TestbedSpec.model_validate(body)
        machines = machines_of(spec, places_of(spec))
        for scenario in ("network", "misbehave"):
            cell = PM.check({"scenario": scenario, "policy": "none", "seconds": 60.0}, link)
            folder = tmp_path / f"{link}-{scenario}"
            folder.mkdir()
            mix = build(cell, 3, machines, folder)
            sent[link, scenario] = sum(len(read(one.replay.file)[0]) for one in mix.loads)
            links[link, scenario] = {name: host.link for name, host in mix.hosts.items()}
    assert 4 * sent["50Mbit", "network"] == pytest.approx(sent["200Mbit", "network"], rel=0.05)
    assert sent["50Mbit", "misbehave"] == sent["200Mbit", "misbehave"]
    assert links["50Mbit", "network"] == {"ram": 5e7, "client0": 2e8, "client1": 2e8}
    assert set(links["50Mbit", "misbehave"].values()) == {2e8}


def test_an_experiment_that_the_testbed_cannot_carry_out_is_refused(tmp_path: Path) -> None:
    topology = experiment_in(tmp_path).topology
    require_hosts(topology, a_testbed(tmp_path))
    with raises(UserError, "needs a host client1"):
        require_hosts(topology, a_testbed(tmp_path, clients=1))
    same = tuple(w.model_copy(update={"client": "client0"}) for w in topology.workloads)
    with raises(UserError, "would share node client0"):
        require_hosts(topology.model_copy(update={"workloads": same}), a_testbed(tmp_path))


class NoisyGround:
    """Ground with spoiled first runs."""

    name = "local"
    machines = PmMachines()

    def __init__(self, spoiled: int) -> None:
        self.spoiled, self.runs = spoiled, 0

    def carry_out(self, experiment: PmExperiment) -> PmOutcome:
        self.runs += 1
        why = "somebody else worked" if self.runs <= self.spoiled else None
        (name,) = experiment.replays
        logs = {"replay-A.json": "{}"}
        return PmOutcome({name: result_of(report(), experiment)}, spoiled=why, logs=logs)


def test_a_workload_alone_is_measured_again_while_it_is_spoiled(tmp_path: Path) -> None:
    alone = experiment_in(tmp_path).alone("A")
    noisy = NoisyGround(2)
    kept = tmp_path / ".alone"
    said: list[str] = []
    first = AloneLatencies(kept, tell=said.append)
    assert first.percentile(noisy, alone, 50) == pytest.approx(1e-3, rel=1e-3)
    assert said == [f"measuring what workload A has alone, {alone.seconds:.0f} s, for its SLO"] * 3
    assert noisy.runs == 3
    assert [path.name for path in kept.glob("*/*")] == ["replay-A.json"]
    assert AloneLatencies(kept).percentile(noisy, alone, 50) == pytest.approx(1e-3, rel=1e-3)
    assert noisy.runs == 3
    with raises(HotbedError, "alone was not measured", "somebody else worked"):
        AloneLatencies().percentile(NoisyGround(99), alone, 50)


LATENCY_S = 0.02
SERVICE = {"calls": 9, "charged_seconds": 1.0, "busy_seconds": 1.0, "lag_seconds": 0.015}


def planned_in(folder: Path, *, overhead: bool = True) -> PmExperiment:
    """Return an experiment under pm, planned as on a testbed."""
    made = experiment_in(folder, "pm")
    if overhead:
        profile = PROFILE | {"overhead": {"request": 0.0, "latency": LATENCY_S}}
        (folder / "disk.json").write_text(json.dumps(profile))
    rows = "0,0x1000,DiskRead,0x0\n200000000,0x8000,DiskRead,0x0\n900000000,0x1000,DiskRead,0x0\n"
    for name in "AL":
        (folder / f"{name}.csv").write_text(rows)
    known = MeasuredTraces(folder)
    tenants = [known.tenant(made.topology, w) for w in made.topology.workloads]
    return replace(made, plan=planned(made.topology, tenants, links=htb_links(FRAME)))


def conditions(
    experiment: PmExperiment, folder: Path, *, levels: int = 7, applied: Any = None, **changes: Any
) -> Conditions:
    reports = {"A": report(**changes), "L": report()}
    applied = applied or parameters_on(experiment, a_testbed(folder))
    status = {"server": {"service": SERVICE}}
    return conditions_of(experiment, applied, status, reports, switch_levels=levels)["A"]


def test_what_was_not_kept_takes_the_proof(tmp_path: Path) -> None:
    found = conditions(planned_in(tmp_path, overhead=False), tmp_path)
    assert found.why_not is not None and "has no overhead.latency" in found.why_not
    assert found.network and "by up to 15 ms" in found.why_not
    experiment = planned_in(tmp_path)
    found = conditions(experiment, tmp_path, whole=part(40, waiting=2))
    assert found.why_not == "2 requests were not answered by the end of the run"
    applied = parameters_on(experiment, a_testbed(tmp_path))
    network = applied.network.model_copy(update={"mode": "fifo"})
    found = conditions(
        experiment, tmp_path, applied=applied.model_copy(update={"network": network})
    )
    assert found.why_not == "the network is not enforced" and not found.network
    assert network_differs(applied, 7) is network_differs(applied, 7, 1538) is None
    assert "let more through" in str(network_differs(applied, 7, 9038))  # planned for 1500 bytes
    assert network_differs(applied, 0) == "the plan has 2 network levels, and the switch 0"


def test_a_bucket_that_the_kernel_cannot_keep_takes_the_proof(tmp_path: Path) -> None:
    """The plan ignores that HTB's buckets hold at least a frame."""
    experiment = planned_in(tmp_path)
    known = MeasuredTraces(tmp_path)
    tenants = [known.tenant(experiment.topology, w) for w in experiment.topology.workloads]
    assert min(tenants[0].limiters["network-in"].bursts) < FRAME
    naive = replace(experiment, plan=planned(experiment.topology, tenants))
    found = conditions(naive, tmp_path)
    assert found.why_not is not None and "let more through" in found.why_not


@pytest.mark.parametrize("kept", [True, False])
def test_the_summary_of_a_real_run(tmp_path: Path, kept: bool) -> None:
    experiment = planned_in(tmp_path)
    found = conditions(experiment, tmp_path, levels=7 if kept else 1)
    made = report()
    results = {name: result_of(made, experiment) for name in "AL"}
    outcome = PmOutcome(results, conditions={"A": found, "L": found})
    loads = {name: load_of(experiment, name) for name in "AL"}
    mix = cast(Mix, SimpleNamespace(base=tmp_path, loads=loads.values(), load=loads.get))
    parameters = PM.of(scenario="disk", policy="pm")
    assert bound_holds(parameters, mix, "A", found) is kept
    assert not bound_holds(parameters, mix, "L", found)  # it has no trace as a limit
    extra = numbers(parameters, mix, experiment, outcome, {"A": 0.05})
    assert ("A_bound_ratio" in extra) is kept
    assert extra["bounds"] == float(kept)
    assert extra["A_network_kept"] == float(kept)
    assert (extra["A_late_s"], extra["A_behind_s"], extra["A_allowed_s"]) == (2e-4, 0.015, 0.02)
    if kept:
        longest, bound = made["whole"]["latency"]["max"], extra["A_bound_blocking_s"]
        assert extra["A_bound_ratio"] == pytest.approx(longest * (1 - 1e-3) / (bound + 2e-4))
    assert all(np.isfinite(value) for value in extra.values())


@pytest.mark.parametrize(("sent", "who"), [("0x8000", None), ("0x9000", "B")])
def test_larger_requests_than_announced_take_all_bounds(
    tmp_path: Path, sent: str, who: str | None
) -> None:
    announced, misbehaves = tmp_path / "B.csv", tmp_path / "B-sent.csv"
    announced.write_text("0,0x8000,DiskRead,0x0\n5,0x1000,DiskWrite,0x0\n")
    misbehaves.write_text(f"0,{sent},DiskRead,0x0\n" * 3)
    load = SimpleNamespace(name="B", trace="B.csv", replay=SimpleNamespace(file=misbehaves))
    assert larger(cast(Mix, SimpleNamespace(base=tmp_path, loads=[load]))) == who


def load_of(experiment: PmExperiment, name: str) -> Any:
    """Return the mix's load of a workload; L is a copy."""
    copy = name == "L"
    return SimpleNamespace(
        name=name,
        trace=f"{name}.csv",
        completion_s=9.0 if copy else None,
        required=1e5,
        replay=experiment.replays[name],
    )


Floats = npt.NDArray[np.float64]

ROUNDS, RUN = 6, 6
"""Rounds, and rounds in the length of a run."""


@pytest.mark.parametrize("longest_of", [8, None])
def test_a_run_stays_within_what_is_allowed(longest_of: int | None) -> None:
    """A round's maximum is the largest of eight exponential values, or of many (Gumbel)."""
    random = np.random.default_rng(3)
    runs = 4000

    def drawn(count: int) -> Floats:
        if longest_of is None:
            return random.gumbel(5.0, size=(runs, count))
        found: Floats = random.exponential(size=(runs, count, longest_of)).max(axis=2)
        return found

    rounds, run = drawn(ROUNDS), drawn(RUN).max(axis=1)
    within = np.mean([at <= allowed(seen) for at, seen in zip(run, rounds.tolist(), strict=True)])
    assert within > 0.95
    # Less is not enough: more than a third of the runs exceed the plain maximum.
    assert np.mean(run <= rounds.max(axis=1)) < 0.65


def test_unanswered_requests_are_counted_separately(tmp_path: Path) -> None:
    experiment = experiment_in(tmp_path)
    found = result_of(report(second_half=part(20, waiting=2)), experiment)
    assert (found.requests, found.misses, found.unfinished) == (20, 2, 2)
    assert found.count.tolist() == [18]
    assert (found.low_ns.tolist(), found.high_ns.tolist()) == ([1_000_000], [1_000_511])
    assert found.percentile(50) == pytest.approx(1e-3, rel=1e-3)
    assert found.bytes == 18 * 4096
    assert found.series == ((20, 5), (20, 5))
