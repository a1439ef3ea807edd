"""Figure, table and claims from the runs of a comparison. Never changes a run folder."""

from __future__ import annotations

import html
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.comparison import figure, table
from analysis.comparison.claims import claims_of
from analysis.comparison.ranking import Key, Panel, rank
from analysis.core.claims import Evidence
from analysis.core.load import last_attempt, load_campaign
from analysis.core.load import table as tidy
from analysis.core.pages import in_markdown
from schemas.claim import ClaimResult
from schemas.comparison import Comparison
from schemas.durable import write_file
from schemas.errors import HotbedError

NAME = "comparison"


@dataclass(frozen=True)
class Ranking:
    """Result of `build`. `folder` holds comparison.png and .pdf, .csv and .md, claims.json and
    comparison.json."""

    comparison: Comparison
    panels: tuple[Panel, ...]
    claims: tuple[ClaimResult, ...]
    runs: int
    folder: Path

    @property
    def figure(self) -> Path:
        """Path of the PNG; the PDF is next to it."""
        return self.folder / f"{NAME}.png"

    @property
    def claims_path(self) -> Path:
        """Path of all claims as JSON."""
        return self.folder / "claims.json"

    @property
    def frame(self) -> pd.DataFrame:
        """The table as numbers."""
        return table.frame(self.panels)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table as one mapping per row (see `analysis.comparison.table.rows`)."""
        return table.rows(self.panels)

    @property
    def sentence(self) -> str:
        """Number, ground and time scale of the runs."""
        comparison = self.comparison
        ground = comparison.ground + (", simulated" if comparison.ground == "sim" else "")
        return (
            f"{self.runs} of {len(comparison.cells)} runs on ground {ground}; "
            f"times × {comparison.time_scale:.4g}"
        )

    def _repr_html_(self) -> str:
        named = table.heads(self.comparison.baseline)
        head = "".join(f"<th>{html.escape(text)}</th>" for text in named.values())
        body = ""
        for panel in self.panels:
            for standing in panel.standings:
                row = table.texts(panel, standing)
                cells = "".join(f"<td>{html.escape(row[column])}</td>" for column in named)
                body += f"<tr>{cells}</tr>"
        left_out = "".join(
            f"<p>left out: {html.escape(why)}</p>" for why in self.comparison.left_out.values()
        )
        return (
            f"<p>{html.escape(self.sentence)}</p><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{left_out}"
        )


def read(campaign: Path, comparison: Comparison, out: Path | None = None) -> Ranking:
    """Rank and judge the finished runs; write nothing.

    Args:
        campaign: folder of the comparison's runs, `artifacts/compare-<ground>`.
        comparison: the planned comparison.
        out: folder for figure, table and claims; by default next to the runs.

    Raises:
        HotbedError: no run is finished.
    """
    loaded = load_campaign(campaign, only={cell.run_id for cell in comparison.cells})
    missing = _missing(campaign, comparison, {loaded.run.run_id for loaded in loaded.runs})
    if not loaded.runs:
        first = next(iter(missing.values()))[0]
        raise HotbedError(f"{campaign}: no run of this comparison is finished ({first}).")
    rows = tidy(loaded.runs)
    panels = tuple(
        rank(
            rows,
            scenario=scenario,
            op=op,
            baseline=comparison.baseline,
            controllers=comparison.controllers,
            missing=missing,
        )
        for scenario in comparison.scenarios
        for op in comparison.ops
    )
    claims = claims_of(
        panels,
        Evidence(rows, loaded.runs),
        ground=comparison.ground,
        time_scale=comparison.time_scale,
    )
    target = campaign if out is None else out
    return Ranking(comparison, panels, tuple(claims), len(loaded.runs), target)


def build(campaign: Path, comparison: Comparison, out: Path | None = None) -> Ranking:
    """Call `read`, then write figure, table and claims.

    Raises:
        HotbedError: no run is finished.
        OSError: `out` cannot be written.
    """
    ranking = read(campaign, comparison, out)
    _write_all(ranking)
    return ranking


def _write_all(ranking: Ranking) -> None:
    folder, comparison = ranking.folder, ranking.comparison
    folder.mkdir(parents=True, exist_ok=True)
    figure.draw(comparison, ranking.panels, folder, NAME)
    named = table.markdown(ranking.panels, comparison.baseline)
    left_out = "".join(f"- left out: {why}\n" for why in comparison.left_out.values())
    write_file(folder / f"{NAME}.md", in_markdown(f"{ranking.sentence}\n\n{named}\n{left_out}"))
    write_file(folder / f"{NAME}.csv", ranking.frame.to_csv(index=False))
    claims = [claim.model_dump(mode="json") for claim in ranking.claims]
    write_file(ranking.claims_path, json.dumps(claims, indent=1) + "\n")
    write_file(folder / f"{NAME}.json", comparison.model_dump_json(indent=1) + "\n")


def _missing(campaign: Path, comparison: Comparison, done: Collection[str]) -> dict[Key, list[str]]:
    """Return the reasons why planned runs are missing, one reason per run."""
    found: dict[Key, list[str]] = {}
    for cell in comparison.cells:
        if cell.run_id in done:
            continue
        last = last_attempt(campaign, cell.run_id)
        reason = "not run" if last is None else last.reason or last.status
        if last is not None and last.status == "spoiled":
            reason = f"spoiled: {reason}"
        key = (cell.controller, cell.scenario, cell.op)
        found.setdefault(key, []).append(reason)
    return found
