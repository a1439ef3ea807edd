"""Whole machines that change owner on nodes of this machine: Algorithm 1 on a working Swift."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controllers.journal import read_journal
from controllers.replay import replay
from tests.testbed.swift_beds import Bed, bed_of
from tests.testbed.swift_client import Stored
from tests.waiting import until
from workloads.cosbench.archive import read_archive
from workloads.cosbench.workload import TABLE_1, SwAuth, SwiftStorage, to_xml

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]

MACHINE_CORES, PERIOD_US = 0.2, 25_000


@pytest.fixture(scope="module")
def bed():
    with bed_of("swift-machines", "mos-machines.yaml", client=1) as found:
        yield found


def owners(bed: Bed) -> dict[str, str]:
    found: dict[str, str] = bed.agent.call("swift-status", timeout_s=90)["state"]["proxies"]
    return found


FIRST = {"proxy0": "small", "proxy1": "large", "proxy2": "", "proxy3": ""}


def assign(bed: Bed, machine: str, microstore: str) -> dict[str, Any]:
    action = {"action": "AssignMachine", "machine": machine, "microstore": microstore}
    [effect] = bed.agent.call("swift-act", {"actions": [action]}, timeout_s=120)
    assert effect["ok"], effect
    found: dict[str, Any] = effect
    return found


def test_a_free_machine_serves_whom_it_is_given_to_and_nothing_fails(bed):
    assert owners(bed) == FIRST
    stored = Stored(bed.client("small"), "handed")
    with stored.load():
        failed = stored.failed
        assign(bed, "proxy2", "small")
        more = Stored(bed.client("small"), "handed", seed=2)
        assert more.put("through-both", 100_000)
        for number in range(8):
            assert more.put(f"more-{number}", 10_000)
        assert stored.failed == failed
    quota = bed.run("proxy2", "cat /opt/hotbed-site/cpu/swift-proxy/cpu.cfs_quota_us")
    assert int(quota) / PERIOD_US == pytest.approx(MACHINE_CORES)
    # Storage cores move with a machine: two machines' cores on two nodes.
    quota = bed.run("storage0", "cat /opt/hotbed-site/cpu/swift-small/cpu.cfs_quota_us")
    assert int(quota) / PERIOD_US == pytest.approx(MACHINE_CORES)
    alone = bed.client("small")
    alone._proxies = [alone._proxies[-1]]  # the added proxy
    other = Stored(alone, "handed")
    other.sums = stored.sums | more.sums
    assert other.lost() == []


def test_it_goes_from_one_microstore_to_another_and_back_to_the_pool(bed):
    stored = Stored(bed.client("large"), "other")
    assert stored.put("before", 500_000)
    with stored.load(threads=2):
        failed = stored.failed
        assign(bed, "proxy2", "large")
        assert len(bed.client("small")._proxies) == 1
        assert len(bed.client("large")._proxies) == 2
        assign(bed, "proxy2", "")
        assert stored.failed == failed  # another proxy serves the clients
    assert owners(bed) == FIRST
    assert bed.run("proxy2", "systemctl is-active hotbed-swift-proxy || true").strip() != "active"
    assert stored.lost() == []


def test_drivers_follow_a_machine_that_comes_and_goes(bed, tmp_path):
    workload = TABLE_1["A"].with_(
        workers=4,
        containers=2,
        objects=5,
        runtime_s=25,
        storage=SwiftStorage(proxies_file="/etc/hotbed/swift/small.json"),
        auth=SwAuth(),
    )
    (tmp_path / "a.xml").write_text(to_xml(workload))
    out = tmp_path / "results"
    client = bed.testbed.with_role("client")[0].name
    words = (str(tmp_path / "a.xml"), "--node", client, "--tenant", "small", "--out", str(out))
    process = bed.start("cosbench", "run", *words)
    try:
        until(lambda: any(bed.agent.units().values()))
        assign(bed, "proxy2", "small")
        before = bed.used("proxy2")
        until(lambda: bed.used("proxy2").cpu_s > before.cpu_s + 0.5)  # it receives requests
        assign(bed, "proxy2", "")
        _, wrong = process.communicate(timeout=180)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, wrong
    archive = read_archive(out / "cli")
    assert archive.finished
    assert not any(sum(one.failed.values()) for one in archive.measured)


def control(bed: Bed, *parameters: str) -> None:
    words = [word for parameter in parameters for word in ("-p", parameter)]
    bed.hotbed("control", "start", "mos", "--interval", "2", *words)


def test_mos_hands_machines_out_and_what_it_changed_is_put_back(bed, tmp_path):
    """An idle microstore's machines and shared disks are within the band."""
    stored = Stored(bed.client("small"), "controlled")
    with stored.load(threads=6):
        failed = stored.failed
        control(bed, "util_low=0", "util_high=0.5")
        wanted = FIRST | {"proxy2": "small", "proxy3": "small"}
        until(lambda: owners(bed) == wanted)
        stopped = json.loads(bed.hotbed("control", "stop", "--json"))
        assert stored.failed == failed
    assert (stopped["code"], stopped["reason"]) == (0, "stopped")
    assert owners(bed) == FIRST
    bed.hotbed("control", "log", "mos", "--out", str(tmp_path / "journal.jsonl"))
    journal = read_journal(tmp_path / "journal.jsonl")
    # toChange is 1 and nothing happens, then two machines are added at once (Algorithm 1).
    acted = [step["actions"] for step in journal.steps if step["actions"]]
    assert [action["machine"] for action in acted[0]] == ["proxy2", "proxy3"]
    assert replay(journal).equal
    assert stored.lost() == []


def test_mos_returns_one_machine_at_a_time_and_keeps_the_last(bed):
    for machine in ("proxy2", "proxy3"):
        assign(bed, machine, "small")
    try:
        control(bed, "util_low=1", "util_high=1", "restore_on_stop=false")
        until(lambda: list(owners(bed).values()).count("") == 2)
        steps = bed.steps("mos")
        until(lambda: bed.steps("mos") >= steps + 2)
        assert sorted(owners(bed).values()) == ["", "", "large", "small"]
        stopped = json.loads(bed.hotbed("control", "stop", "--json"))
        assert stopped["code"] == 0
        assert sorted(owners(bed).values()) == ["", "", "large", "small"]
    finally:
        bed.agent.call("swift-restore", {}, timeout_s=120)
    assert owners(bed) == FIRST
