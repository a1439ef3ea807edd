"""PriorityMeister on virtual time: proven bounds hold on random topologies, and requested work is
done.

Tests name the section or figure of the paper that they hold.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from campaigns.papers.prioritymeister.plan import plan_of
from campaigns.papers.prioritymeister.simulate import (
    Results,
    SimulationSetting,
    WorkloadResult,
    closed_from,
    scenario_of,
    simulate,
    simulate_topology,
    with_bounds,
)
from campaigns.papers.prioritymeister.topology import Topology, load_topology
from controllers.prioritymeister.prioritizer import PriorityPlan
from schemas.errors import UserError
from tests.errors import raises
from tests.hotbed.runner import Runner

GRID = {"offsets": [0, 10**9], "distances": [-(10**6), 0, 10**8]}
PROFILES: dict[str, dict[str, Any]] = {
    "constant.json": {
        "type": "storageConstant",
        "base": 0.0005,
        "readBandwidth": 2e8,
        "writeBandwidth": 1e8,
    },
    "ssd.json": {
        "type": "storageSSD",
        "bandwidthTable": [
            {"requestSize": 4096, "readBandwidth": 4e6, "writeBandwidth": 2e6},
            {"requestSize": 65536, "readBandwidth": 64e6, "writeBandwidth": 32e6},
        ],
    },
    "disk.json": {
        "type": "storageTable",
        "history": 2,
        "read": {**GRID, "base": [[4e-3, 1e-3, 6e-3]] * 2, "bandwidth": [[1e8] * 3] * 2},
        "write": {**GRID, "base": [[5e-3, 2e-3, 7e-3]] * 2, "bandwidth": [[9e7] * 3] * 2},
        "network": {"dataConstant": 100, "dataFactor": 1.02},
    },
}


def write_trace(random: np.random.Generator, path: Path, *, seconds: float = 4.0) -> None:
    """Write a trace: bursts at whole tenths, shared with other workloads, and requests between."""
    times: list[float] = []
    for _ in range(int(random.integers(2, 8))):
        begin = float(random.integers(0, int(10 * seconds))) / 10
        count = int(random.integers(1, 12))
        gap = float(random.choice([0.0, 1e-4, 3e-3]))
        times += [begin + gap * k for k in range(count)]
    times += list(random.uniform(0, seconds, int(random.integers(2, 30))))
    times += [0.0, seconds]
    sizes = random.choice([512, 4096, 65536, 262144], 3)
    position = 0
    with path.open("w") as file:
        for when in sorted(times):
            size = int(random.choice(sizes))
            position = position if random.random() < 0.4 else int(random.integers(0, 10**9))
            kind = "Read" if random.random() < 0.6 else "Write"
            file.write(f"{round(1e9 * when)},0x{size:x},Disk{kind},0x{position:x}\n")
            position += size


def hurried(trace: Path, out: Path, times: int) -> Path:
    """Write the same requests at `times` the announced rate."""
    rows = (row.split(",", 1) for row in trace.read_text().splitlines())
    out.write_text("".join(f"{int(at) // times},{rest}\n" for at, rest in rows))
    return out


def random_topology(seed: int, folder: Path) -> tuple[Topology, Path]:
    """Return a topology of one to three servers and up to six workloads, and its file."""
    random = np.random.default_rng(seed)
    for name, profile in PROFILES.items():
        (folder / name).write_text(json.dumps(profile))
    servers, clients = int(random.integers(1, 4)), int(random.integers(1, 4))
    two = bool(random.random() < 0.3)

    def link() -> float:
        return float(random.choice([1e8, 3e8, 1e9]))

    hosts: dict[str, Any] = {}
    for k in range(servers):
        devices = {
            f"d{i}": {
                "profile": str(random.choice(list(PROFILES))),
                "speed": float(2 ** random.integers(0, 3)),
            }
            for i in range(int(random.integers(1, 3)))
        }
        hosts[f"s{k}"] = {"link": link(), "devices": devices}
    for k in range(clients):
        hosts[f"c{k}"] = {"link": link(), "ingress": link()}
    if two:
        for name, host in hosts.items():
            host["switch"] = "a" if name.startswith("c") else "b"
    workloads = []
    for k in range(int(random.integers(1, 7))):
        server = f"s{random.integers(servers)}"
        # Without a trunk a server may also be a client: its link carries both directions.
        others = [name for name in hosts if name != server and (not two or name.startswith("c"))]
        write_trace(random, folder / f"t{k}.csv")
        workload: dict[str, Any] = {
            "name": f"w{k}",
            "client": str(random.choice(others)),
            "server": server,
            "device": str(random.choice(list(hosts[server]["devices"]))),
            "trace": f"t{k}.csv",
            "slo": {"latency": float(np.exp(random.uniform(-5, 1)))},
        }
        if random.random() < 0.2:
            workload["slo"] = {"completion": float(random.uniform(4, 8))}
        if two:
            workload["route"] = ["a", "b"]
        workloads.append(workload)
    document = {
        "hosts": hosts,
        "workloads": workloads,
        "network_levels": int(random.integers(1, 8)),
        "buckets": int(random.integers(1, 9)),
        "blocking": bool(random.random() < 0.5),
    }
    if two:
        document["trunks"] = [{"between": ["a", "b"], "link": link()}]
    file = folder / "topology.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_topology(file), file


def of(results: Results, name: str) -> WorkloadResult:
    return next(one for one in results.workloads if one.name == name)


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(10))
def test_no_bound_is_broken(seed: int, tmp_path: Path) -> None:
    topology, file = random_topology(seed, tmp_path)
    try:
        plan = plan_of(topology, file)
    except UserError as error:
        assert "is loaded to" in str(error)
        return
    names = [w.name for w in topology.workloads]
    settings = [
        SimulationSetting(),
        SimulationSetting(network="off"),
    ]
    if len(names) > 1:
        settings.append(SimulationSetting(closed={names[-1]: 3}, duration_s=5))
        fast = hurried(tmp_path / "t0.csv", tmp_path / "fast.csv", 20)
        settings.append(SimulationSetting(traces={"w0": fast}))
    for setting in settings:
        results = simulate_with_bounds(topology, file, plan, setting)
        for one in results.workloads:
            assert one.bound is not None
            whole = one.slo_s is not None or setting.duration_s is None
            assert one.bound.applies == (one.mode == "open" and whole), one.bound.why_not
            assert one.bound.held is not False or one.name in setting.traces


def simulate_with_bounds(
    topology: Topology, file: Path, plan: PriorityPlan, setting: SimulationSetting
) -> Results:
    return with_bounds(simulate(scenario_of(topology, file, plan, setting)), plan, setting)


def test_bounds_with_a_measured_lag_hold_where_service_times_vary(
    tmp_path: Path,
) -> None:
    """A profile holds means. Single requests take longer, so bounds from means alone break."""
    noisy = SimulationSetting(noise_cv=4.0)
    broken = checked = 0
    for seed in range(12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        topology, file = random_topology(seed, folder)
        try:
            plan = plan_of(topology, file)
        except UserError:
            continue
        first = simulate_with_bounds(topology, file, plan, noisy)
        broken += sum(w.bound.measured_s > w.bound.blocking_s for w in first.workloads if w.bound)
        assert all(w.bound is not None and not w.bound.applies for w in first.workloads)
        allowed = 2 * max(d.lag_s for d in first.devices)
        hosts = topology.hosts.values()
        speeds = [device.speed for host in hosts for device in host.devices.values()]
        for profile in folder.glob("*.json"):
            document = json.loads(profile.read_text())
            document["overhead"] = {"latency": allowed * max(speeds)}
            profile.write_text(json.dumps(document))
        # Requests may now start in another order, and the device's lag may change.
        again = simulate_with_bounds(topology, file, plan_of(topology, file), noisy)
        if max(d.lag_s for d in again.devices) > allowed:
            continue
        for one in again.workloads:
            assert one.bound is not None
            assert one.bound.measured_s <= one.bound.blocking_s * (1 + 1e-8) + 1e-8
            checked += 1
    assert broken > 0
    assert checked > 10


@pytest.fixture
def crowded(tmp_path: Path) -> tuple[Topology, Path]:
    """Return C with a loose SLO, and D, which announces little and may send much."""
    (tmp_path / "p.json").write_text(json.dumps(PROFILES["constant.json"]))
    behaved = [(50 * k, 4096) for k in range(80)]
    (tmp_path / "d.csv").write_text(rows(behaved))
    (tmp_path / "flood.csv").write_text(rows([(k, 4096) for k in range(4000)]))
    (tmp_path / "c.csv").write_text(rows([(5 * k, 65536) for k in range(800)]))
    document = {
        "hosts": {"s": {"devices": {"d": "p.json"}}, "c": {}, "e": {}},
        "workloads": [
            {"name": "C", "client": "c", "server": "s", "trace": "c.csv", "slo": {"latency": 0.05}},
            {"name": "D", "client": "e", "server": "s", "trace": "d.csv", "slo": {"latency": 3e-3}},
        ],
    }
    document["hosts"]["s"]["devices"] = {"d": {"profile": "p.json", "speed": 0.5}}  # type: ignore[index]
    file = tmp_path / "topology.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_topology(file), file


def rows(requests: list[tuple[int, int]]) -> str:
    """Return a trace of reads from (milliseconds, bytes)."""
    return "".join(f"{10**6 * ms},0x{size:x},DiskRead,0\n" for ms, size in requests)


def test_only_pm_contains_a_misbehaving_workload(crowded: tuple[Topology, Path]) -> None:
    """Figure 8: D has the highest priority and floods the device."""
    topology, file = crowded
    plan = plan_of(topology, file)
    flood = {"D": file.parent / "flood.csv"}

    def longest(**options: Any) -> float:
        setting = SimulationSetting(traces=flood, **options)
        bound = of(simulate_with_bounds(topology, file, plan, setting), "C").bound
        assert bound is not None
        assert bound.held is (None if options else True)
        return bound.measured_s

    contained = longest()
    assert contained < 0.05
    assert longest(mode="best-effort") < 0.05
    for policy in ("byslo", "edf", "none"):
        assert longest(policy=policy) > 10 * contained


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"policy": "ps"}, "policy ps"),
        ({"mode": "best-effort"}, "best effort"),
        ({"depth": 4}, "more than one request"),
        ({"network": "fifo"}, "the network is fifo"),
        ({"noise_cv": 0.3}, "service times vary"),
    ],
)
def test_a_missing_proof_has_a_reason(
    crowded: tuple[Topology, Path], options: dict[str, Any], reason: str
) -> None:
    results = simulate_topology(*crowded, SimulationSetting(**options))
    for one in results.workloads:
        assert one.bound is not None and reason in (one.bound.why_not or "")
        assert one.bound.held is None
    assert of(results, "C").whole.requests == 800


def comparable(results: Results) -> dict[str, Any]:
    return results.model_copy(update={"cpu_s": 0, "wall_s": 0}).model_dump()


def test_the_same_scenario_gives_the_same_results(crowded: tuple[Topology, Path]) -> None:
    topology, file = crowded
    plan = plan_of(topology, file)
    setting = SimulationSetting(noise_cv=0.5, series_s=0.5, policy="cake", cake={"interval": 0.5})
    first, again, other = (
        comparable(simulate(scenario_of(topology, file, plan, s)))
        for s in (setting, setting, replace(setting, seed=2))
    )
    assert first == again
    assert first["workloads"] != other["workloads"]
    series = first["workloads"][0]["series"]
    assert sum(row[1] for row in series) == 800
    assert sum(row[2] for row in series) == first["workloads"][0]["whole"]["slo_misses"]


def test_a_closed_loop_ends_with_its_trace_or_repeats_it(crowded: tuple[Topology, Path]) -> None:
    for duration, count in ((None, 80), (60.0, 1000)):
        setting = SimulationSetting(policy="none", closed={"D": 2}, duration_s=duration)
        d = of(simulate(scenario_of(*crowded, None, setting)), "D")
        assert (d.mode, d.max_backlog) == ("closed", 2)
        assert d.whole.requests == count if duration is None else d.whole.requests > count


def test_a_device_may_differ_from_its_profile(crowded: tuple[Topology, Path]) -> None:
    """Figure 10: the enforcer uses a wrong estimator."""
    topology, file = crowded
    truth = file.parent / "true.json"
    truth.write_text(json.dumps({**PROFILES["constant.json"], "base": 0.0002}))
    setting = SimulationSetting(service={"s:d": truth}, network="off")
    results = simulate_topology(topology, file, setting)
    device = results.devices[0]
    data = (800 * 65536 + 80 * 4096) / 2e8
    charged, actual = (880 * 0.0005 + data) / 0.5, 880 * 0.0002 + data
    assert device.charged_s - device.busy_s == pytest.approx(charged - actual, rel=1e-6)
    assert results.links == ()


def test_overload_is_simulated_without_a_plan(
    crowded: tuple[Topology, Path],
) -> None:
    topology, file = crowded
    (file.parent / "d.csv").write_text((file.parent / "flood.csv").read_text())
    heard: list[str] = []
    results = simulate_topology(topology, file, SimulationSetting(policy="ps"), tell=heard.append)
    assert "is loaded to" in heard[0]
    assert of(results, "C").bound is None
    assert results.devices[0].utilisation > 0.99
    with raises(UserError, "is loaded to"):
        simulate_topology(topology, file, SimulationSetting())


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"policy": "fifo"}, ("'fifo'", "mclock")),
        ({"mode": "x"}, ("'x'", "best-effort")),
        ({"network": "x"}, ("'x'", "auto")),
        ({"closed": {"Z": 1}}, ("'Z'", "C, D")),
        ({"service": {"s:x": Path("p.json")}}, ("'s:x'", "s:d")),
        ({"duration_s": 0.0}, ("duration", "above 0")),
        ({"seed": -1}, ("seed", "-1")),
        ({"noise_cv": float("nan")}, ("noise", "nan")),
        ({"depth": -1}, ("depth", "-1")),
        ({"traces": {"D": Path("no/such")}}, ("no/such",)),
        ({"service": {"s:d": Path("no/such")}}, ("no/such",)),
    ],
)
def test_mistakes_are_one_sentence(
    crowded: tuple[Topology, Path], options: dict[str, Any], facts: tuple[str, ...]
) -> None:
    with raises(UserError, *facts) as caught:
        simulate_topology(*crowded, SimulationSetting(**options))
    assert "\n" not in str(caught.value)


def test_closed_loops_are_named_with_a_number() -> None:
    assert closed_from(["C=3"]) == {"C": 3}
    for given in ("C", "C=", "=3", "C=x", "C=0"):
        with raises(UserError, given, allowed="WORKLOAD=N"):
            closed_from([given])


def run(*arguments: str) -> Any:
    return Runner().run(["pm", *arguments, "--json"], catch_exceptions=True)


def test_the_command_prints_percentiles_slos_and_bounds(crowded: tuple[Topology, Path]) -> None:
    file = str(crowded[1])
    done = run("simulate", file, "--closed", "D=2", "--duration", "2s")
    assert done.exit_code == 0, done.output
    found = Results.model_validate_json(done.stdout)
    assert [w.name for w in found.workloads] == ["C", "D"]
    bound = found.workloads[0].bound
    assert bound is not None and bound.held and found.length_s == 2.0
    table = Runner().run(["pm", "simulate", file]).stdout
    assert "p99.9" in table and "50 ms" in table and "yes" in table
    wrong = run("simulate", file, "--duration", "2 acres")
    assert isinstance(wrong.exception, UserError)


def test_a_broken_bound_is_an_error(
    crowded: tuple[Topology, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Results, "broken_bounds", ("C",))
    done = run("simulate", str(crowded[1]))
    assert done.exit_code == 1
    assert "the proven bound of C was exceeded" in done.stderr


def test_the_command_prints_enforcers_parameters(crowded: tuple[Topology, Path]) -> None:
    file = crowded[1]
    (file.parent / "addresses.json").write_text('{"c": ["10.0.0.1"], "s": ["10.0.0.9"]}')
    done = run("parameters", str(file), "--addresses", str(file.parent / "addresses.json"))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    c, d = found["storage"]["s:d"]["workloads"]
    assert c["clients"] == ["10.0.0.1"] and d["clients"] == []
    assert sorted((c["priority"], d["priority"])) == [1, 2]
    assert found["network"]["hosts"]["s"]["flows"][0]["destination"] == ["10.0.0.1"]
    assert json.loads(run("parameters", str(file), "--policy", "edf").stdout)["network"][
        "mode"
    ] == ("fifo")
    table = Runner().run(["pm", "parameters", str(file)]).stdout
    assert "DSCP 56" in table and "s->switch" in table
    assert isinstance(run("parameters", str(file), "--policy", "x").exception, UserError)
