"""Parameters of controllers along an axis: each curve is one way to run a controller."""

from __future__ import annotations

import json
from collections import defaultdict

import pandas as pd


def usual(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the usual parameters, by controller and store size: the defaults if a
    run has them, else the parameters of most runs (a campaign may let them grow with the store).
    Other parameters are variants; no curve mixes variants."""
    if rows.empty:
        return rows
    groups = rows.groupby(["controller", "osds"], dropna=False)
    kept = [part[part["variant"] == _most(part["variant"])] for _, part in groups]
    return pd.concat(kept).sort_index()


def _most(variants: pd.Series) -> str:
    counts = variants.value_counts()
    return str(min(counts.index, key=lambda text: (text != "{}", -counts[text], text)))


def told(rows: pd.DataFrame) -> str:
    """Return the non-default parameters of a controller's runs, for people. A value proportional to
    the number of OSDs is shown per OSD."""
    found: dict[str, dict[float, object]] = defaultdict(dict)
    for osds, variant in zip(rows["osds"], rows["variant"], strict=True):
        for name, value in json.loads(variant).items():
            found[name][float(osds)] = value
    return ", ".join(f"{name} {_value(found[name])}" for name in sorted(found)) or "–"


def _value(by_size: dict[float, object]) -> str:
    """Format values by number of OSDs."""
    values = [by_size[osds] for osds in sorted(by_size)]
    if all(value == values[0] for value in values):
        return f"{values[0]:,}" if isinstance(values[0], int) else f"{values[0]}"
    shares = {
        round(value / osds, 9) for osds, value in by_size.items() if isinstance(value, (int, float))
    }
    if len(shares) == 1:
        return f"{shares.pop():g} an OSD"
    return " to ".join(f"{value:,}" if isinstance(value, int) else f"{value}" for value in values)
