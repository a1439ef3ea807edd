"""`hotbed ursa`: plan against hot nodes for a placement file, check a plan, make instances."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotbed import completion
from hotbed.exit_codes import EXIT_FAILED, EXIT_MISSED
from hotbed.options import argument, name_values, named, option, quantity
from hotbed.output import JsonFlag, Output, Verbs, amount, new_table

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 100
PERCENT = ("gap", "saved", "above_joint_bound")

SOURCES = "The instance: .npz, .csv, .parquet or a folder with a Ceph's dumps (docs/ursa.md)."
Instance = Annotated[Path, argument("The instance, an .npz file (docs/ursa.md).")]
Seed = Annotated[int, option("The same seed gives the same result.")]
MaxMoveCost = Annotated[float | None, option("Maximum cost of a single move.")]
TimeLimit = Annotated[
    float | None,
    quantity("--time-limit", "seconds", "Time limit of a plan; the best found by then counts."),
]
Spread = Annotated[
    int | None, option("The only level of fault domains that counts; 0 is the outermost.")
]


group = Verbs(help="Ursa: relieve hot nodes by swaps of roles and moves of replicas.")


@group.command()
def plan(
    *,
    instance: Path | None = argument(SOURCES, None),
    testbed: str | None = option(
        "Instead of an instance: the testbed with a Ceph that is measured.",
        None,
        autocompletion=completion.testbeds,
    ),
    parameter: list[str] | None = typer.Option(
        None,
        "--parameter",
        "-p",
        help="NAME=VALUE for a Ceph, as for `hotbed control start ursa`; may be repeated.",
    ),
    method: str = option(
        "Method that decides where objects go: alp-fast (Hotbed's), alp (the paper's), ilp, "
        "opt, htoc, sa, ...",
        "alp-fast",
    ),
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    max_move_cost: MaxMoveCost = None,
    swap_success: float = option("Share of the secondaries that can become primary.", 1.0),
    spread: Spread = None,
    max_moves: int | None = option("Maximum number of replicas that may move in a round.", None),
    budget: float | None = quantity(
        "--budget", "bytes", "Maximum bytes that may move in a round.", None
    ),
    node_budget: float | None = quantity(
        "--node-budget",
        "bytes",
        "Maximum bytes that may leave one node, and reach one node, in a round.",
        None,
    ),
    rounds: int = option("Maximum number of rounds, each within the budget.", 1),
    out: Path | None = option(
        "File for the plan: .npz, .csv or .json; an existing plan is replaced.", None
    ),
) -> Output:
    """Decide which roles to swap and which replicas to move so that no node stays hot.

    Exit code 3: some nodes stay hot whatever is done; the plan is the best that was found.
    """
    from campaigns.papers.ursa.sources import reader
    from controllers.ursa.io import refuse_existing, save_plan
    from controllers.ursa.run import budget_of, plan_read

    if out is not None:
        refuse_existing(out, plans=True)
    made = plan_read(
        reader(instance, testbed, name_values(parameter or [], "capacity=24")),
        method,
        time_limit_s=time_limit,
        seed=seed,
        max_move_cost=max_move_cost,
        success=swap_success,
        spread=spread,
        budget=budget_of(max_moves, budget, node_budget, rounds),
    )
    if out is not None:
        save_plan(made, out)
    summary: dict[str, Any] = made.summary
    lines = [] if out is None else [f"Written: {out.resolve()}"]
    missed = bool(len(made.still_hot))
    if missed:
        lines += [_still_hot(summary["still_hot"]), *summary["warnings"]]
    code = EXIT_MISSED if missed else 0
    return Output(summary, lambda: [*_plan_views(summary), *lines], code)


@group.command()
def check(
    instance: Annotated[Path, argument(SOURCES)],
    plan: Annotated[Path, argument("The plan, an .npz file.")],
    spread: Spread = None,
) -> Output:
    """Verify a plan independently: loads, fault domains, ids, cost. Exit code 1: violated."""
    from campaigns.papers.ursa.sources import read_instance
    from controllers.ursa.check import check as verify
    from controllers.ursa.io import load_plan, spread_over

    loaded, cost = load_plan(plan)
    report = verify(spread_over(read_instance(instance), spread), loaded, cost)
    facts = {k: v for k, v in vars(report).items() if k not in ("violations", "still_hot")}
    lines = [*report.violations, *([_still_hot(report.still_hot)] if report.still_hot else [])]
    return Output(report, lambda: [_facts_table(facts), *lines], code=int(not report.valid))


@group.command()
def rounds(
    *,
    instance: Instance,
    changes: list[Path] | None = argument(
        "New loads before each round after the first, .npz files.", None
    ),
    random: float | None = option(
        "Instead of files: share of the partitions with new loads in each round.", None
    ),
    count: int = named("--rounds", "Number of rounds after the first, with --random.", 10),
    method: str = option("As for plan.", "alp-fast"),
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    max_move_cost: MaxMoveCost = None,
    out: Path | None = option("Folder for the plans.", None),
    instances: bool = named("--instances", "Also write the instance before each round.", False),
    verify: bool = named("--check", "Verify every plan independently.", False),
    scratch: bool = named("--scratch", "Also plan from scratch, to compare.", False),
    as_json: JsonFlag = False,
) -> Output:
    """Plan, apply, let loads change, and plan again: what is known is kept between rounds.

    Exit code 3: nodes stay hot after the last round; 1: a plan violates something.
    """
    from controllers.research.ursa.rounds import RoundsOptions, rounds_file

    wanted = RoundsOptions(
        changes=tuple(changes or ()),
        random=random,
        rounds=count,
        method=method,
        seed=seed,
        max_move_cost=max_move_cost,
        time_limit_s=time_limit,
        out=out,
        instances=instances,
        check=verify,
        scratch=scratch,
    )
    rows: list[dict[str, Any]] = []
    for one in rounds_file(instance, wanted):
        rows.append(one)
        if not as_json:
            print(_round_line(one), flush=True)
    valid = all(one.get("valid", True) for one in rows)
    missed = EXIT_MISSED if rows[-1]["hot_after"] else 0
    return Output({"rounds": rows}, lambda: None, missed if valid else EXIT_FAILED)


@group.command()
def compare(
    *,
    instance: Instance,
    method: list[str] | None = option(
        "Methods; the first is the baseline. By default alp-fast, joint.", None
    ),
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    max_move_cost: MaxMoveCost = None,
) -> Output:
    """Plan by several methods and show what each costs: alp-fast takes the heaviest objects first,
    joint chooses together which objects leave and where they go.
    """
    from controllers.ursa.run import compare_file

    found = compare_file(
        instance,
        method or ["alp-fast", "joint"],
        time_limit_s=time_limit,
        seed=seed,
        max_move_cost=max_move_cost,
    )
    return Output({"methods": found}, lambda: _comparison(found))


def _comparison(found: list[dict[str, Any]]) -> object:
    costs = ("cost", "saved", "moves", "hot_after", "lower_bound", "above_joint_bound")
    names = ("method", *costs, "seconds")
    rows = ((_shown(name, one[name]) for name in names) for one in found)
    return new_table(map(_words, names), rows)


def _round_line(row: dict[str, Any]) -> str:
    line = (
        f"round {row['round']}: {row['changed']} loads changed, {row['hot_before']} hot, "
        f"{row['hot_after_swaps']} after {row['swaps']} swaps, {row['hot_after']} after "
        f"{row['moves']} moves of cost {row['cost']:.6g} (distance), decided in "
        f"{amount(row['decision_seconds']['total'], 's')}"
    )
    if "scratch" in row:
        scratch = row["scratch"]
        line += (
            f" (from scratch: cost {scratch['cost']:.6g}, "
            f"{amount(scratch['decision_seconds']['total'], 's')})"
        )
    if not row.get("valid", True):
        line += "; violated: " + "; ".join(row["violations"])
    return line


@group.command()
def generate(
    *,
    nodes: Annotated[str, option("Number of nodes, such as 300 or 10K.")],
    partitions: Annotated[str, option("Number of partitions, such as 10M.")],
    seed: Seed = 0,
    kind: str = option(
        "s1: like the paper's data; s2: tight; s3: hot nodes together; giants: very "
        "hot objects that fit only far away.",
        "s1",
    ),
    out: Path | None = option("The file; ursa-KIND-NODES-PARTITIONS-SEED.npz.", None),
    replicas: int | None = option("Replicas of a partition; 3.", None),
    tail: float | None = option("Exponent of the loads' power law; 1.5.", None),
    load_max: float | None = option(
        "Maximum ratio of the heaviest load to the lightest; by default unlimited.", None
    ),
    primary_factor: float | None = option("Load of a primary over a secondary's; 2.", None),
    ratio_median: float | None = option("Median of load over capacity of the nodes.", None),
    ratio_sigma: float | None = option("Sigma of its lognormal distribution.", None),
    ratio_max: float | None = option("Maximum of the distribution.", None),
    threshold: float | None = option("Load over capacity above which a node is hot; 0.7.", None),
    discs: int | None = option("Number of hot discs.", None),
    disc_area: float | None = option("Share of the area that hot discs cover; 0.06.", None),
    racks: int | None = option("Racks in clusters, instead of points in the plane.", None),
    domain: str | None = option(
        "Kind of fault domain: node, rack, or nested (cluster and rack).", None
    ),
    dimensions: int | None = option(
        "Dimensions of the load: 1 is CPU, 2 adds bandwidth, 3 adds bytes.", None
    ),
    group_size: int | None = option("Number of adjacent partitions that form a group.", None),
    sizes: bool | None = named("--bytes", "Write the bytes of each replica.", None),
) -> Output:
    """Make an instance after the paper's section 5.1; what is not given is the kind's."""
    options = locals()  # all are passed on by name
    from controllers.ursa.run import generate_file

    facts = generate_file(**options)
    return Output(facts, lambda: _facts_table(facts))


def _still_hot(nodes: Sequence[object]) -> str:
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    listed = ", ".join(str(node) for node in nodes[:SHOWN])
    stay = "node stays" if len(nodes) == 1 else "nodes stay"
    return f"{len(nodes)} {stay} hot: {listed}{more}"


def _plan_views(summary: dict[str, Any]) -> list[Table]:
    """Return the tables of facts and, if there is anything to do, of actions."""
    rows = summary["actions"]
    names = list(dict.fromkeys(name for row in rows for name in row))
    both = ([row for row in rows if row["action"] == action] for action in ("swap", "move"))
    shown = [row for some in both for row in some[: SHOWN // 2]]
    more = len(rows) - len(shown)
    caption = f"and {more} more: --out with .csv or .json writes all" if more else ""
    cells = ((_shown(name, row[name]) if name in row else "" for name in names) for row in shown)
    title = "What to do, in this order"
    table = new_table(map(_words, names), cells, title=title, caption=caption)
    return [_plan_table(summary), *[table] * bool(rows)]


def _plan_table(summary: dict[str, Any]) -> Table:
    apart = (
        *("still_hot", "decision_seconds", "notes", "rounds", "hot_by_dimension", "actions"),
        *("warnings", "load_unit", "total_load", "total_capacity"),
    )
    facts = {name: value for name, value in summary.items() if name not in apart}
    loads = {
        name: f"{_shown(name, summary[name])} {summary['load_unit'] or ''}".rstrip()
        for name in ("total_load", "total_capacity")
    }
    seconds = {f"{name}_seconds": value for name, value in summary["decision_seconds"].items()}
    hot = {
        f"hot, {name}": ", ".join(f"{count} {when.replace('_', ' ')}" for when, count in of.items())
        for name, of in summary.get("hot_by_dimension", {}).items()
    }
    rounds = {
        f"round {row['round']}": f"{row['moves']} moves, "
        + ("" if row["bytes"] is None else f"{amount(row['bytes'], 'B')}, ")
        + f"cost {row['cost']:.6g}, {row['hot_after']} nodes hot"
        for row in summary.get("rounds", [])
    }
    return _facts_table(facts | loads | hot | rounds | seconds | summary["notes"])


def _facts_table(facts: Mapping[str, Any]) -> Table:
    rows = ((_words(name), _shown(name, value)) for name, value in facts.items())
    table = new_table(("", ""), rows)
    table.show_header = False
    return table


def _words(name: str) -> str:
    """Return a fact's name for people."""
    if name.endswith("seconds"):
        return f"time {name.removesuffix('seconds').replace('_', ' ')}".rstrip()
    words = re.sub("^hot(?=_after|_before|$)", "hot nodes", name.removesuffix("_mib"))
    words = "memory" if words == "mib" else words
    distance = name == "cost" or (name.endswith("_bound") and name not in PERCENT)
    return words.replace("_", " ") + " (distance)" * distance


def _shown(name: str, value: object) -> str:
    """Return a fact's value for people, with the unit that its name implies."""
    if not isinstance(value, float):
        return "-" if value is None else str(value)
    if name.endswith("seconds") or name == "bytes":
        return amount(value, "s" if name.endswith("seconds") else "B")
    if name in PERCENT:
        return f"{100 * value:.3g} %"
    return amount(value * 2**20, "B") if name.endswith("mib") else f"{value:.6g}"
