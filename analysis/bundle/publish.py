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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata as installed
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

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
)
from analysis.bundle.private import (
    Aliases,
    Finding,
    SecretSearch,
    is_distinct,
    machines,
    parse,
    secrets_in,
)
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

Gather = Callable[[Mapping[Path, Sequence[Path]], Path], Sources]
Require = Callable[[Path, str], None]

RECORDS = {"plan.json", "curve.json", "inputs.json", "microstores.json", "mos.json"}
RECORDS |= {"objects.json", "bursts.json", "journal.jsonl"}
"""JSON files in an attempt's folder, in addition to run.json, summary.json and job.json."""
TABLES: Mapping[str, frozenset[str]] = {
    "samples.parquet": frozenset(("t_s", "node", "metric", "value")),
    "latency.parquet": frozenset(("t_s", "op", "tenant", "node", "low_ns", "high_ns", "count")),
    "requests.parquet": frozenset(("t_s", "latency_s", "pg")),
}
"""Tables and their columns."""
_INDEX = {"__index_level_0__"}  # row numbers that pandas adds after a concatenation
_JOB_PATHS = {"notebook": "$NOTEBOOKS", "spec": "$SPECS", "model": "$MODELS"}
_JOB_PATHS |= {"controllers_dir": "$CONTROLLERS"}
_JOB = {"schema_version", "kind", "run_id", "campaign", "attempt", "block", "order", "seed"}
_JOB |= {"ground", "parameters", "time_scale", "testbed", "timeout_s", "started_at", "limits"}
_JOB |= {"figures", "osd_count", "provenance", "code"}
_FACTS = {"kernel", "machine", "distribution", "cpus", "cpu_model", "memory_bytes", "fio"}
_FACTS |= {"python3", "congestion_control", "quota_slice_us", "mtu", "systemd", "roles", "osds"}
_FACTS |= {"signal", "processor", "processors", "ceph", "nfs-ganesha", "swift", "python", "model"}
_FACTS |= {"packages"}
_KNOWN_PLACES = ("/notebooks/", "/testbed/specs/", "/campaigns/files/")
_LOGS = "raw logs and executed notebooks (--with-logs packs them)"
_PANDAS = {"index_columns", "column_indexes", "columns", "attributes", "creator", "pandas_version"}
"""Keys of the note that pandas adds to a table."""
_WRITER = re.compile(r"parquet-cpp-arrow version [\w.-]{1,30}")
_HARMLESS_NAME = re.compile(r"[\w.-]{1,60}", re.ASCII)
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
            stage = Stage(Path(place) / "bundle", aliases, with_logs=with_logs, left_out=left_out)
            for folder, taken in attempts.items():
                stage.add_campaign(folder, taken, progress)
            for target, file in found.files.items():
                stage.add_source(target, file)
            _refuse(stage.found)
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
    _, folders, _ = campaign_folders(artifacts, name, ground)
    if not folders or not folders[0].is_dir():
        raise UserError("no such campaign", where=artifacts / name, do="run it with hotbed run")
    return folders, name, False


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
    claims = len(derived.tested)
    count = "1 claim that is" if claims == 1 else f"{claims} claims that are"
    body: dict[str, Any] = {
        "title": f"{derived.title}: results of {names}"[:250],
        "short_description": f"{runs} runs with figures, claims and their check"[:70],
        "description": (
            f"Runs, figures and claims regenerated by Hotbed {sources.version}: {runs} "
            f"finished runs of {names} on the ground {grounds}, "
            + (
                f"with {count} computed from them and can be computed again."
                if claims
                else "and no claim that can be computed from them."
            )
        ),
        "authors": sources.authors,
        "date": max((one.ended_at for one in campaigns), default="")[:10],
    }
    return checked(About, body | dict(stated), "--about")


def _refuse(findings: Sequence[Finding]) -> None:
    """Raise if there are findings; name the first of them by file and line."""
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


def attempts_of(campaign: Path, left_out: Counter[str]) -> list[Path]:
    """Return the attempts to pack: attempts at cells of the campaign's last plan, with any
    result."""
    compared = read_record(campaign / "comparison.json").get("cells")
    planned = {str(cell["run_id"]) for cell in compared} if compared else planned_runs(campaign)
    every = list(run_folders(campaign))
    taken = [one for one in every if planned is None or one.parent.name in planned]
    left_out["attempts at cells that the campaign no longer holds"] += len(every) - len(taken)
    left_out["unfinished attempts"] += sum(1 for _ in campaign.glob("*/.attempt-*.partial"))
    return taken


def _aliases(
    artifacts: Path,
    attempts: Mapping[Path, Sequence[Path]],
    sources: Sources,
    hidden: Sequence[str],
) -> Aliases:
    """Return the aliases for the folders and machines that sources and runs name."""
    folders = {str(artifacts.resolve()): "$ARTIFACTS", **sources.hide}
    host = socket.gethostname()
    names = dict.fromkeys(sources.names)
    names |= dict.fromkeys(
        one for one in (host, host.partition(".")[0]) if len(one) >= 4 and is_distinct(one)
    )
    nodes: set[str] = set()
    for attempt in (one for taken in attempts.values() for one in taken):
        folders |= _folders(read_record(attempt / "job.json"))
        run = read_record(attempt / "run.json")
        if run.get("ground") != "sim":
            nodes |= _nodes(run)
            said = [run.get("reason"), read_record(attempt / "error.json")]
            names |= dict.fromkeys(machines(json.dumps(said)))
    folders.pop("/", None)
    names = {name: None for name in names if name and name not in nodes}
    return Aliases(folders, names, filter(None, hidden))


def _nodes(run: Mapping[str, Any]) -> set[str]:
    """Return the nodes of a run by their names in the spec, which identify no machine. A record of
    an old version may have other names: names with a dot, or of no group, are not returned."""
    provenance = run.get("provenance")
    if not isinstance(provenance, dict):
        return set()
    groups = (provenance.get("calibration") or {}).get("groups") or {}
    named = re.compile("|".join(rf"{re.escape(one)}-?\d*" for one in groups) or r"[^.]*")
    return {node for node in provenance.get("hosts") or {} if named.fullmatch(node)}


def _folders(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the folders that a job names, with the word that stands for each."""
    for key, word in _JOB_PATHS.items():
        text = str(job.get(key) or "")
        if text.startswith("/"):
            ours = [text.rpartition(place)[0] for place in _KNOWN_PLACES if place in text]
            folder = text if key == "controllers_dir" else str(PurePosixPath(text).parent)
            yield (ours[0], "$HOTBED") if ours else (folder, word)


def _json(body: object, indent: int = 2) -> bytes:
    return (json.dumps(body, indent=indent, ensure_ascii=False) + "\n").encode()


class Stage:
    """A folder with the files of the future bundle.

    Attributes:
        left_out: number of files that are not packed, by reason.
        found: content that must not be published.
    """

    def __init__(
        self,
        folder: Path,
        aliases: Aliases,
        *,
        with_logs: bool = False,
        left_out: Counter[str] | None = None,
    ) -> None:
        self.folder = folder
        self.left_out = Counter() if left_out is None else left_out
        self.found: list[Finding] = []
        self._aliases, self._with_logs = aliases, with_logs
        self._names: set[str] = set()
        self._secrets = SecretSearch()
        self._packers: dict[str, Callable[[Path, str], bytes | None]] = {
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
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return dict(sorted((path.relative_to(self.folder).as_posix(), path) for path in files))

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
        else:
            for what, at in self._aliases.identifying(text):
                self.found.append(Finding(name, text.count("\n", 0, at) + 1, what))
        self.found += (Finding(name, at, what) for what, at in secrets_in(text))
        self.put(name, text.encode())

    def add_campaign(
        self, campaign: Path, attempts: Sequence[Path], progress: Progress = quiet
    ) -> None:
        """Add a campaign's records and attempts. UserError: a file cannot be read."""
        for name in CAMPAIGN_FILES:
            if (campaign / name).is_file():
                target = f"artifacts/{campaign.name}/{name}"
                self._take(target, self._record(campaign / name, target))
        for index, attempt in enumerate(attempts):
            progress("runs", index / len(attempts))
            self._add_attempt(f"artifacts/{campaign.name}/{attempt.parent.name}", attempt)

    def _add_attempt(self, place: str, attempt: Path) -> None:
        # The record may be a link of git-annex or DataLad; other links stay.
        record = f"{place}/{attempt.name}/run.json"
        data = self._run(attempt / "run.json", record)
        if data is None:
            return
        self._take(record, data)
        for file in sorted(attempt.rglob("*")):
            inner = file.relative_to(attempt).as_posix()
            name = f"{place}/{attempt.name}/{inner}"
            if inner == "run.json":
                continue
            if file.is_symlink():
                self.left_out["links"] += 1
            elif file.is_file() and inner in self._packers:
                self._take(name, self._packers[inner](file, name))
            elif file.is_file():
                shown = f"{place}/{attempt.name}/{self._aliases.text(inner)}"
                self._take(shown, self._log(file, name))

    def _take(self, name: str, data: bytes | None) -> None:
        """Put a run's file if it has data and its name is valid and free."""
        if data is None:
            return
        if archive.unsafe_name(name) is not None:
            self.left_out["files with names that some systems do not allow"] += 1
        elif archive.taken(name, self._names) is not None:
            self.left_out["files with names that other files have"] += 1
        else:
            self.put(name, data)

    # Packers of known files: they return the bytes to pack, or None.

    def _run(self, file: Path, name: str) -> bytes | None:
        try:
            run = Run.model_validate_json(_read(file))
        except (UserError, ValidationError):
            self.left_out["attempts without a valid run.json"] += 1
            return None
        return self._clean(name, with_known_facts(run.model_dump(mode="json")))

    def _summary(self, file: Path, name: str) -> bytes | None:
        try:
            summary = Summary.model_validate_json(_read(file))
        except ValidationError:
            return self._unreadable(file)
        return self._clean(name, summary.model_dump(mode="json"))

    def _job(self, file: Path, name: str) -> bytes | None:
        try:
            body = json.loads(_read(file))
            known = {key: body[key] for key in body if key in _JOB}
            if "provenance" in known:
                known = with_known_facts(known)
        except (ValueError, TypeError, AttributeError):
            return self._unreadable(file)
        return self._clean(name, known | self._paths(body, _JOB_PATHS))

    def _record(self, file: Path, name: str) -> bytes | None:
        """Return a JSON or JSON Lines file with aliases in its texts, or its original bytes if
        nothing changes."""
        data = _read(file)
        lines = data.splitlines(keepends=True) if file.suffix == ".jsonl" else [data]
        made = []
        for number, line in enumerate(lines, 1):
            try:
                body = parse(line)
            except ValueError:
                if file.suffix != ".jsonl":
                    return self._unreadable(file)
                continue  # a torn line; readers of a journal skip it too
            clean = self._aliases.value(body)
            own = clean.get("campaign") if isinstance(clean, dict) else None
            if file.name == "campaign.json" and isinstance(own, dict):
                clean["campaign"] = {**own, **self._paths(own, ("spec", "notebook"))}
            self.found += self._secrets.findings(name, clean, number)
            same = clean == body
            made.append(line if same else (json.dumps(clean, ensure_ascii=False) + "\n").encode())
        return b"".join(made)

    def _table(self, file: Path, name: str) -> bytes | None:
        """Return a table of known columns with aliases in its texts, or its original bytes if
        nothing changes."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            opened = pq.ParquetFile(file)
            table = opened.read()
            table.validate(full=True)
            known = [one for one in table.column_names if one in TABLES[file.name]]
            if not all(_is_plain(table[one].type) for one in known):
                return self._unreadable(file)
            clean = {one: self._column(name, table[one]) for one in known}
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise UserError(f"is no Parquet file that can be read ({error})", where=file) from error
        strange = set(table.column_names) - set(known) - _INDEX
        self.left_out[f"columns of {file.name} that are not known"] += len(strange)
        noted = _has_notes(table.schema, str(opened.metadata.created_by))
        if not strange and not noted and not any(clean.values()):
            return _read(file)
        sink = io.BytesIO()
        pq.write_table(pa.table({one: clean[one] or table[one] for one in known}), sink)
        return sink.getvalue()

    def _column(self, name: str, column: Any) -> list[str] | None:
        """Return a column with aliases in its texts, or None if nothing changes."""
        import pyarrow as pa

        if pa.types.is_primitive(column.type):
            return None
        texts = {text: self._aliases.text(text) for text in column.unique().to_pylist() if text}
        self.found += self._secrets.findings(name, list(texts.values()))
        if all(old == new for old, new in texts.items()):
            return None
        return [texts.get(text, text) for text in column.to_pylist()]

    def _log(self, file: Path, name: str) -> bytes | None:
        """Return a raw log with aliases, or None if it is not requested or no text."""
        text = None if file.suffix == ".parquet" else _text(_read(file))
        if text is None:
            harmless = _HARMLESS_NAME.fullmatch(file.name)
            known = harmless and self._aliases.text(file.name) == file.name
            self.left_out[f"unknown file {file.name if known else ''}".strip()] += 1
            return None
        if not self._with_logs:
            self.left_out[_LOGS] += 1
            return None
        made = self._aliases.text(text)
        self.found += (Finding(name, at, what) for what, at in secrets_in(made))
        self.found += (Finding(name, 1, what) for what, _ in secrets_in(name))
        return made.encode()

    def _clean(self, name: str, body: Any) -> bytes:
        made = self._aliases.value(body)
        self.found += self._secrets.findings(name, made)
        return _json(made)

    def _paths(self, body: Mapping[str, Any], keys: Iterable[str]) -> dict[str, str]:
        """Return paths in a record without folders of this machine that have no alias."""
        found = {}
        for key in keys:
            if body.get(key):
                text = self._aliases.text(str(body[key]))
                absolute = text.startswith("/")
                found[key] = f"{_JOB_PATHS[key]}/{PurePosixPath(text).name}" if absolute else text
        return found

    def _unreadable(self, file: Path) -> bytes | None:
        self.left_out[f"{file.name} that cannot be read"] += 1
        return None


def _is_plain(kind: Any) -> bool:
    """Return True if a column's type is one of numbers or texts."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(text or pa.types.is_primitive(kind))


def _has_notes(schema: Any, writer: str) -> bool:
    """Return True if a table has other notes than pandas and pyarrow write."""
    notes = schema.metadata or {}
    try:
        pandas = json.loads(notes.get(b"pandas", b"{}"))
        known = pandas.keys() <= _PANDAS and not pandas.get("attributes")
    except (ValueError, AttributeError):
        return True
    return bool(
        not known
        or notes.keys() - {b"pandas"}
        or any(field.metadata for field in schema)
        or not _WRITER.fullmatch(writer)
    )


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
