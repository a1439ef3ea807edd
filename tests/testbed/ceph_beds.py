"""Three nodes of this machine for a Ceph, and another one: what tests deploy, kill and look at.

The other one has the less usual parts: three monitors, a gateway with tenants, FileStore, settings
of its own.
"""

from __future__ import annotations

import pickle
import subprocess
import sys

from testbed import reach
from testbed.deploy import remove
from testbed.sites.contract import Testbed
from testbed.spec import TestbedSpec

DISK = {"size": "4GiB", "scratch": "2GiB"}


def spec_of_three(roles: dict[str, list[str]], store: dict[str, object]) -> TestbedSpec:
    """The three nodes in these roles, with this store."""
    admin = {"name": "admin", "roles": roles["admin"], "cpus": 1.5, "memory": "2GiB"}
    osd = {"name": "osd", "count": 2, "roles": roles["osd"], "cpus": 1, "disk": DISK}
    return TestbedSpec.model_validate(
        {"name": "deploy-test", "groups": [admin, osd], "store": store}
    )


SPEC = spec_of_three(
    {"admin": ["admin", "mon", "mgr", "client"], "osd": ["osd"]},
    {"pools": [{"name": "bench", "pg_num": 16}]},
)
VARIANT = spec_of_three(
    {"admin": ["admin", "mon", "mgr", "client", "rgw"], "osd": ["osd", "mon"]},
    {
        "objectstore": "filestore",
        "pools": [
            {"name": "bench", "pg_num": 8},
            {"name": "default.rgw.buckets.data", "pg_num": 8},
        ],
        "tenants": ["web", "video"],
        "config": {
            "global": {"osd_pool_default_pg_num": 4, "osd_pool_default_pgp_num": 4},
            "osd": {"osd_max_backfills": 7},
        },
    },
)
NODES = SPEC.node_names()


def run(testbed: Testbed, node: str, command: str) -> str:
    return reach.shell_to(testbed, testbed.node(node)).run(["sh", "-c", command]).text


def deploying(testbed: Testbed, spec: TestbedSpec, task: str) -> subprocess.Popen[bytes]:
    """A process that deploys, when it has come to a task that begins so."""
    code = (
        "import pickle, sys; from testbed.deploy import deploy;"
        "testbed, spec = pickle.load(sys.stdin.buffer);"
        "deploy(testbed, spec, lambda phase, share: print(phase, flush=True))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(pickle.dumps((testbed, spec)))
    process.stdin.close()
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith(task.encode()):
            return process
    raise AssertionError(f"it never came to {task!r}: {said}")


def killed_at(testbed: Testbed, spec: TestbedSpec, task: str) -> None:
    process = deploying(testbed, spec, task)
    process.kill()
    process.wait(timeout=10)


def assert_removed(testbed: Testbed, spec: TestbedSpec) -> None:
    """Removed, nothing is left; and a second time there is nothing to do."""
    assert sum(remove(testbed, spec).values()) == len(NODES)
    for node in NODES:
        left = run(
            testbed,
            node,
            "ls -d /etc/ceph/* /etc/hotbed /opt/hotbed /var/lib/hotbed /var/lib/ceph/*/ceph-* "
            "/etc/systemd/system/*hotbed* /etc/systemd/system/ceph-*@.service.d 2>/dev/null; "
            "pgrep -a 'ceph|radosgw'; grep -s hotbed /etc/hosts; true",
        )
        assert left.split() == ["/etc/ceph/rbdmap"]
    assert sum(remove(testbed, spec).values()) == 0
