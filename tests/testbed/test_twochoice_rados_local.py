"""Two-choice scheduler on a real Ceph: agents in front of its OSDs, killed, and removed."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
import yaml

from campaigns.grounds.testbed import open_live, read_facts
from campaigns.papers.twochoice.bench import BenchOptions, bench_testbed, run
from campaigns.papers.twochoice.objects import JOURNAL_FILE, REPORT_FILE, ObjectCells
from campaigns.papers.twochoice.servers import PLAN_FILE, ObjectServers
from schemas.cells.twochoice import OBJECTS
from schemas.run import Summary
from testbed.client import agent_client
from testbed.deploy.inventory import SCRATCH_PATH
from testbed.deploy.lifecycle import wait_healthy
from testbed.deploy.roles import deploy, remove_agents, save_spec, spec_of
from testbed.reach import shell_to
from testbed.sites import open_site
from testbed.sites.contract import Testbed
from testbed.spec import TestbedSpec
from tests.campaigns.tiny_kinds import job_with
from tests.testbed.strangers import assert_only_documented_ports_answer

pytestmark = [pytest.mark.local, pytest.mark.timeout(600)]

CLUSTER = "/etc/hotbed/twochoice.json"
PREFIXES = ("contract.", "lock.")  # pools used by the tests of dataplane/internal/librados
FILES = "find /usr/local/bin /etc/hotbed /etc/systemd/system ! -type d 2>/dev/null || true"
KILL = "kill -9 $(systemctl show -p MainPID --value {unit})"


def sh(testbed: Testbed, node: str, command: str, *, check: bool = True) -> str:
    done = shell_to(testbed, testbed.node(node)).run(
        ["sh", "-c", command], timeout_s=200, check=check
    )
    return done.text


def state(testbed: Testbed) -> dict[str, Any]:
    """Return the state that a removal has to preserve."""
    admin = testbed.admin.name
    pools = json.loads(sh(testbed, admin, "ceph osd pool ls detail -f json"))
    health = agent_client(testbed).call("health")
    return {
        "pools": [(pool["pool_name"], pool["crush_rule"], pool["size"]) for pool in pools],
        "rules": sh(testbed, admin, "ceph osd crush rule ls"),
        "sets": sh(testbed, admin, "ceph osd crush weight-set ls"),
        "users": sh(testbed, admin, "ceph auth ls 2>/dev/null | grep -E '^[a-z]'"),
        "health": health["checks"],
        "files": sorted(sh(testbed, "osd0", FILES).splitlines()),
    }


@pytest.fixture(scope="module")
def agents(deployed):
    """Put agents in front of the OSDs of the tests' Ceph; restore everything afterwards."""
    site, plain = open_site("local"), spec_of(deployed)
    asked = plain.model_dump(mode="json")
    asked["store"]["twochoice"] = {"maintainer": {"off": True}}
    spec = TestbedSpec.model_validate(asked)
    before = state(deployed)
    try:
        changed = deploy(deployed, spec, site=site)
        assert all(changed[node.name] > 0 for node in deployed.nodes)
        yield deployed
    finally:
        remove_agents(deployed, spec, site=site)
        save_spec(deployed, plain)
        wait_healthy(deployed)
        assert state(deployed) == before


def test_to_a_stranger_only_documented_ports_answer(agents):
    assert_only_documented_ports_answer(agents, spec_of(agents))


def test_every_pool_is_on_its_osd_alone_and_nobody_is_warned(agents):
    admin = agents.admin.name
    for osd in range(4):
        rows = sh(agents, admin, f"ceph pg ls-by-pool twochoice.{osd} -f json")
        assert {tuple(pg["acting"]) for pg in json.loads(rows)["pg_stats"]} == {(osd,)}
    assert agent_client(agents).call("health")["status"] == "HEALTH_OK"
    mode = sh(agents, "osd0", "stat -c '%a %U' /etc/hotbed/twochoice.key /etc/hotbed/*.keyring")
    assert mode.split() == ["600", "root"] * 2
    # A key is valid only for its pool.
    tried = "rados --id twochoice.0 --keyring /etc/hotbed/twochoice.0.keyring -p {} ls"
    sh(agents, "osd0", tried.format("twochoice.0"))
    denied = sh(agents, "osd0", tried.format("twochoice.1") + " 2>&1 || echo denied", check=False)
    assert "denied" in denied


def test_schedulers_write_past_a_slow_disk_and_all_is_read_back(agents, tmp_path):
    site: Any = open_site("local")
    site.disk_fault(agents.name, "osd0", slow=8.0)
    try:
        options = BenchOptions(
            schedulers=("fixed", "both"), nodes=2, processes=16, writes=1, size=2**22
        )
        machines = bench_testbed(agents, spec_of(agents))
        outcome = run(machines, options, tmp_path, lambda phase, share: None)
    finally:
        site.disk_fault(agents.name, "osd0")
    assert outcome.good
    rows = {row.scheduler: row for row in outcome.rows}
    assert all(row.verified == row.writes == 32 for row in rows.values())
    assert rows["fixed"].redirected == 0
    assert rows["fixed"].server_bytes == (8 * 2**22,) * 4
    assert rows["both"].redirected > 0
    for osd in range(4):  # none was killed for memory
        shown = sh(
            agents, f"osd{osd}", f"systemctl show -p NRestarts --value hotbed-twochoice@{osd}"
        )
        assert shown.strip() == "0"


def test_nothing_acknowledged_is_lost_when_an_agent_and_an_osd_are_killed(agents):
    admin = agents.admin.name
    bench = f"hotbed-twochoicebench {{}} --cluster {CLUSTER} --ledger /tmp/acknowledged"
    write = bench.format("write") + " --nodes 4 --processes 4 --writes 10 --size 512KiB"
    shell = shell_to(agents, agents.node(admin))
    writing = shell.popen(["sh", "-c", f"rm -f /tmp/acknowledged; {write}"])
    sh(agents, "osd1", KILL.format(unit="hotbed-twochoice@1"))
    sh(agents, "osd2", KILL.format(unit="ceph-osd@2"))
    sh(
        agents,
        "osd3",
        f"{KILL.format(unit='hotbed-twochoice@3')}; {KILL.format(unit='ceph-osd@3')}",
    )
    sh(agents, admin, "systemctl restart ceph-mon.target")
    out, _ = writing.communicate(timeout=200)
    done = json.loads(out)
    assert done["writes"] + done["failed"] == 160
    assert done["writes"] > 0
    checked = json.loads(sh(agents, admin, bench.format("verify")))
    assert checked == {"objects": done["writes"], "bad": []}
    log = sh(agents, "osd1", "journalctl -u hotbed-twochoice@1 --no-pager")
    assert log.count("recovered") >= 2


@pytest.mark.timeout(1200)
def test_cells_of_dlr_and_agents_leave_nothing(agents, tmp_path):
    """The test follows `hotbed run twochoice-rados-quick`, with little to write. The machine
    decides if a run counts, so the test does not check it."""
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec_of(agents).model_dump(mode="json")))
    burst = {"experiment": "burst", "backend": "rados", "copies": 2, "stragglers": "fio"}
    burst |= {"straggler_share": 0.25, "start_s": 8.0, "nodes": 2, "processes": 2, "writes": 3}
    restore = ObjectServers.restore
    with open_live(agents.name, path, ObjectServers, say=print, restore=restore) as servers:
        assert read_facts(servers.live).osd_count == 4
        assert set(servers.disk_counters()) == {0, 1, 2, 3}
        for scheduler in ("dlr", "both"):
            folder = tmp_path / scheduler
            folder.mkdir()
            parameters = OBJECTS.of(**{**burst, "scheduler": scheduler})
            made = ObjectCells(servers).make(
                job_with(parameters, agents.name, "twochoice-objects"), folder
            )
            assert made.provenance.calibration["groups"]["osd"]["disk"]["slow"] == 1.0
            summary = Summary.model_validate_json((folder / "summary.json").read_bytes())
            found = summary.extra
            assert found["writes"] == found["read_back"] == 12
            assert (found["read_bad"], found["client_processes"]) == (0, 4)
            assert len(json.loads((folder / REPORT_FILE).read_text())["slowed"]) == 1
            assert ("fullest" in found) == (scheduler == "both")
            assert (folder / JOURNAL_FILE).exists() == (scheduler == "dlr")
    assert '"step"' in (tmp_path / "dlr" / JOURNAL_FILE).read_text()
    # No objects, no plan and no fio files remain.
    left = f"rados -p bench ls; cat {PLAN_FILE} 2>/dev/null; true"
    assert sh(agents, agents.admin.name, left) == ""
    for node in agents.with_role("osd"):
        assert "straggler" not in sh(agents, node.name, f"ls {SCRATCH_PATH}")
    assert agent_client(agents).call("health")["status"] == "HEALTH_OK"


def test_ceph_keeps_the_contract_that_files_keep(agents, root, tmp_path):
    program = tmp_path / "librados.test"
    subprocess.run(
        [root / "tools/go", "test", "-c", "-o", program, "./internal/librados"],
        cwd=root / "dataplane",
        env=os.environ | {"CGO_ENABLED": "0"},
        check=True,
    )
    agent, admin = agent_client(agents), agents.admin.name
    shell_to(agents, agents.admin).put(program.read_bytes(), "/tmp/librados.test")
    try:
        for prefix in PREFIXES:
            agent.call("pinned-create", {"prefix": prefix, "osds": [0]}, timeout_s=120)
        said = sh(
            agents,
            admin,
            "chmod +x /tmp/librados.test; HOTBED_RADOS='/etc/ceph/ceph.conf admin "
            "/etc/ceph/ceph.client.admin.keyring' /tmp/librados.test -test.v 2>&1; true",
        )
        assert said.rstrip().endswith("PASS"), said
        assert "--- PASS: TestCephKeepsTheContract" in said
        assert "--- PASS: TestAnOwnerThatIsFencedWritesNoMore" in said
    finally:
        sh(agents, admin, "rm -f /tmp/librados.test")
        for prefix in PREFIXES:
            agent.call("pinned-delete", {"prefix": prefix}, timeout_s=120)
