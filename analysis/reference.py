"""References: results of figures that stay when their runs are gone (`schemas.reference`).

`add` writes the references of the figures that a campaign's runs feed. `check` computes figures and
claims again from what is stored, and compares. `report` draws a paper's references as its report.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from analysis.bundle.archive import files_in
from analysis.bundle.private import private_in
from analysis.bundle.verify import Difference, differences
from analysis.core.claims import NOTE_SEPARATOR, merged
from analysis.core.figures import Drawn, FigureEntry
from analysis.core.load import Attempts, LoadedRun, NotKept, load_campaign
from analysis.core.papers import SHORT_NAMES, FigureClaims, figures_of, paper
from analysis.core.report import Progress, Report, campaign_folders, is_simulated, runs_of
from analysis.core.report import write as write_report
from analysis.stored import (
    CLAIMS,
    DATA,
    RECORD,
    FigureResult,
    compute,
    facts_of,
    folders_in,
    key_of,
    read_claims,
    read_record,
    read_runs,
    to_json,
    write,
)
from schemas.claim import ClaimResult
from schemas.durable import commit_folder, make_folder, read_json
from schemas.errors import UserError, nearest, unknown
from schemas.reference import AttemptCounts, CodeDigest, Reference

Digest = Callable[[tuple[str, ...]], str]
"""Function that returns the digest of code (`testbed.closure.digest`). FileNotFoundError: an entry
point is gone."""

MOST_BYTES = 25_000_000
"""Maximum size of all references."""
_SIM = "-sim"
_STALE = "Stale: the code that made or computed it has changed since"


def _short(shelf: str) -> str:
    """Return the paper's short name of a folder of references."""
    return shelf if shelf in SHORT_NAMES else shelf.removesuffix(_SIM)


# ---- add -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Added:
    """Result of `add`: bytes by written folder, the reason for each figure that is left out, and
    the size of all references in bytes."""

    folders: Mapping[Path, int]
    left_out: Mapping[str, str]
    total: int


def add(
    artifacts: Path,
    name: str,
    root: Path,
    digest: Digest,
    command: Callable[[Path], str],
    *,
    ground: str | None = None,
    progress: Progress = lambda phase, share: None,
) -> Added:
    """Write the references of all figures and claims with runs of the report `name` (see
    `report.build`); `command` returns the command of the runs in a folder. All are written or none,
    and each replaces an older one whole. UserError: the code of the runs is unknown, changed or of
    several versions, `root` has newer results, or what would be stored is private or too large."""
    chosen, folders, _ = campaign_folders(artifacts, name, ground)
    loaded = [(folder.name, load_campaign(folder)) for folder in folders]
    codes = {key_of(run.run): _code_of(run) for _, its in loaded for run in its.runs}
    fed = {folder.name: _figures_fed(folder) for folder in folders}
    analysed = CodeDigest(entries=(chosen.code,), digest=digest((chosen.code,)))
    figures = figures_of(chosen)
    left_out: dict[str, str] = {}
    new: dict[Path, Path] = {}
    make_folder(root)
    with tempfile.TemporaryDirectory(prefix=".", dir=root) as scratch:
        for index, figure in enumerate(figures):
            progress(f"figure {figure.id}", index / len(figures))
            runs = runs_of(figure.part, loaded, folders[0])
            planned = [run for run in runs if figure.is_fed(fed[run.run.campaign][run.run.run_id])]
            folder = Path(scratch, figure.folder)
            found = _smallest(figure, chosen.short, runs, planned, folder) if runs else None
            if found is None or found.is_empty:
                missing = found.drawn.missing if found and found.drawn else None
                left_out[figure.id] = missing or "no runs"
                continue
            shelf = chosen.short + _SIM * (chosen.sim_option and is_simulated(found.runs))
            own = {run.run.campaign for run in found.runs}
            record = Reference(
                paper=shelf,
                figure=figure.id,
                campaigns={one: _counts(its) for one, its in loaded if one in own},
                commands=tuple(command(one) for one in folders if one.name in own),
                code=(*_one_code(codes[key_of(run.run)] for run in found.runs), analysed),
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                **facts_of(found.runs),
            )
            final = root / shelf / figure.folder
            _refuse_older(final, record)
            write(folder, record, found)
            new[final] = folder
        _refuse_private(Path(scratch))
        sizes = {final: _bytes(folder) for final, folder in new.items()}
        kept = sum(_bytes(folder) for folder in folders_in(root) if folder not in new)
        total = kept + sum(sizes.values())
        _refuse_large(root, total)
        for final, folder in new.items():
            _replace(folder, final)
    return Added(sizes, left_out, total)


def _code_of(loaded: LoadedRun) -> tuple[CodeDigest, ...]:
    """Return the code that made a run. UserError: it had changes or is unknown, or a part of it is
    outside of the repository."""
    place = loaded.file("job.json").parent
    if loaded.run.provenance.dirty is not False or loaded.run.provenance.commit is None:
        raise UserError(
            "was made by code with changes that no commit has",
            where=place,
            do="commit them, and run the campaign again",
        )
    try:
        body = json.loads((place / "job.json").read_bytes())
        found = tuple(CodeDigest.model_validate(one) for one in body["code"] if one["entries"])
    except (OSError, ValueError, KeyError, TypeError):
        found = ()
    if not found or any(Path(entry).is_absolute() for one in found for entry in one.entries):
        raise UserError(
            "does not record its code, or has code from outside of Hotbed",
            where=place,
            allowed="runs of `hotbed run` with Hotbed's own controllers and notebooks",
        )
    return found


def _one_code(each: Iterable[tuple[CodeDigest, ...]]) -> Iterator[CodeDigest]:
    """Yield the code of all runs. UserError: they have several versions of it."""
    found: dict[tuple[str, ...], CodeDigest] = {}
    for one in (code for codes in each for code in codes):
        if found.setdefault(one.entries, one) != one:
            raise UserError(
                "the runs were made by several versions of the code",
                where=one.entries[0],
                do="run the campaign again: it repeats the runs of other versions",
            )
    yield from found.values()


def _figures_fed(campaign: Path) -> Mapping[str, Sequence[str]]:
    """Return the figures that each of a campaign's cells is planned for, by run id."""
    cells = read_json(campaign / "campaign.json")["cells"]
    return {cell["run_id"]: cell.get("figures", ()) for cell in cells}


def _smallest(
    figure: FigureClaims,
    short: str,
    runs: Sequence[LoadedRun],
    planned: Sequence[LoadedRun],
    folder: Path,
) -> FigureResult:
    """Return the result from all runs, or from the runs planned for the figure if it is the same:
    other runs need not be stored."""
    less = compute(figure, short, planned, None) if 0 < len(planned) < len(runs) else None
    found = compute(figure, short, runs, folder)
    return replace(found, runs=less.runs) if less is not None and less.is_same(found) else found


def _counts(attempts: Attempts) -> AttemptCounts:
    return AttemptCounts(
        spoiled=attempts.spoiled, failed=attempts.failed, interrupted=attempts.interrupted
    )


def _refuse_older(final: Path, record: Reference) -> None:
    if final.exists() and (there := read_record(final)).ended_at > record.ended_at:
        raise UserError(
            f"has newer results, from runs until {there.ended_at}",
            where=final,
            do="remove this folder first if older results must replace it",
        )


def _refuse_private(folder: Path) -> None:
    for one in private_in(files_in(folder)):
        raise UserError(
            f"nothing was added, because this would be stored: {one.what}",
            where=f"{one.file}:{one.line}",
            do="take it out of the campaign or the spec, and run the campaign again",
        )


def _refuse_large(root: Path, total: int) -> None:
    if total > MOST_BYTES:
        raise UserError(
            f"all references would have {total} bytes",
            where=root,
            allowed=f"up to {MOST_BYTES}",
            do="remove references that nothing needs any more",
        )


def _replace(new: Path, final: Path) -> None:
    """Put a folder in the place of another, whole."""
    old = new.with_name(f"{new.name}.old")
    make_folder(final.parent)
    if final.exists():
        final.rename(old)
    try:
        commit_folder(new, final)
    except BaseException:
        if old.exists():
            old.rename(final)
        raise


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


# ---- check ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckedFigure:
    """Result of a check of one reference. `stale`: entry points of code that has changed since;
    `result`: what follows from the stored runs, None if that cannot be computed."""

    folder: Path
    reference: Reference
    stale: tuple[str, ...]
    differences: tuple[Difference, ...] = ()
    result: FigureResult | None = field(default=None, repr=False)


def check(root: Path, digest: Digest, shelf: str | None = None) -> list[CheckedFigure]:
    """Compute every reference (of one paper) again from what it stores; compare claims and the
    numbers that figures show. UserError: there is no reference, or a record cannot be read."""
    digest = cache(digest)
    return [_checked(one, digest, None) for one in _folders(root, shelf)]


def _folders(root: Path, shelf: str | None) -> list[Path]:
    found = folders_in(root, shelf or "*")
    if not found:
        there = sorted({folder.parent.name for folder in folders_in(root)})
        raise UserError(
            "there is no reference",
            where=root / (shelf or ""),
            allowed=", ".join(there),
            do=nearest(shelf or "", there)
            or "add the results of a campaign with `hotbed reference add`",
        )
    return found


def _checked(folder: Path, digest: Digest, pictures: Path | None) -> CheckedFigure:
    """Check a reference; its figure is drawn into the folder `pictures`, if any."""
    record = read_record(folder)
    checked = CheckedFigure(folder, record, tuple(_stale(record, digest)))
    short = _short(folder.parent.name)
    figures = (one for one in figures_of(paper(short)) if one.folder == folder.name)
    figure = next(figures, None)
    if figure is None:
        unknown = Difference(RECORD, "figure", record.figure, "no such figure")
        return replace(checked, differences=(unknown,))
    try:
        found = compute(figure, short, read_runs(folder), pictures, stale=bool(checked.stale))
        differing = tuple(_differences(folder, record, found))
    except (NotKept, UserError) as error:
        place = error.where.partition(": ")[0] if isinstance(error, UserError) else DATA
        lacking = Difference(Path(place).name, "", "missing or unreadable", str(error))
        return replace(checked, differences=(lacking,))
    return replace(checked, differences=differing, result=found)


def _stale(record: Reference, digest: Digest) -> Iterator[str]:
    for code in record.code:
        try:
            same = digest(code.entries) == code.digest
        except FileNotFoundError:
            same = False
        if not same:
            yield code.entries[0]


def _differences(folder: Path, record: Reference, found: FigureResult) -> Iterator[Difference]:
    """Yield differences between what is stored and what follows from the stored runs."""
    derived = record.model_copy(update=facts_of(found.runs))
    yield from differences(RECORD, record.model_dump(mode="json"), derived.model_dump(mode="json"))
    stated = [one.model_dump(mode="json") for one in read_claims(folder)]
    claims = [one.model_dump(mode="json") for one in found.claims]
    yield from differences(CLAIMS, stated, claims)
    there = [path.stem for path in sorted(folder.glob("*.png"))]
    drawn = [] if found.picture is None else [found.picture.stem]
    if there != drawn:
        yield Difference("*.png", "", ", ".join(there) or "none", ", ".join(drawn) or "none")
    elif drawn:
        name = f"{drawn[0]}.json"
        yield from differences(name, read_json(folder / name), json.loads(to_json(found.shown)))


# ---- report --------------------------------------------------------------------------------------


def report(
    root: Path, shelf: str, target: Path, digest: Digest, *, only: str | None = None
) -> tuple[Report, list[CheckedFigure]]:
    """Draw a paper's references, or those of the figure `only`, as a report in `target`; stale
    figures and claims are marked. UserError: there is no such reference."""
    digest = cache(digest)
    checked = [
        _checked(folder, digest, target / "figures")
        for folder in _folders(root, shelf)
        if only in (None, folder.name, folder.name.rstrip("abcd"))
    ]
    by_figure = {one.reference.figure: one for one in checked}
    claims: dict[tuple[str, str | None], ClaimResult] = {}
    runs: dict[str, LoadedRun] = {}
    campaigns: dict[str, AttemptCounts] = {}
    for one in checked:
        campaigns |= one.reference.campaigns
        if one.result is not None:
            runs |= {key_of(run.run): run for run in one.result.runs}
            marked = [_marked(claim) if one.stale else claim for claim in one.result.claims]
            claims |= {(claim.id, claim.ground): claim for claim in marked}
    if only is not None and not checked:
        raise unknown("figure", only, [one.name for one in _folders(root, shelf)], where=shelf)
    if not runs:
        raise UserError(
            "no figure can be drawn",
            where=root / shelf / (only or ""),
            do="add its reference again",
        )
    chosen = paper(_short(shelf))
    named = (claim.id for part in chosen.parts for claim in part.claims)
    order = {name: place for place, name in enumerate(dict.fromkeys(named))}
    written = write_report(
        chosen,
        [(name, _attempts(name, runs.values(), its)) for name, its in campaigns.items()],
        target,
        list(runs.values()),
        [
            _drawn(entry, by_figure.get(entry.id))
            for _, entry in chosen.figures_by_part()
            if only is None or entry.id in by_figure
        ],
        claims=merged(sorted(claims.values(), key=lambda claim: order[claim.id])),
        only=only,
    )
    return written, checked


def _marked(claim: ClaimResult) -> ClaimResult:
    notes = [claim.note, _STALE] if claim.note else [_STALE]
    return claim.model_copy(update={"note": NOTE_SEPARATOR.join(notes)})


def _drawn(entry: FigureEntry, checked: CheckedFigure | None) -> Drawn:
    if checked is None:
        return Drawn(entry, None, "no reference")
    if checked.result is None or checked.result.drawn is None:
        return Drawn(entry, None, "its reference lacks data or cannot be read")
    drawn = checked.result.drawn
    caption = f"{drawn.entry.caption} {_STALE}." if checked.stale else drawn.entry.caption
    return replace(drawn, entry=replace(drawn.entry, caption=caption))


def _attempts(name: str, runs: Iterable[LoadedRun], counts: AttemptCounts) -> Attempts:
    mine = tuple(run for run in runs if run.run.campaign == name)
    return Attempts(mine, counts.spoiled, counts.failed, counts.interrupted, unreadable=())
