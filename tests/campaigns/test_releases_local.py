"""Releases of Ceph other than the default suite's, through deployment and a campaign's cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_campaigns import HOT, assert_clean, assert_whole, folders, go, writer

from testbed.spec import with_suite
from tests.testbed.ceph_beds import run, spec_with, up_and_down

pytestmark = [pytest.mark.local, pytest.mark.timeout(900)]


def assert_objects_are_files(testbed):
    run(testbed, "admin", "dd if=/dev/zero bs=1M count=4 | rados -p bench put thing -")
    find = "find /var/lib/hotbed/scratch/osd -name '*thing*' -size +4000k"
    found = [run(testbed, osd.name, find) for osd in testbed.with_role("osd")]
    assert len("".join(found).split()) == 2
    run(testbed, "admin", "rados -p bench rm thing")


@pytest.mark.parametrize(
    ("suite", "major", "objectstore"),
    [
        ("bookworm", "16", "filestore"),  # Ceph of the papers' years
        pytest.param("sid", "20", "bluestore", marks=pytest.mark.soak),  # changes every day
    ],
)
def test_a_release_takes_a_cell(suite, major, objectstore, tmp_path):
    store = {"objectstore": objectstore, "pools": [{"name": "bench", "pg_num": 32}]}
    spec = with_suite(spec_with(2, ["admin", "mon", "mgr", "client"], ["osd"], store), suite)
    with up_and_down(spec, Path("/var/lib/hotbed-tests-releases")) as testbed:
        assert run(testbed, "admin", "ceph health").strip() == "HEALTH_OK"
        stores = run(testbed, "admin", "ceph osd metadata -f json")
        assert stores.count(f'"osd_objectstore":"{objectstore}"') == 2
        if objectstore == "filestore":
            assert_objects_are_files(testbed)
        cell = {"vary": {"op": ["rand"], "controller": ["dlr"]}, "fixed": HOT}
        path = writer(tmp_path, testbed)(cell)
        assert go(path, testbed).ok
        ((folder, found),) = folders(path).items()
        assert_whole(folder, found, testbed)
        assert found.provenance.versions["ceph"].partition(".")[0] == major
        assert suite in found.provenance.hosts["osd0"]["distribution"]
        assert_clean(testbed)
