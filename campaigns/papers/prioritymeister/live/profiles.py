"""Measured profile of a testbed's disk, for planner, proxy and stand-ins.

It is measured on the clients' own files, with one request at a time. Several workloads have files
in different places of one disk, and random requests over all files cost the same as theirs. The
profile is therefore by size and kind, not by distance: a stream's request costs as much as it does
between other requests. Writes are synchronous, as the NFS server makes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from controllers.prioritymeister.profiles import parse_profile
from schemas.durable import write_file
from schemas.errors import HotbedError
from testbed.sites.contract import Testbed
from testbed.ssh import Shell
from testbed.stores.nfs.wire import ETHERNET_MTU
from workloads.traces.files_profile import FilesPlan, build_files

SECONDS = 1.0
_SLACK_S = 60.0


def profile_path(testbed: Testbed, node: str) -> Path:
    """Return the file of a node's disk profile, which is kept as long as the testbed."""
    return testbed.directory / f"pm-profile-{node}.json"


def measured_profile(
    testbed: Testbed,
    shell: Shell,
    files: Sequence[str],
    each: int,
    tell: Callable[[str], None],
    *,
    mtu: int = ETHERNET_MTU,
) -> Path:
    """Return the profile of a node's disk; it is measured once in a testbed's life.

    Args:
        testbed: a testbed that is up; its folder keeps the profile.
        shell: shell of the node, an NFS server.
        files: paths on the node; their contents are destroyed.
        each: bytes of each file.
        tell: called with a message about the measurement.
        mtu: bytes; MTU of the links that requests come by.

    Raises:
        HotbedError: fio is missing on the node, or fails.
    """
    path = profile_path(testbed, shell.node)
    if path.exists():
        return path
    plan = FilesPlan(tuple(files), each, seconds=SECONDS)
    tell(f"measuring the disk of node {shell.node} for about {plan.total_s:.0f} s")
    document = measure(plan, shell, mtu)
    write_file(path, json.dumps(document, indent=1) + "\n")
    return path


def measure(plan: FilesPlan, shell: Shell, mtu: int = ETHERNET_MTU) -> dict[str, Any]:
    """Run fio and return the profile from its output."""
    done = shell.run(
        ["fio", "--output-format=json", "-"],
        input=plan.job_file().encode(),
        timeout_s=2 * plan.total_s + _SLACK_S,
        check=False,
    )
    if done.returncode != 0:
        words = " ".join(done.stderr.decode(errors="replace").split())
        raise HotbedError(f"fio failed on node {shell.node}: {words[:300]}")
    document = build_files(plan, done.text, mtu)
    parse_profile(document, f"the profile of node {shell.node}")
    return document


def digest(path: Path) -> str:
    """Return sixteen hex digits of a profile's contents."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
