"""`hotbed mos`: plans of microstores for tenants with SLAs, and the paper's rules of thumb."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hotbed.exit_codes import EXIT_MISSED
from hotbed.options import argument, option
from hotbed.output import Output, Verbs, new_table
from schemas.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controllers.microstores.problem import MicrostorePlan
    from controllers.microstores.rules import Allocation, RuleFinding
    from controllers.microstores.spec import Spec

SpecFile = Annotated[Path, argument("Tenants, pool and performance model (docs/mos.md).")]


group = Verbs(help="MOS: plans of microstores, and their rules.")


@group.command()
def plan(
    spec: SpecFile,
    solver: str = option("highs, or exact: the search that controllers use.", "highs"),
    objective: str = option("cost, or value: the most performance per price.", "cost"),
    parameters_out: Path | None = option(
        "New file for the parameters of the controllers of MOS++.", None
    ),
) -> Output:
    """Plan each microstore's resources so that its tenants' SLAs are met.

    Exit code 3: the pool does not suffice for every SLA; the plan is the best that was found.
    """
    from controllers.microstores.optimiser import plan as optimise
    from controllers.microstores.rules import division_of

    read = _read(spec)
    made = optimise(
        read.model,
        read.demands,
        read.pool,
        prices=read.prices,
        headroom=read.headroom,
        solver=solver,
        objective=objective,
    )
    if parameters_out is not None:
        _write_parameters(read, parameters_out)
    found = _findings(read, division_of(made, read.pool.total))
    data = made.to_json() | {"rules": [finding.to_json() for finding in found]}
    bills = _bills(read, made)
    return Output(
        data | {"bills": bills},
        lambda: [_plan_table(made, found, bills), *made.notes],
        EXIT_MISSED if made.violated else 0,
    )


@group.command()
def rules(spec: SpecFile) -> Output:
    """Check what microstores hold (`holds` in the file) against the paper's rules R1 to R7.

    Ends with 1 when a rule is broken.
    """
    from controllers.microstores.problem import wanted_rates
    from controllers.microstores.rules import Allocation, broken

    read = _read(spec)
    if not read.holds:
        raise UserError(
            "`holds` is missing: the resources of each microstore",
            where=spec,
            do="hotbed mos plan checks the plan that it makes",
        )
    needed: dict[str, float] = {}
    for demand in read.demands:
        need = wanted_rates(demand, read.model, read.headroom).need
        needed[demand.microstore] = needed.get(demand.microstore, 0.0) + need
    tenants = {demand.tenant: demand.microstore for demand in read.demands}
    found = _findings(read, Allocation(read.pool.total, read.holds, tenants, needed))
    data = {"rules": [finding.to_json() for finding in found], "broken": len(broken(found))}
    return Output(data, lambda: _rules_table(found), code=int(bool(broken(found))))


def _read(path: Path) -> Spec:
    from campaigns.papers.mos.profile.document import model_of
    from campaigns.papers.mos.profile.points import reference
    from controllers.microstores.spec import spec_from_data
    from schemas.yaml_file import read

    data = read(path)
    name = data.get("model") if isinstance(data, dict) else None
    if isinstance(name, str) and not (Path(name).suffix or (path.parent / name).exists()):
        data |= {"model": model_of(reference(name)).to_json()}
    return spec_from_data(data, str(path), path.parent)


def _write_parameters(read: Spec, path: Path) -> None:
    import yaml

    from controllers.microstores.spec import controller_parameters
    from schemas.durable import write_file

    text = yaml.safe_dump(controller_parameters(read), sort_keys=False)
    write_file(path, text, exclusive=True)


def _findings(read: Spec, division: Allocation) -> list[RuleFinding]:
    from dataclasses import replace

    from controllers.microstores.rules import check_rules

    if read.prices is not None:
        division = replace(division, prices=read.prices)
    return check_rules(division, read.workloads, read.model)


def _bills(read: Spec, made: MicrostorePlan) -> list[dict[str, Any]] | None:
    from controllers.microstores.problem import bills

    if read.prices is None:
        return None
    sizes = {name: workload.mean_bytes for name, workload in read.workloads.items()}
    return bills(made, read.prices, sizes)


def _plan_table(
    made: MicrostorePlan, found: Sequence[RuleFinding], bills: Sequence[Mapping[str, Any]] | None
) -> object:

    from controllers.microstores.rules import broken

    names = ", ".join(f"{f.rule} ({f.microstore or 'all'})" for f in broken(found))
    unit = "pools (sum of the shares of each resource)" if bills is None else "an hour"
    heads = ("tenant", "microstore", "proxy cores", "storage cores", "Mbit/s", "SSDs", "HDDs")
    rates = ("requests/s", "needed requests/s", "SLA")
    prices = () if bills is None else ("price an hour", "requests per price", "GB per price")
    table = new_table(
        (*heads, *rates, *prices),
        caption=f"cost {made.cost:.4g} {unit} by {made.solver}; rules broken: {names or 'none'}",
    )
    for place, share in enumerate(made.shares):
        bill = list(bills[place].values())[1:] if bills else []
        held = share.resources
        table.add_row(
            share.tenant,
            share.microstore,
            *(f"{held.proxy_cores:g}", f"{held.storage_cores:g}", f"{held.network / 125e3:g}"),
            *(str(held.ssds), str(held.hdds)),
            *(f"{share.requests_s:.1f}", f"{share.needed_s:.1f}"),
            "met" if share.met else "MISSED",
            *(f"{value:,.0f}" if value >= 1000 else f"{value:.4g}" for value in bill),
        )
    return table


def _rules_table(found: Sequence[RuleFinding]) -> object:

    rows = ((one.rule, one.microstore or "all", one.verdict, one.sentence) for one in found)
    return new_table(("rule", "microstore", "verdict", "why"), rows)


WHAT = {"cospurf": "the optimiser's cospurf", "simulator": "COSPerf"}


@group.command()
def profile(
    runs: Annotated[
        str,
        argument(
            "Folder of a campaign's runs, JSON file of points, or the name of points that "
            "come with Hotbed (local, paper) or were kept."
        ),
    ],
    out: Path | None = option("New JSON file for the profile.", None, show_default=False),
    keep: str | None = option("Keep the points under this name, for cells' profile.", None),
    seed: int = option("Seed that splits the configurations into two halves.", 0, min=0),
) -> Output:
    """Fit cospurf and COSPerf to measured runs, and say how well they predict others.

    They are fitted to disjoint halves of the configurations. Errors are of configurations that
    were held out.
    """
    from campaigns.papers.mos.profile.document import document, points_of, write
    from campaigns.papers.mos.profile.points import keep as keep_points

    points = points_of(runs)
    made = document(points, seed)
    kept = None if keep is None else keep_points(points, keep)
    if out is not None:
        write(made, out)
    lines = [f"{name}: {value:.4g}" for name, value in made["simulator"].items()]
    lines += [] if out is None else [f"Written: {out.resolve()}"]
    lines += [] if kept is None else [f"Kept: {kept}"]
    return Output(made, lambda: [_profile_table(made), *lines])


def _profile_table(made: dict[str, Any]) -> object:

    counts = {name: len(made["runs"][name]) for name in WHAT}
    table = new_table(
        ("model", "workload", "configurations", "median error", "95 % interval", "worst"),
        title=f"Profile {made['name']}: errors on configurations held out",
        caption=f"COSPerf is fitted to {counts['simulator']} runs, cospurf of {counts['cospurf']} "
        "others",
    )
    for name, words in WHAT.items():
        for one in made["errors"][name]:
            interval = one["ci95"]
            table.add_row(
                words,
                one["workload"],
                str(one["configurations"]),
                f"{one['median']:.0%}",
                "" if interval is None else f"{interval[0]:.0%} to {interval[1]:.0%}",
                f"{one['worst']:.0%}",
            )
    return table
