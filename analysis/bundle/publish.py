"""Runs in publishable form: known files with known fields, and aliases for names.

A run folder is private. `Stage.add_campaign` packs the files that `RECORDS`, `SERIES` and `TABLES`
list, and of records only the fields that are listed here. Runs name nodes by the names in the spec
from the moment they are written. `Aliases` replaces any other identifying data in a text. Raw logs
are packed on request. A secret is never replaced: it stops the bundle (`secrets_in`, based on
detect-secrets).
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from analysis.bundle import archive
from analysis.core.load import planned_runs, run_folders
from schemas.bundle import Role
from schemas.errors import UserError
from schemas.run import Run, Summary

CAMPAIGN_FILES = ("campaign.json", "comparison.json", "ledger.jsonl")
RECORDS = {"plan.json", "curve.json", "inputs.json", "microstores.json", "mos.json"}
RECORDS |= {"objects.json", "bursts.json"}
"""JSON files in an attempt's folder, in addition to run.json, summary.json and job.json."""
SERIES = ("journal.jsonl",)
_LATENCY = frozenset(("t_s", "op", "tenant", "node", "low_ns", "high_ns", "count"))
TABLES: Mapping[str, frozenset[str]] = {
    "samples.parquet": frozenset(("t_s", "node", "metric", "value")),
    "latency.parquet": _LATENCY,
    "requests.parquet": frozenset(("t_s", "latency_s", "pg")),
}
"""Tables and their columns."""
_INDEX = {"__index_level_0__"}  # row numbers that pandas adds after a concatenation
_JOB_PATHS = {
    "notebook": "$NOTEBOOKS",
    "spec": "$SPECS",
    "model": "$MODELS",
    "controllers_dir": "$CONTROLLERS",
}
_JOB = {
    "schema_version",
    "kind",
    "run_id",
    "campaign",
    "attempt",
    "block",
    "order",
    "seed",
    "ground",
}
_JOB |= {"parameters", "time_scale", "testbed", "timeout_s", "started_at", "limits", "figures"}
_JOB |= {"osd_count", "provenance", "code"}
_FACTS = {"kernel", "machine", "distribution", "cpus", "cpu_model", "memory_bytes", "fio"}
_FACTS |= {"python3", "congestion_control", "quota_slice_us", "mtu", "systemd", "roles", "osds"}
_FACTS |= {"signal", "processor", "processors", "ceph", "nfs-ganesha", "swift", "python", "model"}
_KNOWN_PLACES = ("/notebooks/", "/testbed/specs/", "/campaigns/files/")
_LOGS = "raw logs and executed notebooks (--with-logs packs them)"
_PANDAS = {"index_columns", "column_indexes", "columns", "attributes", "creator", "pandas_version"}
_WRITER = re.compile(r"parquet-cpp-arrow version [\w.-]{1,30}")
_HARMLESS_NAME = re.compile(r"[\w.-]{1,60}", re.ASCII)


@dataclass(frozen=True)
class Finding:
    """Content that must not be published. The text itself is not repeated: the reader of a finding
    may not be the owner. `line` counts from 1."""

    file: str
    line: int
    what: str


# ---- names, addresses and folders ---------------------------------------------------------------

_ESCAPED = r"(?<=\\[nrtb])|(?<=\\x1b)|(?<=\dm)|(?<=\[K)|(?<=\dK)"
"""Start of a word after an escape in JSON or a terminal colour code."""
_BEGIN = rf"(?:(?<![\w.-])|{_ESCAPED})"
_BEGIN_PATH = rf"(?:(?<![\w.$}}/-])|{_ESCAPED})"
_LABEL = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}"
_PRIVATE = re.compile(
    r"(?P<mac>(?:(?<![0-9a-fA-F:-])|(?<=\\x1b))(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w-]|:\w))"
    r"|(?P<ipv4>(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\d))"
    r"|(?P<ipv6>(?:(?<![0-9a-fA-F:.])|(?<=\\x1b))(?=[0-9a-fA-F]{4}:)[0-9a-fA-F:]{4,60}(?![\w]))"
    rf"|(?P<dashed>{_BEGIN}(?:ip|host)(?:-\d{{1,3}}){{4}}(?![\w-]))"
    r"|(?P<mail>[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[a-zA-Z]{2,24})"
    rf"|(?P<home>{_BEGIN_PATH}(?:(?:/(?:export|mnt|nfs|net|srv|var|data|shared))?/home\d?|/[Uu]sers)"
    rf"/[^/\s\"'\\:,;)\]<>|]+|{_BEGIN_PATH}/root(?=[/\"'\s\\:,;)\]<]|$))"
    rf"|(?P<host>(?<![\w.-])(?:{_LABEL}\.){{1,8}}[A-Za-z]{{2,24}}(?![\w-]|\.\w))"
)
_SOMETIMES = re.compile(r"[.:@/]|(?:ip|host)-\d")
"""In a text without any of these, `_PRIVATE` finds nothing."""
_KINDS = {
    "mac": ("hardware addresses", "a hardware address"),
    "ipv4": ("addresses", "a machine's address"),
    "ipv6": ("addresses", "a machine's IPv6 address"),
    "dashed": ("host names", "a machine's name"),
    "mail": ("mail addresses", "a mail address"),
    "home": ("homes", "a home folder"),
    "host": ("host names", "a machine's name"),
}
"""Kinds of identifying data in `_PRIVATE`: name in the manifest's counts, and text of a finding."""
_ONE_ALIAS = {"homes": "$HOME", "mail addresses": "someone@example.org"}
_NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16")
_PRIVATE_NETWORKS = tuple(map(ipaddress.ip_network, _NETWORKS))
_DOCUMENTED = ipaddress.ip_network("2001:db8::/32")
_VERSIONS_END = 24
"""First number from which a dotted quad cannot be a version."""
_NO_MAIL = re.compile(
    r"(?i)@(?:[\w-]+\.)*example(?:\.(?:com|org|net))?$|^git@"
    r"|\.(?:service|timer|socket|mount|slice|target|scope|path|py|json|yaml|yml|txt|log)$"
)
_OWN_ENDS = {"lan", "local", "internal", "intranet", "intra", "corp", "home", "lab", "private"}
_OWN_ENDS |= {"cluster", "novalocal", "localdomain", "maas"}
_PUBLIC_ENDS = {"com", "org", "net", "edu", "gov", "mil", "int", "info", "cloud", "dev"}
_COUNTRIES = re.compile(
    r"a[eru]|b[gory]|c[ahlnorz]|d[ek]|e[eguks]|f[ir]|g[br]|h[kru]|i[elnr]|j[op]|k[erz]|l[tuv]"
    r"|m[xy]|n[lz]|p[ehkt]|qa|r[ouw]|s[agk]|t[hrw]|u[akys]|v[en]|z[aw]"
)
_WORDS_TOO = re.compile(r"at|be|br|id|in|is|it|no|pl|rs|se|si|to|tv")
"""Country domains that are also endings of programs and files: these need a digit or dash."""
_EVERYBODYS = re.compile(
    r"(?:^|\.)(?:example(?:\.(?:com|org|net|edu))?|localhost\.localdomain|cluster\.local"
    r"|(?:ceph|docker|quay|github)\.(?:com|io)|githubusercontent\.com|chameleoncloud\.org"
    r"|(?:schema|w3|purl|zenodo|debian|python|pypi|openstack|apache|kernel|readthedocs)\.(?:org|io)"
    r"|(?:spdx|doi|orcid|jupyter|scipy|matplotlib|zlib)\.org"
    r"|(?:ubuntu|launchpad|openssh|google|googleapis|redhat|ansible|anaconda)\.(?:com|org))$"
)
_USER = re.compile(r"(?<![\w.+-])(?!someone@)[\w.+-]{1,64}@(?=host-\d)")


def is_distinct(name: str) -> bool:
    """Return True if a machine's or user's name cannot be a word of a program or a record."""
    return any(character in ".-" or character.isdigit() for character in name)


def _identifies(kind: str, text: str) -> bool:
    """Return True if a match of `_PRIVATE` identifies a machine or person."""
    match kind:
        case "mac":
            return True
        case "ipv4":
            return _is_machines_v4(text)
        case "dashed":
            return _is_machines_v4(text.partition("-")[2].replace("-", "."))
        case "ipv6":
            return _is_machines_v6(text)
        case "mail":
            return not _NO_MAIL.search(text)
        case "host":
            return _is_machine(text.lower())
    return True


def _is_machines_v4(text: str) -> bool:
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return False
    if any(address in network for network in _PRIVATE_NETWORKS):
        return True
    return not address.is_private and _VERSIONS_END <= address.packed[0] < 224


def _is_machines_v6(text: str) -> bool:
    parts = text.split(":")
    for candidate in (text, text.removesuffix(":"), ":".join(parts[:8])):
        try:
            address = ipaddress.IPv6Address(candidate)
        except ValueError:
            continue
        unique = address.packed[0] & 0xFE == 0xFC
        public = address.packed[0] >> 5 == 1 and address not in _DOCUMENTED
        return address.is_link_local or unique or public
    return False


def _is_machine(name: str) -> bool:
    labels = name.split(".")
    end, distinct = labels[-1], bool(re.search(r"[\d-]", "".join(labels[:-1])))
    if labels[0] in ("self", "cls") or _EVERYBODYS.search(name):
        return False
    if end in _OWN_ENDS:
        return len(labels) > 2 or distinct
    if len(labels) < 3:
        return False
    if end in _PUBLIC_ENDS or _COUNTRIES.fullmatch(end):
        return True
    return distinct and bool(_WORDS_TOO.fullmatch(end))


class Aliases:
    """Replaces identifying data in texts by aliases, consistently across files.

    Attributes:
        counts: number of replacements, by kind.
    """

    def __init__(
        self, folders: Mapping[str, str], names: Iterable[str] = (), hidden: Iterable[str] = ()
    ) -> None:
        """Take the data to replace.

        Args:
            folders: absolute folders, and the word that stands for each.
            names: names of machines, users and projects.
            hidden: names that must not be in programs either, ordinary words or not.
        """
        self.counts: Counter[str] = Counter()
        self._folders = dict(folders)
        hidden = tuple(hidden)
        known = list(dict.fromkeys((*hidden, *names)))
        self._given = {name: f"host-{number}" for number, name in enumerate(known, 1)}
        self._used = Counter({"host": len(known)})
        self._words = _any_of(known, _BEGIN)
        self._places = _any_of(self._folders, "")
        self._distinct = _any_of({*hidden, *filter(is_distinct, known)}, _BEGIN)
        self._clean: set[str] = set()

    def text(self, text: str) -> str:
        """Return `text` with aliases."""
        if text in self._clean:
            return text
        made = text
        if self._places is not None and "/" in made:
            made = self._places.sub(lambda found: self._folder(found[0]), made)
        if _SOMETIMES.search(made):
            made = _PRIVATE.sub(self._private, made)
        if self._words is not None:
            made = self._words.sub(lambda found: self._alias("host names", found[0]), made)
        if "@host-" in made:
            made = _USER.sub("someone@", made)
        if made == text and len(text) < 200:
            self._clean.add(text)
        return made

    def value(self, value: Any) -> Any:
        """Return a value of JSON types with aliases in its texts and keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(inner) for key, inner in value.items()}
        return [self.value(inner) for inner in value] if isinstance(value, list) else value

    def identifying(self, text: str) -> Iterator[tuple[str, int]]:
        """Yield kind and position of identifying data in a text that must stay as it is."""
        if self._distinct is not None:
            for found in self._distinct.finditer(text):
                yield "a machine's name", found.start()
        yield from identifying(text)

    def _folder(self, found: str) -> str:
        self.counts["folders"] += 1
        return self._folders[found]

    def _private(self, found: re.Match[str]) -> str:
        kind = str(found.lastgroup)
        text = found[0]
        if not _identifies(kind, text):
            return text
        return self._alias(_KINDS[kind][0], text)

    def _alias(self, kind: str, text: str) -> str:
        self.counts[kind] += 1
        if kind in _ONE_ALIAS:
            return _ONE_ALIAS[kind]
        if text not in self._given:
            word = "host" if kind == "host names" else "address"
            self._used[word] += 1
            self._given[text] = f"{word}-{self._used[word]}"
        return self._given[text]


def _any_of(words: Iterable[str], before: str) -> re.Pattern[str] | None:
    longest_first = sorted(words, key=len, reverse=True)
    if not longest_first:
        return None
    return re.compile(f"{before}(?:{'|'.join(map(re.escape, longest_first))})(?![\\w-])")


def identifying(text: str) -> Iterator[tuple[str, int]]:
    """Yield kind and position of identifying data in a text."""
    for found in _PRIVATE.finditer(text) if _SOMETIMES.search(text) else ():
        if _identifies(str(found.lastgroup), found[0]):
            yield _KINDS[str(found.lastgroup)][1], found.start()


# ---- secrets ------------------------------------------------------------------------------------

_QUOTE = r"[\"']"
_VALUE = r"(?=[^\s\"',;&]*\d)[^\s\"',;&(){}\[\]<>*$]{6,}(?![(\[\w.])"
_MORE_SECRETS = {
    "an OpenStack credential": rf"OS_(?:PASSWORD|TOKEN|USERNAME|PROJECT_ID|PROJECT_NAME"
    rf"|APPLICATION_CREDENTIAL_(?:ID|SECRET)|ACCESS_TOKEN)(?:{_QUOTE}\]?\s*[:=,]\s*{_QUOTE}"
    rf"(?!OS_)|\s*[:=]\s*{_QUOTE}?)(?![$*<{{\s\"'])(?!None|null|config)[^\s\"']{{3,}}"
    rf"|OS_PASSWORD=\"\$\d",
    "a token of an OpenStack service": r"(?<![\w/+])gAAAAAB[\w-]{40,}|AUTH_tk[0-9a-f]{32}"
    rf"|(?i:X-(?:Auth|Subject|Storage|Service)-(?:Token|Key|Pass)|Temp-URL-Key)(?:{_QUOTE}\]?\s*"
    rf"[:,=]\s*{_QUOTE}|\s*:\s*)[\w.+/=-]{{6,}}",
    "a signed web token": r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}",
    "a key of Ceph": r"(?<![\w/+])AQ[\w+/]{36}==(?!=)",
    "a bearer's token": r"[Bb]earer [\w.~+/-]{16,}"
    rf"|(?i:authorization){_QUOTE}?\s*[:=,]\s*{_QUOTE}?(?i:basic) [\w+/=-]{{8,}}",
    "an access key of a service": r"(?<!\w)(?:github_pat_\w{30,}|hf_\w{30,})",
    "a password or secret": rf"(?i:[_-]pass|(?-i:[a-z]Pass)|access_?token|auth_?token"
    rf"|api_?token|access_?key){_QUOTE}\]?\s*[:=]\s*{_QUOTE}(?![$*<{{])[^\"']{{6,}}"
    rf"|(?i:[_-]pass|token|access_?key)\s*[:=]\s*(?![-+]?[\d.]+(?:e[-+]?\d+)?\b)"
    rf"(?=[^\s\"',;&]*[a-zA-Z]){_VALUE}"
    rf"|--[\w-]{{0,40}}(?:password|passwd|secret|token){_QUOTE}?[,\s]\s*{_QUOTE}?{_VALUE}"
    rf"|sshpass{_QUOTE}?[,\s]\s*{_QUOTE}?-p[\"',\s]*(?!-)[^\s\"',$]{{4,}}"
    rf"|curl[^\n]{{0,200}}?[\s\"'](?:-u|--user)[\"',\s=]*[^\s\"',$:]{{1,64}}:[^\s\"',$]{{4,}}"
    r"|login\s+\S{1,64}\s+password\s+(?![<*$])\S{4,}",
}
"""Secrets that detect-secrets does not know: from OpenStack, Ceph and command lines."""
_MORE = tuple((what, re.compile(pattern)) for what, pattern in _MORE_SECRETS.items())
_KEYWORDS = re.compile(r"(?i)pass|pwd|secret|key|contrase")
_SHORTEST = 6  # characters of a secret; shorter values occur by chance
_PUBLIC = {"OS_REGION_NAME", "OS_INTERFACE", "OS_IDENTITY_API_VERSION", "OS_AUTH_TYPE"}
_PUBLIC |= {"OS_AUTH_URL", "OS_PROJECT_DOMAIN_NAME", "OS_USER_DOMAIN_NAME", "OS_PROTOCOL"}
_WINDOW = 1000
"""Characters of a line that are searched at a time: patterns may take quadratic time."""


@cache
def _detectors() -> tuple[tuple[str, Callable[[str], Iterable[str]]], ...]:
    """Return detect-secrets detectors of known forms; entropy is no evidence in hashes."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    left_out = ("Entropy", "Public IP", "Secret Keyword")
    known: Mapping[str, Any] = get_mapping_from_secret_type_to_class()
    return tuple(
        (f"a secret ({name})", detector().analyze_string)
        for name, detector in sorted(known.items())
        if not any(word in name for word in left_out)
    )


def _variables() -> list[tuple[str, str]]:
    """Return patterns of the values of the set OpenStack variables, except public ones, and names.

    A value is looked for as a word of its own: ``secret`` is not in ``detect-secrets``.
    """
    return [
        (
            rf"(?:(?<!\w)|(?=\W)){re.escape(value)}(?:(?!\w)|(?<=\W))",
            f"the value of the variable {name}",
        )
        for name, value in os.environ.items()
        if name.startswith("OS_") and name not in _PUBLIC and len(value) >= _SHORTEST
    ]


def _keywords(line: str) -> bool:
    """Return True if a password or key is assigned: between quotes, or with a digit in it."""
    from detect_secrets.filters.heuristic import is_templated_secret
    from detect_secrets.plugins import keyword

    detector = keyword.KeywordDetector()
    for found in detector.analyze_string(line):
        value = found.strip()
        if value[:1] not in "$*<{'" and len(value) > 5 and not is_templated_secret(value):
            return True
    groups = keyword.CONFIG_DENYLIST_REGEX_TO_GROUP
    return any(re.match(_VALUE, found) for found in detector.analyze_string(line, groups))


def secrets_in(text: str) -> Iterator[tuple[str, int]]:
    """Yield kind and line (from 1) of each secret in a text."""
    for number, line in enumerate(text.splitlines(), 1):
        plain = re.sub(r"\s{65,}", " " * 64, re.sub(r'\\+"', '"', line))
        for start in range(0, max(len(plain) - 100, 1), _WINDOW - 100):
            yield from ((what, number) for what in _secrets(plain[start : start + _WINDOW]))


def _secrets(line: str) -> set[str]:
    if len(line) < _SHORTEST:
        return set()
    found = {what for what, pattern in _MORE if pattern.search(line)}
    found |= {what for pattern, what in _variables() if re.search(pattern, line)}
    found |= {what for what, look in _detectors() if any(True for _ in look(line))}
    if not found and _KEYWORDS.search(line) and _keywords(line):
        found.add("a password or secret")
    return found


# ---- files --------------------------------------------------------------------------------------


def parse(data: bytes) -> Any:
    """Return the value of a JSON text; an object must not have a key twice. Readers would take
    either value, and `Stage` would check only one.

    Raises:
        ValueError: it is no JSON, or an object has a key twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key is there twice")
        return found

    return json.loads(data, object_pairs_hook=once)


def _texts(value: Any, key: str = "") -> Iterator[str]:
    """Yield each text in a value of JSON types, as an assignment to its key."""
    if isinstance(value, str):
        yield f'{key}: "{value}"' if key else value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)


class _Checked:
    """Looks for secrets in records, each text once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def record(self, name: str, value: Any, line: int = 1) -> Iterator[Finding]:
        for text in _texts(value):
            if text not in self._seen:
                self._seen.add(text)
                for what, _ in secrets_in(text):
                    self._seen.discard(text)
                    yield Finding(name, line, what)


@dataclass
class Stage:
    """A folder with the files of the future bundle.

    Attributes:
        folder: an empty folder.
        aliases: replacements in runs and records.
        with_logs: True to pack raw logs too.
        roles: role of each file by its name in the bundle.
        left_out: number of files that are not packed, by reason.
        found: content that must not be published.
    """

    folder: Path
    aliases: Aliases
    with_logs: bool = False
    roles: dict[str, Role] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    found: list[Finding] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _digests: dict[str, archive.Digest] = field(default_factory=dict)
    _checked: _Checked = field(default_factory=_Checked)

    def put(self, name: str, data: bytes, role: Role) -> None:
        """Write a file."""
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        self.roles[name] = role
        self._digests[name] = archive.Digest(hashlib.sha256(data).hexdigest(), len(data))

    def digest(self, name: str) -> archive.Digest:
        """Return a file's digest."""
        return self._digests.get(name) or archive.digest(self.folder / name)

    def adopt(self, folder: str, role: Role) -> None:
        """Add the files that were written below `folder` without `put`."""
        for path in sorted((self.folder / folder).rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file():
                self.roles.setdefault(name, role)
                if "/attempt-" not in name:  # a comparison's record is written again
                    self._digests.pop(name, None)

    def files(self) -> dict[str, Path]:
        """Return every file by its name in the bundle."""
        return {name: self.folder / name for name in sorted(self.roles)}

    def add_source(self, name: str, file: Path) -> None:
        """Add a source file: campaign files and specs with aliases. Programs, notebooks and
        constants stay unchanged: an alias could change the behaviour of a program.

        Raises:
            UserError: it cannot be read.
        """
        data = _read(file)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            self.left_out["sources that are no text"] += 1
            return
        record = name.startswith(("campaigns/", "specs/"))
        if record:
            text = self.aliases.text(text)
        else:
            self._find(name, text, self.aliases.identifying(text))
        self.found += (Finding(name, at, what) for what, at in secrets_in(text))
        self.put(name, text.encode(), "source")

    def add_campaign(
        self, campaign: Path, attempts: Sequence[Path], progress: Callable[[float], None]
    ) -> None:
        """Add a campaign's records and attempts.

        Raises:
            UserError: a file cannot be read.
        """
        for name in CAMPAIGN_FILES:
            if (campaign / name).is_file():
                made = self._record(campaign / name, f"artifacts/{campaign.name}/{name}")
                self._take(f"artifacts/{campaign.name}/{name}", made)
        for index, attempt in enumerate(attempts):
            progress(index / len(attempts))
            self._add_attempt(campaign, attempt)

    def _add_attempt(self, campaign: Path, attempt: Path) -> None:
        try:
            run = Run.model_validate_json(_read(attempt / "run.json"))
        except (UserError, ValidationError):
            self.left_out["attempts without a valid run.json"] += 1
            return
        place = f"artifacts/{campaign.name}/{attempt.parent.name}/{attempt.name}"
        self._take(
            f"{place}/run.json",
            self._json(f"{place}/run.json", _known(run.model_dump(mode="json"))),
        )
        for file in sorted(attempt.rglob("*")):
            inner = file.relative_to(attempt).as_posix()
            name, known = f"{place}/{inner}", self._packers.get(inner)
            if file.is_symlink():
                self.left_out["links"] += 1
            elif file.is_file() and inner != "run.json":
                if known is None:
                    self._take(f"{place}/{self.aliases.text(inner)}", self._log(file, name))
                else:
                    self._take(name, known(file, name))

    @property
    def _packers(self) -> Mapping[str, Callable[[Path, str], bytes | None]]:
        """Methods for the known files of an attempt."""
        return {
            **dict.fromkeys((*RECORDS, *SERIES), self._record),
            **dict.fromkeys(TABLES, self._table),
            "summary.json": self._summary,
            "job.json": self._job,
        }

    def _take(self, name: str, data: bytes | None) -> None:
        """Put a run's file if it has data and its name is valid and free."""
        if data is None:
            return
        if archive.unsafe_name(name) is not None:
            self.left_out["files whose names cannot be had everywhere"] += 1
        elif archive.taken(name, self._names) is not None:
            self.left_out["files whose names are taken by others"] += 1
        else:
            self.put(name, data, "run")

    def _json(self, name: str, body: Any) -> bytes:
        made = self.aliases.value(body)
        self.found += self._checked.record(name, made)
        return (json.dumps(made, indent=2, ensure_ascii=False) + "\n").encode()

    def _summary(self, file: Path, name: str) -> bytes | None:
        try:
            summary = Summary.model_validate_json(_read(file))
        except ValidationError:
            return self._unreadable("summary.json")
        return self._json(name, summary.model_dump(mode="json"))

    def _job(self, file: Path, name: str) -> bytes | None:
        try:
            body = json.loads(_read(file))
            known = {key: body[key] for key in body if key in _JOB}
            if "provenance" in known:
                known = _known(known)
        except (ValueError, TypeError, AttributeError):
            return self._unreadable("job.json")
        for key, word in _JOB_PATHS.items():
            if body.get(key):
                known[key] = self._path(str(body[key]), word)
        return self._json(name, known)

    def _path(self, text: str, word: str) -> str:
        """Return a path of this machine without its folder, unless the folder has an alias."""
        made = self.aliases.text(text)
        return f"{word}/{PurePosixPath(made).name}" if made.startswith("/") else made

    def _record(self, file: Path, name: str) -> bytes | None:
        """Return a JSON or JSON Lines file with aliases in its texts, or its original bytes if
        nothing changes."""
        data = _read(file)
        lines = data.splitlines(keepends=True) if file.suffix == ".jsonl" else [data]
        made, changed = [], False
        for number, line in enumerate(lines, 1):
            try:
                body = parse(line)
            except ValueError:
                if file.suffix != ".jsonl":
                    return self._unreadable(file.name)
                changed = True  # a torn line; readers of a journal skip it too
                continue
            if file.name == "campaign.json":
                body = self._paths_of(body)
            clean = self.aliases.value(body)
            self.found += self._checked.record(name, clean, number)
            if clean == body and file.name != "campaign.json":
                made.append(line)
            else:
                changed = True
                made.append((json.dumps(clean, ensure_ascii=False) + "\n").encode())
        return b"".join(made) if changed else data

    def _paths_of(self, record: Any) -> Any:
        """Return a campaign's record, with `_path` applied to its spec and notebook."""
        body = record.get("campaign") if isinstance(record, dict) else None
        if not isinstance(body, dict):
            return record
        named = {key: body[key] for key in ("spec", "notebook") if body.get(key)}
        paths = {key: self._path(str(text), _JOB_PATHS[key]) for key, text in named.items()}
        return {**record, "campaign": {**body, **paths}}

    def _table(self, file: Path, name: str) -> bytes | None:
        """Return a table of known columns with aliases in its texts, or its original bytes if
        nothing changes.

        Raises:
            UserError: it cannot be read.
        """
        import io

        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = TABLES[file.name]
        try:
            opened = pq.ParquetFile(file)
            table = opened.read()
            table.validate(full=True)
            strange = [one for one in table.column_names if one not in columns | _INDEX]
            rewrite = strange or _has_notes(table.schema, str(opened.metadata.created_by))
            if rewrite:
                table = table.select([one for one in table.column_names if one in columns])
                table = table.cast(pa.schema([pa.field(f.name, f.type) for f in table.schema]))
                self.left_out[f"columns of {file.name} that are not known"] += len(strange)
            made = table
            for index, column in enumerate(table.schema):
                if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
                    return self._unreadable(file.name)
                made = self._column(name, made, index)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file}: is no Parquet file that can be read ({error}).") from error
        if made is table and not rewrite:
            return _read(file)
        sink = io.BytesIO()
        pq.write_table(made, sink)
        return sink.getvalue()

    def _column(self, name: str, table: Any, index: int) -> Any:
        import pyarrow as pa

        column = table.column(index)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return table
        texts = {text: self.aliases.text(text) for text in column.unique().to_pylist() if text}
        self.found += self._checked.record(name, list(texts.values()))
        if all(old == new for old, new in texts.items()):
            return table
        values = [texts.get(text, text) for text in column.to_pylist()]
        return table.set_column(index, table.column_names[index], [values])

    def _log(self, file: Path, name: str) -> bytes | None:
        """Return a raw log with aliases, or None if it is not requested or no text."""
        data = _read(file)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text or file.suffix == ".parquet":
            known = _HARMLESS_NAME.fullmatch(file.name) and self.aliases.text(file.name)
            self.left_out[f"unknown file {known if known == file.name else ''}".strip()] += 1
            return None
        if not self.with_logs:
            self.left_out[_LOGS] += 1
            return None
        made = self.aliases.text(text)
        self.found += (Finding(name, at, what) for what, at in secrets_in(made))
        self.found += (Finding(name, 1, what) for what, _ in secrets_in(name))
        return made.encode()

    def _unreadable(self, name: str) -> bytes | None:
        self.left_out[f"{name} that cannot be read"] += 1
        return None

    def _find(self, name: str, text: str, found: Iterable[tuple[str, int]]) -> None:
        self.found += (Finding(name, text.count("\n", 0, at) + 1, what) for what, at in found)


def _has_notes(schema: Any, created_by: str) -> bool:
    """Return True if a table has other metadata than pandas and pyarrow write."""
    notes = schema.metadata or {}
    if not notes.keys() <= {b"pandas"} or not _WRITER.fullmatch(created_by):
        return True
    try:
        about = json.loads(notes.get(b"pandas", b"{}"))
        known = about.keys() <= _PANDAS and not about.get("attributes")
    except (ValueError, AttributeError):
        return True
    return not known or any(one.metadata for one in schema)


def _known(body: dict[str, Any]) -> dict[str, Any]:
    """Return a record of a run or job, with only the known facts of its machines."""
    provenance = dict(body["provenance"])
    hosts = provenance.get("hosts") or {}
    provenance["hosts"] = {
        node: {fact: value for fact, value in facts.items() if fact in _FACTS}
        for node, facts in hosts.items()
    }
    return {**body, "provenance": provenance}


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}).") from error


def attempts_of(campaign: Path, left_out: Counter[str]) -> list[Path]:
    """Return the attempts to pack: attempts at cells of the campaign's last plan, with any
    result."""
    try:
        body = json.loads((campaign / "comparison.json").read_bytes())
        planned: frozenset[str] | None = frozenset(str(cell["run_id"]) for cell in body["cells"])
    except (OSError, ValueError, KeyError, TypeError):
        planned = planned_runs(campaign)
    every = list(run_folders(campaign))
    taken = [one for one in every if planned is None or one.parent.name in planned]
    left_out["attempts at cells that the campaign no longer holds"] += len(every) - len(taken)
    left_out["unfinished attempts"] += sum(1 for _ in campaign.glob("*/.attempt-*.partial"))
    return taken


def aliases_of(
    attempts: Iterable[Path],
    hide: Mapping[str, str],
    names: Iterable[str],
    hidden: Iterable[str] = (),
) -> Aliases:
    """Return the aliases for folders and machines that runs name.

    Args:
        attempts: folders of the runs.
        hide: folders known to the caller, and the word that stands for each.
        names: names known to the caller.
        hidden: see `Aliases`.
    """
    folders, found = dict(hide), dict.fromkeys(filter(None, names))
    host = socket.gethostname()
    found |= dict.fromkeys(
        one for one in (host, host.partition(".")[0]) if len(one) >= 4 and is_distinct(one)
    )
    ours: set[str] = set()
    for attempt in attempts:
        job, run = _body(attempt / "job.json"), _body(attempt / "run.json")
        folders |= _folders(job)
        provenance = run.get("provenance")
        if isinstance(provenance, dict) and run.get("ground") != "sim":
            groups = (provenance.get("calibration") or {}).get("groups") or {}
            named = re.compile("|".join(rf"{re.escape(one)}-?\d*" for one in groups) or r"[^.]*")
            hosts = provenance.get("hosts") or {}
            ours |= {node for node in hosts if named.fullmatch(node)}
            found |= dict.fromkeys(node for node in hosts if not named.fullmatch(node))
            said = [run.get("reason"), _body(attempt / "error.json")]
            found |= dict.fromkeys(_machines(json.dumps(said)))
    folders.pop("/", None)
    return Aliases(folders, [name for name in found if name not in ours], filter(None, hidden))


def _machines(text: str) -> Iterator[str]:
    """Yield machine names in a failure message, with and without their domain."""
    for found in _PRIVATE.finditer(text):
        if found.lastgroup == "host" and _identifies("host", found[0]):
            yield found[0]
            short = found[0].partition(".")[0]
            if re.search(r"\d", short):
                yield short


def _folders(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the folders that a job names, and the word that stands for each."""
    found: dict[str, str] = {}
    for key, word in _JOB_PATHS.items():
        text = str(job.get(key) or "")
        if not text.startswith("/"):
            continue
        ours = [text.rpartition(place)[0] for place in _KNOWN_PLACES if place in text]
        folder = text if key == "controllers_dir" else str(PurePosixPath(text).parent)
        found[ours[0] if ours else folder] = "$HOTBED" if ours else word
    found.pop("", None)
    return found


def _body(file: Path) -> dict[str, Any]:
    try:
        body = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


_SHOWN = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=]*")
_NO_TEXT = (".png", ".pdf")


def private_in(files: Mapping[str, Path]) -> Iterator[Finding]:
    """Yield findings in a bundle, by file and line. Pictures are skipped: they are drawn again.

    Args:
        files: name in the bundle -> file.
    """
    checked = _Checked()
    for name, file in sorted(files.items()):
        for what, _ in (*identifying(name), *secrets_in(name)):
            yield Finding(name, 1, f"{what}, in the file's name")
        if name.endswith(_NO_TEXT):
            continue
        if name.endswith(".parquet"):
            yield from _in_table(name, file, checked)
            continue
        data = file.read_bytes()
        if name.endswith((".json", ".jsonl")) and "/attempt-" in name:
            yield from _in_records(name, data, checked)
            continue
        text = _SHOWN.sub("", data.decode(errors="replace"))
        for what, at in identifying(text):
            yield Finding(name, text.count("\n", 0, at) + 1, what)
        for what, number in secrets_in(text):
            yield Finding(name, number, what)


def _in_records(name: str, data: bytes, checked: _Checked) -> Iterator[Finding]:
    lines = data.splitlines() if name.endswith(".jsonl") else [data]
    for number, line in enumerate(lines, 1):
        try:
            body = parse(line)
        except ValueError:
            body = line.decode(errors="replace")
        for text in dict.fromkeys(_texts(body)):
            for what, _ in identifying(text):
                yield Finding(name, number, what)
        yield from checked.record(name, body, number)


def _in_table(name: str, file: Path, checked: _Checked) -> Iterator[Finding]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
        table.validate(full=True)
        notes = {**(table.schema.metadata or {})}
        texts = [*table.column_names, *(str(note) for pair in notes.items() for note in pair)]
        texts += [str(one.metadata) for one in table.schema if one.metadata]
        for column in table.columns:
            if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
                yield Finding(name, 1, "a table with columns that cannot be looked into")
            elif not pa.types.is_primitive(column.type):
                texts += [text for text in column.unique().to_pylist() if isinstance(text, str)]
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        yield Finding(name, 1, "a table that cannot be read")
        return
    for text in texts:
        for what, _ in identifying(text):
            yield Finding(name, 1, what)
    yield from checked.record(name, texts)
