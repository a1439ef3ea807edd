"""`hotbed twochoice`: the two-choice scheduler's agents on a testbed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hotbed.alone import alone
from hotbed.options import option, quantity
from hotbed.output import Output, Verbs, new_table
from hotbed.progress import progress
from hotbed.views import TestbedOption

if TYPE_CHECKING:
    from campaigns.papers.twochoice.bench import BenchOutcome


group = Verbs(help="Two-choice: write bursts around stragglers.")


@group.command()
def bench(
    schedulers: str | None = option("Strategies, separated by commas; by default all eight.", None),
    nodes: int = option("Compute nodes, each with a scheduler.", 8),
    processes: int = option("Client processes on each compute node.", 8),
    size: int = quantity("--size", "bytes", "Size of a write.", 4 * 2**20, show_default="4MiB"),
    writes: int | None = option("Number of writes of each process; 4 without --duration.", None),
    duration: float | None = quantity(
        "--duration",
        "seconds",
        "Duration of writing, such as 30s, instead of a number of writes.",
        None,
    ),
    choices: str = option("home+random (section V.A) or random+random (III).", "home+random"),
    read: bool = option("Afterwards read everything back, following redirects.", True),
    maintainers: bool = option("Meanwhile move data home where nodes are idle.", False),
    seed: int = option("Seed of the written bytes.", 1),
    out: Path | None = option("New folder for the results.", None, show_default=False),
    testbed: TestbedOption = None,
) -> Output:
    """Many client processes write through each scheduler, and read back what they wrote.

    Agents are emptied before each scheduler: what was written to them is lost. Exit 1 when a
    write failed or an object is not as it was written.
    """
    from campaigns.papers.twochoice import bench
    from testbed.choose import choose_ready
    from testbed.deploy.roles import spec_of

    options = bench.BenchOptions(
        schedulers=tuple(schedulers.split(",")) if schedulers else bench.SCHEDULERS,
        choices=choices,
        nodes=nodes,
        processes=processes,
        size=size,
        writes=4 if writes is None and duration is None else writes,
        duration_s=duration,
        read=read,
        maintainers=maintainers,
        seed=seed,
    )
    options.check()
    _, found = choose_ready(testbed)
    machines = bench.bench_testbed(found, spec_of(found))
    bench.refuse(machines, options)
    with alone(found), progress("twochoice") as report:
        outcome = bench.run(machines, options, bench.new_folder(out), report)
    return Output(outcome, lambda: _table(outcome), code=int(not outcome.good))


def _table(outcome: BenchOutcome) -> object:
    heads = ("scheduler", "writes", "MB/s", "mean [s]", "p50", "p99", "slowest", "redirected")
    table = new_table(
        (*heads, "busiest server", "read back"),
        title=f"{outcome.agents} agents ({outcome.backend}) of testbed {outcome.testbed}",
        caption=f"reports: {outcome.folder}",
    )
    for row in outcome.rows:
        total = sum(row.server_bytes)
        table.add_row(
            row.scheduler,
            str(row.writes) + (f" ({row.failed} failed)" if row.failed else ""),
            f"{row.bytes_per_s / 1e6:.1f}",
            *(_seconds(value) for value in (row.mean_s, row.p50_s, row.p99_s, row.slowest_rank_s)),
            f"{row.redirected / row.writes:.0%}" if row.writes else "",
            f"{max(row.server_bytes) / total:.0%}" if total else "",
            "" if row.verified is None else f"{row.verified - (row.bad or 0)} of {row.verified}",
        )
    for scheduler, why in outcome.failed.items():
        table.add_row(scheduler, "failed: " + why)
    return table


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


@group.command()
def status(testbed: TestbedOption = None) -> Output:
    """Show each agent's redirects, fragments, pulls and operations in flight."""
    from campaigns.papers.twochoice.bench import bench_testbed
    from testbed.choose import choose_ready
    from testbed.deploy.roles import spec_of

    _, found = choose_ready(testbed)
    rows = bench_testbed(found, spec_of(found)).status()

    cells = (
        (one["agent"], one["address"], ", ".join(f"{k} {value}" for k, value in one["has"].items()))
        for one in rows
    )
    return Output({"agents": rows}, lambda: new_table(("agent", "address", "has"), cells))


@group.command()
def remove(testbed: TestbedOption = None) -> Output:
    """Take the agents away, with their data, pools and keys; the store stays.

    `hotbed deploy` brings them again.
    """
    from testbed.choose import choose_ready
    from testbed.deploy.roles import remove_agents, spec_of

    site, found = choose_ready(testbed)
    with alone(found), progress("twochoice") as report:
        changed = remove_agents(found, spec_of(found), report, site=site)
    facts = {"testbed": found.name, "changed": sum(changed.values())}
    return Output(facts, lambda: "{testbed}: agents removed, {changed} changes".format(**facts))
