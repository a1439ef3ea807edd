"""Data that must not leave: `Aliases` replaces identifying data, and a secret stops the bundle.

`secrets_in` asks detect-secrets, and knows more forms from OpenStack, Ceph and command lines.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

# ---- names, addresses and folders ----------------------------------------------------------------

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
_VERSIONS_END = 24
"""First number from which a dotted quad cannot be a version."""
_NO_MAIL = re.compile(
    r"(?i)@(?:[\w-]+\.)*example(?:\.(?:com|org|net))?$|^git@"
    r"|\.(?:service|timer|socket|mount|slice|target|scope|path|py|json|yaml|yml|txt|log)$"
)
_OWN_ENDS = re.compile(
    r"lan|local|internal|intranet|intra|corp|home|lab|private|cluster|novalocal|localdomain|maas"
)
_PUBLIC_ENDS = re.compile(
    r"com|org|net|edu|gov|mil|int|info|cloud|dev|a[eru]|b[gory]|c[ahlnorz]|d[ek]|e[eguks]|f[ir]"
    r"|g[br]|h[kru]|i[elnr]|j[op]|k[erz]|l[tuv]|m[xy]|n[lz]|p[ehkt]|qa|r[ouw]|s[agk]|t[hrw]"
    r"|u[akys]|v[en]|z[aw]"
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


def identifying(text: str) -> Iterator[tuple[str, int]]:
    """Yield kind and line (from 1) of identifying data in a text."""
    for found in _found(text):
        yield _KINDS[str(found.lastgroup)][1], _line(found)


def machines(text: str) -> Iterator[str]:
    """Yield the machines that a text names, and their names without the domain."""
    for found in _found(text):
        if found.lastgroup == "host":
            short = found[0].partition(".")[0]
            yield from (found[0], short) if re.search(r"\d", short) else (found[0],)


def _line(found: re.Match[str]) -> int:
    return found.string.count("\n", 0, found.start()) + 1


def _found(text: str) -> Iterator[re.Match[str]]:
    for found in _PRIVATE.finditer(text) if _SOMETIMES.search(text) else ():
        if _identifies(found):
            yield found


def _identifies(found: re.Match[str]) -> bool:
    """Return True if a match of `_PRIVATE` identifies a machine or person."""
    text = found[0]
    match found.lastgroup:
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
    if address.is_global:
        return _VERSIONS_END <= address.packed[0] < 224
    return any(address in network for network in _PRIVATE_NETWORKS)


def _is_machines_v6(text: str) -> bool:
    for candidate in (text, text.removesuffix(":"), ":".join(text.split(":")[:8])):
        try:
            address = ipaddress.IPv6Address(candidate)
        except ValueError:
            continue
        unique = address.packed[0] & 0xFE == 0xFC
        public = address.packed[0] >> 5 == 1 and address.is_global
        return address.is_link_local or unique or public
    return False


def _is_machine(name: str) -> bool:
    *labels, end = name.split(".")
    distinct = bool(re.search(r"[\d-]", "".join(labels)))
    if labels[0] in ("self", "cls") or _EVERYBODYS.search(name):
        return False
    if _OWN_ENDS.fullmatch(end):
        return len(labels) > 1 or distinct
    if len(labels) < 2:
        return False
    return bool(_PUBLIC_ENDS.fullmatch(end) or (distinct and _WORDS_TOO.fullmatch(end)))


class Aliases:
    """Replaces identifying data in texts by aliases, consistently across files.

    Attributes:
        counts: number of replacements, by kind.
    """

    def __init__(
        self, folders: Mapping[str, str], names: Iterable[str] = (), hidden: Iterable[str] = ()
    ) -> None:
        """Take absolute `folders` with the word for each, `names` of machines, users and projects,
        and `hidden` names, which programs must not have either."""
        self.counts: Counter[str] = Counter()
        self._folders = dict(folders)
        hidden = [*filter(None, hidden)]
        known = [*dict.fromkeys((*hidden, *filter(None, names)))]
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
            made = self._places.sub(self._folder, made)
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
        """Yield kind and line of identifying data in a text that must stay as it is."""
        if self._distinct is not None:
            for found in self._distinct.finditer(text):
                yield "a machine's name", _line(found)
        yield from identifying(text)

    def _folder(self, found: re.Match[str]) -> str:
        self.counts["folders"] += 1
        return self._folders[found[0]]

    def _private(self, found: re.Match[str]) -> str:
        if not _identifies(found):
            return found[0]
        return self._alias(_KINDS[str(found.lastgroup)][0], found[0])

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


# ---- secrets -------------------------------------------------------------------------------------

_QUOTE = r"[\"']"
_VALUE = r"(?=[^\s\"',;&]*\d)[^\s\"',;&(){}\[\]<>*$]{6,}(?![(\[\w.])"
_MORE = {
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
_KEYWORDS = re.compile(r"(?i)pass|pwd|secret|key|contrase")
_SHORTEST = 6  # characters of a secret; shorter values occur by chance
_PUBLIC = {"OS_REGION_NAME", "OS_INTERFACE", "OS_IDENTITY_API_VERSION", "OS_AUTH_TYPE"}
_PUBLIC |= {"OS_AUTH_URL", "OS_PROJECT_DOMAIN_NAME", "OS_USER_DOMAIN_NAME", "OS_PROTOCOL"}
_WINDOW, _OVERLAP = 1000, 100
"""Characters of a line that are searched at a time: patterns may take quadratic time."""


def secrets_in(text: str) -> Iterator[tuple[str, int]]:
    """Yield kind and line (from 1) of each secret in a text."""
    variables = _variables()
    for number, line in enumerate(text.splitlines(), 1):
        plain = re.sub(r"\s{65,}", " " * 64, re.sub(r'\\+"', '"', line))
        for start in range(0, max(len(plain) - _OVERLAP, 1), _WINDOW - _OVERLAP):
            found = _secrets(plain[start : start + _WINDOW], variables)
            yield from ((what, number) for what in found)


def _secrets(line: str, variables: Sequence[tuple[str, str]]) -> set[str]:
    if len(line) < _SHORTEST:
        return set()
    found = {what for what, look in _detectors() if look(line)}
    found |= {what for what, pattern in variables if re.search(pattern, line)}
    if not found and _KEYWORDS.search(line) and _assigns(line):
        found.add("a password or secret")
    return found


@cache
def _detectors() -> tuple[tuple[str, Callable[[str], object]], ...]:
    """Return detectors of known forms: ours, and those of detect-secrets except the guesses from
    entropy, which is no evidence in hashes."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    left_out = ("Entropy", "Public IP", "Secret Keyword")
    known: Mapping[str, Any] = get_mapping_from_secret_type_to_class()
    ours = ((what, re.compile(pattern).search) for what, pattern in _MORE.items())
    theirs = (
        (f"a secret ({name})", _any_in(detector()))
        for name, detector in sorted(known.items())
        if not any(word in name for word in left_out)
    )
    return (*ours, *theirs)


def _any_in(detector: Any) -> Callable[[str], bool]:
    return lambda line: any(True for _ in detector.analyze_string(line))


def _variables() -> list[tuple[str, str]]:
    """Return the set OpenStack variables, except public ones, and patterns of their values. A value
    is a word of its own: ``secret`` is not in ``detect-secrets``."""
    return [
        (
            f"the value of the variable {name}",
            rf"(?:(?<!\w)|(?=\W)){re.escape(value)}(?:(?!\w)|(?<=\W))",
        )
        for name, value in os.environ.items()
        if name.startswith("OS_") and name not in _PUBLIC and len(value) >= _SHORTEST
    ]


def _assigns(line: str) -> bool:
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


# ---- search of a bundle --------------------------------------------------------------------------

EMBEDDED = re.compile(rb"data:image/png;base64,([A-Za-z0-9+/=]*)")


@dataclass(frozen=True)
class Finding:
    """Content that must not be published. The text itself is not repeated: the reader of a finding
    may not be the owner. `line` counts from 1."""

    file: str
    line: int
    what: str


def private_in(files: Mapping[str, Path], aliases: Aliases | None = None) -> Iterator[Finding]:
    """Yield identifying data and secrets in a bundle's files, by file and line; `aliases` know more
    names. Pictures are skipped: they are drawn again."""
    known = Aliases({}) if aliases is None else aliases
    clean: set[str] = set()  # texts of records repeat, and each is searched once
    for name, file in sorted(files.items()):
        for what, _ in (*known.identifying(name), *secrets_in(name)):
            yield Finding(name, 1, f"{what}, in the file's name")
        for line, text in _texts_in(name, file):
            if text is None:
                yield Finding(name, 1, "a table that cannot be read")
            elif text not in clean:
                found = [*known.identifying(text), *secrets_in(text)]
                if line and not found:
                    clean.add(text)
                yield from (Finding(name, line or inner, what) for what, inner in found)


def _texts_in(name: str, file: Path) -> Iterator[tuple[int, str | None]]:
    """Yield each text in a file with its line, or with 0 if it is the whole file; None for a table
    that cannot be read."""
    if name.endswith(".parquet"):
        yield from ((1, text) for text in _table_texts(file))
    elif name.endswith((".json", ".jsonl")) and "/attempt-" in name:
        data = file.read_bytes()
        for number, line in enumerate(data.splitlines() if name.endswith("l") else [data], 1):
            try:
                body = parse(line)
            except ValueError:
                body = line.decode(errors="replace")
            yield from ((number, text) for text in texts_of(body))
    elif not name.endswith((".png", ".pdf")):
        yield 0, EMBEDDED.sub(b"", file.read_bytes()).decode(errors="replace")


def _table_texts(file: Path) -> list[str | None]:
    """Return all texts in a table: in its columns, names and notes; None if it cannot be read, or
    is not of numbers and texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
        table.validate(full=True)
        texts = [table.schema.to_string(truncate_metadata=False)]
        for column in table.columns:
            if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
                return [None]
            if not pa.types.is_primitive(column.type):
                texts += [text for text in column.unique().to_pylist() if isinstance(text, str)]
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return [None]
    return [*texts]


def parse(data: bytes) -> Any:
    """Return the value of a JSON text; an object must not have a key twice. Readers would take
    either value, and only one would be searched. ValueError: it is no JSON, or an object has a key
    twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key is there twice")
        return found

    return json.loads(data, object_pairs_hook=once)


def texts_of(value: Any, key: str = "") -> Iterator[str]:
    """Yield each text in a value of JSON types, as an assignment to its key."""
    if isinstance(value, str):
        yield f'{key}: "{value}"' if key else value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from texts_of(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_of(inner, key)
