"""Puts a campaign's runs where the bundle is made from, without what tells of somebody's machines.

Run folders are only read. What of them is not taken is counted, with the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from analysis.bundle import archive, hosts
from analysis.bundle.folders import Folders
from analysis.bundle.redact import Redactor, opaque_columns
from analysis.load import planned_runs, run_folders
from schemas.bundle import Role
from schemas.errors import UserError

Progress = Callable[[str, float], None]

CAMPAIGN_FILES = ("campaign.json", "comparison.json", "ledger.jsonl")
TEXTS = {".json", ".jsonl", ".txt", ".log", ".ipynb", ".csv", ".md", ".yaml", ".yml", ".xml"}
TEXTS |= {".html", ".conf", ".cfg", ".toml", ".lock", ".py", ".cff", ".out", ".err", ".prom", ""}
_KNOWN_PLACES = ("/notebooks/", "/testbed/specs/", "/campaigns/files/")
_HOST_FACTS = ("hostname", "fqdn", "nodename", "address", "public_address")
_PATHS_END = re.compile(r"[\s\"'\\]")
_LONGEST = 4096  # bytes of a path, at most
_ADDRESS = re.compile(r"[\d.]+|[0-9a-fA-F:]+")


@dataclass
class Stage:
    """A folder that holds what will be in the bundle, and each file's role; `look` is told of each
    file of an attempt (name, file) when it is there: nobody writes to those any more. `named` tells
    in which line of a program a machine of the runs is named."""

    folder: Path
    look: Callable[[str, Path], None] = lambda name, file: None
    named: Callable[[bytes], int | None] = lambda data: None
    roles: dict[str, Role] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    _names: set[str] = field(default_factory=set)
    _folders: Folders = field(default_factory=Folders)
    _digests: dict[str, archive.Digest] = field(default_factory=dict)

    def has_room(self, name: str) -> bool:
        """Whether a bundle can have a file of that name: once, and opened anywhere; where it
        cannot, that is counted."""
        if archive.unsafe_name(name) is not None:
            self.left_out["files whose names cannot be had everywhere"] += 1
        elif archive.taken(name, self._names) is not None:
            self.left_out["files whose names are taken by others"] += 1
        else:
            return True
        return False

    def put(self, name: str, data: bytes, role: Role) -> None:
        """Write a file.

        Raises:
            UserError: it is somebody's program, and names a machine of the runs.
        """
        line = self.named(data) if role == "source" or name.endswith(".py") else None
        if line is not None:
            raise UserError(
                "nothing was bundled, because something in it should not leave: "
                f"{name}:{line}: a machine's name. Take it out there: programs, notebooks and "
                "constants are packed as they are."
            )
        target = f"{self.folder}/{name}"
        self._folders.hold(target)
        Path(target).write_bytes(data)
        self.roles[name] = role
        self._digests[name] = archive.Digest(hashlib.sha256(data).hexdigest(), len(data))
        if "/attempt-" in name:
            self.look(name, Path(target))

    def digest(self, name: str) -> archive.Digest:
        """Of a file as it was put here, or of what somebody else has written as it is."""
        return self._digests.get(name) or archive.digest(self.folder / name)

    def adopt(self, folder: str, role: Role) -> None:
        """Take what somebody else has written below `folder`."""
        for path in sorted((self.folder / folder).rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if not path.is_file():
                continue
            if name not in self.roles:
                self.roles[name] = role
            elif "/attempt-" not in name:  # a comparison's record is written again
                self._digests.pop(name, None)

    def files(self) -> dict[str, Path]:
        """Every file by its name in the bundle."""
        return {name: self.folder / name for name in sorted(self.roles)}


def attempts_of(campaign: Path, left_out: Counter[str]) -> list[Path]:
    """The attempts that are taken: of the cells that the campaign holds as last planned, however
    they ended."""
    planned = _compared(campaign)
    if planned is None:
        planned = planned_runs(campaign)
    taken = []
    for folder in run_folders(campaign):
        if planned is None or folder.parent.name in planned:
            taken.append(folder)
        else:
            left_out["attempts at cells that the campaign no longer holds"] += 1
    left_out["unfinished attempts"] += sum(1 for _ in campaign.glob("*/.attempt-*.partial"))
    return taken


def _compared(campaign: Path) -> frozenset[str] | None:
    """The runs of a comparison; None where there is none."""
    try:
        body = json.loads((campaign / "comparison.json").read_bytes())
        return frozenset(str(cell["run_id"]) for cell in body["cells"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def private_names(
    attempts: Iterable[Path], hide: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Folders and host names that the runs tell of, and what to write instead.

    Args:
        attempts: their folders.
        hide: folders that are known to the caller, and what to write instead.
    """
    folders, names = dict(hide), dict[str, str]()
    ledgers = set[Path]()
    for attempt in attempts:
        folders |= _artifacts(attempt) | _folders(_read(attempt / "job.json"))
        run = _read(attempt / "run.json")
        tell = [attempt / "run.json", attempt / "error.json"]
        ledger = attempt.parents[1] / "ledger.jsonl"
        if ledger not in ledgers:
            ledgers.add(ledger)
            tell.append(ledger)
        for name in chain(_host_names(run), *(_machines(file, run) for file in tell)):
            names.setdefault(name, f"host-{len(names) + 1}")
    folders.pop("/", None)
    return folders, names


def _machines(file: Path, run: Mapping[str, Any]) -> Iterator[str]:
    """Names of machines in what a record says of a failure, with and without their domain."""
    try:
        data = file.read_bytes()
    except OSError:
        return
    ours = _ours(run)
    for name in map(bytes.decode, hosts.machines(data)):
        yield name
        short = name.partition(".")[0]
        if re.search(r"\d", short) and (ours is None or not ours.fullmatch(short)):
            yield short


def _artifacts(attempt: Path) -> dict[str, str]:
    """The artifacts folder in which an executed notebook says that it was made."""
    try:
        data = (attempt / "notebook.ipynb").read_text()
    except (OSError, UnicodeDecodeError):
        return {}
    place = f"/{attempt.parent.parent.name}/{attempt.parent.name}/"
    at = data.find(place)
    while at >= 0:
        word = _PATHS_END.split(data[max(0, at - _LONGEST) : at])[-1]
        if "/" in word:
            return {word[word.index("/") :]: "$ARTIFACTS"}
        at = data.find(place, at + 1)
    return {}


def _folders(job: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, word in (("notebook", "$NOTEBOOKS"), ("spec", "$SPECS"), ("model", "$MODELS")):
        text = str(job.get(key) or "")
        if not text.startswith("/"):
            continue
        ours = [text.rpartition(place)[0] for place in _KNOWN_PLACES if place in text]
        if ours:
            found[ours[0]] = "$HOTBED"
        else:
            found[str(PurePosixPath(text).parent)] = word
    if str(job.get("controllers_dir") or "").startswith("/"):
        found[str(job["controllers_dir"])] = "$CONTROLLERS"
    found.pop("", None)
    return found


def _host_names(run: Mapping[str, Any]) -> Iterator[str]:
    """Names of nodes that people gave them, not the spec's groups; and what nodes are called
    elsewhere. (A simulated run's are no machines.)"""
    provenance = run.get("provenance")
    if not isinstance(provenance, dict) or run.get("ground") == "sim":
        return
    ours = _ours(run)
    for node, facts in (provenance.get("hosts") or {}).items():
        ordinary = "." not in node and (ours is None or ours.fullmatch(node))
        if not ordinary:
            yield node
        for key in _HOST_FACTS:
            text = facts.get(key) if isinstance(facts, dict) else None
            if not isinstance(text, str) or text in ("", node) or _ADDRESS.fullmatch(text):
                continue
            if ours is None or not ours.fullmatch(text):
                yield text


def _ours(run: Mapping[str, Any]) -> re.Pattern[str] | None:
    """What the spec calls its nodes, where the run tells."""
    try:
        groups = run["provenance"]["calibration"]["groups"]
        return re.compile("|".join(rf"{re.escape(g)}-?\d*" for g in groups)) if groups else None
    except (KeyError, TypeError):
        return None


def _read(file: Path) -> dict[str, Any]:
    try:
        body = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def stage_runs(
    stage: Stage, campaigns: Mapping[Path, list[Path]], redactor: Redactor, progress: Progress
) -> None:
    """Copy campaigns' records and attempts (folder -> its attempts), redacted."""
    stage.named = redactor.named_in
    total = sum(map(len, campaigns.values()))
    done = 0
    for campaign, attempts in campaigns.items():
        for name in CAMPAIGN_FILES:
            data = redacted(campaign / name, redactor) if (campaign / name).is_file() else None
            if data is not None:
                stage.put(f"artifacts/{campaign.name}/{name}", data, "run")
        for attempt in attempts:
            progress("runs", done / max(1, total))
            done += 1
            _stage_attempt(stage, campaign, attempt, redactor)


def _stage_attempt(stage: Stage, campaign: Path, attempt: Path, redactor: Redactor) -> None:
    for file in sorted(attempt.rglob("*")):
        if file.is_symlink():
            stage.left_out["links"] += 1
            continue
        if not file.is_file():
            continue
        relative = redactor.data(os.fsencode(file.relative_to(campaign))).decode(errors="replace")
        name = f"artifacts/{campaign.name}/{relative}"
        data = redacted(file, redactor)
        if data is None:
            stage.left_out["files of a kind that cannot be looked into"] += 1
        elif stage.has_room(name):
            stage.put(name, data, "run")


def redacted(file: Path, redactor: Redactor) -> bytes | None:
    """A file's contents as they may leave; None where nobody can tell what they say.

    Raises:
        UserError: a Parquet file cannot be read.
    """
    try:
        if file.suffix == ".parquet":
            if opaque_columns(file):
                return None
            made = redactor.parquet(file)
            return file.read_bytes() if made is None else made
        data = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}).") from error
    if file.suffix not in TEXTS or b"\0" in data:
        return None
    if file.suffix == ".py":  # see `source`
        return data
    return _notebook(data, redactor) if file.suffix == ".ipynb" else redactor.data(data)


def _notebook(data: bytes, redactor: Redactor) -> bytes:
    """An executed notebook. It is a record, with folders of this machine in it; but its code keeps
    words that are machines' names too."""
    if not redactor.has_plain(data):
        return redactor.data(data)
    try:
        body = json.loads(data)
        cells = [cell for cell in body["cells"] if cell["cell_type"] == "code"]
        sources = [cell["source"] for cell in cells]
    except (ValueError, KeyError, TypeError):
        return redactor.data(data)
    marks = [f"\1{number}\1" for number in range(len(cells))]
    for cell, mark in zip(cells, marks, strict=True):
        cell["source"] = mark
    made = redactor.data((json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode())
    for mark, text in zip(marks, sources, strict=True):
        code = redactor.data(json.dumps(text, ensure_ascii=False).encode(), code=True)
        made = made.replace(json.dumps(mark).encode(), code)
    return made


def source(file: Path, redactor: Redactor | None) -> bytes | None:
    """The contents of a file that somebody wrote, as they may leave; None where it is no text.

    Args:
        file: the file.
        redactor: None for programs: with another word in it, one may do something else. The scan
            stops a bundle whose programs tell of somebody.

    Raises:
        UserError: it cannot be read.
    """
    try:
        data = file.read_bytes()
        data.decode()
    except UnicodeDecodeError:
        return None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}).") from error
    if b"\0" in data:
        return None
    return data if redactor is None else redactor.data(data)
