"""Run of a bench: each scheduler on empty agents; results are kept as they come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from campaigns.papers.twochoice.bench import agents
from campaigns.papers.twochoice.bench.options import (
    SLACK_S,
    Options,
    Row,
    agent_settings,
    plan,
    row,
    shares,
)
from schemas.durable import make_folder, write_file
from schemas.errors import HotbedError, UserError
from testbed.deploy import twochoice_variables
from testbed.sites.contract import Progress

GENERATE_S = 3600.0


@dataclass(frozen=True)
class Outcome:
    """Result of `hotbed twochoice bench`. `folder` has the reports; `failed` has each failed
    scheduler with its reason."""

    testbed: str
    backend: str
    agents: int
    client_nodes: int
    options: Options
    rows: tuple[Row, ...]
    failed: Mapping[str, str]
    folder: str

    @property
    def good(self) -> bool:
        """True if every scheduler ran, no write failed, and every object was read unchanged."""
        return not self.failed and all(not r.failed and not r.bad for r in self.rows)


def new_folder(out: Path | None) -> Path:
    """Create and return an empty folder: `out`, or one named by the time.

    Raises:
        UserError: `out` exists, or cannot be created.
    """
    path = out or Path("artifacts") / f"twochoice-bench-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    if path.exists():
        raise UserError(
            f"{path} is there already: results are never overwritten; name another folder."
        )
    make_folder(path)
    return path


def refuse(machines: agents.Machines, options: Options) -> None:
    """Raise if the options are impossible, before a folder is made or an agent emptied.

    Raises:
        UserError: an option is wrong, or does not fit the testbed.
    """
    options.check()
    clients = len(machines.clients)
    if clients > 1 and "oracle" in options.schedulers:
        raise UserError(
            f"the oracle has to be told of all writes, and testbed {machines.testbed.name} has "
            f"{clients} client nodes: leave it out of --schedulers."
        )


def run(machines: agents.Machines, options: Options, folder: Path, progress: Progress) -> Outcome:
    """Run every scheduler, one after another, each on empty agents.

    Each report is written at once, so that an interruption keeps finished results. Afterwards the
    agents have their deployed settings again, and are empty.

    Raises:
        UserError: the options do not fit the testbed.
        HotbedError: agents cannot be reached or do not start.
    """
    refuse(machines, options)
    clients = len(machines.clients)
    _write(folder / "bench.json", _facts(machines, options))
    found = agents.Agents(machines)
    rows: list[Row] = []
    failed: dict[str, str] = {}
    try:
        for place, scheduler in enumerate(options.schedulers):
            share = place / len(options.schedulers)
            progress(f"{scheduler}: emptying the agents", share)
            spec = twochoice_variables.asked(machines.store)
            assert spec is not None
            found.fresh(agent_settings(options, scheduler, spec.copies))
            progress(f"{scheduler}: writing", share + 0.3 / len(options.schedulers))
            try:
                reports = agents.generate(
                    machines, _plans(options, scheduler, clients), _most(options)
                )
            except HotbedError as error:
                failed[scheduler] = str(error)
                continue
            _write(folder / f"{scheduler}.json", {"scheduler": scheduler, "reports": reports})
            rows.append(row(scheduler, reports))
    finally:
        progress("bringing the deployed settings back", 0.99)
        with suppress(HotbedError):
            found.restore()
    outcome = Outcome(
        testbed=machines.testbed.name,
        backend=_backend(machines),
        agents=sum(len(numbers) for numbers in machines.agents.values()),
        client_nodes=clients,
        options=options,
        rows=tuple(rows),
        failed=failed,
        folder=str(folder),
    )
    _write(folder / "result.json", asdict(outcome))
    progress("done", 1.0)
    return outcome


def _plans(options: Options, scheduler: str, clients: int) -> list[dict[str, Any]]:
    return [
        plan(options, scheduler, machine, nodes)
        for machine, nodes in enumerate(shares(options.nodes, clients))
    ]


def _most(options: Options) -> float:
    return (options.duration_s or 0.0) + (GENERATE_S if options.writes else SLACK_S)


def _backend(machines: agents.Machines) -> str:
    return "rados" if machines.store.kind == "ceph" else "file"


def _facts(machines: agents.Machines, options: Options) -> dict[str, Any]:
    """Return the facts about the results: testbed, agents, options and versions."""
    facts: dict[str, Any] = {}
    with suppress(HotbedError):
        facts = dict(machines.call("versions", {}, 60.0))
    return {
        "began": datetime.now(UTC).isoformat(),
        "testbed": machines.testbed.name,
        "site": machines.testbed.site,
        "spec_hash": machines.testbed.spec_hash,
        "backend": _backend(machines),
        "agents": {node: list(numbers) for node, numbers in machines.agents.items()},
        "clients": [node.name for node in machines.clients],
        "options": asdict(options),
        "versions": facts,
    }


def _write(path: Path, data: object) -> None:
    write_file(path, json.dumps(data, indent=1) + "\n")
