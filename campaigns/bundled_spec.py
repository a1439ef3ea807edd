"""A testbed's spec as it may leave with a bundle: without what names machines and people.

A site's options are no part of what a spec's results depend on (`TestbedSpec.digest`), so that
those which name nobody can stay and the others go. What they name is told, to be replaced wherever
else it stands: in a failed run's reason, say.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import UserError
from schemas.yaml_file import dump, read_mapping
from testbed.sites import names_told, options_that_name_nobody

LEFT_OUT = "# Options of the site that name machines or people were left out of this copy.\n"
_NAMING = ("hosts", "nodes", "user", "ssh_user", "proxy_jump", "project", "network")
_NOT_OF_A_MACHINE = {"key", "host_key", "port", "private_address"}
_EVERYBODYS = {
    *(
        "root",
        "admin",
        "user",
        "users",
        "ubuntu",
        "debian",
        "centos",
        "rocky",
        "fedora",
        "ec2-user",
    ),
    *("vagrant", "ansible", "hotbed", "git", "ssh", "host", "hosts", "localhost", "node", "server"),
    *("client", "head", "login", "jump", "bastion", "proxy", "gateway", "storage", "ceph"),
    *("cephadm", "swift", "test", "lab", "data", "bench", "default", "osd", "mon", "mgr", "mds"),
    *("rgw", "none", "null", "true", "false", "all", "sharednet1"),
}
"""Names that tell of nobody; replaced in every file they would make it unreadable."""
_SHORTEST = 3


@dataclass(frozen=True)
class Portable:
    """`text`: the spec as it may leave; None: as it is. `names`: of machines, users and projects in
    what was left out. `notes`: for the appendix."""

    text: str | None
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def portable_spec(spec: Path, folder: Path, campaign: object) -> Portable:
    """The spec in a file.

    Args:
        spec: the file.
        folder: where files lie that it names.
        campaign: what is known of the campaign; names that are words of it, or of the rest of the
            spec, are not told: runs could not be read without them.

    Raises:
        UserError: it cannot be read.
    """
    body = read_mapping(spec, "a spec is a mapping with name, groups and store")
    site = body.get("site")
    options = site.get("options") if isinstance(site, dict) else None
    if not isinstance(site, dict) or not isinstance(options, dict):
        return Portable(None, ())
    kind = str(site.get("kind", "local"))
    stays = options_that_name_nobody(kind)
    kept = {key: options[key] for key in options if key in stays}
    lease = kept.get("lease")
    if isinstance(lease, dict):
        kept["lease"] = {key: value for key, value in lease.items() if key != "name"}
    if kept == options:
        return Portable(None, ())
    left = {"kind": kind} | ({"options": kept} if kept else {})
    bare = {**body, "site": left}
    words = set(_words((campaign, bare, _numbered(body))))
    texts = list(_texts(options))
    notes: tuple[str, ...] = ()
    try:
        texts += names_told(kind, options, folder)
    except UserError:
        notes = (
            f"The inventory that the spec {spec.name} names cannot be read any more: names of "
            "machines were replaced where the runs tell that they are some.",
        )
    names = tuple(name for name in dict.fromkeys(_names(texts)) if _tells(name, words))
    text = LEFT_OUT + dump(bare)
    return Portable(text, names, notes)


def lacks_options(spec: Path) -> bool:
    """Whether a bundled spec was left without options that named machines."""
    try:
        return spec.read_text().startswith(LEFT_OUT)
    except (OSError, UnicodeDecodeError):
        return False


def _numbered(body: Mapping[str, Any]) -> list[str]:
    """What nodes are called (`GroupSpec.node_names`)."""
    groups = [group for group in body.get("groups") or () if isinstance(group, dict)]
    counts = [(str(group.get("name")), group.get("count", 1)) for group in groups]
    return [f"{name}{at}" for name, n in counts if isinstance(n, int) for at in range(n)]


def _texts(options: Mapping[str, Any]) -> Iterator[str]:
    """What options that name machines and people say."""
    for key in _NAMING:
        yield from _within(options.get(key))
    lease = options.get("lease")
    if isinstance(lease, dict):
        yield from _within(lease.get("name"))


def _within(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _NOT_OF_A_MACHINE:
                yield from _within(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _within(inner)


def _names(texts: Iterable[str]) -> Iterator[str]:
    """Users, machines, and what machines are called without their domain."""
    for text in texts:
        user, _, host = text.strip().rpartition("@")
        host = re.sub(r":\d+$", "", host) if host.count(":") == 1 else host
        yield user
        yield host
        if not _is_address(host):
            yield host.partition(".")[0]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("]")[0].lstrip("["))
    except ValueError:
        return False
    return True


def _tells(name: str, words: set[str]) -> bool:
    if len(name) < _SHORTEST or name.isdigit() or _is_address(name):
        return False
    return name.lower() not in _EVERYBODYS and name not in words


def _words(value: object) -> Iterator[str]:
    """Words that runs are told by. A path is none: it may be somebody's."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _words(str(key))
            yield from _words(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _words(inner)
    elif isinstance(value, str) and not re.search(r"[/@$]", value):
        yield value
        yield from re.split(r"[^\w.-]+", value)
