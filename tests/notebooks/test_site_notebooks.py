"""Execution of the notebooks that bring up, deploy, inspect and return a testbed.

Here the site is in memory; other tests call the same functions with a real control plane's `Place`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from places import HUB_BYTES, Place, execute

HERE = Path(__file__).parent
SPEC = """
name: small
site: {kind: fake}
groups:
  - {name: admin, roles: [admin, mon, mgr, client]}
  - {name: osd, count: 2, roles: [osd], disk: {}}
store:
  kind: ceph
  pools:
    - {name: bench, pg_num: 32, size: 2, min_size: 1}
"""
TOP = {
    "wall": 1e9,
    "testbed": "small",
    "nodes": {
        "admin": {"roles": ["admin"], "osds": [], "signal": "iowait", "pressure": 1.0},
        "osd0": {"roles": ["osd"], "osds": [0], "signal": "iowait", "pressure": 97.3, "hot": 1.0},
        "osd1": {"roles": ["osd"], "osds": [1], "signal": "iowait", "pressure": 3.0},
    },
    "osds": {"osd.0": {"primary_affinity": 0.1}, "osd.1": {"primary_affinity": 1.0}},
    "client": {"read_mb_s": 120.5, "read_iops": 28.7, "write_mb_s": 0.0, "write_iops": 0.0},
    "lost": {},
    "steered": {},
    "controllers": {},
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def in_memory(folder: Path, *, up: bool, loads: Mapping[str, list[str]] | None = None) -> Place:
    """Return a site in the kernel's memory; a script replaces ssh to its nodes."""
    startup = folder / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    shutil.copy(HERE / "in_memory" / "startup.py", startup / "00-in-memory.py")
    (folder / "top.json").write_text(json.dumps(TOP))
    (folder / "state").mkdir()
    (folder / "run").mkdir()
    spec = folder / "small.yaml"
    spec.write_text(SPEC)
    lease = folder / "lease.json"
    lease.write_text(json.dumps({"ends_at_s": time.time() + 600}))
    env = {
        "IPYTHONDIR": str(folder / "ipython"),
        "PATH": f"{HERE / 'in_memory' / 'programs'}:{os.environ['PATH']}",
        "HOTBED_IN_MEMORY": str(folder / "state"),
        "HOTBED_IN_MEMORY_UP": str(spec) if up else "",
        "HOTBED_IN_MEMORY_TOP": str(folder / "top.json"),
        "HOTBED_IN_MEMORY_LOADS": json.dumps(loads or {}),
        "HOTBED_FAKE_GROUND": str(HERE.parent / "campaigns" / "fake_ground.py"),
        "HOTBED_FAKE_LOCKS": str(folder),
        "HOTBED_FAKE_LEASE": str(lease),
    }
    return Place(spec, "small", folder / "run", env)


def test_a_testbed_comes_and_goes(tmp_path: Path) -> None:
    place = in_memory(tmp_path, up=False)
    made = execute(place, "chameleon", spec=str(place.spec), extend_hours=2.0, keep=False)
    assert made.whole
    assert "15.0" in made.shown  # node-hours: three nodes, five hours
    assert "2001:db8:1::2" in made.shown
    assert "3 of 3 nodes run" in made.shown
    reported = re.findall(r"ends (\S+ \S+) UTC", made.shown)
    first, last = (datetime.strptime(text, "%Y-%m-%d %H:%M") for text in dict.fromkeys(reported))
    assert last - first == timedelta(hours=2)
    assert "there is no testbed" in made.shown
    assert "<progress" in made.shown  # the bar
    assert made.peak_bytes < HUB_BYTES


def test_a_store_is_deployed_and_a_campaign_held_against_the_lease(tmp_path: Path) -> None:
    place = in_memory(tmp_path, up=True)
    made = execute(place, "deploying", testbed=place.testbed, artifacts=str(place.folder))
    assert made.whole
    assert "small: deployed in" in made.shown
    assert "7 changes; snapshot 'deployed'" in made.shown
    assert "HEALTH_OK" in made.shown
    assert "dlr-quick-fake" in made.shown
    assert "an extension by" in made.shown
    assert made.peak_bytes < HUB_BYTES


def test_a_testbed_is_looked_into(tmp_path: Path) -> None:
    place = in_memory(tmp_path, up=True, loads={"osd1": ["fio (4711)"]})
    made = execute(place, "debugging", testbed=place.testbed, node="osd1", follow_s=2.0)
    assert made.whole
    assert "up 3 days, on root@2001:db8:1::3" in made.shown
    assert "osd0 | 12G free on" in made.shown
    assert "hotbed-fio-seq.service: Started." in made.shown
    assert "fio (4711)" in made.shown
    assert "97.3" in made.shown and "██████████" in made.shown
    assert "<pre" in made.notebook.cells[-2].outputs[-1]["data"]["text/html"]
    assert made.peak_bytes < HUB_BYTES
