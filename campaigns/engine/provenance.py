"""Provenance of a run: code, tools, machines."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata

from campaigns.papers.dlr.services import Facts
from schemas.run import Provenance
from testbed.closure import ROOT


def provenance(facts: Facts, awake: bool | None = None) -> Provenance:
    """Return the record of `facts` and of the running code. Unknown values are None.

    Args:
        facts: facts of store and machines.
        awake: True if the machine's processors are kept awake meanwhile.
    """
    commit, dirty = code_state()
    return Provenance(
        commit=commit,
        dirty=dirty,
        hotbed_version=hotbed_version(),
        versions={**facts.versions, "python": platform.python_version()},
        hosts={node: dict(values) for node, values in facts.hosts.items()},
        site=facts.site,
        signal=facts.signal,
        calibration=dict(facts.calibration),
        awake=awake,
    )


def hotbed_version() -> str:
    """Return the installed package's version."""
    try:
        return metadata.version("hotbed")
    except metadata.PackageNotFoundError:
        return "unknown"


def code_state() -> tuple[str | None, bool | None]:
    """Return the commit, and True if files differ from it; None outside a git clone."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None, None
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return commit, None if changed is None else bool(changed)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "-c", "core.fsmonitor=false", *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
