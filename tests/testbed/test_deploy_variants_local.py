"""The less usual parts in one small cluster: three monitors, a gateway, FileStore, own settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import reach
from testbed.deploy import deploy, remove
from testbed.sites.contract import Testbed
from testbed.sites.local import LocalSite
from testbed.sites.local.names import Places
from testbed.spec import TestbedSpec

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]

SPEC = TestbedSpec.model_validate(
    {
        "name": "variants",
        "groups": [
            {
                "name": "admin",
                "roles": ["admin", "mon", "mgr", "client", "rgw"],
                "cpus": 1.5,
                "memory": "2GiB",
            },
            {
                "name": "osd",
                "count": 2,
                "roles": ["osd", "mon"],
                "cpus": 1,
                "disk": {"size": "3GiB", "scratch": "2GiB"},
            },
        ],
        "store": {
            "objectstore": "filestore",
            "pools": [{"name": "bench", "pg_num": 8}],
            "config": {
                "global": {"osd_pool_default_pg_num": 4, "osd_pool_default_pgp_num": 4},
                "osd": {"osd_max_backfills": 7},
            },
        },
    }
)


def run(testbed: Testbed, node: str, command: str) -> str:
    return reach.shell_to(testbed, testbed.node(node)).run(["sh", "-c", command]).text


@pytest.fixture(scope="module")
def deployed() -> Iterator[Testbed]:
    places = Places(Path("/var/lib/hotbed-tests-variants"), Places.of_environment().cache)
    site = LocalSite(places=places)
    site.release(SPEC.name)
    try:
        testbed = site.provision(SPEC)
        deploy(testbed, SPEC, site=site)
        yield testbed
    finally:
        site.release(SPEC.name)


def test_three_monitors_agree(deployed: Testbed) -> None:
    said = run(deployed, "admin", "ceph quorum_status -f json")
    assert '"quorum_names":["admin","osd0","osd1"]' in said


def test_objects_are_files_beside_fios(deployed: Testbed) -> None:
    assert "filestore" in run(deployed, "admin", "ceph osd metadata 1 -f json")
    run(deployed, "admin", "dd if=/dev/zero bs=1M count=4 | rados -p bench put thing -")
    found = run(deployed, "osd0", "find /var/lib/hotbed/scratch/osd -name '*thing*' -size +4000k")
    assert len(found.split()) == 1
    assert len(run(deployed, "osd0", "ls /var/lib/hotbed/scratch/fio").split()) == 4


def test_the_gateway_answers(deployed: Testbed) -> None:
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:7480', timeout=20).read())"
    assert "ListAllMyBucketsResult" in run(deployed, "admin", f'python3 -c "{ask}"')


def test_a_specs_settings_reach_the_daemons(deployed: Testbed) -> None:
    said = run(deployed, "osd0", "ceph daemon osd.0 config get osd_max_backfills")
    assert '"7"' in said


def test_it_can_be_removed(deployed: Testbed) -> None:
    assert sum(remove(deployed, SPEC).values()) == 3
    assert sum(remove(deployed, SPEC).values()) == 0
