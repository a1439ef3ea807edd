"""Distribution of test files to the processes of pytest-xdist: `--dist loadfile`, and `--dist
loadgroup` for tests that share a testbed (pytest-xdist 3.8 finds no groups under pytest 9.2)."""

from __future__ import annotations

import re

from xdist.scheduler import LoadFileScheduling

# By subject, the files with tests that run the same compiled loops, and such tests of other files.
LOOPS = {
    "prioritymeister": re.compile(
        r"^tests/(?!analysis/|papers/test_prioritymeister\.py)[^:]*(prioritymeister|/test_pm[_.])"
        r"|^tests/golden/.*\[pm\]"
    ),
    "ursa": re.compile(
        r"^tests/(?!analysis/)[^:]*/test_(bench_)?ursa"
        r"|^tests/golden/.*\[ursa-|^tests/docs/test_tutorials.*\[paper\]"
    ),
}

# Files that take longest, for their few tests: a process that began one of them last would end long
# after the others.
LONG = re.compile(
    r"^tests/(papers/|golden/|notebooks/|docs/test_contributing|hotbed/test_(hostile|foreign)"
    r"|analysis/test_(bundle|report|comparison|pages)|testbed/test_deploy"
    r"|campaigns/test_(identity|dask|process_executor|notebooks))"
)

# By shared testbed, the files with its local tests.
TESTBEDS = {
    "deployed": re.compile(
        r"/ceph_local/|/test_local_(campaign|engine_room|faults|control|ceph)\.py"
        r"|/test_(notebooks|plans_on_ceph_local|foreign_local|twochoice_rados_local"
        r"|open_loop_local)\.py"
    ),
    "nfs_testbed": re.compile(r"/test_(pm_faults_local|deploy_nfs_local)\.py"),
}


def scope_of(nodeid: str) -> str:
    """Return the group for one process: a file, or all tests that run the same compiled loops.

    In a fresh clone the first test that calls a loop compiles it. Two processes with files of the
    same subject would both compile all of it in parallel.
    """
    file = nodeid.split("::", 1)[0]
    return next((subject for subject, tests in LOOPS.items() if tests.search(nodeid)), file)


class Scheduling(LoadFileScheduling):
    """`LoadFileScheduling` by `scope_of`."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def testbed_of(nodeid: str) -> str:
    """Return the group for one process: a shared testbed, or the other tests of a folder. Tests on
    OpenStack have testbeds of their own."""
    file = nodeid.split("::", 1)[0]
    if file.startswith("tests/openstack/"):
        return nodeid
    folder = file.rpartition("/")[0]
    return next((name for name, files in TESTBEDS.items() if files.search(file)), folder)


class SharedScheduling(LoadFileScheduling):
    """`LoadFileScheduling` by `testbed_of`."""

    def _split_scope(self, nodeid: str) -> str:
        return testbed_of(nodeid)
