"""Comparison of a rerun with its bundle: bit by bit where the same code and seeds must give the
same results, and claim by claim with intervals where machines were involved.

Cells are matched by parameters and block; only cells on both sides count. A claim is computed for
each block of both sides; the differences of the blocks' values have a paired t interval. If a claim
cannot be computed for single blocks, the two intervals are taken to be independent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from analysis.bundle.describe import read_record
from analysis.bundle.verify import Difference, differences
from analysis.comparison.build import read
from analysis.core.claims import Claim, Evidence, Measured, evaluate
from analysis.core.load import LoadedRun, load_campaign, run_folders
from analysis.core.papers import Part, paper
from analysis.core.report import paper_short_name
from analysis.core.stats import Estimate, mean, ratio
from schemas.claim import ClaimResult
from schemas.comparison import Comparison

MOST_BLOCKS = 60
"""Maximum number of blocks for which a claim is computed block by block; above it, intervals do."""
_FILES = ("journal.jsonl", "samples.parquet", "latency.parquet", "requests.parquet")

_COSTS = ("cost_", "simulated_cpu_s")
"""Prefixes of summary numbers that are costs of computing it, not results."""

Pairs = Sequence[tuple[LoadedRun, LoadedRun]]
Scale = Callable[[float], float]
Outcome = Literal["identical", "agrees", "differs", "one run", "not run"]
_HELD = ("identical", "agrees", "differs")


@dataclass(frozen=True)
class ClaimAgain:
    """A claim then and now, on the cells that both sides have.

    Attributes:
        change: ``ratio`` of the new value to the bundled one (of 1 + value if the unit is a
            relative change), or their ``difference``.
        estimate: the change with a 95 % interval; None without an interval.
        paired: True if the change was computed block by block.
    """

    id: str
    figure: str
    statement: str
    unit: str
    bundled: ClaimResult
    again: ClaimResult
    change: Literal["ratio", "difference"]
    estimate: Estimate | None
    paired: bool

    @property
    def outcome(self) -> Outcome:
        """Result of the comparison."""
        if self.bundled.measured is None or self.again.measured is None:
            return "not run"
        if self.bundled.measured == self.again.measured and self.bundled.ci95 == self.again.ci95:
            return "identical"
        if self.estimate is None:
            return "one run"
        none = 1.0 if self.change == "ratio" else 0.0
        return "agrees" if self.estimate.low <= none <= self.estimate.high else "differs"

    @property
    def same_result(self) -> bool:
        """True if effect and size are the same."""
        then, now = self.bundled, self.again
        return (then.effect, then.size) == (now.effect, now.size)

    @property
    def contradicts(self) -> bool:
        """True if the value differs, and effect or size too. An inconclusive bundle cannot be
        contradicted, and an inconclusive rerun contradicts only if its effect is smaller."""
        if self.outcome != "differs" or self.same_result:
            return False
        if self.bundled.effect == "inconclusive":
            return False
        return self.again.effect != "inconclusive" or self._is_less

    @property
    def _is_less(self) -> bool:
        """True if the value moved towards no effect; for a claim of equality, away from the stated
        value."""
        stated, none = self.bundled.paper_value, self.bundled.no_effect
        if none is None:
            none = 1.0 if self.unit == "ratio" else 0.0
        then, now = (one.measured or 0.0 for one in (self.bundled, self.again))
        if self.bundled.rule == "within" and stated is not None:
            return abs(now - stated) > abs(then - stated)
        return abs(now - none) < abs(then - none)


@dataclass(frozen=True)
class RerunComparison:
    """A rerun and its bundle.

    Attributes:
        matched: cells that both sides have, block by block; `identical` of them agree to the bit.
        exact: True if all matched cells must agree to the bit.
        differing: the first differences of the other cells.
    """

    campaign: str
    ground: str
    matched: int
    identical: int
    exact: bool
    differing: tuple[Difference, ...]
    claims: tuple[ClaimAgain, ...]

    @property
    def contradicted(self) -> bool:
        """True if cells that must be identical are not, or a claim contradicts the bundle."""
        if self.exact and self.identical < self.matched:
            return True
        return any(one.contradicts for one in self.claims)

    @property
    def held(self) -> bool:
        """True if something could be compared: all cells are identical or must be, or a claim has
        intervals on both sides."""
        if not self.matched:
            return False
        compared = any(one.outcome in _HELD for one in self.claims)
        return compared or self.exact or self.identical == self.matched

    @property
    def ok(self) -> bool:
        """True if something was compared and nothing contradicts the bundle."""
        return self.held and not self.contradicted

    @property
    def sentence(self) -> str:
        """The result in one line."""
        if not self.matched:
            return f"{self.campaign}: no cell of the bundle was run again."
        text = (
            f"{self.campaign}: {self.matched} cells of the bundle were run again, {self.identical} "
            "with the same results to the bit"
        )
        tested = [one for one in self.claims if one.outcome != "not run"]
        why = "as no claim is of these cells: APPENDIX.md names a command for each claim"
        if tested:
            why = "as no claim has an interval on both sides: take more cells, or judge the values"
            alike = sum(one.outcome in ("identical", "agrees") for one in tested)
            same = sum(one.same_result for one in tested)
            other = sum(one.contradicts for one in tested)
            text += (
                f"; of {len(tested)} claims {alike} agree, {same} have the same effect and size, "
            )
            text += f"and {other or 'none'} contradict{'s' if other == 1 else ''} the bundle"
        return (
            f"{text}." if self.held else f"{text}: nothing could be held against the bundle, {why}."
        )


def compare(bundled: Path, again: Path, *, exact: bool) -> RerunComparison:
    """Compare the runs in the folder `again` with those in `bundled` (both ``.../<campaign>``).
    UserError: a folder is missing."""
    pairs = _pairs(load_campaign(bundled).runs, load_campaign(again).runs)
    same, differing = 0, list[Difference]()
    for one, other in pairs:
        found = list(_differing(one, other))
        same += not found
        if len(differing) < 20:
            differing += found[:3]
    claims = tuple(_all_claims(bundled, again, pairs)) if pairs else ()
    ground = pairs[0][1].run.ground if pairs else ""
    return RerunComparison(bundled.name, ground, len(pairs), same, exact, tuple(differing), claims)


def shares_runs(bundled: Path, again: Path) -> bool:
    """Return True if a run in the folder `again` is also in the bundle, by its times. A run
    compared with itself would seem to confirm the bundle."""
    return not _times(bundled).isdisjoint(_times(again))


def _times(campaign: Path) -> set[tuple[str, ...]]:
    records = (read_record(folder / "run.json") for folder in run_folders(campaign))
    keys = ("run_id", "started_at", "ended_at")
    return {tuple(str(record.get(key)) for key in keys) for record in records if record}


def _pairs(bundled: Sequence[LoadedRun], again: Sequence[LoadedRun]) -> Pairs:
    def key(loaded: LoadedRun) -> str:
        body = [loaded.run.parameters, loaded.run.block, loaded.run.time_scale]
        return json.dumps(body, sort_keys=True)

    new = {key(loaded): loaded for loaded in again}
    return [(old, new[key(old)]) for old in bundled if key(old) in new]


def _differing(one: LoadedRun, other: LoadedRun) -> Iterator[Difference]:
    """Yield the differences between two results of a cell."""
    cell = f"{one.run.run_id} (block {one.run.block})"
    first, second = _results(one), _results(other)
    if first != second:
        found = list(differences(f"{cell} summary.json", first, second))
        yield from found or [Difference(f"{cell} summary.json", "", "", "last digits differ")]
    for name in _FILES:
        contents = [_content(loaded.file(name)) for loaded in (one, other)]
        if contents[0] != contents[1]:
            sizes = (f"{len(data)} bytes" if data else "missing" for data in contents)
            yield Difference(f"{cell} {name}", "contents", *sizes)


def _content(file: Path) -> bytes:
    """Return a run's file, or its table in one form: a bundle's tables were written anew."""
    if not file.is_file():
        return b""
    if file.suffix == ".parquet":
        with suppress(OSError, ValueError):  # a damaged table is compared as it is
            return pd.read_parquet(file).to_parquet()
    return file.read_bytes()


def _results(loaded: LoadedRun) -> dict[str, Any]:
    """Return a summary without the costs of computing it."""
    found: dict[str, Any] = json.loads(loaded.summary.model_dump_json(exclude={"usage"}))
    extra = found["extra"].items()
    return found | {"extra": {k: value for k, value in extra if not k.startswith(_COSTS)}}


def _all_claims(bundled: Path, again: Path, pairs: Pairs) -> Iterator[ClaimAgain]:
    file = bundled / "comparison.json"
    if not file.is_file():
        return _claims(bundled, pairs)
    return _ranked(bundled, again, pairs, Comparison.model_validate_json(file.read_bytes()))


def _ranked(
    bundled: Path, again: Path, pairs: Pairs, comparison: Comparison
) -> Iterator[ClaimAgain]:
    """Yield the claims of a comparison of controllers, computed from the cells on both sides."""
    new_id = {old.run.run_id: new.run.run_id for old, new in pairs}
    kept = tuple(cell for cell in comparison.cells if cell.run_id in new_id)
    then = read(bundled, comparison.model_copy(update={"cells": kept})).claims
    anew = tuple(cell.model_copy(update={"run_id": new_id[cell.run_id]}) for cell in kept)
    now = {one.id: one for one in read(again, comparison.model_copy(update={"cells": anew})).claims}
    for before in then:
        if before.id in now:
            yield _result(before, now[before.id], None)


def _claims(bundled: Path, pairs: Pairs) -> Iterator[ClaimAgain]:
    for part in paper(paper_short_name(bundled)).parts:
        mine = [pair for pair in pairs if part.takes(pair[0].run)]
        if not mine or not part.claims:
            continue
        old, new = _evidence(part, mine)
        blocks = _by_block(part, mine)
        for claim in part.claims:
            before, after = evaluate(claim, old), evaluate(claim, new)
            both = before.measured is not None and after.measured is not None
            yield _result(before, after, _paired(claim, blocks) if both else None)


def _evidence(part: Part, pairs: Pairs) -> tuple[Evidence, Evidence]:
    old, new = ([pair[side] for pair in pairs] for side in (0, 1))
    return Evidence(part.tabulate(old), old), Evidence(part.tabulate(new), new)


def _by_block(part: Part, pairs: Pairs) -> list[tuple[Evidence, Evidence]]:
    """Return the evidence of both sides block by block; nothing if there are too many blocks."""
    blocks: dict[int, list[tuple[LoadedRun, LoadedRun]]] = {}
    for pair in pairs:
        blocks.setdefault(pair[0].run.block, []).append(pair)
    if len(blocks) > MOST_BLOCKS:
        return []
    return [_evidence(part, its) for _, its in sorted(blocks.items())]


def _result(before: ClaimResult, after: ClaimResult, paired: Estimate | None) -> ClaimAgain:
    return ClaimAgain(
        id=before.id,
        figure=before.figure,
        statement=before.statement,
        unit=before.unit,
        bundled=before,
        again=after,
        change="difference" if _scale(before.unit) is None else "ratio",
        estimate=paired or independent(before, after),
        paired=paired is not None,
    )


def _scale(unit: str) -> Scale | None:
    """Return the conversion of a value to a ratio, or None if differences are meaningful."""
    if unit == "ratio":
        return lambda value: value
    if unit == "relative change" or "- 1" in unit:
        return lambda value: 1 + value
    return None


def _paired(claim: Claim, blocks: Sequence[tuple[Evidence, Evidence]]) -> Estimate | None:
    values = [
        (one, other)
        for old, new in blocks
        if (one := _value(claim, old)) is not None and (other := _value(claim, new)) is not None
    ]
    if len(values) < 2:
        return None
    scale = _scale(claim.unit)
    if scale is None:
        return mean([other - one for one, other in values])
    treated, baseline = [scale(b) for _, b in values], [scale(a) for a, _ in values]
    return ratio(treated, baseline) if min(*treated, *baseline) > 0 else None


def _value(claim: Claim, evidence: Evidence) -> float | None:
    """Return a claim's value for a single block, or None if one block is not enough."""
    try:
        measured = claim.compute(evidence)
    except (ValueError, ZeroDivisionError, IndexError, KeyError):
        return None
    if not isinstance(measured, Measured) or not math.isfinite(measured.estimate.value):
        return None
    return measured.estimate.value


def independent(before: ClaimResult, after: ClaimResult) -> Estimate | None:
    """Estimate the change from two intervals, taken to be independent; None if a value lacks one,
    or has no logarithm and is a ratio."""
    scale = _scale(before.unit)
    ends = []
    for one in (before, after):
        if one.measured is None or one.ci95 is None:
            return None
        values = [one.measured, *one.ci95]
        if scale is not None:
            values = [scale(value) for value in values]
            if min(values) <= 0:
                return None
            values = [math.log(value) for value in values]
        ends.append(values)
    (old, old_low, old_high), (new, new_low, new_high) = ends
    low = new - old - math.hypot(new - new_low, old_high - old)
    high = new - old + math.hypot(new_high - new, old - old_low)
    found = Estimate(new - old, low, high, min(before.n, after.n))
    return found if scale is None else found.map(math.exp)
