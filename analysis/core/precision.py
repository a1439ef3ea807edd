"""Statistics of claims for grids that ask for a claim's precision (`schemas.precision`).

Ratios within blocks and shares of runs have a stopping rule, because reports use the same interval
for them. A block's value is the claim on the block's runs alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from analysis.core.claims import Compute, Evidence, Measured
from analysis.core.evidence import Pair, ShareOf
from analysis.core.load import SIM, LoadedRun, load_campaign
from analysis.core.papers import SHORT_NAMES, Part, paper
from schemas.campaign import Campaign
from schemas.errors import UserError, nearest
from schemas.precision import Statistic


def statistic_of(campaign: Campaign, name: str) -> Statistic:
    """Return the statistic of a claim of the campaign's paper. UserError: there is no such claim
    about the campaign's kind and ground, or no rule for it."""
    own = campaign.name.partition("-")[0]
    short = campaign.paper if campaign.paper in SHORT_NAMES else own
    claims = [
        (part, claim)
        for part in paper(short).parts
        if part.kind == campaign.kind and part.simulated in (None, campaign.ground == SIM)
        for claim in part.claims
    ]
    found = [(part, claim) for part, claim in claims if claim.id == name]
    if not found:
        raise UserError(
            f"{short} has no claim {name!r} about such runs",
            do=nearest(name, [claim.id for _, claim in claims])
            or "see the claims in docs/reference-figures.md",
        )
    if found[0][1].kind == "exact":
        raise UserError(f"{name} holds by construction or not at all, and has no interval")
    computed = [(part, claim.compute) for part, claim in found]
    if all(isinstance(one, ShareOf) for _, one in computed):
        return Statistic("looks", partial(_by_block, computed, lambda share: float(share >= 1)))
    ratios = [
        (part, replace(one, function=None))
        for part, one in computed
        if isinstance(one, Pair) and one.by == "ratio" and one.cluster is None
    ]
    if len(ratios) < len(found):
        raise UserError(
            f"{name} is neither one ratio within blocks nor a share of runs, and has no rule",
            do="ask for the precision of a metric",
        )
    return Statistic("two-stage", partial(_by_block, ratios, math.log))


def _by_block(
    computed: Sequence[tuple[Part, Compute]],
    scale: Callable[[float], float],
    folder: Path,
    run_ids: Collection[str],
) -> dict[int, float]:
    """Return the value of every block with one, on the scale of the rule. Of the parts of the
    report that have the claim, one takes a grid's runs."""
    runs: dict[int, list[LoadedRun]] = {}
    for loaded in load_campaign(folder, run_ids).runs if folder.is_dir() else ():
        runs.setdefault(loaded.run.block, []).append(loaded)
    found = {}
    for block, its in runs.items():
        for part, compute in computed:
            mine = [loaded for loaded in its if part.takes(loaded.run)]
            measured = compute(Evidence(part.tabulate(mine), mine)) if mine else None
            if isinstance(measured, Measured):
                found[block] = scale(measured.estimate.value)
    return found
