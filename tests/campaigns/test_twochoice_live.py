"""Cells on object servers: allowed parameters, commands, evaluation and clean-up."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from objects_fakes import SERVED, SERVERS, FakeAgent, FakeServers, live_of, report_of
from read_settings import SET_BY_HAND, SPEC_S, fails_by_name, positioning_in, reads
from testbed_jobs import job_with

from campaigns.engine import session
from campaigns.engine.campaign_file import find_campaign, load_campaign
from campaigns.engine.job import Job
from campaigns.engine.judge import MachineLoad
from campaigns.engine.session import Request, prepare, typed_cells
from campaigns.grounds.live import LoadMeter
from campaigns.papers.twochoice.live import plans
from campaigns.papers.twochoice.live.cell import REPORT_FILE, ObjectCells
from campaigns.papers.twochoice.live.kind import planned_s
from campaigns.papers.twochoice.live.results import (
    LoadCounters,
    LoadWatch,
    busy_between,
    ticks,
    too_busy,
)
from campaigns.papers.twochoice.live.servers import ObjectServers, answer_of
from campaigns.validate import figures_of
from schemas.campaign import ObjectCampaign
from schemas.cells.twochoice import OBJECTS, Scheduler
from schemas.errors import HotbedError, UserError
from schemas.run import Run, Summary
from testbed.agent.contract import UnitResult
from testbed.deploy import twochoice_variables

FILES = {
    "twochoice-local": {"13", "14", "beyond", "cache", "strategies"},
    "twochoice-local-quick": {"13", "14", "beyond"},
    "twochoice-micro": {"11", "12", "table1"},
    "twochoice-rados": {"rados", "rados-jobs", "rados-calm", "rados-single"},
    "twochoice-rados-quick": {"rados", "rados-single"},
}
SMALL: dict[str, Any] = {"nodes": 2, "processes": 2}


@pytest.mark.parametrize("name", FILES)
def test_the_campaigns_files_are_right(name: str) -> None:
    file = find_campaign(name)
    campaign = load_campaign(file)
    assert isinstance(campaign, ObjectCampaign)
    assert set(figures_of(campaign)) == FILES[name]
    cells = typed_cells(campaign, file)
    assert all(cells.values())
    assert all(0 < planned_s(one) < 600 for typed in cells.values() for one in typed)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_dry_run_plans_them_on_the_testbed_of_their_spec(name: str, tmp_path: Path) -> None:
    assert prepare(Request(name, artifacts=tmp_path)).spec_file is not None
    report = session.dry_run(Request(name, artifacts=tmp_path))
    assert report.cells == report.cells - report.done > 0


@pytest.mark.parametrize("full", ["twochoice-local", "twochoice-rados"])
def test_quick_cells_are_the_full_campaigns(full: str) -> None:
    def of(name: str) -> set[str]:
        file = find_campaign(name)
        cells = typed_cells(load_campaign(file), file)
        return {
            json.dumps(one.model_dump(mode="json")) for typed in cells.values() for one in typed
        }

    assert of(f"{full}-quick") < of(full)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "experiment is missing; allowed: burst, balance, probe, table, delay"),
        ({"experiment": "burst", "wrong": 1}, "unknown parameter 'wrong'"),
        (
            {"experiment": "probe", "scheduler": "fixed"},
            "scheduler belongs to experiment burst, balance: leave it out",
        ),
        ({"experiment": "balance", "stragglers": "fio"}, "stragglers belongs to experiment burst"),
        ({"experiment": "burst", "straggler_share": 0.5}, "is of the stragglers fio"),
        ({"experiment": "probe", "cache_s": 0}, "cache_s belongs to experiment burst, balance"),
        (
            {"experiment": "burst", "scheduler": "two-choice", "cache_s": 0},
            "cache_s is of the schedulers collaborative and both",
        ),
        ({"experiment": "burst", "scheduler": "crush"}, "crush is of the experiment burst with"),
        (
            {"experiment": "burst", "backend": "rados", "scheduler": "dlr", "maintainers": False},
            "maintainers are of the agents, and dlr has none",
        ),
        ({"experiment": "burst", "interval_s": 20}, "interval_s is of the scheduler dlr"),
        ({"experiment": "probe", "copies": 2}, "copies belongs to experiment burst, balance"),
        ({"experiment": "burst", "pending": 8}, "pending belongs to experiment probe, delay"),
        ({"experiment": "burst", "nodes": 0}, "nodes: 0 is not allowed; allowed: a whole number"),
    ],
)
def test_a_mistake_in_a_cell_is_a_sentence(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        OBJECTS.check(values, "file")


def test_every_scheduler_of_a_block_meets_the_same() -> None:
    def of(scheduler: Scheduler, seed: int = 5) -> dict[str, Any]:
        parameters = OBJECTS.of(
            experiment="burst", scheduler=scheduler, stragglers="table2", **SMALL
        )
        return plans.plan(parameters, seed, SERVERS)

    fixed, both = of("fixed"), of("both")
    assert fixed["apps"][:-1] == both["apps"][:-1]
    assert fixed["apps"][-1] | {"scheduler": "both"} == both["apps"][-1]
    assert all(app["scheduler"] == "fixed" and app["background"] for app in both["apps"][:-1])
    assert not both["apps"][-1].get("background")
    assert both["apps"][-1]["start"] == 20.0
    assert fixed["apps"] != of("fixed", 6)["apps"]
    slow = OBJECTS.of(experiment="burst", stragglers="fio", straggler_share=0.5)
    assert len(plans.stragglers(slow, 5, 64)) == 32
    assert plans.stragglers(slow, 5, 64) == plans.stragglers(slow, 5, 64)
    assert plans.stragglers(OBJECTS.of(experiment="burst"), 5, 64) == ()


def test_in_a_balance_all_jobs_have_the_cells_scheduler() -> None:
    found = plans.plan(OBJECTS.of(experiment="balance", **SMALL), 1, SERVERS)
    assert len(found["apps"]) == 21
    assert all(app["scheduler"] == "both" and not app["background"] for app in found["apps"])


def test_what_comes_at_once_has_come_before_anything_is_measured_or_forgotten() -> None:
    # About a gigabit in total, the limit of two processors.
    usual = OBJECTS.of(experiment="burst", stragglers="table2")
    jobs = plans.plan(usual, 1, 64)["apps"][:-1]
    come_s = sum(job["nodes"] * 8 * job["writes"] * job["size"] for job in jobs) / 125e6
    assert usual.lead_s >= come_s > 10
    assert plans.settings(usual)["scheduler"]["preassign"]["lifetime"] >= come_s


def test_agents_remember_others_loads_for_as_long_as_the_cell_says() -> None:
    for told, seconds in (({}, 0.2), ({"cache_s": 0}, 0.0)):
        cell = OBJECTS.of(experiment="balance", **told)
        assert plans.settings(cell)["scheduler"]["cache_lifetime"] == seconds
    assert cell.label() == "balance both, cache 0 s"


def test_agents_know_no_oracle() -> None:
    told = plans.settings(OBJECTS.of(experiment="burst", scheduler="oracle"))
    assert told["scheduler"]["scheduler"] == "fixed"
    off = plans.settings(OBJECTS.of(experiment="burst", maintainers=False))
    assert off["maintainer"] == {"off": True}


def job_of(**parameters: Any) -> Job:
    return job_with(OBJECTS.of(**parameters), kind="twochoice-objects")


def made(folder: Path, **parameters: Any) -> tuple[FakeServers, Run, dict[str, float]]:
    servers = FakeServers(live_of(folder / "site")[0])
    out = folder / "run"
    out.mkdir()
    record = ObjectCells(servers).make(job_of(**parameters), out)
    summary = Summary.model_validate_json((out / "summary.json").read_bytes())
    assert (out / REPORT_FILE).is_file()
    return servers, record, summary.extra


@SET_BY_HAND
def test_a_disk_set_by_hand_fails_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: tuple[float, ...]
) -> None:
    (tmp_path / "whole").mkdir()
    reads(monkeypatch, SPEC_S * 1.0001)
    _, whole, _ = made(tmp_path / "whole", experiment="probe", pending=1)
    assert positioning_in(whole) == SPEC_S * 1.0001
    reads(monkeypatch, *found)
    with fails_by_name():
        made(tmp_path, experiment="probe", pending=1)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_burst_among_stragglers_is_counted_alone(tmp_path: Path) -> None:
    servers, record, found = made(
        tmp_path, experiment="burst", scheduler="both", stragglers="table2", **SMALL
    )
    assert record.status == "done"
    assert len(servers.cleaned) == 1
    assert found["writes"] == 2 * 2 * 5
    assert found["fullest"] == pytest.approx(1.0)
    assert found["home_fullest"] == pytest.approx(2.0)
    assert found["seconds"] == pytest.approx(22.75)
    assert found["probes_per_write"] == pytest.approx(2.0)
    assert found["redirected_share"] == pytest.approx(0.5)
    assert found["client_processes"] == 4
    assert found["background_writes"] > 0
    assert (found["read_back"], found["read_redirected"], found["read_bad"]) == (100, 40, 0)
    assert found["read_query_mean_s"] == pytest.approx(0.003)
    assert "register_mean_s" not in found  # there was no registration


def test_whoever_bounds_the_load_generator_waits_for_its_own_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    plain = FakeServers.bench

    def bench(servers: FakeServers, arguments: list[str], **rest: Any) -> dict[str, Any]:
        given.append(rest["max_s"])
        return plain(servers, arguments, **rest)

    monkeypatch.setattr(FakeServers, "bench", bench)
    servers, _, _ = made(tmp_path, experiment="burst", stragglers="fio", **SMALL)
    assert given[0] > servers.plans[0]["patience"]
    runtime = next(word for word in servers.commands[0] if word.startswith("--runtime="))
    assert float(runtime.removeprefix("--runtime=")) > servers.plans[0]["patience"]


def test_fio_runs_on_the_disks_of_some_servers(tmp_path: Path) -> None:
    servers, _, found = made(
        tmp_path, experiment="burst", stragglers="fio", straggler_share=0.25, **SMALL
    )
    assert len(servers.slowed) == 1
    assert found["slowed_share"] == pytest.approx(1.0)
    # The load ran as long as the load of other stragglers.
    assert servers.plans[0]["apps"][-1]["start"] == 20.0


def test_a_balance_is_of_all_jobs(tmp_path: Path) -> None:
    servers, _, found = made(tmp_path, experiment="balance", scheduler="fixed", **SMALL)
    assert found["writes"] == sum(app["writes"] for app in report_of(servers.plans[0])["apps"])
    assert found["fullest"] == pytest.approx(2.0)
    assert found["probes_per_write"] == 0.0


def test_micro_benchmarks_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    servers, _, found = made(tmp_path / "a", experiment="probe", pending=2, schedulers=16)
    assert servers.asked == [
        ["probe", "--servers", "4", "--schedulers", "16", "--times", "100", "--size", "524288B"]
    ]
    assert found["probe_mean_s"] == 0.002
    assert "probe_p99_s" not in found
    (tmp_path / "b").mkdir()
    _, _, found = made(tmp_path / "b", experiment="table", operations=400)
    assert (found["entries_most"], found["entries_mean"]) == (14, 13.5)
    assert found["create_p99_s"] == 0.03
    (tmp_path / "c").mkdir()
    _, _, found = made(tmp_path / "c", experiment="delay", pending=2)
    assert found["delay"] == pytest.approx(0.002 / 0.5)


def test_schedulers_that_do_nothing_but_probe_may_be_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def measured(meter: LoadMeter) -> Iterator[None]:
        yield
        meter.load = MachineLoad(outside_cores=0.0, steal=0.0, client_share=0.97)

    monkeypatch.setattr(LoadMeter, "measured", measured)
    (tmp_path / "probe").mkdir()
    _, record, found = made(tmp_path / "probe", experiment="probe", pending=1)
    assert (record.status, found["client_share"]) == ("done", 0.97)
    (tmp_path / "burst").mkdir()
    _, record, _ = made(tmp_path / "burst", experiment="burst", **SMALL)
    assert record.status == "spoiled"


def test_probing_more_servers_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="asks 16 servers, and testbed t has 4"):
        made(tmp_path, experiment="probe", pending=8)


def test_busy_processors_spoil_what_is_about_disks(tmp_path: Path) -> None:
    assert too_busy(None) is None
    assert too_busy(0.9) is None
    assert "97 %" in str(too_busy(0.97))
    stat = tmp_path / "stat"
    stat.write_text("cpu 0 0 0 0 0 0 0 0 0 0\n")
    before = ticks(stat)
    stat.write_text("cpu 60 10 20 5 5 0 0 0 60 0\n")
    assert busy_between(before, ticks(stat)) == pytest.approx(0.9)
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert busy_between(before, ticks(stat), 30 * tick) == pytest.approx(0.6)
    assert busy_between(before, ticks(stat), 100 * tick) == 0.0


def test_a_clean_state_is_empty_folders_and_the_cells_settings(tmp_path: Path) -> None:
    status = {"agents": [{"agent": 0, "has": {"fragments": 0, "entries": 0, "in_flight": 0}}]}
    agent = FakeAgent(UnitResult("client", "u", 0, 0.0, 1.0, json.dumps(status), ""))
    found, shells = live_of(tmp_path, agent)
    agent.live = {"client": ["load-objects"]}
    ObjectServers(found, SERVED).clean({"scheduler": {"scheduler": "both"}})
    assert ("client", "load-objects") in agent.stopped
    for place in range(2):
        shell = shells[f"server{place}"]
        script = shell.ran[0][2]
        assert f"'/objects/{2 * place}'" in script
        assert "lost+found" in script
        assert "hotbed-twochoice@" in shell.ran[-1][2]
    documents = {
        shell.files["/etc/hotbed/twochoice.json"] for shell in (*shells.values(),) if shell.files
    }
    assert len(documents) == 1
    told = json.loads(documents.pop())
    assert len(told["agents"]) == SERVERS
    assert told["scheduler"] == {"scheduler": "both"}


def test_a_plan_is_gone_when_its_run_is_over(tmp_path: Path) -> None:
    agent = FakeAgent(UnitResult("client", "u", 1, 0.0, 1.0, "", "twochoicebench: no\n"))
    found, shells = live_of(tmp_path, agent)
    with pytest.raises(HotbedError, match="apps failed: no"):
        ObjectServers(found, SERVED).bench(["apps"], max_s=1.0, plan={"apps": []})
    plan = agent.started[0][2][-1]
    assert json.loads(shells["client"].files[plan]) == {"apps": []}
    assert shells["client"].ran[-1] == ["rm", "-f", plan]


def test_the_settings_that_were_deployed_come_back_as_the_role_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later deployment finds nothing to change."""
    for name in ("twochoiced", "twochoicebench"):
        (tmp_path / name).touch()
    monkeypatch.setattr(twochoice_variables, "BINARIES", tmp_path)
    agent = FakeAgent(UnitResult("client", "u", 0, 0.0, 1.0, json.dumps({"agents": []}), ""))
    found, shells = live_of(tmp_path / "site", agent)
    ObjectServers(found, SERVED).restore()
    text = shells["server1"].files["/etc/hotbed/twochoice.json"].decode()
    # Like Ansible's to_nice_json: four columns, original key order, the template's line end.
    assert text.startswith('{\n    "agents": [\n        "')
    assert text.endswith('        "scheduler": "both"\n    }\n}\n')
    assert [line.split('"')[1] for line in text.splitlines() if line.startswith('    "')] == [
        *("agents", "copies", "key_file", "scheduler")
    ]


def test_what_is_left_of_a_run_is_an_error(tmp_path: Path) -> None:
    status = {"agents": [{"agent": 3, "has": {"fragments": 1, "entries": 0, "in_flight": 0}}]}
    agent = FakeAgent(UnitResult("client", "u", 0, 0.0, 1.0, json.dumps(status), ""))
    found, _ = live_of(tmp_path, agent)
    with pytest.raises(HotbedError, match="object server 3 is not empty"):
        ObjectServers(found, SERVED).clean({})
    agent.stray = {"server1": ["fio"]}
    with pytest.raises(HotbedError, match="server1 runs load that is not"):
        ObjectServers(found, SERVED).clean({})


def test_stragglers_are_stopped_whatever_happens(tmp_path: Path) -> None:
    agent = FakeAgent()
    found, _ = live_of(tmp_path, agent)
    servers = ObjectServers(found, SERVED)
    with pytest.raises(KeyError), servers.disturbed([3], [["fio"]]):
        assert agent.units() == {"server1": ["load-straggler-3"]}
        raise KeyError
    assert agent.units() == {}
    with pytest.raises(HotbedError, match="ended before"), servers.disturbed([0], [["fio"]]):
        agent.live.clear()


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "says"),
    [
        (1, "", "x\ntwochoicebench: 3 writes failed\n", "apps failed: 3 writes failed"),
        (None, "", "", "it was stopped"),
        (0, "{", "", "printed no result"),
    ],
)
def test_a_load_generator_that_fails_is_a_sentence(
    code: int | None, stdout: str, stderr: str, says: str
) -> None:
    with pytest.raises(HotbedError, match=says):
        answer_of("apps", UnitResult("client", "u", code, 0.0, 1.0, stdout, stderr))


def test_disks_are_busy_between_the_nearest_readings() -> None:
    watch = LoadWatch(dict)
    counters = [(10.0, 0.0), (12.0, 1.0), (14.0, 3.0), (16.0, 3.0)]
    idle = (0,) * 8
    watch.samples = [
        LoadCounters(at, {0: {"busy_s": busy, "overshoot_mean_s": 0.5}, 1: {"busy_s": 0.0}}, idle)
        for at, busy in counters
    ]
    found = watch.numbers(11.9, 2.0)
    assert (found["disk_busy_most"], found["disk_busy_least"]) == (1.0, 0.0)
    assert found["disk_busy_mean"] == 0.5
    assert found["disk_late_mean_s"] == 0.25
    assert watch.numbers(16.0, 0.1) == {}


def test_processors_that_are_kept_awake_are_not_busy() -> None:
    ticks_s = os.sysconf("SC_CLK_TCK")
    watch = LoadWatch(dict)
    watch.samples = [
        LoadCounters(at, {0: {"busy_s": 0.0}}, (int(2 * at * ticks_s), *(0,) * 7), awake)
        for at, awake in ((10.0, 3.0), (20.0, 17.0))
    ]
    assert watch.numbers(10.0, 10.0)["processors_busy"] == pytest.approx(0.3)


def test_what_is_watched_is_read_at_both_ends() -> None:
    read: list[int] = []

    def counters() -> dict[int, dict[str, object]]:
        read.append(1)
        return {0: {"busy_s": float(len(read))}}

    watch = LoadWatch(counters, every_s=60.0)
    with watch.watching():
        pass
    assert [one.at for one in watch.samples] == sorted(one.at for one in watch.samples)
    assert 1 <= len(watch.samples) <= 2
    nobody = LoadWatch(dict)
    with nobody.watching():
        pass
    assert nobody.samples == []
    assert nobody.numbers(0.0, 1.0) == {}
