"""Cells of the two-choice paper on object servers (section VI), with files or OSDs: campaign files,
commands, numbers and clean-up, on a testbed in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.judge import MachineLoad
from campaigns.engine.session import typed_cells
from campaigns.grounds.live import LiveTestbed, LoadMeter, ticks
from campaigns.papers.twochoice import objects
from campaigns.papers.twochoice.objects import (
    REPORT_FILE,
    LoadCounters,
    LoadWatch,
    ObjectCells,
    busy_between,
    too_busy,
)
from campaigns.papers.twochoice.servers import ObjectServers
from schemas.campaign import ObjectCampaign
from schemas.cells.twochoice import OBJECTS, ObjectCell, Scheduler
from schemas.errors import HotbedError, UserError
from schemas.run import Run, Summary
from testbed.agent.contract import Agent
from testbed.deploy import parts
from testbed.deploy.inventory import SCRATCH_PATH
from tests.campaigns.read_settings import (
    SET_BY_HAND,
    SPEC_S,
    fails_by_name,
    positioning_in,
    reads,
)
from tests.campaigns.tiny_kinds import job_with
from tests.errors import raises
from tests.papers.live_fakes import (
    CLUSTER_FILE,
    JOURNAL,
    RecordingAgent,
    RecordingShell,
    Shells,
    live_of,
    printed,
)

SMALL: dict[str, Any] = {"experiment": "burst", "nodes": 2, "processes": 2}

SERVERS = 4
CLIENTS = [
    {"name": "admin", "roles": ["admin", "mon", "mgr"]},
    {"name": "client", "roles": ["client"], "cpus": 2},
]
DISKS = {"name": "server", "roles": ["object"], "disk": {"size": "1GiB", "scratch": 0}}
ON_FILES: dict[str, Any] = {
    "name": "t",
    "groups": [*CLIENTS, DISKS | {"count": 2, "disks": 2}],
    "store": {"kind": "twochoice"},
}
OSDS = {"name": "osd", "count": 4, "roles": ["osd"], "disk": {"size": "2GiB", "scratch": "1GiB"}}
ON_OSDS: dict[str, Any] = {
    "name": "t",
    "groups": [*CLIENTS, OSDS],
    "store": {"kind": "ceph", "pools": [{"name": "bench", "size": 2}], "twochoice": {}},
}


def on_files(folder: Path, agent: Agent | None = None) -> tuple[ObjectServers, Shells]:
    """Return two nodes with two servers each, and the nodes' shells."""
    live, shells = live_of(folder, ON_FILES, agent)
    return ObjectServers(live), shells


def spread(n: int, mean: float) -> dict[str, Any]:
    return {"n": n, "mean": mean, "p50": mean, "p90": None, "p99": 2 * mean, "max": 3 * mean}


def report_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the load generator's report on a plan. Dynamic schedulers load servers equally; fixed
    placement gives the first server twice as much; pools are not reported."""
    apps: list[dict[str, Any]] = []
    for place, app in enumerate(plan["apps"]):
        ranks = app.get("nodes", plan["nodes"]) * plan["processes"]
        writes = ranks * app.get("bursts", 1) * app["writes"]
        scheduler = app.get("scheduler", "crush")
        even = writes * app["size"] / SERVERS
        home = [2 * even, even, even / 2, even / 2]
        fixed = scheduler in ("fixed", "crush")
        apps.append(
            {
                "name": app["name"],
                "scheduler": scheduler,
                "background": app.get("background", False),
                "ranks": ranks,
                "writes": writes,
                "failed": 0,
                "bytes": writes * app["size"],
                "redirected": 0 if fixed else writes // 2,
                "rank_seconds": [1.0 + place + rank / ranks for rank in range(ranks)],
                "server_bytes": [] if "pool" in app else home if fixed else [even] * SERVERS,
                "home_bytes": [] if "pool" in app else home,
                "latency": spread(writes, 0.5),
            }
        )
    schedulers = {app["scheduler"] for app in apps} - {"crush"}
    counts = {"Writes": 100, "Probes": 200, "Unanswered": 0, "Blind": 0}
    verified = {
        "query": spread(100, 0.003),
        "home": spread(60, 0.01),
        "elsewhere": spread(40, 0.02),
    }
    return {
        "nodes": plan["nodes"],
        "processes": plan["nodes"] * plan["processes"],
        "began": 100.0,
        "seconds": 10.0,
        "apps": apps,
        "schedulers": {
            name: counts | ({"Probes": 0} if name == "fixed" else {}) for name in schedulers
        },
        "steps": {"probe": spread(10, 0.002), "put": spread(20, 0.4), "register": spread(0, 0.0)},
        "verified": {"objects": 100, "redirected": 40, "bad": [], "seconds": 1.0} | verified,
    }


PROBED = {"probes": 100, "lost": 0, "mean_seconds": 0.002, "p50_seconds": 0.002}
REQUESTS = {"creates": 90, "create_seconds": 0.01, "queries": 100, "query_seconds": 0.001}
TABLE = {
    "rows": [{"writes": 100 * n, "entries": 10 + n} | REQUESTS for n in range(1, 5)],
    "creates": 360,
    "queries": 400,
    "create_max_seconds": 0.05,
    "query_max_seconds": 0.004,
    "create_p99_seconds": 0.03,
    "query_p99_seconds": None,
}


class AnsweringServers(ObjectServers):
    """Servers that answer at once. They record the generator's arguments (`asked`), limits and
    plans, and the servers where fio ran (`slowed`, by `commands`)."""

    def __init__(self, live: LiveTestbed) -> None:
        super().__init__(live)
        self.cleaned: list[Mapping[str, Any]] = []
        self.asked: list[list[str]] = []
        self.limits: list[float] = []
        self.plans: list[Mapping[str, Any]] = []
        self.slowed: list[int] = []
        self.commands: list[list[str]] = []
        self.busy_s = 0.0

    def clean(self, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        self.cleaned.append(settings)
        return []

    def bench(
        self, arguments: Sequence[str], *, max_s: float, plan: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        self.asked.append(list(arguments))
        self.limits.append(max_s)
        self.busy_s += 5.0
        if plan is None:
            return TABLE if arguments[0] == "table" else PROBED | {"p99_seconds": None}
        self.plans.append(plan)
        return dict(json.loads(json.dumps(report_of(plan))))

    @contextmanager
    def disturbed(self, numbers: Sequence[int], commands: Sequence[list[str]]) -> Iterator[None]:
        assert len(numbers) == len(commands)
        self.slowed, self.commands = list(numbers), list(commands)
        yield

    def disk_counters(self) -> dict[int, Mapping[str, object]]:
        return {
            number: {"busy_s": self.busy_s * (number + 1) / SERVERS, "overshoot_mean_s": 1e-4}
            for number in range(SERVERS)
        }


def made(
    folder: Path, agent: Agent | None = None, **parameters: Any
) -> tuple[AnsweringServers, Run, dict[str, float]]:
    """Make a cell in ``folder/run``; return its servers, record and numbers."""
    live, _ = live_of(folder, ON_FILES if agent is None else ON_OSDS, agent)
    servers = AnsweringServers(live)
    out = folder / "run"
    out.mkdir(parents=True)
    record = ObjectCells(servers).make(
        job_with(OBJECTS.of(**parameters), kind="twochoice-objects"), out
    )
    assert (out / REPORT_FILE).is_file()
    return servers, record, Summary.model_validate_json((out / "summary.json").read_bytes()).extra


def cells_of(name: str) -> list[ObjectCell]:
    file = find_campaign(name)
    campaign = load_campaign(file)
    assert isinstance(campaign, ObjectCampaign)
    return [one for cells in typed_cells(campaign, file).values() for one in cells]


@pytest.mark.parametrize("full", ["twochoice-local", "twochoice-rados"])
def test_quick_cells_are_the_full_campaigns(full: str) -> None:
    quick, whole = ({one.model_dump_json() for one in cells_of(n)} for n in (f"{full}-quick", full))
    assert quick < whole


def test_figure_14_has_the_same_stragglers_for_every_scheduler() -> None:
    def of(scheduler: Scheduler | str, seed: int = 5, **more: Any) -> dict[str, Any]:
        cell = OBJECTS.of(**SMALL, scheduler=scheduler, stragglers="table2", **more)
        return objects.jobs_plan(cell, seed, SERVERS, "bench")

    fixed, both = of("fixed"), of("both")
    assert fixed["apps"][:-1] == both["apps"][:-1]
    assert fixed["apps"][-1] | {"scheduler": "both"} == both["apps"][-1]
    assert all(app["scheduler"] == "fixed" and app["background"] for app in both["apps"][:-1])
    assert not both["apps"][-1].get("background")
    assert both["apps"][-1]["start"] == 20.0
    assert fixed["apps"] != of("fixed", 6)["apps"]
    slow = OBJECTS.of(experiment="burst", stragglers="fio", straggler_share=0.5)
    assert len(objects.stragglers(slow, 5, 64)) == 32
    assert objects.stragglers(slow, 5, 64) == objects.stragglers(slow, 5, 64)
    assert objects.stragglers(OBJECTS.of(experiment="burst"), 5, 64) == ()
    # CRUSH needs no scheduler, but a pool and access to Ceph.
    crush = of("crush", backend="rados")
    assert crush["apps"][:-1] == both["apps"][:-1]
    assert (crush["apps"][-1].pop("pool"), both["apps"][-1].pop("scheduler")) == ("bench", "both")
    assert crush["apps"][-1] == both["apps"][-1]
    assert crush["ceph"]["user"] == "admin"
    assert "ceph" not in both


def test_figure_13_has_all_jobs_of_table_2_with_the_cells_scheduler(tmp_path: Path) -> None:
    found = objects.jobs_plan(OBJECTS.of(**SMALL | {"experiment": "balance"}), 1, SERVERS)
    assert len(found["apps"]) == 21
    assert all(app["scheduler"] == "both" and not app["background"] for app in found["apps"])
    servers, _, numbers = made(tmp_path, **SMALL | {"experiment": "balance", "scheduler": "fixed"})
    assert numbers["writes"] == sum(app["writes"] for app in report_of(servers.plans[0])["apps"])
    assert (numbers["fullest"], numbers["probes_per_write"]) == (pytest.approx(2.0), 0.0)


def test_the_first_writes_of_table_2_have_come_before_anything_is_measured_or_forgotten() -> None:
    # About a gigabit in total, the limit of two processors.
    usual = OBJECTS.of(experiment="burst", stragglers="table2")
    jobs = objects.jobs_plan(usual, 1, 64)["apps"][:-1]
    come_s = sum(job["nodes"] * 8 * job["writes"] * job["size"] for job in jobs) / 125e6
    assert usual.lead_s >= come_s > 10
    assert objects.settings(usual)["scheduler"]["preassign"]["lifetime"] >= come_s


def test_agents_get_the_settings_of_the_cell() -> None:
    def of(experiment: str, **values: Any) -> dict[str, Any]:
        return objects.settings(OBJECTS.of(experiment=experiment, **values))

    # Section III.B: servers remember others' loads for hundreds of milliseconds.
    assert of("balance")["scheduler"]["cache_lifetime"] == 0.2
    assert of("balance", cache_s=0)["scheduler"]["cache_lifetime"] == 0.0
    assert of("burst", maintainers=False)["maintainer"] == {"off": True}
    for unknown in ({"scheduler": "oracle"}, {"scheduler": "crush", "backend": "rados"}):
        assert of("burst", **unknown)["scheduler"]["scheduler"] == "fixed"
    assert OBJECTS.of(experiment="balance", cache_s=0).label() == "balance both, cache 0 s"


@SET_BY_HAND
def test_a_disk_set_by_hand_fails_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: tuple[float, ...]
) -> None:
    probe = {"experiment": "probe", "pending": 1}
    reads(monkeypatch, SPEC_S * 1.0001)
    _, good, _ = made(tmp_path / "good", **probe)
    assert positioning_in(good) == SPEC_S * 1.0001
    reads(monkeypatch, *found)
    with fails_by_name():
        made(tmp_path, **probe)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_burst_among_stragglers_is_counted_alone(tmp_path: Path) -> None:
    servers, record, found = made(tmp_path, **SMALL, scheduler="both", stragglers="table2")
    assert (record.status, len(servers.cleaned)) == ("done", 1)
    expected = {
        "writes": 2 * 2 * 5,
        "fullest": 1.0,
        "home_fullest": 2.0,
        "seconds": 22.75,
        "probes_per_write": 2.0,
        "redirected_share": 0.5,
        "client_processes": 4,
        "read_back": 100,
        "read_redirected": 40,
        "read_bad": 0,
        "read_query_mean_s": 0.003,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["background_writes"] > 0
    assert "register_mean_s" not in found  # there was no registration


def test_fio_slows_some_servers_for_as_long_as_the_load_generator_runs(tmp_path: Path) -> None:
    servers, _, found = made(tmp_path, **SMALL, stragglers="fio", straggler_share=0.25)
    assert len(servers.slowed) == 1
    assert found["slowed_share"] == pytest.approx(1.0)
    (plan,) = servers.plans
    assert plan["apps"][-1]["start"] == 20.0
    # The generator gives up first, with its own sentence.
    (runtime,) = (word for word in servers.commands[0] if word.startswith("--runtime="))
    assert float(runtime.removeprefix("--runtime=")) > plan["patience"] < servers.limits[0]


def test_micro_benchmarks_are_counted(tmp_path: Path) -> None:
    """Figures 11 and 12, and Table I."""
    servers, _, found = made(tmp_path / "a", experiment="probe", pending=2, schedulers=16)
    assert servers.asked == [
        ["probe", "--servers", "4", "--schedulers", "16", "--times", "100", "--size", "524288B"]
    ]
    assert found["probe_mean_s"] == 0.002
    assert "probe_p99_s" not in found
    _, _, found = made(tmp_path / "b", experiment="table", operations=400)
    assert (found["entries_most"], found["entries_mean"]) == (14, 13.5)
    assert found["create_p99_s"] == 0.03
    _, _, found = made(tmp_path / "c", experiment="delay", pending=2)
    # Probing takes 2 ms; two writes of half a MiB at 50 MB/s take 20.97 ms.
    assert found["delay"] == pytest.approx(0.002 / 0.02097152)
    assert found["write_mean_s"] == 0.5


def test_only_schedulers_that_do_nothing_but_probe_may_be_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def measured(meter: LoadMeter) -> Iterator[None]:
        yield
        meter.load = MachineLoad(outside_cores=0.0, steal=0.0, client_share=0.97)

    monkeypatch.setattr(LoadMeter, "measured", measured)
    _, record, found = made(tmp_path / "probe", experiment="probe", pending=1)
    assert (record.status, found["client_share"]) == ("done", 0.97)
    _, record, _ = made(tmp_path / "burst", **SMALL)
    assert record.status == "spoiled"


def test_dlr_runs_during_its_cells_and_crush_reports_no_placement(tmp_path: Path) -> None:
    agent = RecordingAgent()
    cell = SMALL | {"backend": "rados", "copies": 2}
    _, _, found = made(tmp_path / "crush", agent, **cell, scheduler="crush")
    assert (found["writes"], found["probes_per_write"], agent.called) == (20.0, 0.0, ["core-speed"])
    assert not {"fullest", "spread", "slowed_share", "home_fullest"} & set(found)
    servers, _, _ = made(tmp_path, agent, **cell, scheduler="dlr", stragglers="fio", start_s=9.0)
    assert agent.called[1:] == ["core-speed", "control-start", "control-stop", "control-log"]
    assert (tmp_path / "run" / "journal.jsonl").read_text() == JOURNAL
    assert servers.plans[0]["apps"][-1]["start"] == 9.0


@pytest.mark.parametrize(
    ("agent", "values", "says"),
    [
        (None, {"experiment": "probe", "pending": 8}, "16 servers, and testbed t has 4"),
        (
            RecordingAgent(),
            SMALL,
            "testbed t have the backend rados, and the cell has file",
        ),
        (
            RecordingAgent(),
            SMALL | {"backend": "rados", "scheduler": "crush"},
            "a pool of size 1, and the spec of testbed t has a first pool of size 2",
        ),
    ],
)
def test_a_cell_that_does_not_fit_its_testbed_is_refused(
    tmp_path: Path, agent: Agent | None, values: dict[str, Any], says: str
) -> None:
    with raises(UserError, says):
        made(tmp_path, agent, **values)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"store": {"kind": "ceph", "pools": []}}, "no agents of the two-choice scheduler"),
        (
            {"groups": [*CLIENTS, OSDS | {"disk": {"size": "2GiB", "scratch": 0}}]},
            "1 OSDs and no scratch part",
        ),
    ],
)
def test_a_testbed_without_servers_or_scratch_is_refused(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with raises(UserError, says):
        ObjectServers(live_of(tmp_path, ON_OSDS | changes)[0])


def test_a_clean_state_is_empty_folders_and_the_cells_settings(tmp_path: Path) -> None:
    agent = RecordingAgent()
    servers, shells = on_files(tmp_path, agent)
    agent.live = {"client": ["load-twochoice"]}
    servers.clean({"scheduler": {"scheduler": "both"}})
    assert ("client", "load-twochoice") in agent.stopped
    for place in range(2):
        ran = shells[f"server{place}"].ran
        assert all(f"/{number}'" in ran[0][2] for number in (2 * place, 2 * place + 1))
        assert "lost+found" in ran[0][2]
        assert "hotbed-twochoice@" in ran[-1][2]
    document = shells["client"].document()
    assert all(shell.document() == document for shell in shells.values() if shell.files)
    assert (len(document["agents"]), document["scheduler"]) == (SERVERS, {"scheduler": "both"})


def test_a_clean_state_is_empty_pools_and_the_cells_settings(tmp_path: Path) -> None:
    agent = RecordingAgent()
    live, shells = live_of(tmp_path, ON_OSDS, agent)
    ObjectServers(live).clean(objects.settings(OBJECTS.of(experiment="burst", copies=2)))
    assert {"control-stop", "disturb-stop"} <= set(agent.called)
    assert agent.called.index("pinned-empty") < agent.called.index("clean")
    purge = ["rados", "purge", "bench", "--yes-i-really-really-mean-it"]
    assert shells["client"].ran[0] == purge
    # Includes fio's file next to the OSD from an earlier cell.
    wrote = objects.fio_command(SCRATCH_PATH, 1.0)[2].removeprefix("--filename=")
    for place in range(4):
        assert [argv[2] for argv in shells[f"osd{place}"].ran] == [
            f"systemctl stop 'hotbed-twochoice@*.service' && rm -f {wrote}",
            f"systemctl start hotbed-twochoice@{place}.service",
        ]
    document = shells["client"].document()
    assert (len(document["agents"]), document["copies"]) == (SERVERS, 2)


def test_servers_that_are_not_clean_are_an_error(tmp_path: Path) -> None:
    agent = RecordingAgent()
    servers, shells = on_files(tmp_path, agent)
    shells["client"].has = RecordingShell.has | {"fragments": 1}
    with raises(HotbedError, "object server 3 is not empty"):
        servers.clean({})
    agent.stray = {"server1": ["fio"]}
    with raises(HotbedError, "server1 runs load that is not"):
        servers.clean({})


def test_deployed_settings_are_restored_as_the_role_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later deployment finds nothing to change."""
    for name in ("twochoiced", "twochoicebench"):
        (tmp_path / name).touch()
    monkeypatch.setattr(parts, "BINARIES", tmp_path)
    servers, shells = on_files(tmp_path)
    servers.restore()
    text = shells["server1"].files[CLUSTER_FILE].decode()
    # Like Ansible's to_nice_json: four columns, original key order, the template's line end.
    assert text.startswith('{\n    "agents": [\n        "')
    assert text.endswith('        "scheduler": "both"\n    }\n}\n')
    keys = [line.split('"')[1] for line in text.splitlines() if line.startswith('    "')]
    assert keys == ["agents", "copies", "key_file", "scheduler"]


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "says"),
    [
        (1, "", "x\ntwochoicebench: 3 writes failed\n", "apps failed: 3 writes failed"),
        (None, "", "", "it was stopped"),
        (0, "{", "", "printed no result"),
    ],
)
def test_a_failed_run_is_a_sentence_and_its_plan_is_removed(
    tmp_path: Path, code: int | None, stdout: str, stderr: str, says: str
) -> None:
    agent = RecordingAgent(printed(stdout, code, stderr))
    servers, shells = on_files(tmp_path, agent)
    with raises(HotbedError, says):
        servers.bench(["apps"], max_s=1.0, plan={"apps": []})
    plan = agent.started[0][2][-1]
    assert json.loads(shells["client"].files[plan]) == {"apps": []}
    assert shells["client"].ran[-1] == ["rm", "-f", plan]


def test_stragglers_are_stopped_in_any_case(tmp_path: Path) -> None:
    agent = RecordingAgent()
    servers, _ = on_files(tmp_path, agent)
    with pytest.raises(KeyError), servers.disturbed([3], [["fio"]]):
        assert agent.units() == {"server1": ["load-straggler-3"]}
        raise KeyError
    assert agent.units() == {}
    with raises(HotbedError, "ended before"), servers.disturbed([0], [["fio"]]):
        agent.live.clear()


def test_busy_processors_spoil_a_run_about_disks() -> None:
    assert too_busy(None) is too_busy(0.9) is None
    assert "97 %" in str(too_busy(0.97))
    before = ticks("cpu 0 0 0 0 0 0 0 0 0 0\n")
    after = ticks("cpu 60 10 20 5 5 0 0 0 60 0\n")
    assert before and after
    tick = 1 / os.sysconf("SC_CLK_TCK")
    for awake, busy in ((0, 0.9), (30, 0.6), (100, 0.0)):  # ticks for keeping processors awake
        assert busy_between(before, after, awake * tick) == pytest.approx(busy)


def test_disks_and_processors_are_busy_between_the_nearest_readings() -> None:
    per_s = os.sysconf("SC_CLK_TCK")
    watch = LoadWatch(dict)
    watch.samples = [
        LoadCounters(
            at,
            {0: {"busy_s": busy, "overshoot_mean_s": 0.5}, 1: {"busy_s": 0.0}},
            (int(2 * at * per_s), *(0,) * 7),
            awake,
        )
        for at, busy, awake in ((10, 0, 0.0), (12, 1, 3.0), (14, 3, 5.8), (16, 3, 6.0))
    ]
    expected = {
        "disk_busy_most": 1.0,
        "disk_busy_least": 0.0,
        "disk_busy_mean": 0.5,
        "disk_late_mean_s": 0.25,
        "processors_busy": 0.3,
    }
    assert watch.numbers(11.9, 2.0) == pytest.approx(expected)
    assert watch.numbers(16.0, 0.1) == {}


def test_counters_are_read_at_both_ends() -> None:
    read: list[int] = []

    def counters() -> dict[int, dict[str, object]]:
        read.append(1)
        return {0: {"busy_s": float(len(read))}}

    watch = LoadWatch(counters, every_s=60.0)
    with watch.watching():
        pass
    assert 1 <= len(watch.samples) <= 2
