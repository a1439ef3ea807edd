"""Golden results: results of simulation and planning for fixed seeds.

Record one, or all of them, with ``python -m tests.golden.compute [NAME...]``.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INPUTS = HERE / "inputs"
RESULTS = HERE / "results"

CAMPAIGNS: dict[str, list[list[str]]] = {
    "ursa-quick": [["run", "ursa-quick"], ["report", "ursa-quick"]],
    "twochoice-quick": [["run", "twochoice-quick"], ["report", "twochoice-quick"]],
    "pm-quick": [["run", "pm-quick"], ["report", "pm-quick"]],
    "mos-sim-quick": [["run", "mos-sim-quick"], ["report", "mos-sim-quick"]],
    "dlr-full-sim": [
        ["run", "dlr-full", "--figure", "6", "--ground", "sim"],
        ["run", "dlr-full", "--figure", "8", "--ground", "sim"],
        ["report", "dlr-full-sim"],
    ],
    "compare-sim": [
        [
            *("compare", "--controllers"),
            "dlr,dlr-auto,dlr-pg,dlr-short,dlr-even,dlr-fast,dlr-move,htoc,nearest,oracle,"
            "oracle-move,reweight,reweight-capped,upmap,ursa,"
            "read-balancer,upmap-read,balance-reads,localize-reads",
        ]
    ],
}
"""Commands of each campaign; the last one writes ``claims.json``."""

PLANS: dict[str, list[str]] = {
    **{
        f"ursa-{method}": ["ursa", "plan", "ursa.npz", "--swap-success", "0.1", "--method", method]
        for method in ("alp", "alp-fast", "algorithm1-pruned", "ilp", "htoc", "joint", "nearest")
    },
    "pm": ["pm", "plan", "topology.yaml"],
    "mos-highs": ["mos", "plan", "tenants.yaml"],
    "mos-exact": ["mos", "plan", "tenants.yaml", "--solver", "exact"],
}
"""Command of each plan, run in the folder of inputs."""

CLOCKS = {"decision_seconds", "peak_rss_mib", "input_mib", "seconds"}
"""Fields of plans that depend on a clock or on this process."""
SENTENCES = {"sentence", "notes", "warnings", "actions"}
"""Fields for people; the digest of a plan has its actions."""
FIELDS = ("id", "ground", "n", "measured", "ci95", "effect", "size")
"""Recorded fields of a claim."""

TIMED = ("ursa-speedup-time-", "ursa-ilp-two-days-", "ursa-optimum")
"""Prefixes of ids of claims that depend on a planner's speed, which no seed fixes."""


def campaign(name: str, artifacts: Path) -> list[dict[str, Any]]:
    """Run a campaign and return the `FIELDS` of each claim.

    Claims without a run and those in `TIMED` are left out.
    """
    for command in CAMPAIGNS[name]:
        more = ["--artifacts", str(artifacts)]
        if command[0] == "run":
            more += ["--no-notebook"]
        if command[0] != "report":
            more += ["--workers", "2"]
        hotbed(*command, *more, cwd=ROOT)
    claims = json.loads((artifacts / name / "claims.json").read_text())
    return [
        {field: claim[field] for field in FIELDS}
        for claim in claims
        if claim["effect"] != "not run" and not claim["id"].startswith(TIMED)
    ]


def plan(name: str) -> dict[str, Any]:
    """Make a plan and return its numbers; the moves of Ursa as a digest."""
    command = PLANS[name]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "plan.npz")
        more = ["--out", str(out)] if command[0] == "ursa" else []
        made: dict[str, Any] = without(json.loads(hotbed(*command, *more, "--json", cwd=INPUTS)))
        if out.exists():
            digest = hashlib.sha256()
            with np.load(out) as arrays:
                for key in sorted(arrays):
                    digest.update(key.encode() + arrays[key].tobytes())
            made["plan"] = digest.hexdigest()
    return made


def without(value: Any) -> Any:
    """Remove times and sentences from a plan."""
    if isinstance(value, dict):
        return {k: without(v) for k, v in value.items() if k not in CLOCKS | SENTENCES}
    return [without(each) for each in value] if isinstance(value, list) else value


def hotbed(*words: str, cwd: Path) -> str:
    """Return the standard output of ``hotbed WORDS``."""
    command = [str(Path(sys.executable).with_name("hotbed")), *words]
    # OpenBLAS rounds as its routines for this processor do; MOS's plans carry a last digit on.
    same = os.environ | {"OPENBLAS_CORETYPE": "Haswell"}
    made = subprocess.run(command, cwd=cwd, env=same, check=True, stdout=subprocess.PIPE, text=True)
    return made.stdout


def main(names: list[str]) -> None:
    """Record the golden results of these names, or of all."""
    for name in names or [*PLANS, *CAMPAIGNS]:
        with tempfile.TemporaryDirectory() as folder:
            found = plan(name) if name in PLANS else campaign(name, Path(folder))
        (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
