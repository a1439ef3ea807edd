"""Sources of the variation of a campaign's runs, by a mixed model of the logarithm of a metric.

A group of runs differs in controller, hot set, block and repeat only. Its model is

    log(metric) = controller + a * log(core speed)
                  + hot set + block + controller x hot set + cell in block + run to run.

The controller and the speed of a core, if the runs record it, are fixed effects. The others are
normal random effects with one variance each, fitted by REML (the likelihood is that of statsmodels'
MixedLM). A component that the runs cannot separate is left out; the others contain it. Intervals
are a parametric bootstrap's: the model is fitted again to data drawn from the fit.

In the paired log-ratio of two controllers in a block, one run each, hot set and block cancel. Every
other component counts twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.core.load import LoadedRun, ground_of, load_campaign
from schemas.durable import write_file
from schemas.errors import UserError
from schemas.precision import blocks_for, value_of
from schemas.run import OpSummary

Floats = npt.NDArray[np.float64]
Source = Literal[
    "core speed", "hot set", "block", "controller x hot set", "cell in block", "run to run"
]

FACTORS: Mapping[Source, tuple[str, ...]] = {
    "hot set": ("hot_set",),
    "block": ("block",),
    "controller x hot set": ("controller", "hot_set"),
    "cell in block": ("controller", "hot_set", "block"),
}
"""Random effects in addition to the residual, by the columns that make their levels."""

MEANING: Mapping[Source, str] = {
    "core speed": "processors are faster in one run than in another",
    "hot set": "the same for all controllers: cancels",
    "block": "the same for all controllers (draws, time, hot set if none is given): cancels",
    "controller x hot set": "only more hot sets average it out",
    "cell in block": "draws that suit one cell more: more blocks or longer cells average them out",
    "run to run": "more blocks, repeats or longer cells average it out",
}
"""Effect of each source on the paired log-ratio, or what reduces it."""

CANCELLED: tuple[Source, ...] = ("hot set", "block")
"""Sources that two controllers of a block share."""
INTERACTION: Source = "controller x hot set"
CELL: Source = "cell in block"
RUN: Source = "run to run"
UNREPEATED = "contains the cell in block, because no cell is repeated in a block"

CONTROLLER = ("controller", "setup", "policy")
"""Parameters that name a cell's controller, by kind of campaign."""
SPEED = "core_units_s"
"""Name of the measured speed of a core in a run's calibration."""
HALF_WIDTHS = (0.10, 0.07)
LEAST = 6
"""Least runs of a group."""
DRAWS = 100
"""Fits of the bootstrap."""
RATIOS = (1e-4, 1e3)
"""Bounds of a random effect's standard deviation, in those of the residual. The equations are
singular far outside of them."""


@dataclass(frozen=True)
class VariationSource:
    """One component: standard deviation of the log and its 95 % interval, share of the variance,
    and the standard deviation that it alone gives the paired log-ratio. `levels`: number of its
    values in the runs."""

    source: Source
    levels: int
    sd: float
    interval: tuple[float, float]
    share: float
    paired_sd: float
    meaning: str


@dataclass(frozen=True)
class PairedVariation:
    """Standard deviation of the paired log-ratio of two controllers in a block, its 95 % interval,
    and the blocks for a relative half-width (``0.1``) of the ratio's 95 % interval."""

    sd: float
    interval: tuple[float, float]
    blocks: Mapping[str, int]


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in controller, hot set, block and repeat only, with their components.

    Attributes:
        parameters: those that distinguish the group from the campaign's others.
        paired: one run of each controller in a block.
        floor: what stays of it if the interaction controller x hot set alone is left, which no
            longer cell and no repeat reduces; None without hot sets.
    """

    parameters: Mapping[str, Any]
    controllers: tuple[str, ...]
    runs: int
    sources: tuple[VariationSource, ...]
    paired: PairedVariation
    floor: PairedVariation | None

    @property
    def dominated(self) -> bool:
        """True if the floor has more than half of the paired log-ratio's variance."""
        return self.floor is not None and 2 * self.floor.sd**2 > self.paired.sd**2


@dataclass(frozen=True)
class Variation:
    """Sources of a metric's variation in a campaign. `left_out`: why a group has no result."""

    campaign: str
    ground: str | None
    metric: str
    groups: tuple[RunGroup, ...]
    left_out: Mapping[str, str]
    path: Path


def separate(artifacts: Path, campaign: str, metric: str) -> Variation:
    """Separate the sources of a metric's variation in a campaign's runs, and write them as JSON
    into the campaign's folder.

    Raises:
        UserError: the campaign has no runs, its runs have no such metric, or every group has too
            few of them.
    """
    folder = artifacts / campaign
    runs = load_campaign(folder).runs
    table = _table(runs, metric, str(folder))
    differing = _differing([json.loads(key) for key in table["group"].unique()])
    groups, left_out = [], {}
    for key, part in table.groupby("group", sort=True):
        parameters = {name: json.loads(str(key)).get(name) for name in differing}
        why = _too_few(part)
        if why is None:
            groups.append(components_of(part, parameters))
        else:
            left_out[label(parameters)] = why
    if not groups:
        why = "; ".join(f"{name}: {text}" for name, text in left_out.items())
        raise UserError(
            f"too few runs to separate sources of variation ({why})",
            where=folder,
            do="run a campaign that repeats its cells, such as `hotbed run dlr-variation`",
        )
    path = folder / f"variation-{metric}.json"
    found = Variation(campaign, ground_of(folder), metric, tuple(groups), left_out, path)
    body = asdict(found) | {"path": path.name}
    write_file(path, json.dumps(body, indent=1) + "\n")
    return found


def label(parameters: Mapping[str, Any]) -> str:
    """Return a short text for a group."""
    return ", ".join(f"{name}={value}" for name, value in parameters.items()) or "all runs"


def _table(runs: Sequence[LoadedRun], metric: str, where: str) -> pd.DataFrame:
    """Return a row a run: group, controller, hot_set, block, log and speed (NaN if unknown)."""
    rows = []
    for one in runs:
        value = value_of(one.summary, metric, one.run.parameters.get("op"))
        if value is None or not 0 < value < math.inf:
            continue
        rest = dict(one.run.parameters)
        names = [str(rest.pop(name)) for name in CONTROLLER if name in rest]
        variant = rest.pop("controller_parameters", None) or {}
        hot_set = rest.pop("hot_set", None)
        rows.append(
            {
                "group": json.dumps(rest, sort_keys=True),
                "controller": " ".join(names + [f"{k}={v}" for k, v in sorted(variant.items())]),
                "hot_set": -1 if hot_set is None else hot_set,
                "block": one.run.block,
                "log": math.log(value),
                "speed": float(one.run.provenance.calibration.get(SPEED) or math.nan),
            }
        )
    if not rows:
        summaries = [one.summary for one in runs]
        known = {name for each in summaries for name in each.extra}
        numbers = {
            name
            for each in summaries
            for op in each.whole
            for name, value in op
            if name in OpSummary.model_fields and isinstance(value, int | float)
        }
        raise UserError(
            f"no finished run has the metric {metric}",
            where=where,
            allowed=", ".join(sorted(known | numbers)) or "none, because no run is finished",
        )
    return pd.DataFrame(rows)


def _differing(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the parameters in which groups differ."""
    names = sorted({name for group in groups for name in group})
    return [name for name in names if len({json.dumps(one.get(name)) for one in groups}) > 1]


def _too_few(rows: pd.DataFrame) -> str | None:
    """Return why a group cannot be analysed; None if it can."""
    for column, least in (("controller", 2), ("block", 2)):
        if rows[column].nunique() < least:
            return f"fewer than {least} {column}s"
    return f"{len(rows)} runs, and {LEAST} are needed" if len(rows) < LEAST else None


def components_of(
    rows: pd.DataFrame, parameters: Mapping[str, Any], draws: int = DRAWS
) -> RunGroup:
    """Return the components of a group's runs: a row a run, with the columns controller, hot_set,
    block, log (of the metric) and speed (NaN if unknown). `draws`: fits of the bootstrap."""
    cell = list(FACTORS["cell in block"])
    # Repeats on the ground sim are equal. A residual of zero has no likelihood.
    exact = rows.duplicated(cell).any() and (rows.groupby(cell)["log"].nunique() == 1).all()
    kept = rows.drop_duplicates(cell) if exact else rows
    names = _separable(kept)
    factors = [_levels(kept, FACTORS[name]) for name in names]
    names.append("cell in block" if exact else "run to run")
    weights = [0.0 if name in CANCELLED else math.sqrt(2) for name in names]
    fixed, speed = _levels(kept, ("controller",)), _speed(kept)
    if speed is not None:
        fixed = np.column_stack([fixed, speed])
    log, draw = kept["log"].to_numpy(float), np.random.default_rng(1)
    fits = [_fit(log, fixed, factors)]
    means, sds = fits[0]
    for _ in range(draws):
        drawn = fixed @ means + draw.normal(0, sds[-1], len(log))
        for matrix, sd in zip(factors, sds, strict=False):
            drawn += matrix @ draw.normal(0, sd, matrix.shape[1])
        fits.append(_fit(drawn, fixed, factors))
    found = np.array([each for _, each in fits])  # row 0 is the estimate
    if exact:
        names.append("run to run")
        weights.append(math.sqrt(2))
        found = np.column_stack([found, np.zeros(len(found))])
    if speed is not None:
        names.insert(0, "core speed")
        weights.insert(0, math.sqrt(2) * _within(kept, speed))
        slopes = np.abs([each[-1] for each, _ in fits])
        weights[0] /= speed.std(ddof=1)
        found = np.column_stack([slopes * speed.std(ddof=1), found])
    return _described(rows, parameters, names, found, np.array(weights))


def _separable(rows: pd.DataFrame) -> list[Source]:
    """Return the random effects that the runs can separate from each other and the residual."""
    names: list[Source] = ["block"]
    if rows["hot_set"].nunique() > 1:
        names.insert(0, "hot set")
        if rows.duplicated(list(FACTORS["controller x hot set"])).any():
            names.append("controller x hot set")
    if rows.duplicated(list(FACTORS["cell in block"])).any():
        names.append("cell in block")
    return names


def _levels(rows: pd.DataFrame, columns: Sequence[str]) -> Floats:
    """Return the matrix of runs and combinations of columns: 1 where a run has the combination."""
    number = rows.groupby(list(columns)).ngroup().to_numpy()
    return np.asarray(np.eye(int(number.max()) + 1)[number], dtype=np.float64)


def _speed(rows: pd.DataFrame) -> Floats | None:
    """Return the centred logarithm of the core's speed; None if a run lacks it or all are equal."""
    log = np.log(rows["speed"].to_numpy(float))
    return None if np.isnan(log).any() or np.ptp(log) == 0 else log - log.mean()


def _within(rows: pd.DataFrame, speed: Floats) -> float:
    """Return the standard deviation of the speed within blocks."""
    blocks = _levels(rows, ("block",))
    inside = speed - blocks @ (blocks.T @ speed / blocks.sum(axis=0))
    return math.sqrt(float(inside @ inside) / (len(speed) - blocks.shape[1]))


def _fit(log: Floats, fixed: Floats, factors: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return the fixed effects' coefficients, and the standard deviations of the random effects and
    the residual."""
    from scipy.optimize import minimize  # all of these take seconds to import
    from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

    names = [str(place) for place in range(len(factors))]
    columns = [[[str(level) for level in range(one.shape[1])]] for one in factors]
    spec = VCSpec(names, columns, [[one] for one in factors])
    model = MixedLM(log, fixed, groups=np.zeros(len(log)), exog_vc=spec)
    # The model's own search steps to variances for which its equations are singular.
    model.reml, model.cov_pen = True, None
    none = np.zeros((0, 0))

    def bounded(ratios: Floats) -> Floats:
        return np.clip(np.abs(ratios), *RATIOS)

    def loss(ratios: Floats) -> float:
        return -float(model.loglike(bounded(ratios)))

    # Gradients vanish at a variance of zero. Powell's method uses none.
    search = minimize(
        loss, np.ones(len(factors)), method="Powell", options={"xtol": 1e-5, "ftol": 1e-10}
    )
    ratios = bounded(search.x)
    means = model.get_fe_params(none, ratios**2)[0]
    residual = math.sqrt(model.get_scale(means, none, ratios**2))
    return np.asarray(means, dtype=float), residual * np.append(ratios, 1.0)


def _described(
    rows: pd.DataFrame,
    parameters: Mapping[str, Any],
    names: Sequence[Source],
    found: Floats,
    weights: Floats,
) -> RunGroup:
    """Return a group's result. `found`: standard deviations by fit and source; `weights`: what
    each counts in the paired log-ratio."""
    total = float((found[0] ** 2).sum())
    sources = tuple(
        VariationSource(
            name,
            _count(rows, name),
            float(sds[0]),
            _interval(sds),
            float(sds[0] ** 2) / total if total else 0.0,
            float(weight * sds[0]),
            MEANING[name] if name != RUN or CELL in names else UNREPEATED,
        )
        for name, sds, weight in zip(names, found.T, weights, strict=True)
    )
    alone = (found * weights) ** 2
    floor = None
    if INTERACTION in names:
        floor = _paired(np.sqrt(alone[:, names.index(INTERACTION)]))
    return RunGroup(
        parameters,
        tuple(sorted(rows["controller"].unique())),
        len(rows),
        sources,
        _paired(np.sqrt(alone.sum(axis=1))),
        floor,
    )


def _count(rows: pd.DataFrame, name: Source) -> int:
    """Return the number of values of a source in the runs."""
    if name == "core speed":
        return int(rows["speed"].nunique())
    return int(rows.groupby(list(FACTORS[name])).ngroups) if name in FACTORS else len(rows)


def _interval(fits: Floats) -> tuple[float, float]:
    low, high = np.quantile(fits[1:], [0.025, 0.975])
    return float(low), float(high)


def _paired(fits: Floats) -> PairedVariation:
    sd = float(fits[0])
    blocks = {f"{half:g}": blocks_for(sd, math.log1p(half)) for half in HALF_WIDTHS}
    return PairedVariation(sd, _interval(fits), blocks)
