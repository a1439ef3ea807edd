"""A figure with its claims: computed from runs, and kept in files (`schemas.reference`).

A stored run has no folder. It returns the data that figure and claims got from the run's files
when they were computed (`LoadedRun.reduced`), so that the same functions draw it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.bundle.publish import with_known_facts
from analysis.core import style
from analysis.core.claims import Evidence, evaluate_some
from analysis.core.figures import Drawn
from analysis.core.load import LoadedRun
from analysis.core.papers import FigureClaims
from analysis.core.report import claims_text, draw
from schemas.claim import ClaimResult
from schemas.durable import make_folder, read_json, write_file
from schemas.errors import UserError
from schemas.mistakes import checked
from schemas.reference import Reference
from schemas.run import Run, Summary

RECORD, CLAIMS, SUMMARY, DATA = "reference.json", "claims.json", "summary.parquet", "data.json"
_JSON = ("parameters", "phases_s", "provenance", "metrics", "stopping")
"""Columns of `SUMMARY` with a mapping as JSON, or None."""
_HARDWARE = ("processor", "cpu_model", "cpus", "processors", "memory_bytes", "machine", "kernel")


@dataclass(frozen=True)
class FigureResult:
    """Claims and drawing of a figure, the numbers that the drawing shows (None without one), and
    the runs that they follow from, each with the data that they used."""

    claims: tuple[ClaimResult, ...]
    drawn: Drawn | None
    shown: Any
    runs: Sequence[LoadedRun]

    @property
    def picture(self) -> Path | None:
        """The drawn picture; None without one."""
        return None if self.drawn is None else self.drawn.path

    @property
    def is_empty(self) -> bool:
        """True if nothing is drawn and no claim has a value."""
        return self.picture is None and all(claim.measured is None for claim in self.claims)

    def is_same(self, other: FigureResult) -> bool:
        """Return True if claims and numbers are equal."""
        claims = claims_text(self.claims) == claims_text(other.claims)
        return claims and to_json(self.shown) == to_json(other.shown)


def compute(
    figure: FigureClaims,
    short: str,
    runs: Sequence[LoadedRun],
    folder: Path | None,
    *,
    stale: bool = False,
) -> FigureResult:
    """Compute the claims and draw the figure into `folder`; `short` begins the picture's name.
    Without a folder no picture is written."""
    runs = [one if one.folder is None else replace(one, kept={}) for one in runs]
    evidence = Evidence(figure.part.tabulate(runs), runs)
    own = {one.id for one in figure.claims}
    claims = tuple(evaluate_some(figure.part.claims, own, evidence))
    with style.recorded(png=folder is not None, pdf=False) as shown:
        entry, place = figure.entry, folder or Path()
        drawn = None if entry is None else draw(entry, evidence, place, short, stale=stale)
    return FigureResult(claims, drawn, next(iter(shown.values()), None), runs)


def key_of(run: Run) -> str:
    """Return a run's name in `DATA`."""
    return f"{run.campaign}/{run.run_id}"


def facts_of(runs: Sequence[LoadedRun]) -> dict[str, Any]:
    """Return the fields of a `Reference` that follow from its runs."""
    records = [one.run for one in runs]
    hosts = [host for run in records for host in run.provenance.hosts.values()]
    kinds = [{name: host[name] for name in _HARDWARE if name in host} for host in hosts]
    machine = {json.dumps(kind, sort_keys=True): kind for kind in kinds if kind}
    return {
        "ground": records[0].ground,
        "runs": len(records),
        "commits": tuple(sorted({str(run.provenance.commit) for run in records})),
        "machine": tuple(machine[text] for text in sorted(machine)),
        "ended_at": max(run.ended_at for run in records),
    }


def write(folder: Path, record: Reference, found: FigureResult) -> None:
    """Write the files of a reference; the picture is in `folder` already."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    make_folder(folder)
    write_file(folder / RECORD, record.model_dump_json(indent=1) + "\n")
    write_file(folder / CLAIMS, claims_text(found.claims))
    rows = [_row(one) for one in found.runs]
    pq.write_table(pa.Table.from_pylist(rows), folder / SUMMARY, compression="zstd")
    data = {key_of(one.run): one.kept for one in found.runs if one.kept}
    if data:
        write_file(folder / DATA, to_json(data))
    if found.picture is not None:
        write_file(found.picture.with_suffix(".json"), to_json(found.shown))


def to_json(body: object) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"


def _row(loaded: LoadedRun) -> dict[str, Any]:
    body = with_known_facts(loaded.run.model_dump(mode="json"))
    body |= {"commit": body["provenance"]["commit"], "metrics": loaded.summary.model_dump()}
    return body | {name: json.dumps(body[name]) for name in _JSON if body[name] is not None}


def folders_in(root: Path, shelf: str = "*") -> list[Path]:
    """Return the folders of all references, or of one paper's."""
    found = (path.parent for path in root.glob(f"{shelf}/*/{RECORD}"))
    return sorted(folder for folder in found if not folder.parent.name.startswith("."))


def read_record(folder: Path) -> Reference:
    """Return the record of a reference. UserError: it cannot be read."""
    return checked(Reference, read_json(folder / RECORD), folder / RECORD)


def read_claims(folder: Path) -> list[ClaimResult]:
    """Return the claims of a reference. UserError: they cannot be read."""
    path = folder / CLAIMS
    return [checked(ClaimResult, one, path) for one in read_json(path)]


def read_runs(folder: Path) -> list[LoadedRun]:
    """Return the runs of a reference. UserError: they cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = read_json(folder / DATA) if (folder / DATA).exists() else {}
    found = []
    try:
        for row in pq.read_table(folder / SUMMARY).to_pylist():
            body = row | {name: row[name] and json.loads(row[name]) for name in _JSON}
            summary = Summary.model_validate(body.pop("metrics"))
            del body["commit"]
            run = Run.model_validate(body)
            found.append(LoadedRun(run, summary, None, data.get(key_of(run), {})))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise UserError(
            f"is no table of runs ({type(error).__name__})",
            where=folder / SUMMARY,
            do="add the reference again",
        ) from error
    return found
