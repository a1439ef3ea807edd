"""Results of a comparison of controllers: ranking, claims, figure, and table for people, as CSV and
as Markdown. Never changes a run folder."""

from __future__ import annotations

import html
import json
import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.comparison.ranking import ControllerRank, Key, Panel, claims_of, rank
from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.load import last_attempt, load_campaign, table
from analysis.core.report import in_markdown, markdown_table
from analysis.core.stats import Estimate
from analysis.papers.dlr.runs import OP_NAMES
from schemas.claim import ClaimResult
from schemas.comparison import Comparison
from schemas.durable import write_file
from schemas.errors import HotbedError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    def rows(self) -> list[dict[str, Any]]:
        """The table as one mapping per row (see `table_rows`)."""
        return table_rows(self.panels)

    @property
    def sentence(self) -> str:
        """Number, ground and time scale of the runs."""
        comparison = self.comparison
        ground = comparison.ground + (", simulated" if comparison.ground == "sim" else "")
        return (
            f"{self.runs} of {len(comparison.cells)} runs on ground {ground}; "
            f"times × {comparison.time_scale:.4g}"
        )

    @property
    def texts(self) -> list[dict[str, str]]:
        """The table as texts, one mapping of columns per row (see `heads`)."""
        return [texts(panel, one) for panel in self.panels for one in panel.standings]

    def _repr_html_(self) -> str:
        named = heads(self.comparison.baseline)
        table = pd.DataFrame(self.texts)[list(named)].rename(columns=named)
        with pd.option_context("display.max_colwidth", None):
            shown = table.to_html(index=False)
        left_out = "".join(
            f"<p>left out: {html.escape(why)}</p>" for why in self.comparison.left_out.values()
        )
        return f"<p>{html.escape(self.sentence)}</p>{shown}{left_out}"


def read(campaign: Path, comparison: Comparison, out: Path | None = None) -> Ranking:
    """Rank and judge the finished runs of a planned comparison in the folder `campaign`; write
    nothing. `out`: folder for figure, table and claims, by default next to the runs. HotbedError:
    no run is finished."""
    loaded = load_campaign(campaign, only={cell.run_id for cell in comparison.cells})
    missing = _missing(campaign, comparison, {loaded.run.run_id for loaded in loaded.runs})
    if not loaded.runs:
        first = next(iter(missing.values()))[0]
        raise HotbedError(f"{campaign}: no run of this comparison is finished ({first}).")
    rows = table(loaded.runs)
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
    """Call `read`, then write figure, table and claims. HotbedError: no run is finished. OSError:
    `out` cannot be written."""
    ranking = read(campaign, comparison, out)
    _write_all(ranking)
    return ranking


def _write_all(ranking: Ranking) -> None:
    folder, comparison = ranking.folder, ranking.comparison
    folder.mkdir(parents=True, exist_ok=True)
    _draw(comparison, ranking.panels, folder, NAME)
    named = _markdown(ranking)
    left_out = "".join(f"- left out: {why}\n" for why in comparison.left_out.values())
    write_file(folder / f"{NAME}.md", in_markdown(f"{ranking.sentence}\n\n{named}\n{left_out}"))
    integers = {"best_place": "Int64", "worst_place": "Int64"}  # may be missing
    table = pd.DataFrame(ranking.rows).astype(integers)
    write_file(folder / f"{NAME}.csv", table.to_csv(index=False))
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


UNIT = {"rand": "IOPS", "seq": "MB/s", "write": "MB/s"}


def table_rows(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Return one row per controller, scenario and op, in the panels' order; None if unknown.

    Keys: scenario, op, controller, verdict, best_place, worst_place, level and level_unit, change,
    change_low, change_high (throughput against the baseline, a share), latency_change,
    latency_change_low, latency_change_high, n, ties, notes.
    """
    found: list[dict[str, Any]] = []
    for panel in panels:
        for standing in panel.standings:
            best, worst = standing.places or (None, None)
            change = _ends(standing.gain)
            slower = _ends(standing.latency)
            found.append(
                {
                    "scenario": panel.scenario,
                    "op": panel.op,
                    "controller": standing.controller,
                    "verdict": standing.state,
                    "best_place": best,
                    "worst_place": worst,
                    "level": None if standing.level is None else standing.level.value,
                    "level_unit": UNIT[panel.op],
                    "change": change[0],
                    "change_low": change[1],
                    "change_high": change[2],
                    "latency_change": slower[0],
                    "latency_change_low": slower[1],
                    "latency_change_high": slower[2],
                    "n": standing.n,
                    "ties": ", ".join(standing.ties),
                    "notes": "; ".join(standing.notes),
                }
            )
    return found


def texts(panel: Panel, standing: ControllerRank) -> dict[str, str]:
    """Return one row as texts, by column."""
    baseline = standing.state == "baseline"
    return {
        "scenario": panel.scenario,
        "op": panel.op,
        "places": _places(standing),
        "controller": standing.controller,
        "level": _level(panel.op, standing),
        "gain": "" if baseline else _percent(standing.gain),
        "interval": "" if baseline else _interval(standing.gain),
        "latency": "" if baseline else _percent(standing.latency),
        "n": str(standing.n) if standing.n else "–",
        "verdict": standing.state,
        "ties": ", ".join(standing.ties),
        "notes": "; ".join(standing.notes),
    }


def heads(baseline: str) -> dict[str, str]:
    """Return the columns of `texts` with their headings."""
    return {
        "scenario": "scenario",
        "op": "op",
        "places": "place",
        "controller": "controller",
        "level": "throughput",
        "gain": f"against {baseline}",
        "interval": "95 % interval",
        "latency": "latency",
        "n": "n",
        "verdict": "verdict",
        "ties": "no clear difference from",
        "notes": "notes",
    }


def _markdown(ranking: Ranking) -> str:
    """Return the table for people in Markdown."""
    named = heads(ranking.comparison.baseline)
    return markdown_table(named.values(), (list(row.values()) for row in ranking.texts))


def _places(standing: ControllerRank) -> str:
    """Format places: ``1``, or ``1–3`` if the intervals leave it open."""
    if standing.places is None:
        return "–"
    best, worst = standing.places
    return str(best) if best == worst else f"{best}–{worst}"


def _level(op: str, standing: ControllerRank) -> str:
    """Format the mean throughput with its unit."""
    return "–" if standing.level is None else f"{standing.level.value:.1f} {UNIT[op]}"


def _percent(ratio: Estimate | None) -> str:
    """Format a ratio as a change: ``+12.3 %``."""
    return "–" if ratio is None else f"{100 * (ratio.value - 1):+.1f} %"


def _interval(ratio: Estimate | None) -> str:
    """Format a ratio's interval as changes; a dash for a single block."""
    if ratio is None or math.isnan(ratio.low):
        return "–"
    return f"{100 * (ratio.low - 1):+.1f} … {100 * (ratio.high - 1):+.1f} %"


def _ends(ratio: Estimate | None) -> tuple[float | None, float | None, float | None]:
    if ratio is None:
        return None, None, None
    if math.isnan(ratio.low):
        return ratio.value - 1, None, None
    return ratio.value - 1, ratio.low - 1, ratio.high - 1


_WIDTH = 6.2  # inches per panel, including the words at its right
_ROW = 0.36
_FURNITURE = 1.05
_TROUBLE = "#b3362f"
_SOFT = "#5b6672"
_LONGEST = 62  # characters of a reason
_LETTERS = 80  # characters of title and legend above and below a panel


def _draw(comparison: Comparison, panels: Sequence[Panel], folder: Path, name: str) -> Path:
    """Write `name`.png and .pdf into `folder` and return the PNG's path.

    A filled dot: the 95 % interval excludes no effect. A hollow dot: it includes no effect, or
    there is no interval. Squares are inert runs. A controller without runs has its reason instead.
    """
    shown = [DrawnPanel(panel, blocks=comparison.blocks) for panel in panels]
    words = (_title(comparison), _legend(comparison, panels))
    return style.save(draw_panels(shown, len(comparison.ops), words), folder, name)


@dataclass(frozen=True)
class DrawnPanel:
    """A panel of a figure. `title` replaces the usual one; `lines` are vertical lines by their
    line style, as ratios to the baseline; standings with fewer than `blocks` blocks say so."""

    panel: Panel
    blocks: int = 0
    title: str = ""
    lines: Mapping[str, float] = field(default_factory=dict)


def draw_panels(shown: Sequence[DrawnPanel], columns: int, words: tuple[str, str]) -> Figure:
    """Draw panels in rows of `columns`, with a title above and an explanation below (`words`)."""
    counts = [len(one.panel.standings) for one in shown]
    heights = [
        _FURNITURE + _ROW * max(counts[first : first + columns])
        for first in range(0, len(shown), columns)
    ]
    size = {"width": _WIDTH * columns, "height": sum(heights) + 0.9}
    with style.figure(len(heights), columns, **size) as (drawn, axes):
        grid = axes[0].get_gridspec()
        assert grid is not None
        grid.set_height_ratios(heights)
        for axis in axes[len(shown) :]:
            axis.set_visible(False)
        for axis, one in zip(axes, shown, strict=False):
            _panel(axis, one.panel, blocks=one.blocks)
            if one.title:
                axis.set_title(one.title, loc="left")
            for look, ratio in one.lines.items():
                axis.axvline(100 * (ratio - 1), color=_TROUBLE, linestyle=look, zorder=1.5)
        title, below = (textwrap.fill(text, _LETTERS * columns) for text in words)
        drawn.suptitle(title, fontsize="large")
        drawn.supxlabel(below, fontsize="small", color=_SOFT)
        return drawn


def _title(comparison: Comparison) -> str:
    where = "simulated" if comparison.ground == "sim" else f"ground {comparison.ground}"
    blocks = f"{comparison.blocks} block{'s' if comparison.blocks > 1 else ''}"
    return (
        f"Throughput against {comparison.baseline} ({where}, {blocks}, "
        f"times × {comparison.time_scale:.3g})"
    )


def _legend(comparison: Comparison, panels: Sequence[Panel]) -> str:
    if comparison.blocks < 2:
        return "one block has no interval: it shows no difference"
    text = (
        "bars: 95 % intervals over paired blocks; filled: a difference is shown; "
        "hollow: none is, the interval includes no effect"
    )
    inert = any(s.state == "inert" for panel in panels for s in panel.standings)
    return f"{text}; square: inert, it changed nothing" if inert else text


def _panel(axis: Axes, panel: Panel, *, blocks: int) -> None:
    standings = panel.standings
    axis.set_ylim(len(standings) - 0.5, -0.5)
    axis.set_yticks(range(len(standings)), [s.controller for s in standings])
    axis.axvline(0, color="black", linewidth=0.8, zorder=1)
    axis.grid(axis="y", visible=False)
    for y, standing in enumerate(standings):
        if standing.gain is None:
            axis.annotate(
                _reason(standing),
                (0.02, y),
                xycoords=("axes fraction", "data"),
                va="center",
                color=_TROUBLE,
                fontsize="small",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            )
            continue
        _dot(axis, y, standing)
        axis.annotate(
            _words(standing, blocks),
            (1.02, y),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize="small",
            annotation_clip=False,
        )
    disturbance = "no disturbance" if panel.scenario == "none" else panel.scenario
    axis.set_title(f"{OP_NAMES.get(panel.op, panel.op)}, {disturbance}", loc="left")
    unit = "IOPS" if panel.op == "rand" else "throughput"
    axis.set_xlabel(f"{unit} against {panel.baseline}, %")
    axis.margins(x=0.08)


def _dot(axis: Axes, y: int, standing: ControllerRank) -> None:
    gain = standing.gain
    assert gain is not None
    value, low, high = (100 * (end - 1) for end in (gain.value, gain.low, gain.high))
    colour = style.colour(standing.controller)
    if not math.isnan(low):
        axis.plot([low, high], [y, y], color=colour, linewidth=2.4, solid_capstyle="butt", zorder=2)
    filled = standing.state in ("better", "worse", "baseline")
    axis.plot(
        [value],
        [y],
        marker="s" if standing.state == "inert" else "o",
        markersize=7,
        markerfacecolor=colour if filled else "white",
        markeredgecolor=colour,
        markeredgewidth=1.6,
        linestyle="none",
        zorder=3,
    )


def _words(standing: ControllerRank, blocks: int) -> str:
    """Return the text at the right of a row."""
    gain = standing.gain
    assert gain is not None
    few = f", n = {standing.n}" if standing.n < blocks else ""
    if standing.state == "baseline":
        return f"baseline, place {_places(standing)}{few}"
    text = f"{100 * (gain.value - 1):+.1f} %"
    if standing.state == "inert":
        return f"{text}, inert{few}"
    idle = ", no action" if standing.idle else ""
    return f"{text}, place {_places(standing)}{few}{idle}"


def _reason(standing: ControllerRank) -> str:
    """Return why nothing is drawn, on at most two lines. The table keeps the common beginning of
    the reasons."""
    text = standing.notes[0] if standing.notes else "no run"
    text = text.split(" runs missing: ")[-1].removeprefix(f"the controller {standing.controller} ")
    text = f"failed: {text.removeprefix('failed: ')}"
    return "\n".join(textwrap.wrap(text, _LONGEST, max_lines=2, placeholder=" …"))
