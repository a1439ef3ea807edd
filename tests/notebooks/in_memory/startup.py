"""Start-up file of IPython kernels: one in-memory site with leases; no playbook is run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import testbed.deploy.roles
from testbed import reach, sites
from testbed.spec import load_spec
from tests.testbed.fake_site import FakeSite


def _site() -> FakeSite:
    folder = Path(os.environ["HOTBED_IN_MEMORY"])
    site = FakeSite(folder, lease_s=5 * 3600)
    if os.environ.get("HOTBED_IN_MEMORY_UP"):
        spec = load_spec(Path(os.environ["HOTBED_IN_MEMORY_UP"]))
        testbed.deploy.roles.save_spec(site.provision(spec), spec)
    return site


def _play(
    _testbed: object, _folder: Path, playbook: str, *rest: Any, **_more: object
) -> dict[str, int]:
    progress = rest[1]
    progress(f"played {playbook}", 1.0)
    return {"admin": 7}


_THE_SITE = _site()
sites._SITES.clear()
sites._SITES["fake"] = lambda _options: _THE_SITE
testbed.deploy.roles.play = _play
reach.control_dir = lambda _name, directory: directory / "control"
