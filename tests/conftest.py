"""Common set-up of all tests: the repository's folder, the needs of a `local` test, and the tests
that must share a process."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from testbed import doctor
from testbed.sites.local import image
from testbed.sites.requirements import LOCAL_SITE

if TYPE_CHECKING:
    from testbed.sites.contract import Testbed

# A deadline per example is a timed assertion, which fails on a busy machine.
settings.register_profile("hotbed", deadline=None, max_examples=50)
settings.load_profile("hotbed")


# A script's background processes ignore Ctrl-C, and so do their children: tests that interrupt
# their own process would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The suite of local testbeds whose specs name none, as after a change of the default.
image.DEFAULT_SUITE = os.environ.get("HOTBED_SUITE", image.DEFAULT_SUITE)


# Collection makes a million objects, none of them garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage again, but only among what the tests make."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return our scheduler for ``--dist loadfile`` or ``--dist loadgroup``."""
    from tests.scheduling import Scheduling, SharedScheduling

    known = {"loadfile": Scheduling, "loadgroup": SharedScheduling}
    chosen = known.get(config.getvalue("dist"))
    return None if chosen is None else chosen(config, log)


@pytest.fixture(autouse=True)
def own_connections(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test without a testbed its own folders of ssh connections; testbeds need a short path.
    Keep no processor awake, because the test measures nothing."""
    if not any(map(request.node.get_closest_marker, ("local", "openstack"))):
        folder = request.getfixturevalue("tmp_path_factory").getbasetemp() / "run"
        monkeypatch.setattr("schemas.locks.RUN", folder)
        monkeypatch.setenv("HOTBED_AWAKE", "no")


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the repository's top folder."""
    return Path(__file__).resolve().parents[1]


@functools.cache
def _cannot_be_local() -> str:
    """Return one sentence on what this machine or user lacks for a testbed; empty if nothing."""
    missing = doctor.lacking(doctor.examine(LOCAL_SITE))
    if os.geteuid() != 0:
        return "a local testbed needs root: run `make test-local`, which becomes root"
    if missing:
        first = missing[0]
        return f"a local testbed needs {first.what} ({first.found}): {first.how}"
    return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a `local` test that cannot run here; fail it if CI promises that it can run."""
    if item.get_closest_marker("local") is None:
        return
    reason = _cannot_be_local()
    if not reason:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


# Tests that change a testbed shared by many files, by testbed and in their order.
SHARED = {
    "nfs_testbed": ("nfs_removed",),
    "deployed": ("strange", "removed", "varied", "frozen"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first, and the tests of a shared testbed next to each other, with the tests
    that change it last."""
    from tests.scheduling import LONG, testbed_of

    for item in items:
        if " object at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid} has an address, which each worker has its own")

    places: dict[pytest.Item, tuple[int, int]] = {}
    for item in items:
        if not item.get_closest_marker("local") or item.get_closest_marker("openstack"):
            continue
        asked = getattr(item, "fixturenames", ())
        for number, (testbed, stages) in enumerate(SHARED.items(), start=1):
            if testbed in asked:
                stage = max(
                    (n for n, name in enumerate(stages, start=1) if name in asked), default=0
                )
                places[item] = (number, stage)
                if testbed_of(item.nodeid) != testbed:
                    raise pytest.UsageError(
                        f"name the file of {item.nodeid} in tests/scheduling.py"
                    )
    items.sort(key=lambda item: places.get(item, (0, 0 if LONG.match(item.nodeid) else 1)))


@pytest.fixture(scope="session")
def deployed() -> Iterator[Testbed]:
    """Provide a small Ceph on this machine: one admin node and four OSD nodes. Tests restore their
    changes."""
    from tests.testbed.ceph_beds import up_and_down

    with up_and_down() as testbed:
        yield testbed


@pytest.fixture
def frozen(deployed: Testbed) -> Testbed:
    """Return the small Ceph, restored to its frozen state, for the test that removes it."""
    from testbed.deploy.lifecycle import restore_snapshot
    from testbed.sites import open_site
    from testbed.sites.contract import SnapshotSite

    site = open_site(deployed.site)
    assert isinstance(site, SnapshotSite)
    return restore_snapshot(site, deployed.name)


@pytest.fixture(scope="session")
def nfs_testbed() -> Iterator[Testbed]:
    """Provide an NFS server behind its proxy, and two clients. Tests restore their changes."""
    from tests.testbed.nfs_testbed import up_and_down

    with up_and_down() as testbed:
        yield testbed
