"""`hotbed pm parameters` and `hotbed pm simulate`: parameters of the enforcers, and their results
on virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotbed.options import quantity
from hotbed.output import JsonFlag, emit

if TYPE_CHECKING:
    from rich.table import Table

    from campaigns.papers.prioritymeister.plan import EnforcerParameters
    from campaigns.papers.prioritymeister.simulate import Results

TopologyFile = Annotated[Path, typer.Argument(help="Hosts, devices and workloads, YAML.")]
PolicyOption = Annotated[
    str, typer.Option("--policy", help="pm, ps, cake, edf, byslo, mclock or none.")
]
ModeOption = Annotated[str, typer.Option("--mode", help="Of pm: hold or best-effort.")]
DepthOption = Annotated[
    int, typer.Option("--depth", help="Requests at a device at a time; 0 is any number.")
]


def _say(text: str) -> None:
    if text:
        typer.echo(f"hotbed: {text}.", err=True)


def parameters(group: typer.Typer) -> None:
    """Add `hotbed pm parameters`."""

    @group.command()
    def parameters(
        topology: TopologyFile,
        policy: PolicyOption = "pm",
        mode: ModeOption = "hold",
        depth: DepthOption = 1,
        addresses: Annotated[
            Path | None,
            typer.Option(help="JSON: addresses by host or workload, {name: [address, ...]}."),
        ] = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Show the enforcers' parameters: those of the NFS proxy, and of every host's network.

        Plans first, where the policy's parameters come from a plan.
        """
        from campaigns.papers.prioritymeister.plan import (
            PLANNED,
            check_policy,
            load_addresses,
            parameters_of,
            plan_of,
        )
        from campaigns.papers.prioritymeister.topology import load_topology

        given = load_topology(topology)
        known = {} if addresses is None else load_addresses(addresses)
        plan = plan_of(given, topology, _say) if policy in PLANNED else None
        check_policy(policy, mode, plan)
        made = parameters_of(given, plan, policy=policy, mode=mode, depth=depth, addresses=known)
        emit(made, as_json, lambda: _parameters_table(made))


def _parameters_table(made: EnforcerParameters) -> Table:
    from rich.table import Table

    view = Table("where", "workload", "first", "rate, burst")
    for device, told in made.storage.items():
        for one in told["workloads"]:
            first = str(one.get("priority", one.get("slo", one["weight"])))
            view.add_row(device, one["name"], first, _pairs(one.get("pairs", ())))
    for host in made.network.hosts.values():
        for flow in host.flows:
            first = f"level {flow.level}, DSCP {flow.dscp}" if flow.dscp else ""
            view.add_row(host.queue, flow.workload, first, _pairs(flow.pairs))
    return view


def _pairs(pairs: object) -> str:
    assert isinstance(pairs, (list, tuple))
    return "; ".join(f"{rate:.4g}, {burst:.4g}" for rate, burst in pairs)


def simulate(group: typer.Typer) -> None:
    """Add `hotbed pm simulate`."""

    @group.command()
    def simulate(
        topology: TopologyFile,
        policy: PolicyOption = "pm",
        mode: ModeOption = "hold",
        depth: DepthOption = 1,
        network: Annotated[
            str,
            typer.Option(
                help="auto (what the policy has), priority, levels (by SLO), fifo, or off."
            ),
        ] = "auto",
        seed: Annotated[int, typer.Option(help="Of noise.")] = 1,
        duration: Annotated[
            float | None,
            quantity("--duration", "seconds", "Nothing arrives from then on, such as 10min."),
        ] = None,
        closed: Annotated[
            list[str] | None,
            typer.Option(help="WORKLOAD=N: N requests in flight, again and again (workload L)."),
        ] = None,
        noise: Annotated[
            float, typer.Option(help="Coefficient of variation of service times.")
        ] = 0.0,
        as_json: JsonFlag = False,
    ) -> None:
        """Replay the traces on virtual time: latencies beside SLOs and proven bounds.

        Exits with 1 when a bound that applies was exceeded.
        """
        from campaigns.papers.prioritymeister.simulate import (
            SimulationSetting,
            closed_from,
            simulate_topology,
        )
        from campaigns.papers.prioritymeister.topology import load_topology
        from hotbed.progress import progress

        setting = SimulationSetting(
            policy=policy,
            mode=mode,
            depth=depth,
            network=network,
            seed=seed,
            duration_s=duration,
            closed=closed_from(closed or ()),
            noise_cv=noise,
        )
        with progress("simulate") as report:
            found = simulate_topology(
                load_topology(topology),
                topology,
                setting,
                tell=_say,
                progress=lambda share: report(policy, share),
            )
        emit(found, as_json, lambda: _results_table(found))
        broken = found.broken_bounds
        if broken:
            _say(
                f"the proven bound of {', '.join(broken)} was exceeded: this is a mistake in Hotbed"
            )
            raise typer.Exit(1)


def _results_table(found: Results) -> Table:
    from rich.table import Table

    view = Table(
        "workload", "requests", "p50", "p99", "p99.9", "longest", "SLO", "missed", "bound", "held"
    )
    for one in found.workloads:
        whole = one.whole
        latency = whole.latency
        times = (latency.p50, latency.p99, latency.p99_9, latency.max)
        bound, held = "", ""
        if one.bound is not None:
            bound = f"{1e3 * one.bound.blocking_s:.4g} ms"
            held = {True: "yes", False: "NO", None: one.bound.why_not or ""}[one.bound.held]
        view.add_row(
            one.name,
            str(whole.requests),
            *(f"{1e3 * t:.4g} ms" for t in times),
            "" if one.slo_s is None else f"{1e3 * one.slo_s:.4g} ms",
            "" if whole.slo_misses is None else str(whole.slo_misses),
            bound,
            held,
        )
    return view
