"""Local site's nodes as foreign machines: real ssh, real devices, the same playbooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from hotbed import cli
from schemas.errors import UserError
from testbed import reach
from testbed.doctor import lacking
from testbed.sites.contract import State, Testbed
from testbed.sites.inventory import InventorySite
from testbed.sites.records import Records
from testbed.spec import TestbedSpec
from testbed.ssh import SshShell
from tests.errors import raises
from tests.testbed.sites.local_support import everything_on_the_machine, local_site

pytestmark = pytest.mark.local

GROUND = yaml.safe_load("""
name: ground
store: null
groups:
  - {name: door, roles: [admin], cpus: 1.0, memory: 1GiB}
  - name: machine
    count: 2
    roles: [osd]
    cpus: 0.5
    memory: 1GiB
    disk: {size: 3GiB, scratch: 1GiB, positioning: 4ms, bandwidth: 100MB/s}
""")
GROUPS = yaml.safe_load("""
- {name: head, roles: [admin, mon, mgr, client], memory: 1GiB}
- {name: osd, count: 2, roles: [osd], memory: 1GiB, disk: {size: 3GiB, scratch: 1GiB}}
""")
DEVICES = {"osd": {"osd": "/dev/hotbed/osd", "scratch": "/dev/hotbed/scratch"}}
TRACES = (
    "find /etc /root /opt /usr/local/bin -newer /etc/hostname -type f "
    "-not -path '*/etc/ld.so.cache' -not -path '*/.cache/*' "
    "-not -path '/opt/hotbed-site/*' | sort; "  # the site's, with the node's own control groups
    "ls /etc/hotbed-site.json /var/lib/hotbed /etc/hotbed /opt/hotbed 2>/dev/null; "
    "grep -c hotbed /etc/hosts /root/.ssh/authorized_keys"
)


@pytest.fixture(scope="module")
def ground() -> Iterator[Testbed]:
    """Provide three machines with their own names; nothing remains of them."""
    site = local_site()
    site.release("ground")
    try:
        yield site.provision(TestbedSpec.model_validate(GROUND))
    finally:
        site.release("ground")
        assert everything_on_the_machine() == []


KEEPER = """
useradd --create-home --shell /bin/bash keeper
install -d -o keeper -m 700 ~keeper/.ssh
install -o keeper -m 600 /root/.ssh/authorized_keys ~keeper/.ssh
"""
MAY_BECOME_ROOT = "echo 'keeper ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/keeper"


@pytest.fixture(scope="module")
def keeper(ground: Testbed) -> str:
    """Create a user on all machines who is not root and may not become root yet."""
    for node in ground.nodes:
        on(ground, node.name, KEEPER)
    return "keeper"


def options_of(ground: Testbed, user: str = "root", **more: Any) -> dict[str, Any]:
    """Return options that reach the first machine directly and the others through it."""
    door, *others = ground.nodes
    jump = f"{user}@{door.address}"
    hosts = [{"name": "here", "address": door.address}]
    hosts += [
        {"name": f"there-{n}", "address": o.address, "proxy_jump": jump}
        for n, o in enumerate(others)
    ]
    login = {"user": user, "key": str(ground.ssh_key), "known_hosts": str(ground.known_hosts)}
    return {"hosts": hosts, "devices": DEVICES, **login, **more}


def spec_of(options: dict[str, Any], store: dict[str, Any] | None = None) -> TestbedSpec:
    site = {"kind": "inventory", "options": options}
    return TestbedSpec.model_validate(
        {"name": "mine", "site": site, "groups": GROUPS, "store": store}
    )


def on(ground: Testbed, name: str, line: str) -> str:
    """Return a shell line's output on a machine, with its owner's login."""
    target = replace(reach.target_of(ground, ground.node(name)), control_dir=None)
    return SshShell(target).run(["sh", "-c", line], check=False).text


def test_a_user_who_may_not_become_root_is_refused(ground, keeper, tmp_path):
    site = InventorySite(options_of(ground, keeper), records=Records("inventory", tmp_path))
    for machine in site.inspect(spec_of(options_of(ground, keeper))):
        [finding] = lacking(machine.findings)
        assert "may not become root" in finding.found
    with raises(UserError, "may not become root"):
        site.provision(spec_of(options_of(ground, keeper)))


@pytest.mark.parametrize("user", ["root", "keeper"])
def test_machines_are_inspected_taken_wiped_and_let_go(ground, keeper, tmp_path, user):
    """Both as root, and as a user who becomes root with sudo."""
    for node in ground.nodes:
        on(ground, node.name, MAY_BECOME_ROOT)
    options = options_of(ground, user)
    spec, records = spec_of(options), Records("inventory", tmp_path)
    site = InventorySite(options, records=records)
    before = {node.name: on(ground, node.name, TRACES) for node in ground.nodes}
    machines = site.inspect(spec)
    assert [finding for m in machines for finding in lacking(m.findings)] == []
    on(ground, "machine1", "mkfs.ext4 -q -F -L precious /dev/hotbed/scratch")
    with raises(UserError, "/dev/hotbed/scratch@osd1"):
        site.provision(spec)
    assert {node.name: on(ground, node.name, TRACES) for node in ground.nodes} == before
    site.allow(["/dev/hotbed/scratch@osd1"])
    testbed = site.provision(spec)
    assert on(ground, "machine1", "wipefs /dev/hotbed/scratch") == ""
    assert testbed.node("osd0").via == f"{user}@{ground.admin.address}"
    known = InventorySite({}, records=records)
    status = known.status("mine")
    assert (status.state, set(status.nodes.values())) == (State.READY, {"running"})
    shell = reach.shell_to(testbed, testbed.node("osd1"))
    assert shell.run(["getent", "hosts", "head"]).text.split()[0] == testbed.admin.address
    first = known.usage_counters("mine")
    usage = known.usage_between(first, known.usage_counters("mine"))
    assert set(usage.node_cores) == {"head", "osd0", "osd1"}
    known.release("mine")
    assert known.names() == []
    assert {node.name: on(ground, node.name, TRACES) for node in ground.nodes} == before


def call(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(words))
    printed = capfd.readouterr()
    assert stopped.value.code in (0, None), printed.err
    return printed.out


@pytest.mark.timeout(900)
def test_the_same_playbooks_on_a_strangers_machines(ground, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("HOTBED_STATE", str(tmp_path / "state"))
    before = {node.name: on(ground, node.name, TRACES) for node in ground.nodes}
    store = {"kind": "ceph", "pools": [{"name": "bench", "pg_num": 8}]}
    path = tmp_path / "mine.yaml"
    spec = spec_of(options_of(ground), store)
    path.write_text(yaml.safe_dump(json.loads(spec.model_dump_json(exclude_none=True))))
    call(capfd, "up", str(path))
    call(capfd, "deploy", "mine")
    health = call(capfd, "exec", "--testbed", "mine", "head", "--", "ceph", "health")
    assert "HEALTH_OK" in health
    tree = call(capfd, "exec", "--testbed", "mine", "head", "--", "ceph", "osd", "tree")
    assert "osd0" in tree and "osd1" in tree
    call(capfd, "down", "mine")
    after = {node.name: on(ground, node.name, TRACES) for node in ground.nodes}
    assert after == before
    assert on(ground, "machine0", "wipefs /dev/hotbed/osd /dev/hotbed/scratch") == ""
    assert on(ground, "machine0", "systemctl list-units --plain --no-legend 'ceph-osd@*'") == ""
