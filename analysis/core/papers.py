"""The papers that a report can be about."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from analysis.core.claims import Claim
from analysis.core.figures import FigureEntry, Table
from analysis.core.load import SIM, LoadedRun, table
from schemas.campaign import Kind
from schemas.cells import CellParameters, cells_of
from schemas.errors import not_allowed
from schemas.run import Run


@dataclass(frozen=True)
class Part:
    """Claims and figures from runs of one kind.

    Attributes:
        kind: the kind of the runs.
        simulated: True for runs of the ground sim, False for other runs, None for both.
        models: models of the runs' cells, if the kind has other models too.
        sized: True for runs on stores with their own size, which belong to figures over sizes only;
            False for other runs, None for both.
        tabulate: makes the runs' table.
        tables: makes the tables below the figures.
        commands: make the runs of claims without a figure, such as claims about a paper's table.
        command: makes the runs of the part's figures, if not the paper's command.
    """

    claims: tuple[Claim, ...]
    figures: tuple[FigureEntry, ...]
    kind: Kind = "dlr"
    simulated: bool | None = None
    models: tuple[type[CellParameters], ...] = (CellParameters,)
    sized: bool | None = None
    tabulate: Callable[[Sequence[LoadedRun]], pd.DataFrame] = table
    tables: Callable[[pd.DataFrame], Sequence[Table]] = lambda _: ()
    commands: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None

    def takes(self, run: Run) -> bool:
        """Return True if the claims and figures are about the run."""
        simulated = run.ground == SIM
        sized = run.parameters.get("osds") is not None
        if run.kind != self.kind or self.simulated not in (None, simulated):
            return False
        if self.sized not in (None, sized):
            return False
        try:
            model = cells_of(run.kind, run.ground).model_of(run.parameters)
        except ValueError:  # a record that Hotbed did not write
            return False
        return issubclass(model, self.models)


@dataclass(frozen=True)
class Paper:
    """A paper's claims and figures, or those of a sweep beyond it.

    Attributes:
        source: authors, venue and year of the paper, as a reader cites it.
        code: file with the claims and figures, relative to the repository.
        command: makes the runs of a figure; `sim_option`: ``--ground sim`` makes simulated runs.
        by_part: True if each part has its own ground, so that one report holds several grounds,
            never pooled.
        banner: text above a report of simulated runs, instead of the usual text; HTML.
        table_note: text below the tables.
    """

    short: str
    title: str
    source: str
    parts: tuple[Part, ...]
    code: str
    command: str
    sim_option: bool = True
    by_part: bool = False
    banner: Markup | None = None
    table_note: str | None = None

    @property
    def figures(self) -> tuple[FigureEntry, ...]:
        """The figures of all parts, in the paper's order."""
        return tuple(entry for _, entry in self.figures_by_part())

    def commands(self, *, simulated: bool) -> dict[str, str]:
        """Return the command that makes the runs of each figure or table named by claims, by id;
        `simulated`: for a report about simulated runs."""
        found: dict[str, str] = {}
        for part in self.parts:
            for entry in part.figures:
                sim = simulated and self.sim_option and entry.not_simulated is None
                text = (entry.command or part.command or self.command).format(figure=entry.campaign)
                found[entry.id] = f"{text} --ground sim" if sim else text
            found |= part.commands
        return found

    def figures_by_part(self) -> list[tuple[Part, FigureEntry]]:
        """Return every figure with its part, in the paper's order."""
        found = [(part, entry) for part in self.parts for entry in part.figures]
        return found if len(self.parts) == 1 else sorted(found, key=lambda one: _number(one[1]))


def _number(entry: FigureEntry) -> float:
    digits = re.match(r"\d+", entry.id)
    return int(digits[0]) if digits else float("inf")


@dataclass(frozen=True)
class FigureClaims:
    """A figure and its claims; `entry` is None for claims without a figure, such as a table's.
    `elsewhere`: the figure is drawn from runs of another kind."""

    id: str
    part: Part
    entry: FigureEntry | None
    claims: tuple[Claim, ...]
    elsewhere: bool = False

    @property
    def folder(self) -> str:
        """Name of its folder."""
        name = f"{self.id}-{self.part.kind}" if self.elsewhere else self.id
        return name.lower().replace(" ", "-")

    def is_fed(self, planned: Iterable[str]) -> bool:
        """Return True if a cell that was planned for these figures is for this one."""
        name = self.id if self.entry is None else self.entry.campaign
        return any(name in (one, one.rstrip("abcd")) for one in planned)


def figures_of(chosen: Paper) -> list[FigureClaims]:
    """Return a paper's figures with their claims. A claim about a panel (``4b``) belongs to the
    whole figure if no figure has the panel's name; figures of another ground are ``4-local``."""
    found = []
    drawn = {entry.id for entry in chosen.figures}
    for part in chosen.parts:
        entries = {entry.id: entry for entry in part.figures}
        claims: dict[str, list[Claim]] = {name: [] for name in entries}
        for claim in part.claims:
            for name in claim.figure.split(", "):
                tried = [one + end for end in _ENDS for one in (name, name.rstrip("abcd"))]
                place = next((one for one in tried if one in entries), name)
                claims.setdefault(place, []).append(claim)
        found += [
            FigureClaims(
                name, part, entries.get(name), tuple(its), name in drawn and name not in entries
            )
            for name, its in claims.items()
        ]
    return found


_ROOT = Path(__file__).resolve().parents[2]
_ENDS = ("", "-local", "-sim")
"""Ends of a figure's id, by ground."""
SCALE = "dlr-scale"
TODAY = "dlr-today"
URSA = "ursa"
TWOCHOICE = "twochoice"
PM = "pm"
MOS = "mos"

_DLR = "Ridwan Rashid Noel and Palden Lama. IEEE CLOUD 2017"
_CATALOGUES: Mapping[str, tuple[str, str, str]] = {
    "dlr": (
        "Taming Performance Hotspots in Cloud Storage with Dynamic Load Redistribution",
        _DLR,
        "analysis.papers.dlr.figures",
    ),
    SCALE: ("DLR at scale: where it stops helping", _DLR, "analysis.papers.dlr.scale"),
    TODAY: ("Today's Ceph and today's rivals of DLR", _DLR, "analysis.papers.dlr.today"),
    URSA: (
        "Scalable Load Balancing in Cluster Storage Systems (Ursa)",
        "Gae-won You, Seung-won Hwang and Navendu Jain. Middleware 2011",
        "analysis.papers.ursa.figures",
    ),
    TWOCHOICE: (
        "Two-Choice Randomized Dynamic I/O Scheduler for Object Storage Systems",
        "Dong Dai, Yong Chen, Dries Kimpe and Robert Ross. SC 2014",
        "analysis.papers.twochoice.figures",
    ),
    PM: (
        "PriorityMeister: Tail Latency QoS for Shared Networked Storage",
        "Timothy Zhu, Alexey Tumanov, Michael A. Kozuch, Mor Harchol-Balter and Gregory R. Ganger. "
        "SoCC 2014",
        "analysis.papers.prioritymeister",
    ),
    MOS: (
        "MOS: Workload-aware Elasticity for Cloud Object Stores",
        "Ali Anwar, Yue Cheng, Aayush Gupta and Ali R. Butt. HPDC 2016",
        "analysis.papers.mos.figures",
    ),
}
"""Title of each report, its paper's authors, venue and year, and the module with its ``PARTS``, and
with a ``BANNER`` if each part has its own ground. The campaign <short name>-full makes the runs of
every figure."""
SHORT_NAMES = tuple(_CATALOGUES)


def paper(short: str) -> Paper:
    """Return the paper with the short name; raise a UserError that names the known ones."""
    if short not in _CATALOGUES:
        raise not_allowed("report", short, ", ".join(SHORT_NAMES))
    title, source, module = _CATALOGUES[short]
    catalogue = importlib.import_module(module)
    banner = getattr(catalogue, "BANNER", None)
    return Paper(
        short,
        title,
        source,
        catalogue.PARTS,
        Path(str(catalogue.__file__)).relative_to(_ROOT).as_posix(),
        "hotbed scale --figure {figure}"
        if short == SCALE
        else f"hotbed run {short}-full --figure {{figure}}",
        sim_option=short == "dlr",
        by_part=banner is not None,
        banner=None if banner is None else Markup(banner),
        table_note=getattr(catalogue, "TABLE_NOTE", None),
    )
