"""The report of a paper: figures, claims table, runs, in one self-contained HTML page.

`build` reads run folders and writes figures (PNG, PDF), `claims.json` and `report.html`. It never
changes a run folder.

`render` is the only environment that renders pages: a text in a template's expression stays a text.
Only templates hold HTML. The exception is `markupsafe.Markup` for sentences of the project itself.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from analysis.core import style
from analysis.core.claims import CHANGE, NOTE_SEPARATOR, Evidence, evaluate_some, merged
from analysis.core.figures import Drawn, FigureEntry, Missing, Table
from analysis.core.load import (
    SIM,
    Attempts,
    LoadedRun,
    claims_of,
    ground_of,
    is_listed,
    load_campaign,
    paper_of,
    repeats_cells,
)
from analysis.core.papers import SHORT_NAMES, Paper, Part, figures_of, paper
from schemas.claim import SHARE, ClaimResult, realness
from schemas.durable import make_folder, write_file
from schemas.errors import UserError, nearest, unknown

Progress = Callable[[str, float], None]

_TEMPLATES = Path(__file__).parent / "templates"
_OF_CORES = ("core_units_s", "cores")
"""Parts of a run's calibration that differ between runs: the speed of a core and its effects."""


def render(template: str, shown: Mapping[str, object], **filters: Callable[..., object]) -> str:
    """Render the file `template` with the values `shown`, as HTML, or as Markdown if its name ends
    in ``.md.j2``."""
    from jinja2 import Environment, FileSystemLoader

    markdown = template.endswith(".md.j2")
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=not markdown,
        finalize=(lambda value: in_markdown(str(value))) if markdown else None,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= filters
    return environment.get_template(template).render(shown)


def in_markdown(text: str) -> str:
    """Return `text` escaped so that Markdown finds no HTML and no link in it."""
    return re.sub(r"\](?=[(:\[])", r"]\\", text.replace("<", "&lt;"))


def markdown_table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    shown = ((one.replace("|", "\\|") for one in line) for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in shown)


@dataclass(frozen=True)
class Others:
    """Claims of a paper that a campaign was not made for: their number, and the commands that make
    their runs."""

    count: int = 0
    commands: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Number of the claims in words; empty if there is none."""
        if not self.count:
            return ""
        noun = "claim needs" if self.count == 1 else "claims need"
        return f"{self.count} more {noun} other runs"


@dataclass(frozen=True)
class Report:
    """Result of `build`."""

    path: Path
    claims_path: Path
    claims: tuple[ClaimResult, ...]
    figures: tuple[Drawn, ...]
    runs: int
    tables: tuple[Table, ...] = ()
    paper: str = ""  # short name of the paper
    simulated: bool = False
    others: Others = Others()

    def _repr_html_(self) -> str:
        drawn = sum(figure.path is not None for figure in self.figures)
        counts = Counter(claim.effect for claim in self.claims)
        effects = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        return (
            f"<p><b>Report</b> {html.escape(str(self.path))}<br>{self.runs} runs, "
            f"{drawn} of {len(self.figures)} figures; claims: {effects}</p>"
        )


def campaign_folders(
    artifacts: Path, name: str, ground: str | None
) -> tuple[Paper, list[Path], Path]:
    """Return the paper, the campaigns that feed the report `name`, and the folder of the report.
    `name` is a campaign's name, or a paper's short name for all its campaigns on one ground.
    UserError: there is no such campaign and no such paper, no run, or no run on that ground."""
    short, _, profile = name.partition("-")
    if name in SHORT_NAMES and paper(name).by_part:
        short, profile = name, ""
    folder = artifacts / name
    ran = _has_runs(folder)
    if not (ran or (short in SHORT_NAMES and (folder.is_dir() or profile in ("", SIM)))):
        raise _unknown(artifacts, name)
    if (profile and (profile != SIM or ran)) or (ran and name not in SHORT_NAMES):
        if ground not in (None, ground_of(folder)):
            raise UserError(f"its runs are not of ground {ground}", where=folder)
        return paper(_paper(folder, short)), [folder], folder
    chosen = paper(short)
    found = {folder: ground_of(folder) for folder in _feeding(artifacts, short)}
    if not found:
        raise UserError(
            f"there are no runs of {short}",
            where=artifacts,
            do=f"run a campaign first, for example `hotbed run {short}-quick`",
        )
    if chosen.by_part and not (profile or ground):
        return chosen, list(found), artifacts / short
    wanted = _one_ground(artifacts, short, set(found.values()), profile or ground)
    folders = [folder for folder, its in found.items() if its == wanted]
    alone = set(found.values()) <= {wanted, SIM} and wanted != SIM
    return chosen, folders, artifacts / (short if alone else f"{short}-{wanted}")


def _unknown(artifacts: Path, name: str) -> UserError:
    """Return the mistake of a name that is neither a campaign nor a paper."""
    folders = sorted(artifacts.iterdir()) if artifacts.is_dir() else []
    there = [folder.name for folder in folders if _has_runs(folder)]
    runs = f"campaigns with runs: {', '.join(there)}; " if there else "no campaign has runs; "
    return UserError(
        "no such campaign",
        where=artifacts / name,
        allowed=f"{runs}papers: {', '.join(SHORT_NAMES)}",
        do=nearest(name, [*there, *SHORT_NAMES])
        or "run it first with `hotbed run`, or name another",
    )


def _paper(campaign: Path, short: str) -> str:
    """Return the paper that a campaign feeds; `short` if its file names no known paper."""
    named = paper_of(campaign)
    return named if named in SHORT_NAMES else short


def paper_short_name(campaign: Path) -> str:
    """Return the short name of the paper that the campaign in a folder feeds."""
    return _paper(campaign, campaign.name.partition("-")[0])


def _feeding(artifacts: Path, short: str) -> list[Path]:
    """Return the campaigns with runs that feed a paper's report. Those that repeat cells within
    blocks measure variation and feed none."""
    return [
        folder
        for folder in sorted([artifacts / short, *artifacts.glob(f"{short}-*")])
        if _has_runs(folder) and _paper(folder, short) == short and not repeats_cells(folder)
    ]


def _has_runs(folder: Path) -> bool:
    return any(folder.glob("*/attempt-*/run.json"))


def _one_ground(
    artifacts: Path, short: str, there: set[str | None], wanted: str | None
) -> str | None:
    """Return the ground of a report over several campaigns. Evidence of different grounds is never
    pooled; measured runs go before simulated runs."""
    if wanted is not None:
        if wanted not in there:
            known = ", ".join(sorted(str(ground) for ground in there))
            raise UserError(
                f"there are no runs of {short} on ground {wanted}", where=artifacts, allowed=known
            )
        return wanted
    real = there - {SIM}
    if len(real) > 1:
        known = ", ".join(sorted(str(ground) for ground in there))
        raise UserError(
            f"runs of {short} are of several grounds, which are never pooled",
            where=artifacts,
            allowed=known,
            do="name one with --ground",
        )
    return next(iter(real or there))


def runs_of(part: Part, loaded: Sequence[tuple[str, Attempts]], first: Path) -> list[LoadedRun]:
    """Return a part's runs; raise a UserError if they are of several grounds."""
    runs = [run for _, attempts in loaded for run in attempts.runs if part.takes(run.run)]
    grounds = sorted({run.run.ground for run in runs})
    if len(grounds) > 1:
        raise UserError(
            f"the runs are of several grounds, which are never pooled: {', '.join(grounds)}",
            where=first,
            do="keep each ground in a folder of its own",
        )
    return runs


def _evidence(part: Part, loaded: Sequence[tuple[str, Attempts]], first: Path) -> Evidence:
    """Return the evidence from a part's runs; raise a UserError if they are of several grounds."""
    runs = runs_of(part, loaded, first)
    return Evidence(part.tabulate(runs), runs)


def is_simulated(runs: Sequence[LoadedRun]) -> bool:
    """Return True if the runs are of ground sim."""
    return any(run.run.ground == SIM for run in runs)


def draw(
    entry: FigureEntry, evidence: Evidence, folder: Path, prefix: str, *, stale: bool = False
) -> Drawn:
    """Draw one figure, or report the missing runs; `stale` figures are marked."""
    if entry.not_simulated is not None and is_simulated(evidence.runs):
        return Drawn(entry, None, f"runs on a real ground: {entry.not_simulated}")
    marks = ["simulated"] * is_simulated(evidence.runs) + ["stale"] * stale
    with style.marked(", ".join(marks) or None):
        made = entry.draw(evidence)
        if isinstance(made, Missing):
            return Drawn(entry, None, made.runs)
        path = style.save(made, folder, f"{prefix}-fig{entry.id}")
    if entry.facts is not None:
        entry = replace(entry, caption=entry.caption + entry.facts(evidence))
    return Drawn(entry, path, None)


def build(
    artifacts: Path,
    name: str = "dlr",
    *,
    only: str | None = None,
    ground: str | None = None,
    progress: Progress = lambda phase, share: None,
) -> Report:
    """Build the report `name`: a campaign such as ``dlr-quick``, or ``dlr`` for all its campaigns
    on one ground (`ground`, if there are several). Campaigns on ground sim have a separate report,
    ``dlr-sim``. `only`: draw this figure with its claims alone (its id, or a number for all its
    parts), into files of their own names. UserError: no such paper, campaign or figure, or no run
    in it."""
    chosen, folders, target = campaign_folders(artifacts, name, ground)
    loaded = [(folder.name, load_campaign(folder)) for folder in folders]
    evidence = [_evidence(part, loaded, folders[0]) for part in chosen.parts]
    runs = [run for its in evidence for run in its.runs]
    if not runs:
        raise UserError(
            "no finished run", where=folders[0], do=f"see `hotbed run {name} --dry-run`"
        )
    entries = chosen.figures_by_part()
    if only is not None:
        entries = [one for one in entries if only in (one[1].id, one[1].id.rstrip("abcd"))]
        if not entries:
            known = [entry.id for entry in chosen.figures]
            raise unknown("figure", only, known, where=chosen.short)
    its = dict(zip(map(id, chosen.parts), evidence, strict=True))
    figures = []
    for index, (part, entry) in enumerate(entries):
        progress(f"figure {entry.id}", index / len(entries))
        figures.append(draw(entry, its[id(part)], target / "figures", chosen.short))
    progress("claims", 0.95)
    named = [one for one in figures_of(chosen) if only in (None, one.id, one.id.rstrip("abcd"))]
    mine = {claim.id for one in named for claim in one.claims}
    every = _results(chosen.parts, mine, evidence, _elsewhere(chosen, artifacts, name, folders))
    claims, others = _made_for(folders, every, chosen.commands(simulated=is_simulated(runs)))
    if only is not None:
        others = Others()
    tables = [
        made
        for part in chosen.parts
        if its[id(part)].runs
        for made in part.tables(its[id(part)].table)
    ]
    written = write(
        *(chosen, loaded, target, runs, figures),
        claims=claims,
        tables=tables,
        others=others,
        only=only,
    )
    progress("report", 1.0)
    return written


def write(
    chosen: Paper,
    loaded: Sequence[tuple[str, Attempts]],
    target: Path,
    runs: Sequence[LoadedRun],
    figures: Sequence[Drawn],
    *,
    claims: Sequence[ClaimResult],
    tables: Sequence[Table] = (),
    others: Others = Others(),
    only: str | None = None,
) -> Report:
    """Write the page, `claims.json` and the tables into `target`; the page and the claims of the
    figure `only` have names of their own and replace nothing (``report-fig6a.html``)."""
    style.settle()
    make_folder(target)
    end = "" if only is None else f"-fig{only}"
    claims_path, path = target / f"claims{end}.json", target / f"report{end}.html"
    write_file(claims_path, claims_text(claims))
    for one in tables:
        pd.DataFrame(one.as_json()).to_csv(target / f"{one.id}.csv", index=False)
    made = Report(
        path,
        claims_path,
        tuple(claims),
        tuple(figures),
        len(runs),
        tuple(tables),
        chosen.short,
        is_simulated(runs),
        others,
    )
    write_file(path, _page(chosen, runs, loaded, made))
    return made


def claims_text(claims: Sequence[ClaimResult]) -> str:
    """Return the content of `claims.json`."""
    return json.dumps([claim.model_dump(mode="json") for claim in claims], indent=1) + "\n"


def _results(
    parts: Sequence[Part],
    wanted: Collection[str],
    evidence: Sequence[Evidence],
    elsewhere: Sequence[Sequence[Evidence]],
) -> tuple[ClaimResult, ...]:
    """Return one result for each wanted claim: of the evidence of each part, and of the same parts
    on other grounds."""
    return merged(
        result
        for each in (evidence, *elsewhere)
        for part, its in zip(parts, each, strict=True)
        for result in evaluate_some(part.claims, wanted, its)
    )


def _elsewhere(
    chosen: Paper, artifacts: Path, name: str, folders: Sequence[Path]
) -> list[list[Evidence]]:
    """Return the evidence of a paper's report on other, less real grounds; nothing if the report is
    about a campaign, or has a ground for each part."""
    if name not in SHORT_NAMES or chosen.by_part or folders[0].name == name:
        return []
    own = realness(ground_of(folders[0]))
    others: dict[str, list[Path]] = {}
    for folder in _feeding(artifacts, chosen.short):
        ground = ground_of(folder)
        if folder not in folders and ground is not None and realness(ground) > own:
            others.setdefault(ground, []).append(folder)
    found = []
    for its in others.values():
        loaded = [(folder.name, load_campaign(folder)) for folder in its]
        found.append([_evidence(part, loaded, its[0]) for part in chosen.parts])
    return found


def _made_for(
    folders: Sequence[Path], claims: Sequence[ClaimResult], commands: Mapping[str, str]
) -> tuple[tuple[ClaimResult, ...], Others]:
    """Return the claims that a campaign was made for, and what the others need; all of them for a
    campaign without a list, or several campaigns."""
    wanted = claims_of(folders[0]) if len(folders) == 1 else ()
    if not wanted:
        return tuple(claims), Others()
    mine = tuple(claim for claim in claims if is_listed(claim.id, wanted))
    rest = [claim for claim in claims if claim not in mine]
    named = (figure.strip() for claim in rest for figure in claim.figure.split(","))
    found = (commands.get(figure) or commands.get(figure.rstrip("abcd")) for figure in named)
    whole = {one.partition(" --figure")[0]: None for one in found if one}
    return mine, Others(len(rest), tuple(whole))


def _page(
    chosen: Paper,
    runs: Sequence[LoadedRun],
    loaded: Sequence[tuple[str, Attempts]],
    made: Report,
) -> str:
    figures = made.figures
    tested = [claim for claim in made.claims if claim.effect != "not run"]
    untested: dict[str, list[ClaimResult]] = {}
    for claim in made.claims:
        if claim.effect == "not run":
            why = claim.unreachable or claim.note or "runs"
            untested.setdefault(why, []).append(claim)
    shared = shared_notes(tested)
    images = {
        figure.entry.id: base64.b64encode(figure.path.read_bytes()).decode()
        for figure in figures
        if figure.path is not None
    }
    shown = {
        "paper": chosen,
        "figures": figures,
        "tables": made.tables,
        "images": images,
        "shared_notes": shared,
        "campaigns": loaded,
        "facts": _facts(runs),
        "simulated": is_simulated(runs),
        "commands": chosen.commands(simulated=is_simulated(runs)),
        "calibration": _calibration(runs),
        "tested": tested,
        "untested": untested,
        "others": made.others,
    }
    return render(
        "report.html.j2",
        shown,
        number=format_value,
        interval=format_interval,
        sentence=sentence,
        own_notes=lambda c: [n for n in notes_of(c) if n not in shared],
        marks=lambda c: sorted(shared.index(n) + 1 for n in notes_of(c) if n in shared),
    )


def _calibration(runs: Sequence[LoadedRun]) -> list[tuple[str, str]]:
    """Return name and value of each of the runs' settings; runs may have several values."""
    found: dict[str, dict[str, None]] = {}

    def collect(value: object, path: str) -> None:
        if isinstance(value, dict | list) and value:
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for name, inner in pairs:
                collect(inner, f"{path}.{name}" if path else str(name))
        elif value is not None and path:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            text = f"{value:,.10g}" if number else str(value)
            found.setdefault(path, {})[text] = None

    for one in runs:
        its = one.run.provenance.calibration
        collect({name: value for name, value in its.items() if name not in _OF_CORES}, "")
    return [(path, "; ".join(texts)) for path, texts in found.items()]


_NUMBERS = (
    *("no", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)


def sentence(claim: ClaimResult) -> str:
    """Return the result of a claim with runs in one plain sentence, without its statement."""
    begins = {
        "confirmed": "It holds",
        "contradicted": "It does not hold",
        "inconclusive": "The runs do not decide it",
    }[claim.effect]
    where = ""
    if claim.held is not None and claim.counted:
        some = f"{claim.held} of {claim.counted}"
        if claim.held == claim.counted:
            some = f"all {_NUMBERS[claim.held] if claim.held < len(_NUMBERS) else claim.held}"
        runs = "blocks" if claim.baseline else "runs"
        if claim.counted == 1:
            some, runs = ("the one" if claim.held else "not in the one"), runs[:-1]
        holds = " it holds" if claim.effect != "confirmed" else ""
        where = f"{';' if holds else ''}{holds} in {some} {runs}"
    value = f"; {format_value(claim.measured, claim.unit)}"
    if claim.paper_value is not None:
        value += f", the paper {format_value(claim.paper_value, claim.unit)}"
    return f"{begins}{where}{value}."


def notes_of(claim: ClaimResult) -> list[str]:
    """Return a claim's note in its parts."""
    return claim.note.split(NOTE_SEPARATOR) if claim.note else []


def shared_notes(claims: Sequence[ClaimResult]) -> list[str]:
    """Return notes that more than two claims share: the page shows them once, below the table."""
    counts = Counter(note for claim in claims for note in notes_of(claim))
    return [note for note, count in counts.items() if count > 2]


def _facts(loaded_runs: Sequence[LoadedRun]) -> dict[str, str]:
    """Return facts about the runs for the reader: ground, versions, scale."""
    runs = [loaded.run for loaded in loaded_runs]
    versions: dict[str, set[str]] = {}
    for run in runs:
        for tool, version in run.provenance.versions.items():
            versions.setdefault(tool, set()).add(version)
    planners = {
        f"{host['processor']}, {host['cpus']} processors"
        for run in runs
        for host in run.provenance.hosts.values()
        if "processor" in host
    }
    facts = {
        "Runs": str(len(runs)),
        "Ground": ", ".join(sorted({run.ground for run in runs})),
        "Site": ", ".join(sorted({run.provenance.site for run in runs})),
        "OSDs": ", ".join(sorted({str(run.osd_count) for run in runs})),
        "Signal": ", ".join(sorted({str(run.provenance.signal) for run in runs})),
        "Time scale": ", ".join(sorted({f"{run.time_scale:.4g}" for run in runs})),
        "Versions": "; ".join(f"{k} {', '.join(sorted(v))}" for k, v in sorted(versions.items())),
        "Commits": ", ".join(
            sorted(
                {
                    f"{(r.provenance.commit or 'unknown')[:12]}"
                    f"{' with changes' if r.provenance.dirty else ''}"
                    for r in runs
                }
            )
        ),
        "From": min(run.started_at for run in runs),
        "To": max(run.ended_at for run in runs),
        "Planned on": "; ".join(sorted(planners)),
    }
    absent = {"OSDs": "None", "Signal": "None", "Planned on": ""}  # planners have no store
    return {name: text for name, text in facts.items() if absent.get(name) != text}


def format_value(value: float | None, unit: str, more: int = 0) -> str:
    """Format a claim's value for people: percent for relative changes, x for ratios, times with
    their unit. `more`: digits to add."""
    if value is None:
        return "–"
    if unit in ("relative change", "relative loss", SHARE, CHANGE) or "- 1" in unit:
        return f"{100 * value:.{1 + more}f} %"
    text = f"{value:,.{more}f}" if abs(value) >= 1000 else f"{value:.{2 + more}f}"
    if unit == "ratio":
        return f"{text}x"
    return f"{text} {unit}" if unit in ("s", "ms", "%") else text


def format_change(value: float, unit: str) -> str:
    """Format the change between two values of a claim: a factor, or a signed difference."""
    if unit == "ratio":
        return f"{value:.3g}x"
    shown = format_value(value, unit)
    if shown.endswith(" %"):
        shown = f"{shown.removesuffix(' %')} points"
    return shown if shown.startswith("-") else f"+{shown}"


def format_interval(interval: tuple[float, float] | None, unit: str) -> str:
    """Format a confidence interval like `format_value`, with digits that tell its ends apart."""
    if interval is None:
        return "–"
    for more in range(5):
        low, high = (format_value(value, unit, more) for value in interval)
        if low != high:
            break
    return f"{low} … {high}"
