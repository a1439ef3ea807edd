"""MOS and MOS++ on fifty machines (section 8.2): runs and claims.

COSPerf simulates the machines, as in the paper. All policies of a block have the same pool and
loads, drawn from the block's seed. n counts runs. Measures, as in figures 14 and 15: requests/s of
small objects (A, B), bytes/s of large ones (C, D). The paper's "up to" for curves over time is read
as the 15 minutes with the largest lead of MOS++, on average over all blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from analysis.core.claims import CHANGE, Claim, Compute, declared, unreachable
from analysis.core.evidence import (
    BLOCK,
    Pair,
    Rows,
    extreme,
    extreme_over,
    mean_of,
    mean_over,
    quotient,
    where,
)
from analysis.core.load import LoadedRun, last_runs, origin, read_report
from analysis.core.stats import Estimate, change, fraction
from analysis.papers.mos.claims import LABELS, MOS, MOS_PP, STATIC, valued
from schemas.cells.mos import COSPERF
from schemas.claim import SHARE

# ---- Runs ----

SERIES_FILE = "microstores.json"
TENANTS = ("A", "B", "C", "D")
LEARNING = "mos-pp-learning"
POLICIES = (STATIC, MOS, "mos-at-once", MOS_PP, "mos-pp-resource", LEARNING)

STANDARD = COSPERF.defaults(*(name for name in COSPERF.fields if name != "policy"))
"""Section 8.2's simulation, with Hotbed's reading of details that the paper omits."""

RESOURCES = {
    "proxy_cores": "cores of proxies",
    "storage_cores": "cores of storage servers",
    "network": "network",
}
"""Resources of the pool that microstores hold."""

WINDOW_MINUTES = 15.0
STAGES = {1: (0.0, 210.0), 2: (210.0, 420.0), 3: (420.0, 630.0), 4: (630.0, 840.0)}
CROWDED = (420.0, 495.0)
"""Stage 3 until C and D decrease, "up until around 500 min", in whole windows."""

BAND = (0.65, 0.85)
"""Utilization that both algorithms leave as it is."""
MORE_THAN_NEEDED = (300.0, 420.0)
"""Stage 2 "starting around 310 min", in whole windows."""

Span = tuple[float, float]
"""Begin and end, in the paper's minutes."""
Windows = dict[str, list[float]]
"""Middles of windows (``minute``) and means in them (``value``)."""
Report = Mapping[str, Any]
"""A run's `SERIES_FILE`."""


def table(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """Return one row per run: origin, ``loaded``, the cell's parameters, all summary numbers."""
    rows = [
        origin(index, loaded.run)
        | {"loaded": loaded}
        | COSPERF.row(loaded.run.parameters)
        | loaded.summary.extra
        for index, loaded in enumerate(runs)
    ]
    return last_runs(rows, ("policy", *STANDARD), more=("loaded",))


def cells(rows: pd.DataFrame, policy: str, **setting: Any) -> pd.DataFrame:
    """Return the runs of a policy as in section 8.2, except for `setting`. Parameters that the
    policy's cells lack are ignored."""
    known = COSPERF.model_of({"policy": policy}).model_fields
    wanted = {k: v for k, v in (STANDARD | setting).items() if k in known}
    return where(rows, policy=policy, **wanted)


def measure(tenant: str) -> str:
    """Return the measure of a tenant, by its name in the series."""
    return "requests_s" if tenant in ("A", "B") else "bytes_s"


def throughput(loaded: LoadedRun, tenant: str) -> pd.Series[float]:
    """Return a tenant's throughput (see `measure`) in each window of `WINDOW_MINUTES`, indexed by
    the window's middle in the paper's minutes."""
    return _of_tenant(loaded, tenant, measure(tenant), "throughput")


def held_share(loaded: LoadedRun, resource: str, stores: str = "") -> pd.Series[float]:
    """Return the share of a pool resource that the given microstores hold, by window; all hold it
    without `stores`."""

    def held(data: Report) -> Any:
        each = [data["held"][store][resource] for store in stores or data["held"]]
        return np.sum(each, axis=0) / data["pool"][resource]

    return _by_window(loaded, f"{resource} held by {stores or 'all'}", held)


def utilization(loaded: LoadedRun, tenant: str) -> pd.Series[float]:
    """Return the utilization of a tenant's busiest resource, by window."""
    return _of_tenant(loaded, tenant, "utilization")


def _of_tenant(loaded: LoadedRun, tenant: str, series: str, name: str = "") -> pd.Series[float]:
    """Return one of a tenant's series, by window; `name`: its name, if it is another one."""
    text = f"{name or series} of {tenant}"
    return _by_window(loaded, text, lambda data: data["tenants"][tenant][series])


def _by_window(loaded: LoadedRun, name: str, series: Callable[[Report], Any]) -> pd.Series[float]:
    def windows(run: LoadedRun) -> Windows:
        data = read_report(run.file(SERIES_FILE))
        return _windows(data, series(data))

    found = loaded.reduced(name, windows)
    return pd.Series(found["value"], index=found["minute"])


def _windows(data: Report, each: Any) -> Windows:
    values, seconds = np.array(each), np.array(data["seconds"])
    stretch = STAGES[4][1] / data["minutes"]
    middles = (np.array(data["t_s"]) - seconds / 2) / 60 * stretch
    which = (middles // WINDOW_MINUTES).astype(int)
    order = np.unique(which)
    means = [float(np.average(values[which == at], weights=seconds[which == at])) for at in order]
    return {"minute": ((order + 0.5) * WINDOW_MINUTES).tolist(), "value": means}


def within(windows: pd.Series[float], span: Span | None) -> pd.Series[float]:
    """Return the windows that begin between two minutes; None: all."""
    if span is None:
        return windows
    begins = windows.index.to_numpy(float) - WINDOW_MINUTES / 2
    return windows[(begins >= span[0] - 1e-9) & (begins < span[1] - 1e-9)]


def by_tenant(rows: pd.DataFrame, tenants: Iterable[str] = TENANTS) -> pd.DataFrame:
    """Return a row for each run and tenant, with the added columns ``tenant`` and ``rate``: mean
    throughput over all stages."""
    each = [
        rows.assign(tenant=tenant, rate=[throughput(one, tenant).mean() for one in rows["loaded"]])
        for tenant in tenants
    ]
    return pd.concat(each, ignore_index=True)


def gain(
    treated: pd.DataFrame, baseline: pd.DataFrame, tenants: Iterable[str] = TENANTS
) -> Estimate | None:
    """Return the geometric mean of throughput ratios, over blocks and a block's tenants."""
    top, bottom = (by_tenant(rows, tenants) for rows in (treated, baseline))
    return quotient(top, bottom, "rate", keys=(*BLOCK, "tenant"), cluster="seed")


# ---- Claims ----

ERRORS = (0.0, 0.1, 0.2, 0.3)
"""Relative errors that are put into cospurf."""

AVERAGES = {"A": 1.124, "B": 1.157, "C": 1.15, "D": 1.188}
"""Section 8.2 and Table 3."""


_claim = partial(declared, prefix="mos-sim", paper="mos")
_within = partial(_claim, value=1.0, rule="within")
_beyond = partial(_claim, stated=False)
_share_claim = partial(_claim, unit=SHARE)


def _rows(policy: str, value: Callable[[LoadedRun], float]) -> Rows:
    """Select a policy's runs, with the added column ``value``."""
    return valued(partial(cells, policy=policy), value)


def _not_both(treated: str, baseline: str) -> str:
    return f"no block was run with both {LABELS[treated]} and {LABELS[baseline]}"


def _tenants_of(policy: str, tenants: str, **setting: Any) -> Rows:
    return lambda runs: by_tenant(cells(runs, policy, **setting), tenants)


def _gain(treated: Rows, baseline: Rows, why: str, against: str | None = None) -> Pair:
    """Compute the mean gain over all stages, as the geometric mean over the rows' tenants."""
    keys = (*BLOCK, "tenant")
    return Pair(treated, baseline, "rate", why, keys=keys, cluster="seed", against=against)


def average(treated: Rows, baseline: Rows, why: str, against: str | None = None) -> Compute:
    """Compute `_gain`; the note lists the tenants."""
    return mean_over(_gain(treated, baseline, why, against), "tenant", text=str)


def over_mos(
    tenants: str = "ABCD", baseline: str = MOS, treated: str = MOS_PP, **setting: Any
) -> Compute:
    """Compute the mean gain of MOS++, or a variant, over MOS or another policy with the same
    setting."""
    return (average if len(tenants) > 1 else _gain)(
        _tenants_of(treated, tenants, **setting),
        _tenants_of(baseline, tenants, **setting),
        _not_both(treated, baseline),
        baseline,
    )


def most(tenant: str, span: Span) -> Compute:
    """Compute the largest gain of MOS++ over MOS in a window between two minutes."""

    def by_window(policy: str) -> Rows:
        def rows(runs: pd.DataFrame) -> pd.DataFrame:
            found = cells(runs, policy)
            return pd.DataFrame(
                [
                    (seed, ground, minute, rate)
                    for seed, ground, loaded in zip(
                        found["seed"], found["ground"], found["loaded"], strict=True
                    )
                    for minute, rate in within(throughput(loaded, tenant), span).items()
                ],
                columns=["seed", "ground", "minute", "rate"],
            )

        return rows

    sides = by_window(MOS_PP), by_window(MOS)
    pair = Pair(*sides, "rate", _not_both(MOS_PP, MOS), against=MOS)
    return extreme_over(pair, "minute", "largest", text=lambda minute: f"{minute:.0f}")


def everything_held(loaded: LoadedRun) -> float:
    """Return the maximum held share of the pool's least used resource in a window of stage 3 until
    C and D decrease: all resources are used at least this much."""
    return min(float(within(held_share(loaded, resource), CROWDED).max()) for resource in RESOURCES)


def large_network(loaded: LoadedRun) -> float:
    """Return the share of the network that C's and D's microstores hold in stage 2."""
    return float(within(held_share(loaded, "network", "CD"), STAGES[2]).mean())


def largest_jump(loaded: LoadedRun, tenants: str = "AB", span: Span = STAGES[1]) -> float:
    """Return the largest rise in a tenant's rate between quarters of an hour, relative to the rate
    at the end of the span; mean over the tenants."""
    jumps = []
    for tenant in tenants:
        inside = within(throughput(loaded, tenant), span).to_numpy()
        jumps.append(float(np.diff(inside).max() / inside[-1]))
    return float(np.mean(jumps))


def _until(windows: pd.Series[float], minute: float) -> float:
    """Return the value of the last window that ends by a minute."""
    return float(windows[windows.index.to_numpy(float) <= minute - WINDOW_MINUTES / 2].iloc[-1])


def _added(
    tenants: str, span: Span, resources: Iterable[str] = RESOURCES
) -> Callable[[LoadedRun], float]:
    """Compute the change of the held share of resources between two minutes, as their mean."""

    def added(loaded: LoadedRun) -> float:
        held = [held_share(loaded, resource, tenants) for resource in resources]
        return float(np.mean([_until(one, span[1]) - _until(one, span[0]) for one in held]))

    return added


def _share_of_windows(
    tenants: str, span: Span, low: float, high: float
) -> Callable[[LoadedRun], float]:
    """Compute the share of windows with a utilization between two limits, mean over tenants."""

    def part(loaded: LoadedRun) -> float:
        found = [within(utilization(loaded, tenant), span) for tenant in tenants]
        return float(np.mean([one.between(low, high).mean() for one in found]))

    return part


def _linearity(loaded: LoadedRun) -> float:
    """Return R2 of the regression of A's or B's rate on time in stage 1, the smaller one."""
    both = [within(throughput(loaded, tenant), STAGES[1]) for tenant in "AB"]
    return min(1.0, *(float(np.corrcoef(one.index, one)[0, 1] ** 2) for one in both))


def _kept(loaded: LoadedRun) -> float:
    """Return the least rate of a tenant in the first window of stage 4 over the window before."""
    begins = STAGES[4][0]
    rates = [throughput(loaded, tenant) for tenant in TENANTS]
    return min(_until(one, begins + WINDOW_MINUTES) / _until(one, begins) for one in rates)


def _rise_of_b(loaded: LoadedRun) -> float:
    """Return B's mean rate in stage 4 over its rate at the end of stage 3."""
    found = throughput(loaded, "B")
    return float(within(found, STAGES[4]).mean() / _until(found, STAGES[4][0]))


def _within_sla(loaded: LoadedRun) -> float:
    """Return the share of stage 1's windows in which A and B have the promised latency, mean of
    both; NaN without a journal."""

    def limits(run: LoadedRun) -> dict[str, float]:
        head = run.journal()[:1]
        tenants = head[0]["parameters"]["tenants"] if head else {}
        return {name: one["sla"]["latency_ms"] / 1e3 for name, one in tenants.items() if name < "C"}

    met = [
        (within(_of_tenant(loaded, name, "latency_s", "latency"), STAGES[1]) <= limit).mean()
        for name, limit in loaded.reduced("latency SLAs", limits).items()
    ]
    return float(np.mean(met)) if met else np.nan


def _large_network_use(loaded: LoadedRun) -> float:
    """Return the mean utilization of C's and D's network while MOS has more than needed; NaN
    without a journal."""

    def used(run: LoadedRun) -> list[float]:
        begins, ends = (60 * at for at in MORE_THAN_NEEDED)
        return [
            store["utilization"]["network"]
            for line in run.journal()
            if "observation" in line and begins <= line["t_s"] < ends
            for store in line["observation"]["microstores"]["stores"]
            if store["name"] in ("C", "D")
        ]

    found = loaded.reduced("network utilization of C and D", used)
    return min(1.0, float(np.mean(found))) if found else np.nan


def _cores(loaded: LoadedRun) -> float:
    """Return the cores of the pool."""

    def cores(run: LoadedRun) -> float:
        pool = read_report(run.file(SERIES_FILE))["pool"]
        return float(pool["proxy_cores"] + pool["storage_cores"])

    return loaded.reduced("cores", cores)


def _of_run(policy: str, value: Callable[[LoadedRun], float], **more: Any) -> Compute:
    """Compute the mean of a value over a policy's runs."""
    return mean_of(
        _rows(policy, value), "value", f"no run of {LABELS[policy]} has this value", **more
    )


def _compared(treated: str, baseline: str, value: Callable[[LoadedRun], float], **by: Any) -> Pair:
    """Compare a value of two policies' runs within blocks; `by`: see `Pair`."""
    sides = _rows(treated, value), _rows(baseline, value)
    return Pair(*sides, "value", _not_both(treated, baseline), against=baseline, **by)


_BOTH = ((MOS, ""), (MOS_PP, "-pp"))
"""Policies of a statement about both, with the ends of its ids."""

_PAPER: tuple[Claim, ...] = (
    *(
        _claim(
            f"stage-{stage}-{tenant.lower()}",
            figure,
            f"Stage {stage}{until}: MOS++ outperforms MOS by up to {100 * (value - 1):.0f} % for "
            f"workload {tenant}",
            most(tenant, span),
            value=value,
            family=f"mos-sim-stage-{stage}",
        )
        for stage, tenant, value, figure, span, until in (
            (3, "A", 1.25, "14", CROWDED, ", until minute 500"),
            (3, "D", 1.31, "15", CROWDED, ", until minute 500"),
            (4, "A", 1.33, "14", STAGES[4], ""),
            (4, "B", 1.26, "14", STAGES[4], ""),
        )
    ),
    *(
        _claim(
            f"average-{tenant.lower()}",
            "table3",
            f"On average over all stages MOS++ achieves {100 * (value - 1):.3g} % more for "
            f"workload {tenant}",
            over_mos(tenant),
            value=value,
            family="mos-sim-small" if tenant in "AB" else "mos-sim-large",
        )
        for tenant, value in AVERAGES.items()
    ),
    *(
        _within(
            f"all-used{suffix}",
            "14",
            f"From the beginning of stage 3 {LABELS[policy]} uses all resources (the largest share "
            "of its least used resource: proxies' cores, storage servers' cores or network; read "
            "as within 10 %)",
            _of_run(policy, everything_held, of=fraction),
            tolerance=0.1,
            unit=SHARE,
            no_effect=1.0,
        )
        for policy, suffix in _BOTH
    ),
    _claim(
        "just-enough",
        "15",
        "In stage 2 MOS gives C and D more than needed: more of the network than MOS++ does",
        _compared(MOS, MOS_PP, large_network),
    ),
    _claim(
        "smoother",
        "14",
        "In stage 1 MOS++ makes no sudden spikes: A's and B's largest rise within a quarter of an "
        "hour is smaller than with MOS",
        _compared(MOS_PP, MOS, largest_jump),
        larger=False,
    ),
)


_STATEMENTS: tuple[Claim, ...] = (
    _claim(
        "most",
        "table3",
        "With the same resources MOS++ achieves up to 18.8 % more than MOS (section 10; average of "
        "the tenant that gains most)",
        extreme([(f"workload {x}", over_mos(x)) for x in TENANTS], "largest", complete=True),
        value=max(AVERAGES.values()),
        baseline=MOS,
    ),
    _claim(
        "cores",
        "table3",
        "The 50 machines have 456 cores",
        _of_run(MOS, _cores),
        value=456.0,
        unit="cores",
        kind="exact",
        rule="within",
        tolerance=0.0,
        machines=False,
    ),
    _share_claim(
        "linear",
        "14",
        "In stage 1 MOS++ lets A and B increase their QPS almost linearly (R2 over time of the "
        "less linear one, read as above 0.9)",
        _of_run(MOS_PP, _linearity, of=fraction),
        no_effect=0.9,
    ),
    _share_claim(
        "stage-1-sla",
        "14",
        "In stage 1 MOS++ makes sure that SLAs are met (share of time with the latency promised to "
        "A and B)",
        _of_run(MOS_PP, _within_sla, of=fraction),
    ),
    _share_claim(
        "network-use",
        "15",
        "From about minute 310 MOS lowers the network's utilization from 95 % to 85 % (C and D, "
        "until stage 3)",
        _of_run(MOS, _large_network_use, of=fraction),
        value=0.85,
        no_effect=0.95,
        larger=False,
    ),
    _claim(
        "spike",
        "15",
        "From about minute 310 MOS causes a spike: C's and D's largest rise within a quarter of an "
        "hour is larger than with MOS++",
        _compared(MOS, MOS_PP, partial(largest_jump, tenants="CD", span=MORE_THAN_NEEDED)),
    ),
    _claim(
        "responds",
        "15",
        "MOS quickly responds to a sudden increase (section 5; share of the first hour of stage 2 "
        "in which C and D are busier than 85 %, less Static's)",
        _compared(
            MOS, STATIC, _share_of_windows("CD", (210.0, 270.0), BAND[1], np.inf), by="change"
        ),
        unit=CHANGE,
        larger=False,
    ),
    *(
        _claim(
            f"{name}{suffix}",
            figure,
            f"{statement} ({LABELS[policy]})",
            _of_run(policy, value, of=change),
            unit=CHANGE,
            larger=larger,
            family=f"mos-sim-{name}",
        )
        for name, figure, statement, value, larger in (
            (
                "stage-2-adds",
                "15",
                "In stage 2 C and D are given network",
                _added("CD", STAGES[2], ("network",)),
                True,
            ),
            (
                "stage-3-reclaims",
                "15",
                "After minute 500 resources of C and D are reclaimed",
                _added("CD", (490.0, STAGES[3][1])),
                False,
            ),
            (
                "stage-4-adds",
                "14",
                "In stage 4 A and B are given what stage 3 freed",
                _added("AB", STAGES[4]),
                True,
            ),
        )
        for policy, suffix in _BOTH
    ),
    *(
        _share_claim(
            f"{name}{suffix}",
            "14",
            f"{statement} utilization stays within 65 to 85 % (share of quarters of an hour, "
            f"{LABELS[policy]})",
            _of_run(policy, _share_of_windows(tenants, span, *BAND), of=fraction),
            family=f"mos-sim-{name}",
        )
        for name, statement, tenants, span in (
            ("stage-1-band", "In stage 1 A's and B's", "AB", STAGES[1]),
            ("stage-4-band", "In stage 4 A's", "A", STAGES[4]),
        )
        for policy, suffix in _BOTH
    ),
    *(
        _claim(
            f"stage-4-rise-b{suffix}",
            "14",
            f"In stage 4 B's low throughput is quickly detected and rises ({LABELS[policy]})",
            _of_run(policy, _rise_of_b, logarithmic=True),
            family="mos-sim-stage-4-rise-b",
            baseline="stage-3",
        )
        for policy, suffix in _BOTH
    ),
    *(
        _claim(
            f"no-loss{suffix}",
            "14",
            f"No tenant sees a loss as the workload shifts to stage 4 ({LABELS[policy]}; a quarter "
            "of an hour over the one before, of the tenant that loses most, read as at least 85 %)",
            _of_run(policy, _kept, logarithmic=True),
            no_effect=0.85,
            family="mos-sim-no-loss",
            baseline="stage-3",
        )
        for policy, suffix in _BOTH
    ),
    _claim(
        "two-causes",
        "14",
        "MOS++ is ahead by containers, even without its optimiser",
        "no policy divides the pool by containers without the optimiser",
        baseline=MOS,
    ),
    unreachable(
        "levels",
        "table3",
        "Averages of 4444, 3828 QPS and 2, 1.6 GB/s with MOS",
        "the paper's text states no loads, on which they depend",
        prefix="mos-sim",
        paper="mos",
        baseline=MOS,
    ),
)

_BEYOND: tuple[Claim, ...] = (
    *(
        _beyond(
            f"{name}-{100 * error:.0f}",
            "error",
            f"With a cospurf from {source}, then distorted by {100 * error:.0f} %, MOS++ that "
            "learns is ahead of MOS, on average over workloads and stages",
            over_mos(treated=LEARNING, model_error=error, **setting),
        )
        for name, source, setting in (
            ("error", "other runs than the judge", {}),
            ("own-runs-error", "the judge's own runs", {"runs": "same"}),
        )
        for error in ERRORS
    ),
    *(
        _beyond(
            f"error-costs{suffix}",
            "error",
            f"A cospurf that is 30 % wrong costs {which} performance",
            average(
                _tenants_of(LEARNING, "ABCD", runs="same", model_error=0.3, **setting),
                _tenants_of(LEARNING, "ABCD", runs="same", **setting),
                "no block was run with a cospurf that is right and one that is wrong",
            ),
            baseline="mos-pp-own-runs",
            larger=False,
        )
        for suffix, which, setting in (
            ("", "MOS++ that learns", {}),
            ("-without-learning", "a MOS++ that does not correct it", {"learns": False}),
        )
    ),
    _within(
        "other-runs-cost",
        "error",
        "A cospurf from other runs than the judge costs MOS++ that learns nothing (over one from "
        "the judge's own; read as within 5 %)",
        average(
            _tenants_of(LEARNING, "ABCD"),
            _tenants_of(LEARNING, "ABCD", runs="same"),
            "no block was run with both",
        ),
        tolerance=0.05,
        stated=False,
        baseline="mos-pp-own-runs",
    ),
    *(
        _beyond(name, "table3", f"{words}, MOS++ is ahead of MOS", over_mos(**setting))
        for name, words, setting in (
            ("local", "With a model of this project's own measurements", {"profile": "local"}),
            ("costs", "If reconfigurations take ten times as long", {"cost_factor": 10.0}),
        )
    ),
    _beyond(
        "static",
        "table3",
        "MOS++ is ahead of a static division into equal microstores",
        over_mos(baseline=STATIC),
    ),
)

CLAIMS: tuple[Claim, ...] = (*_PAPER, *_STATEMENTS, *_BEYOND)
