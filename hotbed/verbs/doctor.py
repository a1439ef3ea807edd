"""`hotbed doctor`: tools of this machine, missing ones and how to get them; and the same for the
machines of a spec's site."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hotbed.options import option
from hotbed.output import Output, new_table
from hotbed.progress import progress
from hotbed.site_options import AcceptHostKeysOption
from hotbed.verbs.reference import FOLDER
from schemas.errors import UserError

STORES = ("ceph", "swift", "ganesha")
"""Stores among the versions of a run's record."""

if TYPE_CHECKING:
    from rich.table import Table

    from testbed.checks import CheckResult
    from testbed.sites.contract import HostFindings
    from testbed.spec import TestbedSpec


def verb(
    spec: Path | None = option("Also check the disk and memory that this spec needs.", None),
    site: Path | None = option("Check the machines that this spec's site names, over ssh.", None),
    accept_host_keys: AcceptHostKeysOption = False,
) -> Output:
    """Check that this machine has everything; exit 1 when something needed is missing.

    With --site also the machines of the spec: logins, disks and what is on them, clocks, ports,
    kernels, sizes, and the network between them; and, where the testbed is up, that the store's
    back ends are closed to others. Nothing is changed there.
    """
    from testbed.doctor import diagnose, lacking
    from testbed.spec import load_spec

    if site is not None:
        if spec is not None:
            raise UserError("--site checks its spec too", do="give --spec or --site, not both")
        return _machines(load_spec(site), accept_host_keys)
    if accept_host_keys:
        raise UserError("--accept-host-keys is for machines", do="name their spec with --site")
    findings = diagnose(load_spec(spec)) if spec else [*diagnose(), *recorded()]
    return Output(findings, lambda: _table(findings), code=int(bool(lacking(findings))))


def recorded(folder: Path = FOLDER) -> list[CheckResult]:
    """Return a remark by distribution of the nodes: its runs in the references."""
    from pyarrow import parquet

    from testbed.checks import CheckResult

    runs: dict[str, set[tuple[str, str]]] = {}
    said: dict[str, set[str]] = {}
    for path in folder.glob("*/*/summary.parquet"):
        paper, columns = path.parts[-3], ["run_id", "provenance"]
        for row in parquet.read_table(path, columns=columns).to_pylist():
            made = json.loads(row["provenance"])
            of, names = made["versions"], [h.get("distribution") for h in made["hosts"].values()]
            for name in filter(None, names):
                runs.setdefault(name, set()).add((paper, row["run_id"]))
                stores = {f"{store} {of[store]}" for store in STORES if store in of}
                said.setdefault(name, set()).update(stores, {f"paper {paper}"})
    return [
        CheckResult(
            "recorded",
            f"nodes with {name}",
            True,
            ", ".join([f"{len(runs[name])} runs in {folder}", *sorted(said[name])]),
            "",
            needed=False,
        )
        for name in sorted(runs)
    ]


def _machines(spec: TestbedSpec, accept_host_keys: bool) -> Output:
    from testbed.doctor import diagnose, lacking, peer_findings
    from testbed.sites import open_site
    from testbed.sites.contract import CautiousSite, InspectingSite

    here = diagnose(spec)
    site = open_site(spec.site.kind, spec.site.options)
    if accept_host_keys and not isinstance(site, InspectingSite):
        raise UserError(
            f"a site of kind {site.kind} has no machines to look at before they are made",
            where="--accept-host-keys",
        )
    if accept_host_keys and isinstance(site, CautiousSite):
        site.allow(host_keys=True)
    with progress(f"looking at the machines of {spec.name}") as report:
        seen = site.inspect(spec, report) if isinstance(site, InspectingSite) else ()
        testbed = site.find(spec.name)
        machines = seen if testbed is None else _with(seen, peer_findings(testbed))
    lacks = lacking(here) or any(lacking(machine.findings) for machine in machines)
    facts = {"here": here, "machines": machines}
    return Output(facts, lambda: _tables(here, machines), code=int(bool(lacks)))


def _with(
    machines: Sequence[HostFindings], more: Mapping[str, CheckResult]
) -> tuple[HostFindings, ...]:
    """Return `machines` with one more finding for the nodes in `more`."""
    from testbed.sites.contract import HostFindings

    found = {machine.node: machine for machine in machines}
    for node, finding in more.items():
        machine = found.get(node, HostFindings(node, "", ()))
        found[node] = replace(machine, findings=(*machine.findings, finding))
    return tuple(found.values())


def _tables(here: list[CheckResult], machines: Sequence[HostFindings]) -> list[Table]:
    tables = [_table(here, "this machine")]
    for machine in machines:
        name = f"{machine.node}: {machine.machine}" if machine.machine else machine.node
        tables.append(_table(machine.findings, name))
    return tables


def _table(findings: Sequence[CheckResult], title: str = "") -> Table:
    from rich.text import Text

    table = new_table(("", "needed", "found", "how to install it"), title=title)
    for finding in findings:
        bad = Text("missing", style="red") if finding.needed else Text("short", style="yellow")
        mark = Text("ok", style="green") if finding.ok else bad
        table.add_row(mark, finding.what, finding.found, "" if finding.ok else finding.how)
    return table
