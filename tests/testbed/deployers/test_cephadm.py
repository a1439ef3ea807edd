"""cephadm without a live cluster: specifications, command lines, answers, the order of steps."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from testbed.deploy import cephadm
from testbed.deploy.cephadm import CephadmCluster, CephadmCommand
from testbed.deploy.playbook import DeployError
from testbed.sites.contract import Testbed, silent
from tests.errors import raises
from tests.testbed.deployers.beds import bed_of, spec_with
from tests.testbed.deployers.fake_orchestrator import FSID, KEY, FakeMachines
from tests.testbed.sites.manual_clock import ManualClock

SPEC = spec_with("cephadm")
IMAGE = "example.org/ceph/ceph:v20"
TOOL = CephadmCommand(FSID, IMAGE)
SETTINGS = {"osd": {"osd_max_scrubs": "0"}}
DEBIANS = "/usr/bin/python3"  # python3-ceph-common is not on PyPI
CHECK = """
import sys, yaml
from ceph.deployment.hostspec import HostSpec
from ceph.deployment.service_spec import ServiceSpec
for body in yaml.safe_load_all(sys.stdin):
    if body.get("service_type") == "host":
        made = HostSpec.from_json({k: v for k, v in body.items() if k != "service_type"})
        made.validate()
    else:
        made = ServiceSpec.from_json(body)
        made.validate()
        print(made.service_name(), made.to_json().get("spec", {}))
"""


@pytest.fixture
def bed(tmp_path):
    return bed_of(SPEC, tmp_path)


@pytest.fixture
def machines():
    return FakeMachines(TOOL)


def started(bed: Testbed, machines: FakeMachines) -> CephadmCluster:
    """Return the cluster as a new process would open it, with a clock that only sleeping moves."""
    clock = ManualClock(0.0)
    return CephadmCluster(bed, TOOL, machines.run, now=clock.now, sleep=clock.sleep)


@pytest.fixture
def cluster(bed, machines):
    return started(bed, machines)


# --- specifications ------------------------------------------------------------------------------


def debians_word(document: bytes) -> list[str]:
    """Return python3-ceph-common's reading of the specifications, one line per service."""
    there = subprocess.run(
        [DEBIANS, "-c", "import ceph.deployment.service_spec"], capture_output=True, check=False
    )
    if there.returncode != 0:
        pytest.skip("this machine has no python3-ceph-common")
    done = subprocess.run([DEBIANS, "-c", CHECK], input=document, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def test_ceph_itself_accepts_every_specification(bed):
    wanted = [
        *cephadm.hosts(bed),
        *cephadm.controls(bed),
        *cephadm.osds(bed),
        *cephadm.osds(bed, managed=False),
        *cephadm.gateways(bed),
    ]
    said = debians_word(cephadm.document(wanted))
    services = ["mon", "mgr", *[f"osd.hotbed-osd{n}" for n in (0, 1, 2)] * 2, "rgw.hotbed"]
    assert [line.partition(" ")[0] for line in said] == services
    assert "'rgw_frontend_port': 7480" in said[-1]


# --- command lines -------------------------------------------------------------------------------


def test_keys_are_let_in_once_and_forgotten(tmp_path):
    file, kept = tmp_path / ".ssh" / "authorized_keys", tmp_path / "kept"
    file.parent.mkdir()
    kept.write_text("ssh-ed25519 AAAA somebody\n")
    kept.chmod(0o640)
    file.symlink_to("../kept")

    def here(argv: list[str], input: str = "") -> None:
        script = argv[2].replace("/root/.ssh", str(file.parent))
        subprocess.run([*argv[:2], script, *argv[3:]], input=input, text=True, check=True)

    for _ in range(2):
        here(cephadm.authorize(), KEY + "\n")
    assert file.read_text() == f"ssh-ed25519 AAAA somebody\n{KEY}\n"
    forget = cephadm.forget(FSID)
    left = [tmp_path / name for name in ("program", "program.release", "settings", "ssh")]
    for path in left:
        path.touch()
    forget[-3:] = [str(left[0]), str(left[2]), str(left[3])]
    here(forget)
    assert file.read_text() == "ssh-ed25519 AAAA somebody\n"
    assert file.is_symlink()  # a site chooses where it keeps its keys
    assert kept.stat().st_mode & 0o777 == 0o640
    assert not any(path.exists() for path in left)


def test_the_program_is_the_releases_own(tmp_path):
    """A program left by another release is not used; the same one is fetched once."""
    curl = tmp_path / "curl"
    curl.write_text('#!/bin/sh\nfor word; do last=$word; done\necho "$last" > "$6"\n')
    curl.chmod(0o755)
    program = tmp_path / "cephadm"

    def fetched(release: str) -> str:
        argv = cephadm.fetch_program(release)
        argv[4] = str(program)
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        subprocess.run(argv, check=True, env=path)
        return program.read_text()

    assert "/rpm-reef/" in fetched("reef")
    program.write_text("kept")
    assert fetched("reef") == "kept"
    assert "/rpm-squid/" in fetched("squid")


# --- the order of steps --------------------------------------------------------------------------


def whats(machines: FakeMachines) -> list[str]:
    return [what for _, what in machines.log]


def test_a_cluster_comes_up_with_every_osd_and_is_then_let_alone(bed, cluster, machines):
    shares: list[float] = []
    cluster.bring("tentacle", SETTINGS, lambda phase, share: shares.append(share))
    assert machines.serves
    assert machines.files == {cephadm.CONFIG: b"[osd]\nosd_max_scrubs = 0\n"}
    assert "--ssh-config" not in machines.bootstrapped
    # Nothing that would disturb a measurement.
    assert {"--skip-dashboard", "--skip-monitoring-stack"} <= set(machines.bootstrapped)
    assert {node: keys for node, keys in machines.keys.items() if keys == [KEY]} == machines.keys
    assert set(machines.keys) == {node.name for node in bed.nodes}
    assert [host["hostname"] for host in machines.hosts] == [node.name for node in bed.nodes]
    assert {name for name, spec in machines.services.items() if spec.get("unmanaged")} == {
        "osd.hotbed-osd0",
        "osd.hotbed-osd1",
        "osd.hotbed-osd2",
    }
    assert machines.services["rgw.hotbed"]["placement"] == {"hosts": ["gate"]}
    assert shares == sorted(shares) and shares[-1] == 1.0


def test_hosts_with_sshd_at_another_port_are_reached_there(bed, machines):
    """For example in a lab or behind address translation; cephadm itself uses only port 22."""
    nodes = [replace(n, ssh_port=2222) if n.name == "osd1" else n for n in bed.nodes]
    moved = replace(bed, nodes=tuple(nodes))
    started(moved, machines).bring("tentacle", SETTINGS, silent)
    path = machines.bootstrapped[machines.bootstrapped.index("--ssh-config") + 1]
    text = machines.files[path].decode()
    assert text.startswith("Host 10.1.0.12\n  Port 2222\nHost *\n")  # the first that fits wins
    assert "StrictHostKeyChecking no" in text  # cephadm accepts no configuration without it


def test_the_administrators_key_is_waited_for(cluster, machines):
    machines.waits = 2
    cluster.bring("tentacle", SETTINGS, silent)
    assert whats(machines)[-4:] == ["test -s"] * 4  # twice in vain, then both files of the one node
    machines.waits = 10_000
    with raises(DeployError, "30 min", "/etc/ceph/ceph.conf"):
        cluster.bring("tentacle", SETTINGS, silent)


def test_a_second_deployment_makes_nothing_and_a_half_one_is_removed_first(cluster, machines):
    machines.folder = True
    cluster.bring("tentacle", SETTINGS, silent)
    order = [what for what in whats(machines) if what in ("rm-cluster", "bootstrap")]
    assert order == ["rm-cluster", "bootstrap"]
    machines.log.clear()
    cluster.bring("tentacle", SETTINGS, silent)
    assert "bootstrap" not in whats(machines)
    # Hosts, monitors with managers, unmanaged OSDs, gateways: no service creates OSDs.
    assert sum("orch apply" in what for what in whats(machines)) == 4


def test_a_finished_cluster_that_does_not_answer_is_not_taken_for_half_a_one(cluster, machines):
    """With a slow monitor or a hanging engine, this would cost the first host's OSDs."""
    cluster.bring("tentacle", SETTINGS, silent)
    machines.log.clear()
    machines.fails["ceph status"] = "timed out"
    with raises(DeployError, "node admin", "ERROR: timed out", "`hotbed deploy --remove`"):
        cluster.bring("tentacle", SETTINGS, silent)
    assert not {"rm-cluster", "bootstrap"} & set(whats(machines))
    machines.fails.clear()
    cluster.bring("tentacle", SETTINGS, silent)
    assert not {"rm-cluster", "bootstrap"} & set(whats(machines))


def test_osds_that_never_start_are_an_error_that_names_hosts_which_are_away(cluster, machines):
    machines.broken.add("osd1")
    with raises(DeployError, "2 of 3 OSDs are up (osd1 is Offline)"):
        cluster.bring("tentacle", SETTINGS, silent)


def test_removal_goes_to_every_host_and_says_where_it_failed(bed, cluster, machines):
    cluster.bring("tentacle", SETTINGS, silent)
    machines.log.clear()
    assert cluster.remove(silent) == []
    assert whats(machines)[1] == "ceph mgr module disable cephadm"
    removed = [node for node, what in machines.log if what == "rm-cluster"]
    assert removed == [node.name for node in bed.nodes]
    assert machines.programs == set()
    machines.programs = {"osd0"}
    machines.fails["rm-cluster"] = "device is busy"
    (failed,) = cluster.remove(silent)
    assert (failed.node, failed.message) == ("osd0", "node osd0: ERROR: device is busy")


@pytest.mark.parametrize("away", ["admin", "osd1"])
def test_removal_goes_on_where_a_host_does_not_answer(bed, cluster, machines, away):
    cluster.bring("tentacle", SETTINGS, silent)
    machines.log.clear()
    machines.away = {away}
    (failed,) = cluster.remove(silent)
    assert failed.message == f"node {away} cannot be reached by ssh: timed out"
    assert failed.node == away and failed.unreachable
    removed = [node for node, what in machines.log if what == "rm-cluster"]
    assert removed == [node.name for node in bed.nodes if node.name != away]


def test_a_removal_needs_no_cluster_that_answers_and_no_monitors(bed, cluster, machines):
    machines.programs, machines.folder = {"admin"}, True
    assert cluster.remove(silent) == []
    assert "ceph mgr module disable cephadm" not in whats(machines)
    assert not machines.folder
    machines.log.clear()
    machines.programs = {"osd1"}
    left = replace(bed, nodes=(bed.node("osd1"),))
    assert started(left, machines).remove(silent) == []
    assert whats(machines) == ["test -f", "rm-cluster", "sh -c"]
