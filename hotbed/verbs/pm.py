"""`hotbed pm`: PriorityMeister's traces, r-b curves, device profiles and plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hotbed.alone import alone
from hotbed.exit_codes import EXIT_FAILED, EXIT_MISSED
from hotbed.options import argument, named, option, quantity
from hotbed.output import Output, Verbs, amount, new_table
from hotbed.progress import progress
from hotbed.views import TestbedOption

if TYPE_CHECKING:
    from rich.table import Table

    from campaigns.papers.prioritymeister.plan import EnforcerParameters
    from campaigns.papers.prioritymeister.simulate import Results
    from controllers.prioritymeister.prioritizer import PriorityPlan
    from workloads.traces.reader import TraceReader

TraceFile = Annotated[Path, argument("Trace file, plain or gzip.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        help="auto, plain, microsoft, msr, systor17, alibaba, tencent or spc.",
        show_default=True,
    ),
]
Disk = Annotated[int | None, option("Keep only the requests of this disk.")]
Strict = Annotated[bool, named("--strict", "Stop at the first malformed row.")]
Profile = Annotated[Path | None, option("The device's profile (docs/prioritymeister.md).")]
Completion = Annotated[
    bool, named("--completion", "Microsoft traces: TimeStamp is the arrival, not the end.")
]
Link = Annotated[
    float,
    quantity(
        "--link", "bits_per_s", "Link rate; network load is a share of it.", show_default="1Gbit"
    ),
]
TopologyFile = Annotated[Path, argument("Hosts, devices and workloads, YAML.")]
PolicyOption = Annotated[str, named("--policy", "pm, ps, cake, edf, byslo, mclock or none.")]
ModeOption = Annotated[str, named("--mode", "Mode of pm: hold or best-effort.")]
DepthOption = Annotated[int, named("--depth", "Requests at a device at a time; 0 is any number.")]


group = Verbs(help="PriorityMeister: plan priorities and rate limits for tail latency.")
traces = Verbs(help="Show or generate traces.")
group.add_typer(traces, name="trace")


def _reader(
    trace: Path, form: str, disk: int | None, strict: bool, completion: bool
) -> TraceReader:
    from workloads.traces.reader import TraceReader

    return TraceReader(
        trace, format=form, disk=disk, on_error="stop" if strict else "skip", completion=completion
    )


def _tell(text: str) -> None:
    if text:
        typer.echo(f"hotbed: {text}.", err=True)


@group.command()
def curve(
    trace: TraceFile,
    stage: Annotated[str, option("storage, network-in or network-out.")],
    profile: Profile = None,
    rates: str | None = option("Print the burst for these rates: R1,R2,...", None),
    form: Format = "auto",
    disk: Disk = None,
    strict: Strict = False,
    completion: Completion = False,
) -> Output:
    """Print the exact r-b curve: the burst that a token bucket of each rate needs (figure 4a).

    Storage in seconds of work and seconds per second, the network in bytes and bytes per
    second. Without --rates the corners: the curve is straight in between, and constant beyond
    the last.
    """
    from campaigns.papers.prioritymeister.plan import costs_of, curve_of, measure_trace, parse_rates

    asked = parse_rates(rates)
    costs = costs_of(profile, stage)
    demand, report = measure_trace(_reader(trace, form, disk, strict, completion), costs, [stage])
    _tell(report.sentence(trace))
    found = curve_of(demand, stage, asked)
    unit = "s" if stage == "storage" else "B"
    heads = (f"rate [{unit}/s]", f"burst [{unit}]")
    rows = (
        (f"{rate:.9g}", f"{burst:.9g}")
        for rate, burst in zip(found["rates"], found["bursts"], strict=True)
    )
    return Output(found, lambda: new_table(heads, rows))


@traces.command()
def stats(
    files: Annotated[list[Path], argument("Traces.")],
    profile: Profile = None,
    link: Link = 1e9,
    form: Format = "auto",
    disk: Disk = None,
    strict: Strict = False,
    completion: Completion = False,
) -> Output:
    """Print the columns of Table 2: estimated loads, and the burstiness of arrivals (C_A^2)."""
    from campaigns.papers.prioritymeister.traces import statistics

    found = []
    for file in files:
        row, report = statistics(_reader(file, form, disk, strict, completion), profile, link)
        _tell(report.sentence(file))
        found.append(row)

    heads = ("trace", "requests", "seconds", "storage load", "network load", "C_A²")
    rows = (
        (
            row.trace,
            row.requests,
            f"{row.seconds:.6g}",
            _percent(row.storage_load),
            _percent(row.network_load),
            None if row.scv is None else f"{row.scv:.3g}",
        )
        for row in found
    )
    return Output(found[0] if len(found) == 1 else found, lambda: new_table(heads, rows))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{float(f'{100 * share:.3g}'):,g} %"


@traces.command()
def standin(
    label: Annotated[str, argument("A workload of Table 2, A to L.")],
    out: Annotated[Path, argument("New file; .gz compresses it.")],
    profile: Profile = None,
    link: Link = 1e9,
    seconds: float = quantity("--seconds", "seconds", "Length of the trace.", 600.0),
    seed: int = option("The same seed gives the same trace.", 1),
) -> Output:
    """Make a trace with the loads and the burstiness of a workload of Table 2."""
    from campaigns.papers.prioritymeister.traces import make_standin

    made = make_standin(label, out, profile, link, seconds=seconds, seed=seed)
    return Output(made, lambda: f"{out}: {made.requests} requests of {made.size} bytes")


@traces.command()
def generate(
    process: Annotated[str, argument("poisson, hyperexponential, interrupted or copy.")],
    out: Annotated[Path, argument("New file; .gz compresses it.")],
    rate: float = option("Arrivals per second.", 100.0),
    count: int = option("Requests.", 10_000),
    c2: float = option("Squared coefficient of variation.", 14.0),
    burst_s: float = quantity("--burst", "seconds", "Mean length of a burst, interrupted.", 1.0),
    size: int = quantity("--size", "bytes", "Size of each request.", 4096),
    read_share: float = option("0 to 1.", 0.6),
    sequential_share: float = option("0 to 1.", 0.0),
    seed: int = option("The same seed gives the same trace.", 1),
) -> Output:
    """Make a trace of a given burstiness."""
    options = locals()  # all are passed on by name
    from campaigns.papers.prioritymeister.traces import make_trace

    made = make_trace(**options)
    return Output(made, lambda: f"{out}: {made.requests} requests, {made.seconds:.6g} s")


@traces.command()
def convert(
    trace: TraceFile,
    out: Annotated[Path, argument("New file; gzip if it ends in .gz.")],
    form: Format = "auto",
    disk: Disk = None,
    strict: Strict = False,
    completion: Completion = False,
) -> Output:
    """Write a trace of any format as the replayer reads it (plain)."""
    from campaigns.papers.prioritymeister.traces import convert as write

    count, report = write(_reader(trace, form, disk, strict, completion), out)
    if report.malformed:
        _tell(report.sentence(trace))
    made = {"file": str(out), "requests": count, "malformed": report.malformed}
    return Output(made, lambda: f"Written: {out} ({count:,} requests)")


@group.command()
def profile(
    device: Annotated[str, argument("Block device or large file; on a node also scratch or osd.")],
    out: Path = option("New file for the profile.", Path("profile.json")),
    kind: str = option("by-size, or by-distance for disks.", "by-size"),
    depth: int = option("Requests in flight, by-size.", 32),
    seconds: float = quantity("--seconds", "seconds", "Duration of each measurement.", 2.0),
    overwrite: bool = named(
        "--overwrite", "Measure writes: destroys the data on the device.", False
    ),
    node: str | None = option("Node of the testbed that has it; by default this machine.", None),
    testbed: TestbedOption = None,
) -> Output:
    """Measure with fio what requests cost a device; reads alone unless --overwrite is given."""
    from campaigns.papers.prioritymeister.apply import profile_device
    from testbed.choose import choose_ready, select
    from testbed.reach import shell_to

    shell, held = None, cast(AbstractContextManager[object], nullcontext())
    if node is not None:
        found = choose_ready(testbed)[1]
        chosen = select(found, node)[0]
        device, shell = chosen.devices.get(device, device), shell_to(found, chosen)
        held = alone(found)
    with held:
        made = profile_device(
            device,
            out,
            kind=kind,
            depth=depth,
            seconds=seconds,
            writes=overwrite,
            tell=_tell,
            shell=shell,
        )
    return Output(made, lambda: f"Written: {out}")


@group.command()
def plan(
    topology: Annotated[Path, argument("Hosts, devices and workloads, YAML.")],
) -> Output:
    """Priorities and token buckets for every workload, and the latency that they prove.

    Exit code 3: a proven latency is above its SLO.
    """
    from campaigns.papers.prioritymeister.plan import plan_of
    from campaigns.papers.prioritymeister.topology import load_topology

    made = plan_of(load_topology(topology), topology, _tell)
    return Output(made, lambda: _plan_table(made), 0 if made.met else EXIT_MISSED)


@group.command()
def place(
    topology: Annotated[Path, argument("Topology, as for plan; servers are optional.")],
) -> Output:
    """Choose a server for each workload that has none: the first where all SLOs still hold.

    Exits with 3 when a workload fits nowhere: with one workload without a server, and one
    server, this is the admission test.
    """
    from campaigns.papers.prioritymeister.plan import place as first_fit
    from campaigns.papers.prioritymeister.topology import load_topology

    with progress("place") as report:
        found = first_fit(load_topology(topology), topology, _tell, report)

    rows = (
        (
            one.workload,
            one.server,
            one.device,
            "given" if one.given else "placed" if one.server else "fits nowhere",
        )
        for one in found.places
    )
    heads = ("workload", "server", "device", "")
    return Output(found, lambda: new_table(heads, rows), 0 if found.placed else EXIT_MISSED)


def _plan_table(plan: PriorityPlan) -> Table:
    rows: list[Sequence[object]] = []
    for workload in plan.workloads:
        total = (amount(workload.bound, "s"), amount(workload.slo, "s"))
        rows.append((workload.name, "", "", "", "", *total, "yes" if workload.met else "no"))
        for stage in workload.stages:
            pairs = _pairs(stage.pairs, storage=stage.stage == "storage")
            cells = (stage.stage, stage.priority, stage.level, pairs)
            rows.append(("", *cells, amount(stage.bound, "s")))
    heads = ("workload", "stage", "priority", "level", "rate, burst", "bound", "SLO", "met")
    return new_table(heads, rows, caption=_OF_STORAGE)


@group.command()
def parameters(
    topology: TopologyFile,
    policy: PolicyOption = "pm",
    mode: ModeOption = "hold",
    depth: DepthOption = 1,
    addresses: Path | None = option(
        "JSON: addresses by host or workload, {name: [address, ...]}.", None
    ),
) -> Output:
    """Show the enforcers' parameters: those of the NFS proxy, and of every host's network.

    Plans first, where the policy's parameters come from a plan.
    """
    from campaigns.papers.prioritymeister.plan import (
        EnforcedPolicy,
        load_addresses,
        parameters_of,
        plan_of,
    )
    from campaigns.papers.prioritymeister.topology import load_topology
    from schemas.cells.prioritymeister import PLANNED

    enforced = EnforcedPolicy(policy, mode, depth)
    given = load_topology(topology)
    known = {} if addresses is None else load_addresses(addresses)
    plan = plan_of(given, topology, _tell) if policy in PLANNED else None
    made = parameters_of(given, plan, enforced, known)
    return Output(made, lambda: _parameters_table(made))


def _parameters_table(made: EnforcerParameters) -> Table:
    rows: list[Sequence[object]] = []
    for device, enforcer in made.storage.items():
        for one in enforcer["workloads"]:
            first = str(one.get("priority", one.get("slo", one["weight"])))
            pairs = _pairs(one.get("pairs", ()), storage=True)
            rows.append((device, one["name"], first, pairs))
    for host in made.network.hosts.values():
        for flow in host.flows:
            first = f"level {flow.level}, DSCP {flow.dscp}" if flow.dscp else ""
            rows.append((host.queue, flow.workload, first, _pairs(flow.pairs)))
    heads = ("where", "workload", "first", "rate, burst")
    return new_table(heads, rows, caption=_OF_STORAGE)


_OF_STORAGE = "storage: rates are shares of the device's time, bursts are its time"


def _pairs(pairs: Iterable[Sequence[float]], *, storage: bool = False) -> str:
    return "; ".join(
        f"{_percent(rate)}, {amount(burst, 's')}"
        if storage
        else f"{amount(rate, 'B/s')}, {amount(burst, 'B')}"
        for rate, burst in pairs
    )


@group.command()
def simulate(
    topology: TopologyFile,
    policy: PolicyOption = "pm",
    mode: ModeOption = "hold",
    depth: DepthOption = 1,
    network: str = option(
        "auto (the policy's own), priority, levels (by SLO), fifo, or off.", "auto"
    ),
    seed: int = option("Of noise.", 1),
    duration: float | None = quantity(
        "--duration", "seconds", "Nothing arrives from then on, such as 10min.", None
    ),
    closed: list[str] | None = option(
        "WORKLOAD=N: N requests in flight, again and again (workload L).", None
    ),
    noise: float = option("Coefficient of variation of service times.", 0.0),
) -> Output:
    """Replay the traces on virtual time: latencies next to SLOs and proven bounds.

    Exits with 1 when a bound that applies was exceeded.
    """
    from campaigns.papers.prioritymeister.simulate import (
        SimulationSetting,
        closed_from,
        simulate_topology,
    )
    from campaigns.papers.prioritymeister.topology import load_topology

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
            tell=_tell,
            progress=lambda share: report(policy, share),
        )
    broken = found.broken_bounds
    if broken:
        _tell(f"the proven bound of {', '.join(broken)} was exceeded: this is a mistake in Hotbed")
    return Output(found, lambda: _results_table(found), code=int(bool(broken)))


def _results_table(found: Results) -> Table:
    rows: list[Sequence[object]] = []
    for one in found.workloads:
        whole, latency, bound, held = one.whole, one.whole.latency, "", ""
        if one.bound is not None:
            bound = amount(one.bound.blocking_s, "s")
            held = {True: "yes", False: "NO", None: one.bound.why_not or ""}[one.bound.held]
        rows.append(
            (
                one.name,
                whole.requests,
                *(amount(t, "s") for t in (latency.p50, latency.p99, latency.p99_9, latency.max)),
                None if one.slo_s is None else amount(one.slo_s, "s"),
                whole.slo_misses,
                bound,
                held,
            )
        )
    heads = ("workload", "requests", "p50", "p99", "p99.9", "longest", "SLO", "missed")
    return new_table((*heads, "bound", "held"), rows)


@group.command()
def apply(
    topology: Path | None = argument("Its hosts have the names of the testbed's nodes.", None),
    testbed: TestbedOption = None,
    policy: PolicyOption = "pm",
    mode: ModeOption = "hold",
    depth: int | None = option("Requests at a device at a time; 0: any number.", None),
    no_network: bool = named("--no-network", "Enforce at the devices alone.", False),
    check: bool = named("--check", "Check that the applied plan is in force.", False),
    remove: bool = named(
        "--remove", "Remove the plan: default parameters, no network enforcement.", False
    ),
) -> Output:
    """Put a plan into force on a testbed with NFS servers, and check that it is.

    Proxies get their priorities and token buckets without dropping a connection; every host
    gets token buckets, priorities and DSCP for what it sends. --check exits with 1 when
    something differs. Exit code 3: the plan is in force and misses an SLO.
    """
    from campaigns.papers.prioritymeister import apply as work
    from schemas.errors import UserError
    from testbed.choose import choose_ready
    from testbed.deploy.roles import spec_of

    if (topology is not None) + check + remove != 1:
        raise UserError("give one of a topology, --check and --remove", where="hotbed pm apply")
    _, found = choose_ready(testbed)
    if remove:
        with alone(found):
            work.remove(found)
        done = {"testbed": found.name, "removed": True}
        return Output(done, lambda: f"{found.name}: nothing of a plan is in force; checked")
    if topology is None:
        result = work.check(found)
    else:
        with alone(found):
            result = work.apply(
                found,
                spec_of(found),
                topology,
                policy=policy,
                mode=mode,
                depth=depth,
                network=not no_network,
                tell=_tell,
            )
    missed = EXIT_MISSED if result.met is False else 0
    return Output(result, result.sentence, EXIT_FAILED if result.differences else missed)
