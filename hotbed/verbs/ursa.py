"""`hotbed ursa`: plan against hot nodes for a placement file, check a plan, make instances."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotbed.output import JsonFlag, emit

if TYPE_CHECKING:
    from rich.table import Table

EXIT_STILL_HOT = 3
SHOWN = 100

Instance = Annotated[Path, typer.Argument(help="The instance, an .npz file (docs/ursa.md).")]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Ursa: relieve hot nodes by swaps of roles and moves of replicas.",
    )
    app.add_typer(group, name="ursa")
    for verb in (_plan, _check, _generate):
        verb(group)


def _plan(group: typer.Typer) -> None:
    @group.command()
    def plan(
        *,
        instance: Instance,
        method: Annotated[
            str, typer.Option(help="What decides where objects go: alp, ilp, opt, htoc, sa, ...")
        ] = "alp",
        time_limit: Annotated[
            float | None, typer.Option(help="Seconds after which the best that was found counts.")
        ] = None,
        seed: Annotated[int, typer.Option(help="The same seed gives the same plan.")] = 0,
        max_move_cost: Annotated[
            float | None, typer.Option(help="No single move may cost more.")
        ] = None,
        swap_success: Annotated[
            float, typer.Option(help="Part of the secondaries that can become primary.")
        ] = 1.0,
        out: Annotated[Path | None, typer.Option(help="Where the plan goes, an .npz file.")] = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Decide which roles to swap and which replicas to move so that no node stays hot.

        Exit code 3: some nodes stay hot whatever is done; the plan is the best that was found.
        """
        from controllers.ursa.io import save_plan
        from controllers.ursa.run import plan_file

        made = plan_file(
            instance,
            method,
            time_limit_s=time_limit,
            seed=seed,
            max_move_cost=max_move_cost,
            success=swap_success,
        )
        if out is not None:
            save_plan(made, out)
        emit(made.summary, as_json, lambda: _plan_table(made.summary))
        if not as_json and out is not None:
            print(f"Written: {out.resolve()}")
        if len(made.still_hot):
            if not as_json:
                print(_still_hot(made.still_hot.tolist()))
            raise typer.Exit(EXIT_STILL_HOT)


def _check(group: typer.Typer) -> None:
    @group.command()
    def check(
        instance: Instance,
        plan: Annotated[Path, typer.Argument(help="The plan, an .npz file.")],
        as_json: JsonFlag = False,
    ) -> None:
        """Verify a plan independently: loads, fault domains, ids, cost. Exit code 1: violated."""
        from controllers.ursa.check import check as verify
        from controllers.ursa.io import load_instance, load_plan

        loaded, cost = load_plan(plan)
        report = verify(load_instance(instance), loaded, cost)
        emit(report, as_json, lambda: _facts_table(vars(report), skip=("violations", "still_hot")))
        if not as_json:
            for sentence in report.violations:
                print(sentence)
            if report.still_hot:
                print(_still_hot(report.still_hot))
        if not report.valid:
            raise typer.Exit(1)


def _generate(group: typer.Typer) -> None:
    @group.command()
    def generate(
        *,
        nodes: Annotated[str, typer.Option(help="Number of nodes, such as 300 or 10K.")],
        partitions: Annotated[str, typer.Option(help="Number of partitions, such as 10M.")],
        seed: Annotated[int, typer.Option(help="The same seed gives the same instance.")] = 0,
        kind: Annotated[
            str, typer.Option(help="s1: like the paper's data; s2: tight; s3: hot nodes together.")
        ] = "s1",
        out: Annotated[
            Path | None, typer.Option(help="The file; ursa-KIND-NODES-PARTITIONS-SEED.npz.")
        ] = None,
        replicas: Annotated[int | None, typer.Option(help="Replicas of a partition; 3.")] = None,
        tail: Annotated[
            float | None, typer.Option(help="Exponent of the loads' power law; 1.5.")
        ] = None,
        load_max: Annotated[
            float | None, typer.Option(help="Heaviest load over the lightest; not cut off.")
        ] = None,
        primary_factor: Annotated[
            float | None, typer.Option(help="Load of a primary over a secondary's; 2.")
        ] = None,
        ratio_median: Annotated[
            float | None, typer.Option(help="Median of load over capacity of the nodes.")
        ] = None,
        ratio_sigma: Annotated[
            float | None, typer.Option(help="Sigma of its lognormal distribution.")
        ] = None,
        ratio_max: Annotated[float | None, typer.Option(help="Where it is cut off.")] = None,
        threshold: Annotated[
            float | None, typer.Option(help="Load over capacity above which a node is hot; 0.7.")
        ] = None,
        discs: Annotated[int | None, typer.Option(help="Number of hot discs.")] = None,
        disc_area: Annotated[
            float | None, typer.Option(help="Part of the area that hot discs cover; 0.06.")
        ] = None,
        racks: Annotated[
            int | None, typer.Option(help="Racks in clusters, instead of points in the plane.")
        ] = None,
        domain: Annotated[
            str | None, typer.Option(help="What a fault domain is: node or rack.")
        ] = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Make an instance after the paper's section 5.1; what is not given is the kind's."""
        from controllers.ursa.run import generate_file

        facts = generate_file(
            out,
            kind=kind,
            nodes=nodes,
            partitions=partitions,
            seed=seed,
            replicas=replicas,
            tail=tail,
            load_max=load_max,
            primary_factor=primary_factor,
            ratio_median=ratio_median,
            ratio_sigma=ratio_sigma,
            ratio_max=ratio_max,
            threshold=threshold,
            discs=discs,
            disc_area=disc_area,
            racks=racks,
            domain=domain,
        )
        emit(facts, as_json, lambda: _facts_table(facts))


def _still_hot(nodes: list[int]) -> str:
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    listed = ", ".join(str(node) for node in nodes[:SHOWN])
    return f"{len(nodes)} of the nodes stay hot: {listed}{more}"


def _plan_table(summary: dict[str, Any]) -> Table:
    facts = {
        k: v for k, v in summary.items() if k not in ("still_hot", "decision_seconds", "notes")
    }
    seconds = {f"seconds, {name}": value for name, value in summary["decision_seconds"].items()}
    return _facts_table(facts | seconds | summary["notes"])


def _facts_table(facts: dict[str, Any], skip: tuple[str, ...] = ()) -> Table:
    from rich import box
    from rich.table import Table

    table = Table("", "", box=box.SIMPLE, show_header=False, pad_edge=False)
    for name, value in facts.items():
        if name not in skip:
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
            table.add_row(name.replace("_", " "), "-" if value is None else shown)
    return table
