"""What every test may count on: where the repository is, and what a `local` test needs; and which
tests go to one process where several share them."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from testbed import doctor
from testbed.sites.requirements import LOCAL_SITE

if TYPE_CHECKING:
    from testbed.sites.contract import Testbed

# A deadline for one example is a timed assertion: it fails on a busy machine.
settings.register_profile("hotbed", deadline=None)
settings.load_profile("hotbed")


# What a script starts in the background ignores Ctrl-C, and hands that on to all that it starts:
# tests that interrupt a process of theirs would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """pytest-xdist's, which is asked for one by ``--dist loadfile``."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.scheduling import Scheduling

    return Scheduling(config, log)


@pytest.fixture(autouse=True)
def own_connections(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of ssh connections are the test's own and go with it; those of real testbeds need a
    short path. Where nothing is measured no processor is kept awake."""
    if not any(map(request.node.get_closest_marker, ("local", "openstack"))):
        folder = request.getfixturevalue("tmp_path_factory").getbasetemp() / "run"
        monkeypatch.setattr("schemas.locks.RUN", folder)
        monkeypatch.setenv("HOTBED_AWAKE", "no")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's top folder."""
    return Path(__file__).resolve().parents[1]


@functools.cache
def _cannot_be_local() -> str:
    """One sentence on what this machine or user lacks for a testbed; empty when nothing."""
    missing = doctor.lacking(doctor.examine(LOCAL_SITE))
    if os.geteuid() != 0:
        return "a local testbed needs root: run `make test-local`, which becomes root"
    if missing:
        first = missing[0]
        return f"a local testbed needs {first.what} ({first.found}): {first.how}"
    return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a `local` test that cannot run here; where CI promises that it can, fail it."""
    if item.get_closest_marker("local") is None:
        return
    reason = _cannot_be_local()
    if not reason:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def deployed() -> Iterator[Testbed]:
    """A small Ceph on this machine, the tests' own: one admin node and four OSD nodes.

    It lives under a state folder of its own, so that a testbed you have up is neither used nor
    touched, and what was left by a run that was killed goes first. Every later call in this
    process, and in its children, sees only the tests' testbeds.
    """
    from testbed import deployment
    from testbed.deploy import save_spec
    from testbed.sites import open_site
    from testbed.spec import TestbedSpec

    disk = {"size": "3GiB", "scratch": "1GiB", "positioning": "4ms", "bandwidth": "100MB/s"}
    admin = {"roles": ["admin", "mon", "mgr", "client"], "cpus": 1.5, "memory": "2GiB"}
    spec = TestbedSpec.model_validate(
        {
            "name": "tests",
            "groups": [
                {"name": "admin", **admin},
                {"name": "osd", "count": 4, "roles": ["osd"], "cpus": 0.5, "disk": disk},
            ],
            "store": {"pools": [{"name": "bench", "pg_num": 32}]},
        }
    )
    before = os.environ.get("HOTBED_STATE")
    os.environ["HOTBED_STATE"] = "/var/lib/hotbed-tests-deployed"
    site = open_site("local")
    try:
        site.release(spec.name)
        testbed = site.provision(spec)
        save_spec(testbed, spec)
        deployment.bring(site, testbed)
        yield testbed
    finally:
        site.release(spec.name)
        if before is None:
            del os.environ["HOTBED_STATE"]
        else:
            os.environ["HOTBED_STATE"] = before


@pytest.fixture(scope="session")
def nfs_testbed() -> Iterator[Testbed]:
    """An NFS server behind its proxy, and two clients. A test may remove the store."""
    from tests.testbed.nfs_testbed import up_and_down

    with up_and_down() as testbed:
        yield testbed
