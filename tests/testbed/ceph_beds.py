"""Shared Ceph of all tests, and a variant deployed on three of its nodes afterwards.

The variant has the less usual parts: three monitors, a gateway with tenants, own settings.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed import reach
from testbed.deploy.deployment import bring
from testbed.deploy.roles import remove, save_spec
from testbed.sites import open_site
from testbed.sites.contract import Testbed
from testbed.spec import TestbedSpec

STATE = Path("/var/lib/hotbed-tests-deployed")
DISK = {"size": "3584MiB", "scratch": "1536MiB", "positioning": "4ms", "bandwidth": "100MB/s"}


def spec_with(
    osds: int, admin_roles: list[str], osd_roles: list[str], store: dict[str, object]
) -> TestbedSpec:
    """Return the spec of an admin node and `osds` nodes with a disk, in these roles."""
    admin = {"name": "admin", "roles": admin_roles, "cpus": 1.5, "memory": "2GiB"}
    osd = {"name": "osd", "count": osds, "roles": osd_roles, "cpus": 0.5, "disk": DISK}
    return TestbedSpec.model_validate({"name": "tests", "groups": [admin, osd], "store": store})


SPEC = spec_with(
    4,
    ["admin", "mon", "mgr", "client"],
    ["osd"],
    {"pools": [{"name": "bench", "pg_num": 32}]},
)
VARIANT = spec_with(
    2,
    ["admin", "mon", "mgr", "client", "rgw"],
    ["osd", "mon"],
    {
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
).model_copy(update={"metrics": True})


@contextmanager
def up_and_down(spec: TestbedSpec = SPEC, state: Path = STATE) -> Iterator[Testbed]:
    """Deploy and freeze a Ceph, by default the shared one. Remove a killed run's leftovers first,
    and all in the end.

    It has its own state folder, so that no user's testbed is used or touched. While it is up, this
    process and its children see only the tests' testbeds.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOTBED_STATE", str(state))
        site = open_site("local")
        try:
            site.release(spec.name)
            # The variant, which has metrics, is deployed on the machines of SPEC.
            testbed = site.provision(spec.model_copy(update={"metrics": spec is SPEC}))
            save_spec(testbed, spec)
            bring(site, testbed)
            yield testbed
        finally:
            site.release(spec.name)


def run(testbed: Testbed, node: str, command: str) -> str:
    return reach.shell_to(testbed, testbed.node(node)).run(["sh", "-c", command]).text


def pools_of(testbed: Testbed) -> list[str]:
    """Return the cluster's pools without the manager's own, which Ceph 17 and later have."""
    return [p for p in run(testbed, "admin", "rados lspools").split() if p != ".mgr"]


def deploying(testbed: Testbed, spec: TestbedSpec, task: str) -> subprocess.Popen[bytes]:
    """Return a deploying process once it has reached a task with this beginning."""
    code = (
        "import pickle, sys; from testbed.deploy.roles import deploy;"
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
    """Assert that a removal leaves nothing."""
    nodes = spec.node_names()
    assert sum(remove(testbed, spec).values()) == len(nodes)
    for node in nodes:
        left = run(
            testbed,
            node,
            "ls -d /etc/ceph/* /etc/hotbed /opt/hotbed /var/lib/hotbed /var/lib/ceph/*/ceph-* "
            "/etc/systemd/system/*hotbed* /etc/systemd/system/ceph-*@.service.d 2>/dev/null; "
            "pgrep -a 'ceph|radosgw'; grep -s hotbed /etc/hosts; true",
        )
        assert left.split() == ["/etc/ceph/rbdmap"]
