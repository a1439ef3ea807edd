"""Table 3 with the paper's values next to ours, and all policies in all stages."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.core.figures import Table
from analysis.core.stats import Estimate, mean
from analysis.papers.mos.scale_runs import (
    LABELS,
    MOS,
    MOS_PP,
    POLICIES,
    STAGES,
    TENANTS,
    cells,
    gain,
    mean_of,
    measure,
    paired,
)

PAPERS = {
    "A": (4444.0, 4994.0, 12.4),
    "B": (3828.0, 4429.0, 15.7),
    "C": (2.0e9, 2.3e9, 15.0),
    "D": (1.6e9, 1.9e9, 18.8),
}
"""Table 3: MOS, MOS++, and the improvement of MOS++ that the text states, in percent."""

PROFILES = {"paper": "model of section 3's measurements", "local": "model of local measurements"}


def tables(table: pd.DataFrame) -> list[Table]:
    """Return table 3 for either profile, and the results of every policy in every stage."""
    found = [one for one in (_table_3(table), _stages(table)) if one.rows]
    return found


def _table_3(table: pd.DataFrame) -> Table:
    heads = (
        "workload",
        "profile",
        "MOS, paper",
        "MOS, ours",
        "MOS++, paper",
        "MOS++, ours",
        "gain, paper",
        "gain, ours",
        "n",
    )
    rows = []
    for profile, words in PROFILES.items():
        pairs = paired(table, MOS_PP, MOS, profile=profile)
        for tenant in TENANTS if pairs else ():
            one = gain(pairs, (tenant,))
            assert one is not None
            stated = PAPERS[tenant]
            ours = [mean([mean_of(pair[at], tenant) for pair in pairs]) for at in (1, 0)]
            rows.append(
                (
                    tenant,
                    words,
                    _amount(stated[0], tenant),
                    _interval(ours[0], tenant),
                    _amount(stated[1], tenant),
                    _interval(ours[1], tenant),
                    f"{stated[2]:g} %",
                    _percent(one),
                    str(len(pairs)),
                )
            )
    title = (
        "Table 3: average performance, the paper's beside ours (loads are ours, see docs/mos.md)"
    )
    return Table("table-3", title, heads, tuple(rows))


def _stages(table: pd.DataFrame) -> Table:
    heads = ("policy", "workload", *(f"stage {stage}" for stage in STAGES), "all", "n")
    rows = []
    for policy in POLICIES:
        folders: list[Path] = cells(table, policy)["folder"].tolist()
        for tenant in TENANTS if folders else ():
            values = [
                _interval(mean([mean_of(folder, tenant, span) for folder in folders]), tenant)
                for span in (*STAGES.values(), None)
            ]
            rows.append((LABELS[policy], tenant, *values, str(len(folders))))
    title = "What every policy came to, by stage (model of section 3's measurements)"
    return Table("stages", title, heads, tuple(rows))


def _amount(value: float, tenant: str) -> str:
    if measure(tenant) == "bytes_s":
        return f"{value / 1e9:.3g} GB/s"
    return f"{value:,.0f} QPS"


def _interval(found: Estimate, tenant: str) -> str:
    text = _amount(found.value, tenant)
    if found.n < 2:
        return text
    half = (found.high - found.low) / 2
    return f"{text} ± {_amount(half, tenant).split()[0]}"


def _percent(found: Estimate) -> str:
    text = f"{100 * (found.value - 1):+.1f} %"
    if found.n < 2:
        return text
    return f"{text} [{100 * (found.low - 1):+.1f}, {100 * (found.high - 1):+.1f}]"
