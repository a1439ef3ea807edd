"""PriorityMeister's testbed experiments on fakes of agent, proxies and shells."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from pm_reports import report
from read_settings import SET_BY_HAND, SPEC_S, fails_by_name, reads

from campaigns.engine.plan import Cell
from campaigns.papers.prioritymeister.alone import Alone
from campaigns.papers.prioritymeister.cell import Maker
from campaigns.papers.prioritymeister.experiment import Experiment
from campaigns.papers.prioritymeister.links import Links
from campaigns.papers.prioritymeister.live import replays
from campaigns.papers.prioritymeister.live.machines import (
    client_nodes,
    machines_of,
    places_of,
    server_of,
)
from campaigns.papers.prioritymeister.live.profiles import FIRST, LATER, MORE
from campaigns.papers.prioritymeister.live.results import result_of
from campaigns.papers.prioritymeister.local_ground import laid_out, parameters_on, wait_s
from campaigns.papers.prioritymeister.machines import Machines
from campaigns.papers.prioritymeister.mixes import build
from campaigns.papers.prioritymeister.outcome import Outcome
from controllers.prioritymeister.profiles import load_profile
from schemas.cells.prioritymeister import PM, PmCell
from schemas.errors import HotbedError, UserError
from testbed.spec import TestbedSpec
from tests.campaigns.pm_live_bench import (
    PROFILE,
    Bench,
    FakeAgent,
    a_testbed,
    experiment_in,
    spec_of_two,
)


def test_an_experiment_from_parameters_to_results(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    outcome = bench.ground.carry_out(experiment_in(tmp_path))
    assert outcome.spoiled is None
    assert outcome.results["A"].requests == 20
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


def test_proxies_are_told_clients_by_their_addresses(tmp_path: Path) -> None:
    told = parameters_on(experiment_in(tmp_path, "ps"), a_testbed(tmp_path))
    (found,) = told.storage.values()
    clients = {one["name"]: one["clients"] for one in found["workloads"]}
    assert clients == {"A": ["10.77.0.13"], "L": ["10.77.0.14"]}
    assert told.network.mode == "fifo"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((1, "", "replay: the connection to 10.77.0.11:2049 was lost: EOF\n"), "was lost: EOF"),
        ((None, "", ""), "it was stopped"),
        ((0, "garbage", ""), "printed no result"),
        ((0, json.dumps(report(errors={"NFS status 5": 3})), ""), r"3 requests failed \(NFS sta"),
    ],
)
def test_a_fault_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, said: tuple[int | None, str, str], words: str
) -> None:
    bench = Bench(tmp_path, FakeAgent({"client0": said}))
    with pytest.raises(HotbedError, match=f"the replayer of A on node client0.*{words}"):
        bench.ground.carry_out(experiment_in(tmp_path))
    assert ("client1", replays.UNIT) in bench.agent.stopped
    assert bench.enforcement.calls[-2:] == ["apply", "removed"]
    assert bench.shells["client1"].removed == [replays.FOLDER]


def test_a_network_that_is_not_as_told_is_a_failure(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.enforcement.differences = {"client0": [], "server": ["class 1:11 is missing"]}
    with pytest.raises(
        HotbedError, match="node server differs from the run's parameters: class 1:11"
    ):
        bench.ground.carry_out(experiment_in(tmp_path))
    assert bench.enforcement.calls[-1] == "removed"


def test_what_spoils_a_run(tmp_path: Path) -> None:
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
    bench.agent.left = {"client1": ["load-replay"]}
    with pytest.raises(HotbedError, match="node client0 runs load that is not Hotbed's"):
        bench.ground.carry_out(experiment_in(tmp_path))
    assert bench.agent.stopped == [("client1", "load-replay")]
    with pytest.raises(UserError, match=r"the clock of node client0 is [-+]3\.\d+ s off"):
        Bench(tmp_path, off=3.0).ground.carry_out(experiment_in(tmp_path))


def test_files_are_laid_out_and_disks_measured_once(tmp_path: Path) -> None:
    bench, told = Bench(tmp_path), list[str]()
    made = laid_out(bench.nfs, told.append)
    assert made.disk == tmp_path / "pm-profile-server.json"
    assert made.ramdisk == tmp_path / "pm-profile-ram.json"
    assert load_profile(made.disk).storage is not None
    assert list(cast(Any, bench.nfs.live.site).shaping) == [False, True, False, True]
    made_files = [argv for _, name, argv in bench.agent.started if name == replays.PREPARE_UNIT]
    sizes = {tuple(argv)[-1] for argv in made_files}
    assert sizes == {f"{1 << 28}B", f"{1 << 27}B"}
    assert any("measuring" in words for words in told)
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
    told.clear()
    laid_out(bench.nfs, told.append)
    assert not any("measuring" in words for words in told)


def test_only_servers_that_cells_ask_are_measured(tmp_path: Path) -> None:
    bench, told = Bench(tmp_path), list[str]()
    places = bench.nfs.places
    asked = {server_of(cell("disk"), places), server_of(cell("misbehave"), places)}
    assert asked == {"server"}
    made = laid_out(bench.nfs, told.append, asked)
    assert made.disk == tmp_path / "pm-profile-server.json"
    assert made.ramdisk is None and not any("ram" in words for words in told)
    assert server_of(cell("network"), places) == "ram"
    assert server_of(cell("levels"), places) == "server"
    assert server_of(cell("network"), replace(places, ram=None)) == "server"
    whole = laid_out(bench.nfs, told.append)
    assert whole.ramdisk == tmp_path / "pm-profile-ram.json"


def test_traces_too_short_for_their_slos_are_refused_before_anything_runs(tmp_path: Path) -> None:
    class Unasked(NoisyGround):
        def carry_out(self, experiment: Experiment) -> Outcome:
            raise AssertionError("nothing runs")

    (tmp_path / "disk.json").write_text(json.dumps(PROFILE))
    ground = Unasked(0)
    ground.machines = Machines(disk=tmp_path / "disk.json", link=2e8)
    maker = Maker(ground)
    short, long = cell("disk", slo_percentile=90), cell("disk", slo_percentile=50)
    cells = [Cell("a", short, 2, 5, 0, ("disk",), ("5",)), Cell("b", long, 2, 5, 1, (), ())]
    try:
        maker.foresee(cells[1:])
        says = (
            r"^block 2 of disk: workload A sends \d+ requests in the half .* 90th .* needs 100: g"
        )
        with pytest.raises(UserError, match=says):
            maker.foresee(cells)
    finally:
        maker.close()


def cell(scenario: Any, **more: Any) -> PmCell:
    return PM.of(scenario=scenario, seconds=20, **more)


def test_what_later_rounds_take_beyond_the_first_is_charged_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    plain = bench.enforcement.status

    def status(server: str) -> dict[str, Any]:
        """Report all charged time as used, a twentieth more than in the first round."""
        told = plain(server)
        told["service"]["busy_seconds"] = told["service"]["charged_seconds"]
        return told

    monkeypatch.setattr(bench.enforcement, "status", status)
    document = json.loads(laid_out(bench.nfs).disk.read_text())
    took = [row["requestSize"] / row["readBandwidth"] for row in document["bandwidthTable"]]
    assert took == pytest.approx([MORE * MORE * 0.0304] * len(took))
    assert document["rounds"]["busy_seconds"] == document["rounds"]["charged_seconds"]


def test_a_path_on_which_too_little_was_answered_has_no_profile(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.enforcement.of_each = 3  # in each of two rounds
    with pytest.raises(HotbedError, match="too few reads were answered"):
        laid_out(bench.nfs)


def test_a_server_of_several_requests_at_a_time_has_no_overhead_to_tell(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.enforcement.depth = 8
    made = laid_out(bench.nfs)
    assert "overhead" not in json.loads(made.disk.read_text())
    assert not [name for _, name, _ in bench.agent.started if name == replays.UNIT]


def test_places_come_from_roles_and_disks(tmp_path: Path) -> None:
    spec = spec_of_two(tmp_path)
    places = places_of(spec)
    assert (places.disk, places.ram, places.clients) == ("server", "ram", ("client0", "client1"))
    assert places.servers["server"] == 1 << 29
    machines = machines_of(spec, places)
    assert (machines.link, machines.server) == (2e8, "server")
    assert machines.network["K"] == ("ram", "ram")
    lonely = spec.model_copy(update={"groups": spec.groups[:3]})
    with pytest.raises(UserError, match="2 nodes of role nfs and 0 of role client"):
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
            sent[link, scenario] = sum(load.replay.requests for load in mix.loads)
            links[link, scenario] = {host: told.link for host, told in mix.hosts.items()}
    assert 4 * sent["50Mbit", "network"] == pytest.approx(sent["200Mbit", "network"], rel=0.05)
    assert sent["50Mbit", "misbehave"] == sent["200Mbit", "misbehave"]
    assert links["50Mbit", "network"] == {"ram": 5e7, "client0": 2e8, "client1": 2e8}
    assert set(links["50Mbit", "misbehave"].values()) == {2e8}


def test_a_plan_for_a_testbed_counts_with_its_packets(tmp_path: Path) -> None:
    small = spec_of_two(tmp_path)
    body = yaml.safe_load((tmp_path / "pm.yaml").read_text()) | {"network": {"mtu": 9000}}
    large = TestbedSpec.model_validate(body)
    for spec, frame in ((small, 1538), (large, 9038)):
        places = places_of(spec)
        machines = machines_of(spec, places)
        kept = machines.kept(100.0)  # independent of the modelled network
        assert places.frame == kept.frame == kept.overshoot == frame
        assert kept.bucket is not None and kept.bucket(1e6, 5.0) == (1e6, frame)
        assert kept.share < 0.95
    assert Machines().kept(100.0) == Links(frame=100.0)


def test_an_experiment_that_the_testbed_cannot_carry_out_is_refused(tmp_path: Path) -> None:
    experiment = experiment_in(tmp_path)
    assert client_nodes(experiment.topology, a_testbed(tmp_path)) == {
        "A": "client0",
        "L": "client1",
    }
    with pytest.raises(UserError, match="needs a host client1"):
        client_nodes(experiment.topology, a_testbed(tmp_path, clients=1))
    both = experiment.topology.model_copy(
        update={
            "workloads": tuple(
                w.model_copy(update={"client": "client0"}) for w in experiment.topology.workloads
            )
        }
    )
    with pytest.raises(UserError, match="would share node client0"):
        client_nodes(both, a_testbed(tmp_path))


def test_replies_are_waited_for_by_the_loosest_slo(tmp_path: Path) -> None:
    experiment = experiment_in(tmp_path)
    assert wait_s(experiment) == 5.0
    first, *rest = experiment.topology.workloads
    loose = first.model_copy(update={"slo": first.slo.model_copy(update={"latency": 4.0})})
    topology = experiment.topology.model_copy(update={"workloads": (loose, *rest)})
    assert wait_s(replace(experiment, topology=topology)) == 12.0


class NoisyGround:
    """Ground with spoiled first runs."""

    name = "local"
    machines = Machines()

    def __init__(self, spoiled: int) -> None:
        self.spoiled, self.runs = spoiled, 0

    def carry_out(self, experiment: Experiment) -> Outcome:
        self.runs += 1
        why = "somebody else worked" if self.runs <= self.spoiled else None
        (name,) = experiment.replays
        told = {"replay-A.json": "{}"}
        return Outcome({name: result_of(report(), 10.0, 20.0)}, spoiled=why, logs=told)


def test_a_workload_alone_is_measured_again_while_it_is_spoiled(tmp_path: Path) -> None:
    alone = experiment_in(tmp_path).alone("A")
    noisy = NoisyGround(2)
    kept = tmp_path / ".alone"
    said: list[str] = []
    first = Alone(kept, tell=said.append)
    assert first.percentile(noisy, alone, 50) == pytest.approx(1e-3, rel=1e-3)
    assert said == [f"measuring what workload A has alone, {alone.seconds:.0f} s, for its SLO"] * 3
    assert noisy.runs == 3
    assert [path.name for path in kept.glob("*/*")] == ["replay-A.json"]
    assert Alone(kept).percentile(noisy, alone, 50) == pytest.approx(1e-3, rel=1e-3)
    assert noisy.runs == 3
    with pytest.raises(HotbedError, match="alone was not measured: somebody else worked"):
        Alone().percentile(NoisyGround(99), alone, 50)
