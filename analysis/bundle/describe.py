"""Everything that follows from a bundle's runs, with the same code for its maker and its reader.

`derive` computes claims, figures and the data behind them; `ran` returns the experiments with their
times. `described` writes the appendix, the first page for a reviewer, and from one
`schemas.bundle.About` the metadata:

- RO-Crate 1.1 (https://w3id.org/ro/crate/1.1);
- ``trovi.json``, an RO-Crate as Trovi imports it (trovi/importing/views.py of
  https://github.com/ChameleonCloud/trovi): its descriptor has the file's own name, its root a short
  `disambiguatingDescription`, `keywords` in one text, and an `actionApplication` to launch it;
- ``.zenodo.json``, and CITATION.cff in the Citation File Format 1.2.0.
"""

from __future__ import annotations

import html
import json
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from pydantic import ValidationError

from analysis.bundle.archive import Progress
from analysis.core import style
from analysis.core.claims import SINGLE_RUN
from analysis.core.load import run_folders
from analysis.core.report import format_interval, format_value, notes_of, render, shared_notes
from schemas.bundle import MANIFEST, About, Author, Manifest
from schemas.claim import ClaimResult
from schemas.comparison import Comparison
from schemas.durable import read_json
from schemas.mistakes import checked
from schemas.run import Run
from schemas.yaml_file import dump

LIBRARIES = ("numpy", "scipy", "pandas", "matplotlib", "seaborn", "pyarrow", "markdown-it-py")
"""Libraries that results and figures depend on."""
DATA = "data"
"""Folder of the data behind each figure."""


# ---- claims and figures --------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """A figure of the report. `name` is the file's name without its ending, or None if it could not
    be drawn (`missing` says why)."""

    id: str
    title: str
    name: str | None
    missing: str | None


@dataclass(frozen=True)
class Derived:
    """Claims, figures and the data that they show. `folder` holds claims.json, figures/ and the
    rest; `commands` maps a claim's figure to the command that makes its runs."""

    title: str
    claims: tuple[ClaimResult, ...]
    figures: tuple[Figure, ...]
    shown: Mapping[str, Any]
    folder: Path
    runs: int
    commands: Mapping[str, str] = field(default_factory=dict)

    @property
    def tested(self) -> tuple[ClaimResult, ...]:
        """The claims with runs."""
        return tuple(claim for claim in self.claims if claim.effect != "not run")


def derive(
    artifacts: Path, report: str, *, comparison: bool, progress: Progress, pdf: bool = True
) -> Derived:
    """Make the report `report` from the runs in `artifacts`, and write the data of its figures.
    UserError: there is no such report, or no run in it."""
    with style.recorded(pdf=pdf) as shown:
        if comparison:  # one figure, written before another process could start
            made = _compare(artifacts / report)
        else:
            with style.shared():
                made = _report(artifacts, report, progress)
    folder = made.folder / "figures" / DATA
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in shown.items():
        text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n")
    return replace(made, shown=shown)


def _report(artifacts: Path, name: str, progress: Progress) -> Derived:
    from analysis.core.papers import paper
    from analysis.core.report import build

    made = build(artifacts, name, progress=progress)
    chosen = paper(made.paper)
    commands = chosen.commands(simulated=made.simulated)
    figures = tuple(
        Figure(one.entry.id, one.entry.title, one.path.stem if one.path else None, one.missing)
        for one in made.figures
    )
    return Derived(chosen.title, made.claims, figures, {}, made.path.parent, made.runs, commands)


def _compare(folder: Path) -> Derived:
    from analysis.comparison.build import NAME, build

    file = folder / f"{NAME}.json"
    comparison = checked(Comparison, read_json(file), file)
    made = build(folder, comparison)
    title = f"Comparison of {', '.join(comparison.controllers)}"
    return Derived(title, made.claims, (Figure(NAME, title, NAME, None),), {}, folder, made.runs)


# ---- experiments ---------------------------------------------------------------------------------

KICK_S = 20 * 60
"""Maximum machine time, in seconds, that fits into a first half hour."""


@dataclass(frozen=True)
class PackedCells:
    """A part of a campaign's cells: a grid, or all cells that feed one figure. `machine_s` is the
    total time of all attempts at them, including spoiled and failed ones."""

    campaign: str
    name: str
    figures: tuple[str, ...]
    cells: int
    finished: int
    attempts: int
    machine_s: float


@dataclass(frozen=True)
class Ran:
    """A campaign with all its attempts: its cells by grid (`experiments`), and by the figures that
    `--figure` selects (`parts`). A cell in several of them counts for each."""

    campaign: str
    ground: str
    site: str
    spec: str
    experiments: tuple[PackedCells, ...]
    finished: int
    machine_s: float
    started_at: str
    ended_at: str
    commits: tuple[str, ...]
    parts: tuple[PackedCells, ...]

    def option(self, figure: str) -> str | None:
        """Return the argument of `hotbed run --figure` for the figure of a claim, or None. The
        report calls a figure of runs on machines ``7-local``. A claim may name a panel (``7a``) of
        a figure that a campaign has only as a whole (7)."""
        plain = figure.removesuffix("-local")
        known = {name for part in self.parts for name in (part.name, part.name.rstrip("abcd"))}
        wanted = (figure, plain, plain.rstrip("abcd"))
        return next((name for name in wanted if name in known), None)


def ran(campaign: Path) -> Ran:
    """Return the contents of a campaign. A folder without a plan has no experiments."""
    runs = list(runs_in(campaign).values())
    plan = read_record(campaign / "campaign.json")
    cells = plan.get("cells", [])
    seconds: dict[str, list[float]] = {}
    for run in runs:
        seconds.setdefault(run.run_id, []).append(_seconds(run))
    done = {run.run_id for run in runs if run.status == "done"}

    def part(name: str, figures: Iterable[object], mine: Collection[str]) -> PackedCells:
        times = [time for one in mine for time in seconds.get(one, ())]
        shown = tuple(map(str, figures))
        count = len(done.intersection(mine))
        return PackedCells(campaign.name, name, shown, len(mine), count, len(times), sum(times))

    file = plan.get("campaign", {})
    by_grid, by_figure = _run_ids(cells, "grids"), _run_ids(cells, "figures")
    grids = [grid for grid in file.get("grids", []) if grid["name"] in by_grid]
    return Ran(
        campaign=campaign.name,
        ground=", ".join(sorted({run.ground for run in runs})),
        site=", ".join(sorted({run.provenance.site for run in runs})),
        spec=str(file.get("spec") or ""),
        experiments=tuple(part(one["name"], one["figures"], by_grid[one["name"]]) for one in grids),
        finished=len(done),
        machine_s=sum(map(sum, seconds.values())),
        started_at=min((run.started_at for run in runs), default=""),
        ended_at=max((run.ended_at for run in runs), default=""),
        commits=tuple(sorted({_commit(run) for run in runs})),
        parts=tuple(part(figure, (figure,), mine) for figure, mine in by_figure.items()),
    )


def _run_ids(cells: Iterable[Mapping[str, Any]], key: str) -> dict[str, list[str]]:
    """Return the run ids of planned cells by the names that the cells have as `key`."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for name in cell.get(key, ()):
            found.setdefault(str(name), []).append(str(cell["run_id"]))
    return found


def runs_in(campaign: Path) -> dict[Path, Run]:
    """Return the records of a campaign's attempts by their folders, without unreadable ones."""
    found = {}
    for folder in run_folders(campaign):
        with suppress(OSError, ValidationError):
            found[folder] = Run.model_validate_json((folder / "run.json").read_bytes())
    return found


def read_record(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if there is none that can be read."""
    try:
        body = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _seconds(run: Run) -> float:
    start, end = map(datetime.fromisoformat, (run.started_at, run.ended_at))
    return max(0.0, (end - start).total_seconds())


def _commit(run: Run) -> str:
    commit = (run.provenance.commit or "unknown")[:12]
    return f"{commit} with changes" if run.provenance.dirty else commit


def first_look(campaigns: Sequence[Ran], claimed: Collection[str] = ()) -> PackedCells | None:
    """Return the figure with the quickest cells, among the figures within the first half hour.
    Simulated ones come first, then ones with claims, because measured cells are compared by claims.
    """

    def rank(one: Ran, part: PackedCells) -> tuple[bool, int, float]:
        options = {one.option(figure) for figure in claimed}
        names = (part.name, part.name.rstrip("abcd"))  # a claim may be about the whole figure
        without = next((at for at, name in enumerate(names) if name in options), len(names))
        return one.ground != "sim", without, part.machine_s

    found = [
        (rank(one, part), part)
        for one in campaigns
        for part in one.parts
        if part.attempts and part.machine_s <= KICK_S
    ]
    return min(found, key=lambda entry: entry[0], default=(None, None))[1]


# ---- appendix ------------------------------------------------------------------------------------

MARKDOWN = "APPENDIX.md"
HTML = "appendix.html"

HUMAN_MIN_PER_COMMAND = 1
"""Estimated minutes that a person spends per command: typing it and reading the result."""

_EFFECTS = {
    "confirmed": ("yes", ""),
    "inconclusive": ("undecided", "the interval includes no effect"),
    "contradicted": ("no", "the effect is the other way"),
    "not run": ("not tested", ""),
}
"""Words of the appendix by effect: in the table, and why a claim does not hold."""
_SIZES = {
    "smaller": "the effect holds, and is smaller than stated",
    "larger": "the effect holds, and is larger than stated",
    "not comparable": "the effect holds; its size cannot be compared on this ground",
}
_WHY_NOT_EQUAL = {
    "inconclusive": "the interval is neither within the tolerance nor outside it",
    "contradicted": "the values are not the same: the interval is outside the tolerance",
}


@dataclass(frozen=True)
class Claimed:
    """A claim with its number, as the appendix shows it."""

    number: str
    claim: ClaimResult
    expected: str
    measured: str
    command: str
    notes: tuple[str, ...]

    @property
    def holds(self) -> str:
        """The effect in one or two words (yes, undecided, no, not tested), and a size that is not
        the paper's."""
        word = _EFFECTS[self.claim.effect][0]
        return f"{word}, {self.claim.size}" if word == "yes" and self.claim.size in _SIZES else word

    @property
    def why(self) -> str:
        """Reason why a claim does not hold, or not as stated; empty for a claim that holds."""
        effect = self.claim.effect
        if effect == "inconclusive" and self.claim.n == 1:
            return SINGLE_RUN
        if self.claim.rule == "within" and effect in _WHY_NOT_EQUAL:
            return _WHY_NOT_EQUAL[effect]
        return _SIZES.get(self.claim.size, "") if effect == "confirmed" else _EFFECTS[effect][1]


def numbered(derived: Derived, campaigns: Sequence[Ran]) -> list[Claimed]:
    """Return the claims in the report's order, numbered from C1."""
    shared = (*shared_notes(derived.tested), SINGLE_RUN)
    found = []
    for index, claim in enumerate(derived.claims, 1):
        # An untested claim is often about cells that the bundle's campaigns do not have.
        command = command_of(claim.figure, derived, campaigns if claim in derived.tested else ())
        notes = tuple(note for note in notes_of(claim) if note not in shared)
        stated, measured = expected(claim), _measured(claim)
        found.append(Claimed(f"C{index}", claim, stated, measured, command, notes))
    return found


def command_of(figure: str, derived: Derived, campaigns: Sequence[Ran]) -> str:
    """Return the command that makes the runs behind a claim again: a rerun of those of the
    bundle's `campaigns` that test it, as a whole if no cells belong to the figure alone; or the
    catalogue's command if there are none."""
    names = [name.strip() for name in figure.split(",")]
    if not campaigns:
        # A catalogue may list a claim's figure (7a) only as a whole (7).
        known = derived.commands
        found = [known.get(name) or known.get(name.rstrip("abcd")) for name in names]
    else:
        whole = [
            "hotbed rerun BUNDLE" + (f" --campaign {one.campaign}" if len(campaigns) > 1 else "")
            for one in campaigns
        ]
        found = []
        for name in names:
            options = zip(whole, (one.option(name) for one in campaigns), strict=True)
            found.append(next((f"{one} --figure {its}" for one, its in options if its), None))
        if None in found:
            found = [*whole]
    return "; ".join(dict.fromkeys(filter(None, found))) or "hotbed rerun BUNDLE"


def expected(claim: ClaimResult) -> str:
    """Return the expectation of a claim, with its tolerance as the values that count."""
    none, stated, unit = claim.no_effect, claim.paper_value, claim.unit
    beyond = ""
    if none is not None:
        side = "above" if claim.larger else "below"
        beyond = f"{side} {format_value(none, unit)}, the whole 95 % interval too"
    if stated is None:
        return beyond or "an effect as stated, with a 95 % interval that excludes no effect"
    value = format_value(stated, unit)
    if beyond and not claim.sized and claim.rule != "within":
        return beyond if stated == none else f"{beyond} ({value} in the paper)"
    if claim.rule == "within":
        room = claim.tolerance * abs(stated)
        if not room:
            return f"{value}, both ends of the 95 % interval too"
        return f"the whole 95 % interval in {format_interval((stated - room, stated + room), unit)}"
    word = {"about": "", "at_least": "at least ", "at_most": "at most "}[claim.rule]
    if none is None or not claim.tolerance:
        return f"{word}{value}"
    room = claim.tolerance * abs(stated - none)
    if claim.rule == "about":
        return f"{value} ({format_interval((stated - room, stated + room), unit)})"
    # If an effect lowers a value, a larger effect is a lower value.
    lower = (claim.rule == "at_least") is (stated >= none)
    return f"{word}{value} ({format_value(stated - room if lower else stated + room, unit)} counts)"


def _measured(claim: ClaimResult) -> str:
    if claim.measured is None:
        return "–"
    value = format_value(claim.measured, claim.unit)
    interval = "no interval" if claim.ci95 is None else format_interval(claim.ci95, claim.unit)
    return f"{value} ({interval}), n = {claim.n}"


def _untested(claims: Sequence[Claimed]) -> list[dict[str, Any]]:
    """Return the claims without runs, grouped by reason and command."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in claims:
        why = one.claim.note or "no runs of it"
        found.setdefault((why, one.command), []).append(one.number)
    return [
        {"numbers": numbers, "why": why, "command": command}
        for (why, command), numbers in found.items()
    ]


def pages(
    about: About, manifest: Manifest, derived: Derived, campaigns: Sequence[Ran]
) -> dict[str, bytes]:
    """Return APPENDIX.md and appendix.html."""
    claims = numbered(derived, campaigns)
    by_effect = {
        effect: [one for one in claims if one.claim.effect == effect] for effect in _EFFECTS
    }
    first = first_look(campaigns, [one.figure for one in derived.tested if one.ci95 is not None])
    spec = next((one.spec for one in campaigns if first and one.campaign == first.campaign), "")
    shown = {
        "about": about,
        "manifest": manifest,
        "title": derived.title,
        "report": f"artifacts/{derived.folder.name}/report.html",
        "compared": manifest.comparison,
        "figures": derived.figures,
        "campaigns": campaigns,
        "claims": claims,
        "tested": [one for one in claims if one.claim.effect != "not run"],
        "not_tested": by_effect["not run"],
        "shared_notes": shared_notes(derived.tested),
        "counts": [(len(found), effect) for effect, found in by_effect.items()],
        "fallen": [
            *by_effect["contradicted"],
            *by_effect["inconclusive"],
            *(one for one in by_effect["confirmed"] if not one.claim.reproduced),
        ],
        "untested": _untested(by_effect["not run"]),
        "first": first,
        "spec": f"specs/{Path(spec).name}" if spec else "",
        "simulated": bool(campaigns) and all(one.ground == "sim" for one in campaigns),
        "machine_s": sum(one.machine_s for one in campaigns),
        "human_min": HUMAN_MIN_PER_COMMAND,
    }
    text = render(
        "appendix.md.j2",
        shown,
        duration=duration,
        sentence=lambda text: text[:1].upper() + text[1:],
        cell=lambda text: " ".join(str(text).split()).replace("|", "\\|"),
    )
    page = render("appendix.html.j2", {"about": about, "body": _as_html(text)})
    return {MARKDOWN: text.encode(), HTML: page.encode()}


def _as_html(text: str) -> Markup:
    """Return Markdown as HTML, with the number of a claim as the name of its row. HTML in the text
    stays a text, and a link runs no script."""
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    return Markup(re.sub(r"<tr>\n<td>(C\d+)</td>", r'<tr id="\1">\n<td>\1</td>', made))


def duration(seconds: float) -> str:
    """Format a duration for people: ``42 s``, ``3 min``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


# ---- metadata ------------------------------------------------------------------------------------

CRATE = "ro-crate-metadata.json"
TROVI = "trovi.json"
ZENODO = ".zenodo.json"
CITATION = "CITATION.cff"

_CONTEXT = "https://w3id.org/ro/crate/1.1/context"
_TERMS = "https://www.chameleoncloud.org/terms#"
_TROVI_TITLE, _TROVI_DESCRIPTION = 140, 5000  # characters that its database accepts
_FORMATS = {
    "json": "application/json",
    "md": "text/markdown",
    "html": "text/html",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "cff": "application/yaml",
    "png": "image/png",
    "pdf": "application/pdf",
    "csv": "text/csv",
    "ipynb": "application/x-ipynb+json",
    "py": "text/x-python",
}
_LAUNCH = {
    "@id": "#ChameleonJupyterLab",
    "@type": "SoftwareApplication",
    "name": "Chameleon JupyterLab",
    "url": "https://jupyter.chameleoncloud.org/",
    "trovi_type": "jupyterhub",
    "trovi_arguments": "{}",
}


def described(
    about: About,
    manifest: Manifest,
    derived: Derived,
    campaigns: Sequence[Ran],
    sizes: Mapping[str, int],
) -> dict[str, bytes]:
    """Return the appendix and the metadata, written from nothing but the contents of the bundle.
    `sizes` has the bytes of its other files."""
    bare = manifest.model_copy(update={"files": ()})
    written = pages(about, bare, derived, campaigns)
    known = {**sizes, **{name: len(text) for name, text in written.items()}}
    files = {
        CRATE: crate(about, manifest, derived, campaigns, known),
        TROVI: trovi(about),
        ZENODO: zenodo(about),
    }
    written |= {
        name: (json.dumps(body, indent=2, ensure_ascii=False) + "\n").encode()
        for name, body in files.items()
    }
    return written | {CITATION: citation(about)}


def crate(
    about: About,
    manifest: Manifest,
    derived: Derived,
    campaigns: Sequence[Ran],
    sizes: Mapping[str, int],
) -> dict[str, Any]:
    """Return ``ro-crate-metadata.json``: the files, their authors and their origin."""
    software = {
        "@id": "#hotbed",
        "@type": "SoftwareApplication",
        "name": "Hotbed",
        "version": manifest.hotbed_version,
        "url": about.repository,
    }
    parts = [_part(path, what, sizes) for path, what in _parts(manifest, derived, sizes)]
    actions = [_action(one, manifest.hotbed_version, sizes) for one in campaigns]
    root = {"hasPart": _links(parts), "mentions": _links(actions)}
    graph = _graph(CRATE, about, root, *parts, _filled(software), *actions)
    return {"@context": _CONTEXT, "@graph": graph}


def _filled(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without its empty values."""
    return {key: value for key, value in body.items() if value}


def _links(entities: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"@id": one["@id"]} for one in entities]


def _graph(
    name: str, about: About, more: Mapping[str, Any], *entities: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """Return the graph of an RO-Crate in the file `name`. `more` are fields of its root, and
    `entities` follow the authors."""
    descriptor = {
        "@id": name,
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        "about": {"@id": "./"},
    }
    licensed = {
        "@id": f"https://spdx.org/licenses/{about.license}",
        "@type": "CreativeWork",
        "name": about.license,
        "description": f"The license {about.license} of the SPDX License List",
    }
    people = [
        _filled(
            {
                "@id": f"https://orcid.org/{one.orcid}" if one.orcid else f"#author-{number}",
                "@type": "Organization" if one.name else "Person",
                "name": one.full_name,
                "affiliation": one.affiliation,
            }
        )
        for number, one in enumerate(about.authors, 1)
    ]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": about.title,
        "disambiguatingDescription": about.short_description,
        "description": about.description,
        "keywords": ",".join(about.keywords),
        "datePublished": about.date,
        "version": about.version,
        "license": {"@id": licensed["@id"]},
        "author": _links(people),
        "identifier": f"https://doi.org/{about.doi}" if about.doi else "",
    }
    return [descriptor, _filled(root) | dict(more), licensed, *people, *entities]


def _parts(manifest: Manifest, derived: Derived, sizes: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the parts of the crate: files that people open, and the folders of the other files."""
    folder = f"artifacts/{derived.folder.name}"
    named = {
        f"{folder}/report.html": "Report: figures, claims and runs",
        f"{folder}/comparison.md": "Comparison of the controllers",
        f"{folder}/claims.json": "Claims with effect and size",
        "environment/requirements.lock": "Locked Python environment",
        "LICENSE": "License",
    }
    for figure in derived.figures:
        for place in ("/figures/", "/"):
            named[f"{folder}{place}{figure.name}.png"] = f"Figure {figure.id}: {figure.title}"
    tops = ("campaigns/", "specs/", "notebooks/", "controllers/", "models/")
    return [
        (MARKDOWN, "Artifact appendix"),
        (HTML, "Artifact appendix as a page"),
        (MANIFEST, "Every file with its SHA-256"),
        *((path, what) for path, what in named.items() if path in sizes),
        *((f"artifacts/{one}/", f"Runs of the campaign {one}") for one in manifest.campaigns),
        *((path, "What the runs were made by") for path in sorted(sizes) if path.startswith(tops)),
    ]


def _part(path: str, what: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    is_file = not path.endswith("/")
    return _filled(
        {
            "@id": quote(path),  # a relative URI, which has no spaces (RFC 3986)
            "@type": "File" if is_file else "Dataset",
            "name": what,
            "encodingFormat": is_file and _FORMATS.get(path.rpartition(".")[2], "text/plain"),
            "contentSize": str(sizes.get(path, "")),
        }
    )


def _action(one: Ran, version: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    made_by = (f"campaigns/{one.campaign}.yaml", f"specs/{Path(one.spec).name}")
    return {
        "@id": f"#run-{one.campaign}",
        "@type": "CreateAction",
        "name": f"The campaign {one.campaign}, run by Hotbed {version}",
        "startTime": one.started_at,
        "endTime": one.ended_at,
        "instrument": {"@id": "#hotbed"},
        "object": [{"@id": quote(path)} for path in made_by if path in sizes],
        "result": [{"@id": f"artifacts/{one.campaign}/"}],
    }


def trovi(about: About) -> dict[str, Any]:
    """Return ``trovi.json``: the same root for Chameleon's Trovi, launched in its JupyterHub."""
    text = about.description
    if len(text) > _TROVI_DESCRIPTION:
        text = f"{text[: _TROVI_DESCRIPTION - 2].rstrip()} …"
    root = {
        "name": textwrap.shorten(about.title, _TROVI_TITLE, placeholder=" …"),
        "description": text,
        "actionApplication": _links([_LAUNCH]),
    }
    terms = {name: f"{_TERMS}{name}" for name in ("trovi_type", "trovi_arguments")}
    return {"@context": [_CONTEXT, terms], "@graph": _graph(TROVI, about, root, _LAUNCH)}


def zenodo(about: About) -> dict[str, Any]:
    """Return ``.zenodo.json``: a deposit's metadata."""
    creators = [
        {
            "name": f"{one.family_names}, {one.given_names}".strip(", ") or one.name,
            "affiliation": one.affiliation,
            "orcid": one.orcid,
        }
        for one in about.authors
    ]
    origin = {"identifier": about.repository, "relation": "isDerivedFrom"}
    body = {
        "title": about.title,
        "upload_type": "dataset",
        "description": html.escape(about.description, quote=False),  # Zenodo shows it as HTML
        "creators": [_filled(one) for one in creators],
        "keywords": list(about.keywords),
        "license": about.license,
        "version": about.version,
        "publication_date": about.date,
        "access_right": "open",
        "related_identifiers": [origin] if about.repository else [],
    }
    return _filled(body)


def citation(about: About) -> bytes:
    """Return ``CITATION.cff``."""
    body: dict[str, Any] = {
        "cff-version": "1.2.0",
        "message": "If you use this artefact, please cite it.",
        "title": about.title,
        "type": "dataset",
        "abstract": about.description,
        "version": about.version,
        "date-released": about.date,
        "license": about.license,
        "authors": [_cited(one) for one in about.authors],
        "keywords": list(about.keywords),
        "repository-code": about.repository,
        "doi": about.doi,
    }
    return dump(_filled(body)).encode()


def _cited(author: Author) -> dict[str, str]:
    person = {
        "family-names": author.family_names,
        "given-names": author.given_names,
        "affiliation": author.affiliation,
    }
    found = {"name": author.name} if author.name else person  # a group has no affiliation here
    orcid = f"https://orcid.org/{author.orcid}" if author.orcid else ""
    return _filled(found | {"orcid": orcid})
