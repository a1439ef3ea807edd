"""Making of a bundle: known files with known fields, and what is computed and written from them.

A run folder is private. `Stage` packs the files that `RECORDS` and `TABLES` list, and of records
only the fields that are listed here. Runs name nodes by the names in the spec from the moment they
are written. Any other identifying data in a text gets an alias, and a secret stops the bundle
(`analysis.bundle.private`). Raw logs are packed on request.
"""

from __future__ import annotations

import io
import json
import re
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata as installed
from pathlib import Path, PurePosixPath
from typing import Any

from analysis.bundle import archive
from analysis.bundle.archive import Progress, quiet
from analysis.bundle.describe import (
    LIBRARIES,
    Derived,
    Ran,
    derive,
    described,
    ran,
    read_record,
    runs_in,
)
from analysis.bundle.private import Aliases, is_distinct, machines, parse, private_in
from analysis.core.load import planned_runs, run_folders
from analysis.core.report import campaign_folders
from schemas.bundle import (
    ABOUT,
    CAMPAIGN_FILES,
    MANIFEST,
    About,
    Entry,
    Manifest,
    Sources,
    role_of,
)
from schemas.errors import UserError
from schemas.mistakes import checked
from schemas.run import Run, Summary

Attempts = Mapping[Path, Run]
"""Records of attempts by their folders."""
Gather = Callable[[Mapping[Path, Attempts], Path], Sources]
Require = Callable[[Path, str], None]
Packer = Callable[[Path], bytes | None]

RECORDS = {"plan.json", "curve.json", "inputs.json", "microstores.json", "mos.json"}
RECORDS |= {"objects.json", "bursts.json", "journal.jsonl"}
"""JSON files in an attempt's folder, in addition to run.json, summary.json and job.json."""
TABLES: Mapping[str, tuple[str, ...]] = {
    "samples.parquet": ("t_s", "node", "metric", "value"),
    "latency.parquet": ("t_s", "op", "tenant", "node", "low_ns", "high_ns", "count"),
    "requests.parquet": ("t_s", "latency_s", "pg"),
}
"""Tables and their columns."""
_JOB_PATHS = {"notebook": "$NOTEBOOKS", "spec": "$SPECS", "model": "$MODELS"}
_JOB_PATHS |= {"controllers_dir": "$CONTROLLERS"}
_JOB = {"schema_version", "kind", "run_id", "campaign", "attempt", "block", "order", "seed"}
_JOB |= {"ground", "parameters", "time_scale", "testbed", "timeout_s", "started_at", "limits"}
_JOB |= {"figures", "osd_count", "provenance", "code", *_JOB_PATHS}
_FACTS = {"kernel", "machine", "distribution", "cpus", "cpu_model", "memory_bytes", "fio"}
_FACTS |= {"python3", "congestion_control", "quota_slice_us", "mtu", "systemd", "roles", "osds"}
_FACTS |= {"signal", "processor", "processors", "ceph", "nfs-ganesha", "swift", "python", "model"}
_FACTS |= {"packages"}
_KNOWN_PLACES = ("/notebooks/", "/testbed/specs/", "/campaigns/files/")
_LOGS = "raw logs and executed notebooks (--with-logs packs them)"
_SHOWN = 20  # findings that a refusal names


@dataclass(frozen=True)
class Bundled:
    """Result of `build`."""

    path: Path
    sha256: str
    bytes: int
    manifest: Manifest
    derived: Derived


def build(
    artifacts: Path,
    name: str,
    out: Path,
    sources: Gather,
    *,
    about: Mapping[str, Any] | None = None,
    hidden: Sequence[str] = (),
    ground: str | None = None,
    with_logs: bool = False,
    require: Require = lambda stage, campaign: None,
    progress: Progress = quiet,
) -> Bundled:
    """Bundle the report `name` (see `hotbed report`), or the comparison of that name, into `out`.
    Run folders are only read. `sources` and `require` are as in `campaigns.bundled`; host names in
    `hidden` stop the bundle if a program has them. UserError: there is no such campaign or no run
    in it, `out` cannot be written, or a file (named with its line) must not be published."""
    archive.refuse_folder(out)
    folders, report, compared = _campaigns(artifacts, name, ground)
    try:
        with tempfile.TemporaryDirectory(prefix="hotbed-bundle-") as place:
            (Path(place) / "sources").mkdir()
            left_out: Counter[str] = Counter()
            attempts = {folder: attempts_of(folder, left_out) for folder in folders}
            found = sources(attempts, Path(place) / "sources")
            aliases = _aliases(artifacts, attempts, found, hidden)
            stage = Stage(Path(place) / "bundle", aliases, left_out, with_logs=with_logs)
            for folder, taken in attempts.items():
                stage.add_campaign(folder, taken, progress)
            for target, file in found.files.items():
                stage.add_source(target, file)
            _refuse_private(stage, aliases)
            for folder in folders:
                _require(require, stage.folder, folder.name)
            made = derive(
                stage.folder / "artifacts", report, comparison=compared, progress=progress
            )
            campaigns = [ran(stage.folder / "artifacts" / folder.name) for folder in folders]
            manifest = Manifest(
                report=report,
                campaigns=tuple(one.campaign for one in campaigns),
                comparison=compared,
                hotbed_version=found.version,
                commit=found.commit,
                libraries={library: installed.version(library) for library in LIBRARIES},
                redacted=dict(sorted((+aliases.counts).items())),
                left_out=dict(sorted((+left_out).items())),
                notes=found.notes,
                files=(),
            )
            stated = about_of(about or {}, found, made, campaigns)
            manifest = _describe(stage, stated, manifest, made, campaigns)
            sha256 = archive.write(out, stage.files(), progress)
    except OSError as error:
        raise UserError(
            f"nothing was bundled ({error.strerror or error})",
            where=error.filename or "",
            do="set TMPDIR to a folder with room for all of it",
        ) from error
    progress("done", 1.0)
    return Bundled(out, sha256, out.stat().st_size, manifest, made)


def _campaigns(artifacts: Path, name: str, ground: str | None) -> tuple[list[Path], str, bool]:
    """Return the folders of runs behind the report `name`, the report's folder, and True if it is
    a comparison."""
    if Path(name).name != name:
        raise UserError(
            "is a path",
            where=name,
            allowed=f"the name of a campaign in {artifacts}",
            do="give --artifacts for another folder of campaigns",
        )
    if (artifacts / name / "comparison.json").is_file():
        return [artifacts / name], name, True
    return campaign_folders(artifacts, name, ground)[1], name, False


def _describe(
    stage: Stage, about: About, manifest: Manifest, made: Derived, campaigns: Sequence[Ran]
) -> Manifest:
    """Add the appendix, the metadata and the manifest; return the manifest."""
    stage.put(ABOUT, _json(about.model_dump(mode="json"), indent=1))
    sizes = {name: file.stat().st_size for name, file in stage.files().items()}
    for target, text in described(about, manifest, made, campaigns, sizes).items():
        stage.put(target, text)
    entries = []
    for name, file in stage.files().items():
        digest, role = archive.digest(file), role_of(name, manifest.campaigns)
        entries.append(Entry(path=name, sha256=digest.sha256, bytes=digest.bytes, role=role))
    manifest = manifest.model_copy(update={"files": tuple(entries)})
    stage.put(MANIFEST, _json(manifest.model_dump(mode="json"), indent=1))
    return manifest


def about_of(
    stated: Mapping[str, Any], sources: Sources, derived: Derived, campaigns: Sequence[Ran]
) -> About:
    """Return the description of a bundle: fields from the user, and the others from the runs.
    UserError: a field from the user is not valid."""
    names = ", ".join(one.campaign for one in campaigns)
    grounds = ", ".join(sorted({one.ground for one in campaigns}))
    runs = sum(one.finished for one in campaigns)
    count = len(derived.tested)
    claims = {
        0: "and no claim that can be computed from them",
        1: "with 1 claim that is computed from them and can be computed again",
    }.get(count, f"with {count} claims that are computed from them and can be computed again")
    body: dict[str, Any] = {
        "title": f"{derived.title}: results of {names}"[:250],
        "short_description": f"{runs} runs with figures, claims and their check"[:70],
        "description": f"Runs, figures and claims regenerated by Hotbed {sources.version}: {runs} "
        f"finished runs of {names} on the ground {grounds}, {claims}.",
        "authors": sources.authors,
        "date": max((one.ended_at for one in campaigns), default="")[:10],
    }
    return checked(About, body | dict(stated), "--about")


def _refuse_private(stage: Stage, aliases: Aliases) -> None:
    """Raise if there are findings; name the first of them by file and line."""
    findings = list(private_in(stage.files(), aliases))
    if findings:
        named = "; ".join(f"{one.file}:{one.line}: {one.what}" for one in findings[:_SHOWN])
        more = f"; and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
        raise UserError(
            f"nothing was bundled, because it has content that must not leave: {named}{more}",
            do="hide a host name with --hide; remove secrets from the runs, and anything private "
            "from controllers, notebooks and constants, which are packed as they are",
        )


def _require(require: Require, stage: Path, campaign: str) -> None:
    """Raise if a campaign could not be run again from the bundle."""
    try:
        require(stage, campaign)
    except UserError as error:
        why = str(error).replace(f"{stage}/", "")
        raise UserError(f"nothing was bundled, as it could not be run again: {why}") from error


def attempts_of(campaign: Path, left_out: Counter[str]) -> Attempts:
    """Return the attempts to pack: attempts at cells of the campaign's last plan, with any
    result."""
    compared = read_record(campaign / "comparison.json").get("cells")
    planned = {str(cell["run_id"]) for cell in compared} if compared else planned_runs(campaign)
    runs = runs_in(campaign)
    held = {one: run for one, run in runs.items() if planned is None or one.parent.name in planned}
    left_out["attempts at cells that the campaign no longer holds"] += len(runs) - len(held)
    invalid = sum(1 for _ in run_folders(campaign)) - len(runs)
    left_out["attempts without a valid run.json"] += invalid
    left_out["unfinished attempts"] += sum(1 for _ in campaign.glob("*/.attempt-*.partial"))
    return held


def _aliases(
    artifacts: Path, campaigns: Mapping[Path, Attempts], sources: Sources, hidden: Sequence[str]
) -> Aliases:
    """Return the aliases for the folders and machines that sources and runs name."""
    folders = {str(artifacts.resolve()): "$ARTIFACTS", **sources.hide}
    host = socket.gethostname()
    names = [*sources.names]
    names += [one for one in (host, host.partition(".")[0]) if len(one) >= 4 and is_distinct(one)]
    nodes: set[str] = set()
    for campaign, attempts in campaigns.items():
        folders |= _folders(read_record(campaign / "campaign.json").get("campaign") or {})
        for attempt, run in attempts.items():
            folders |= _folders(read_record(attempt / "job.json"))
            if run.ground != "sim":
                nodes |= _nodes(run)
                names += machines(json.dumps([run.reason, read_record(attempt / "error.json")]))
    folders.pop("/", None)
    return Aliases(folders, [name for name in names if name not in nodes], hidden)


def _nodes(run: Run) -> set[str]:
    """Return the nodes of a run by their names in the spec, which identify no machine. A record of
    an old version may have other names: names with a dot, or of no group, are not returned."""
    groups = run.provenance.calibration.get("groups") or {}
    named = re.compile("|".join(rf"{re.escape(one)}-?\d*" for one in groups) or r"[^.]*")
    return {node for node in run.provenance.hosts if named.fullmatch(node)}


def _folders(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the folders that a job or a campaign names, with the word that stands for each."""
    for key, word in _JOB_PATHS.items():
        text = str(record.get(key) or "")
        if text.startswith("/"):
            ours = [text.rpartition(place)[0] for place in _KNOWN_PLACES if place in text]
            folder = text if key == "controllers_dir" else str(PurePosixPath(text).parent)
            yield (ours[0], "$HOTBED") if ours else (folder, word)


def _json(body: object, indent: int | None = 2) -> bytes:
    return (json.dumps(body, indent=indent, ensure_ascii=False) + "\n").encode()


class Stage:
    """A folder with the files of the future bundle.

    Attributes:
        left_out: number of files that are not packed, by reason.
    """

    def __init__(
        self, folder: Path, aliases: Aliases, left_out: Counter[str], *, with_logs: bool = False
    ) -> None:
        self.folder, self.left_out = folder, left_out
        self._aliases, self._with_logs = aliases, with_logs
        self._names: set[str] = set()
        self._packers: dict[str, Packer] = {
            **dict.fromkeys(RECORDS, self._record),
            **dict.fromkeys(TABLES, self._table),
            "summary.json": self._summary,
            "job.json": self._job,
        }

    def put(self, name: str, data: bytes) -> None:
        """Write a file."""
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def files(self) -> dict[str, Path]:
        """Return every file by its name in the bundle."""
        return archive.files_in(self.folder)

    def add_source(self, name: str, file: Path) -> None:
        """Add a source file: campaign files and specs with aliases. Programs, notebooks and
        constants stay unchanged: an alias could change the behaviour of a program. YAML files lose
        the first line with the path of their schema. UserError: it cannot be read."""
        text = _text(_read(file))
        if text is None:
            self.left_out["sources that are no text"] += 1
            return
        if name.endswith(".yaml"):
            text = re.sub(r"\A# yaml-language-server: .*\n", "", text)
        if name.startswith(("campaigns/", "specs/")):
            text = self._aliases.text(text)
        self.put(name, text.encode())

    def add_campaign(self, campaign: Path, attempts: Attempts, progress: Progress = quiet) -> None:
        """Add a campaign's records and attempts. UserError: a file cannot be read."""
        place = f"artifacts/{campaign.name}"
        for name in CAMPAIGN_FILES:
            if (campaign / name).is_file():
                self._pack(f"{place}/{name}", campaign / name, self._record)
        for index, (attempt, run) in enumerate(attempts.items()):
            progress("runs", index / len(attempts))
            self._add_attempt(f"{place}/{attempt.parent.name}/{attempt.name}", attempt, run)

    def _add_attempt(self, place: str, attempt: Path, run: Run) -> None:
        record = with_known_facts(run.model_dump(mode="json"))
        self._pack(f"{place}/run.json", attempt / "run.json", lambda _: self._clean(record))
        for file in sorted(attempt.rglob("*")):
            inner = file.relative_to(attempt).as_posix()
            if file.is_symlink():
                self.left_out["links"] += 1
            elif file.is_file() and inner in self._packers:
                self._pack(f"{place}/{inner}", file, self._packers[inner])
            elif file.is_file() and inner != "run.json":
                self._pack(f"{place}/{self._aliases.text(inner)}", file, self._log)

    def _pack(self, name: str, file: Path, packer: Packer) -> None:
        """Put what `packer` returns for a run's file if the name is valid and free."""
        try:
            data = packer(file)
        except (ValueError, TypeError, AttributeError):
            self.left_out[f"{file.name} that cannot be read"] += 1
            return
        if data is None:
            return
        if archive.refused_name(name, self._names) is not None:
            self.left_out["files with names that a bundle cannot have"] += 1
        else:
            self.put(name, data)

    # Packers of known files: they return the bytes to pack, or None. ValueError, TypeError,
    # AttributeError: the file is no such record.

    def _summary(self, file: Path) -> bytes:
        return self._clean(Summary.model_validate_json(_read(file)).model_dump(mode="json"))

    def _job(self, file: Path) -> bytes:
        body = json.loads(_read(file))
        known = {key: body[key] for key in body if key in _JOB}
        return self._clean(with_known_facts(known) if "provenance" in known else known)

    def _record(self, file: Path) -> bytes:
        """Return a JSON or JSON Lines file with aliases in its texts, or its original bytes if
        nothing changes."""
        data = _read(file)
        lines = data.splitlines(keepends=True) if file.suffix == ".jsonl" else [data]
        made = []
        for line in lines:
            try:
                body = parse(line)
            except ValueError:
                if file.suffix != ".jsonl":
                    raise
                continue  # a torn line; readers of a journal skip it too
            clean = self._aliases.value(body)
            made.append(line if clean == body else _json(clean, indent=None))
        return b"".join(made)

    def _table(self, file: Path) -> bytes:
        """Return a table of the known columns alone, with aliases in its texts."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.ParquetFile(file).read()
            table.validate(full=True)
            known = [one for one in table.column_names if one in TABLES[file.name]]
            # Written anew, the table has no notes, in which anything might be.
            made = pa.table({one: self._column(table[one]) for one in known})
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise UserError(f"is no Parquet file that can be read ({error})", where=file) from error
        strange = len(table.column_names) - len(known)
        self.left_out[f"columns of {file.name} that are not known"] += strange
        sink = io.BytesIO()
        pq.write_table(made, sink)
        return sink.getvalue()

    def _column(self, column: Any) -> Any:
        """Return a column with aliases in its texts."""
        import pyarrow as pa

        if pa.types.is_primitive(column.type):
            return column
        texts = column.unique().cast(pa.string()).to_pylist()
        aliases = {text: self._aliases.text(text) for text in texts if text}
        if all(old == new for old, new in aliases.items()):
            return column
        return [aliases.get(text, text) for text in column.to_pylist()]

    def _log(self, file: Path) -> bytes | None:
        """Return a raw log with aliases, or None if it is not requested or no text."""
        text = _text(_read(file))
        if text is not None and self._with_logs:
            return self._aliases.text(text).encode()
        unknown = f"unknown file {self._aliases.text(file.name)}"
        self.left_out[unknown if text is None else _LOGS] += 1
        return None

    def _clean(self, body: Any) -> bytes:
        return _json(self._aliases.value(body))


def with_known_facts(body: dict[str, Any]) -> dict[str, Any]:
    """Return a record of a run or job, with only the known facts of its machines."""
    provenance = dict(body["provenance"])
    provenance["hosts"] = {
        node: {fact: value for fact, value in facts.items() if fact in _FACTS}
        for node, facts in (provenance.get("hosts") or {}).items()
    }
    return {**body, "provenance": provenance}


def _text(data: bytes) -> str | None:
    """Return the text of a file, or None if it is no text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=file) from error
