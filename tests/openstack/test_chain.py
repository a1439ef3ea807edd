"""Whole chain of Hotbed's own commands: lease, servers, a Ceph, a cell of a campaign, the end of
the lease. Notebooks bring up a new lease for the rest of the campaign, and nothing remains at the
end.

The servers are real machines here: nodes of the local site (see `machines`)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.run import Run
from testbed.doctor import examine, lacking
from testbed.sites.requirements import LOCAL_SITE
from testbed.spec import TestbedSpec
from tests.notebooks.places import HUB_BYTES, Place, execute, hub
from tests.openstack import belongings
from tests.openstack.config import REGION
from tests.openstack.machines import Machines
from tests.openstack.parts import REPOSITORY
from tests.openstack.plane import ControlPlane
from tests.openstack.rest import Refused, Rest
from tests.openstack.seed import FIXED

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(900)]

LEASE_OVER = 75
"""Exit code of `hotbed run` if the remaining cells do not fit the lease."""
PARTS = {"osd": "/dev/hotbed/osd", "scratch": "/dev/hotbed/scratch"}

SPEC = {
    "name": "chain",
    "site": {
        "kind": "chameleon",
        "options": {
            "site": REGION,
            "node_type": "compute_skylake",
            "lease": {"hours": 2},
            "devices": {"osd": PARTS},
        },
    },
    "groups": [
        {
            "name": "admin",
            "roles": ["admin", "mon", "mgr", "client"],
            "cpus": 1.5,
            "memory": "1GiB",
        },
        {
            "name": "osd",
            "count": 2,
            "roles": ["osd"],
            "cpus": 0.5,
            "memory": "1GiB",
            "disk": {
                "size": "3GiB",
                "scratch": "1GiB",
                "positioning": "4ms",
                "bandwidth": "100MB/s",
            },
        },
    ],
    "store": {"pools": [{"name": "bench", "pg_num": 16, "size": 2}]},
}


def campaign(spec: Path) -> dict[str, Any]:
    """Return a campaign of two cells of six seconds, one per figure."""
    cell = {"repetitions": 1, "fixed": {"scenario": "none", "controller": "default"}}
    return {
        "name": "chain",
        "paper": "dlr",
        "profile": "quick",
        "ground": "chameleon",
        "spec": str(spec),
        "notebook": "notebooks/experiment.ipynb",
        "time_scale": 0.1,
        # The machine that runs tests is never quiet, so spoiled runs are repeated.
        "limits": {"outside_cores": 100, "steal": 1, "client_share": 1, "stalled": 1},
        "spoiled_retries": 10,
        "parameters": {"duration_s": 60, "object_size": 1048576, "hot_nodes": 1},
        "grids": [
            {"name": "first", "figures": ["6a"], "vary": {"op": ["seq"]}, **cell},
            {"name": "second", "figures": ["6b"], "vary": {"op": ["rand"]}, **cell},
        ],
    }


@pytest.fixture(scope="session")
def metal() -> Iterator[Machines]:
    """Return machines without servers so far; in CI a lack of machines is a failure.

    Session scope makes them before the control plane: all processes of a test run wait for its
    first start.
    """
    missing = lacking(examine(LOCAL_SITE))
    if os.geteuid() != 0 or missing:
        sentence = "machines behind the servers need root and what the local site needs"
        if os.environ.get("CI") == "true":
            pytest.fail(sentence, pytrace=False)
        pytest.skip(sentence)
    made = Machines(TestbedSpec.model_validate(SPEC))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def machines(metal: Machines, plane: ControlPlane, student: Rest) -> Iterator[Machines]:
    """Provide machines behind the servers of `SPEC`, and remove them afterwards."""
    metal.follow(Rest(plane.place.auth_url), student.project_id)
    try:
        yield metal
        assert metal.trouble is None
    finally:
        metal.stop()


def hotbed(*words: str, ends_with: int = 0) -> str:
    """Return the output of a command that must end with this exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "hotbed.cli", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    found = f"hotbed {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    print(found[-3000:], flush=True)
    assert done.returncode == ends_with, found[-6000:]
    return done.stdout


def runs_of(artifacts: Path) -> dict[str, str]:
    """Return the status of every attempt, by its folder."""
    return {
        str(path.parent.relative_to(artifacts)): Run.model_validate_json(path.read_text()).status
        for path in artifacts.glob("chain/*/attempt-*/run.json")
    }


def done(attempts: dict[str, str]) -> list[str]:
    """Return the folders of done runs, repeated if two attempts of a run are done."""
    return [attempt.rsplit("/", 1)[0] for attempt, status in attempts.items() if status == "done"]


@pytest.mark.usefixtures("metal")  # named here so that it precedes the control plane
def test_the_whole_chain(
    plane: ControlPlane,
    student: Rest,
    machines: Machines,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOTBED_STATE", str(tmp_path / "state"))
    spec, file, artifacts = tmp_path / "spec.yaml", tmp_path / "campaign.yaml", tmp_path / "results"
    spec.write_text(yaml.safe_dump(SPEC))
    file.write_text(yaml.safe_dump(campaign(spec)))
    go = ("run", str(file), "--testbed", "chain", "--artifacts", str(artifacts))

    hotbed("up", str(spec))
    hotbed("deploy", "chain", "--no-snapshot")
    assert "HEALTH" in hotbed("ssh", "admin", "ceph", "health")
    hotbed(*go, "--figure", "6a")
    first = runs_of(artifacts)
    assert len(done(first)) == 1 and set(first.values()) <= {"done", "spoiled"}

    ended = belongings.end_lease(student, within_s=105.0)
    hotbed(*go, ends_with=LEASE_OVER)
    assert runs_of(artifacts) == first
    with suppress(Refused):  # the lease is over already
        belongings.end_lease(student)
    belongings.wait_for_the_end(student)
    assert json.loads(hotbed("status", "chain", "--json"))["state"] == "failed"

    by_notebooks(spec, file, artifacts)
    hotbed(*go)
    both = runs_of(artifacts)
    assert len(set(done(both))) == len(done(both)) == 2
    assert {attempt.rsplit("/", 1)[0] for attempt in both} == set(done(both))
    assert set(both.values()) <= {"done", "spoiled"}
    assert first.items() <= both.items()
    live = [each for each in belongings.leases(student) if each["status"] == "ACTIVE"]
    assert len(live) == 1 and live[0]["id"] != ended

    hotbed("down", "chain")
    assert not belongings.belongings(student)
    assert belongings.free_hosts(plane.admin) == {host.name for host in plane.hosts}
    bundled_by_a_notebook(spec, artifacts)


def by_notebooks(spec: Path, file: Path, artifacts: Path) -> None:
    """Bring up the second lease and its Ceph with notebooks, as in a hosted JupyterHub."""
    with hub("hotbed-tests-notebooks") as within:
        place = Place(spec, "chain", spec.parent, within=within)
        made = execute(place, "chameleon", spec=str(spec), extend_hours=1.0, keep=True)
        assert "3 of 3 nodes run" in made.shown
        words = {"campaign": str(file), "artifacts": str(artifacts)}
        deployed = execute(place, "deploying", testbed="chain", **words)
        assert "HEALTH" in deployed.shown
        seen = execute(place, "debugging", testbed="chain", node="osd1", follow_s=2.0)
        assert all(each.whole and each.peak_bytes < HUB_BYTES for each in (made, deployed, seen))


def bundled_by_a_notebook(spec: Path, artifacts: Path) -> None:
    """Bundle the runs of both leases after the testbed is gone; the bundle must verify and must not
    identify the machines."""
    with hub("hotbed-tests-bundling") as within:
        place = Place(spec, "chain", spec.parent, within=within)
        made = execute(place, "bundling", campaign="chain", artifacts=str(artifacts))
    assert made.whole and made.peak_bytes < HUB_BYTES
    assert "are as stated" in made.shown
    with zipfile.ZipFile(spec.parent / "chain.hotbed.zip") as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    assert sum(name.endswith("/run.json") for name in inside) >= 2
    password = rf"\b{os.environ['OS_PASSWORD']}\b"  # "secret", which detect-secrets has in its name
    ours = [re.escape(str(spec.parent)), password, re.escape(FIXED.rpartition(".")[0])]
    raw = [file for file in artifacts.glob("chain/*/*/*") if file.is_file()]
    assert any(str(spec.parent).encode() in file.read_bytes() for file in raw)
    for word in ours:
        assert not [name for name, data in inside.items() if re.search(word.encode(), data)], word
