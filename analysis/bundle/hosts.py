"""Names of machines with their domain, where a text says that it names one: after ``ssh`` or
``hostname``, before a port, in a record's ``address``. Elsewhere a word with dots is anything."""

from __future__ import annotations

import re
from itertools import chain

from analysis.bundle import private

_LABEL = rb"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}"
_NAME = rb"((?:" + _LABEL + rb"\.){1,8}[A-Za-z][A-Za-z0-9-]{1,23})(?![\w-]|\.\w)"
_BETWEEN = rb"[\"'\\]{0,2}\s*[:=]?\s*[\"'\\(\[]{0,3}(?:[\w.+-]{1,64}@)?"
_SAID = re.compile(
    rb"(?i)(?:(?:(?<![a-z])(?:ansible_)?(?:host(?:[ _-]?name|[ _]key for)?|fqdn|nodename|server)"
    rb"|(?<![a-z])(?:public_|private_)?address|jump"
    rb"|(?:connect(?:ed|ing|ion)?|authenticated|disconnect(?:ed)?|login|closed)\s+(?:to|from|by)"
    rb"|permanently added)(?![\w-])"
    rb"|(?<![a-z])(?:ssh|scp|sftp)(?![\w-])(?:\s+-\S{1,80}(?:\s+[^\s-]\S{0,200})?(?!\S)){0,4}?)"
    + _BETWEEN
    + _NAME
    + rb"|(?<![a-z])node [\w.-]{1,64} \("
    + _NAME
    + rb"\)"
    rb"|(?<![a-z])(?:ok|changed|failed|fatal|skipping|unreachable): \[" + _NAME + rb"\]"
    rb"|://(?:[\w.+-]{1,64}@)?" + _NAME + rb"(?=:\d)"
    rb"|(?=(?:host|server-?)\d)" + private.begins(rb"[\w.-]") + _NAME
)
_JUMPED = re.compile(rb"(?<!\S)[\"']?-J[\"',\s]*(?:[\w.+-]{1,64}@)?" + _NAME)
"""The machine that another one is reached by; in ``ssh -J`` before that one's name."""
_HINTS = (
    *(b"host", b"ssh", b"scp", b"sftp", b"node ", b"jump", b"fqdn", b"nodename", b"server"),
    *(b"address", b"connect", b"authenticated", b"login ", b"closed ", b"permanently added"),
    *(b"ok: [", b"changed: [", b"failed: [", b"fatal: [", b"skipping: [", b"://"),
)
_DASHED = re.compile(private.begins(rb"[\w.-]") + rb"(?:ip|host)-\d{1,3}(?:-\d{1,3}){3}(?![\w-])")
_PUBLIC_ENDS = {"com", "org", "net", "edu", "gov", "mil", "int", "info", "cloud", "dev"}
_COUNTRIES = re.compile(
    r"a[cdefgilmoqrtuwxz]|b[abdefghijmnorstwyz]|c[acdfghiklmnoruvwxyz]|d[ejkmoz]|e[cegrstu]"
    r"|f[ijkmor]|g[adefghilmnpqrtuwy]|h[kmnrtu]|i[delmnoqrst]|j[emop]|k[eghimnprwyz]"
    r"|l[abcikrstuvy]|m[aceghklmnopqrstuvwxyz]|n[acefgilopruz]|o[m]|p[aefghklnrtw]|q[a]"
    r"|r[eosuw]|s[abcdegiklmnrstuvxyz]|t[cdfghjklmnortvwz]|u[agksyz]|v[aceginu]|w[fs]|y[et]"
    r"|z[amw]"
)
"""But those that are more often the end of a file's name (``py``, ``sh``, ``md``, ``so``, ...)."""
_OWN_ENDS = {
    *("lan", "local", "internal", "intranet", "intra", "corp", "home", "lab", "private"),
    *("cluster", "novalocal", "localdomain", "maas"),
}
_EVERYBODYS = re.compile(
    r"(?:^|\.)(?:example(?:\.(?:com|org|net|edu))?|localhost\.localdomain|cluster\.local"
    r"|(?:ceph|docker|quay|github)\.(?:com|io)|githubusercontent\.com|chameleoncloud\.org"
    r"|(?:schema|w3|purl|zenodo|debian|python|pypi|openstack|apache|kernel|readthedocs)\.(?:org|io)"
    r"|(?:ubuntu|launchpad|openssh|google|googleapis|redhat|ansible|jupyter|anaconda)\.(?:com|org))$"
)
"""What logs and programs name that is on the public web."""


def is_distinct(name: str) -> bool:
    """Whether a machine's or user's name is no word that somebody's program may have as well."""
    return any(character in ".-" or character.isdigit() for character in name)


def machines(data: bytes, letters: bytes | None = None) -> list[bytes]:
    """Names of machines, and names that hold an address (``ip-10-0-0-5``).

    Args:
        data: a text.
        letters: what `private.letters` makes of it, where somebody has that.
    """
    found = []
    letters = private.letters(data) if letters is None else letters
    if any(hint in letters for hint in _HINTS):
        said = (next(filter(None, match.groups())) for match in _SAID.finditer(data))
        names = chain(said, _JUMPED.findall(data) if b"-j" in letters else ())
        found += [name for name in names if _is_somebodys(name.decode())]
    if b"ip----" in letters or b"host----" in letters:
        found += [
            name
            for name in _DASHED.findall(data)
            if private.addresses_v4(name.split(b"-", 1)[1].replace(b"-", b"."))
        ]
    return list(dict.fromkeys(found))


def _is_somebodys(name: str) -> bool:
    name = name.lower()
    labels = name.split(".")
    end = labels[-1]
    if labels[0] in ("self", "cls") or _EVERYBODYS.search(name):
        return False
    if end in _OWN_ENDS:  # `args.local` is none
        return len(labels) > 2 or bool(re.search(r"[\d-]", labels[0]))
    if end == "id":  # `node.server.id` is none
        return len(labels) > 3
    return len(labels) > 2 and (end in _PUBLIC_ENDS or bool(_COUNTRIES.fullmatch(end)))
