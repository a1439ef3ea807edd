"""Host keys of machines: whose word makes one trusted, and the file in which it is then pinned."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from schemas.durable import write_file
from schemas.errors import UserError


def fingerprint(key: str) -> str:
    """``SHA256:...`` of a public key, as ssh-keygen -l prints it."""
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def field_of(address: str, port: int) -> str:
    """A machine's name in a known_hosts file."""
    return address if port == 22 else f"[{address}]:{port}"


def default_files() -> tuple[Path, ...]:
    """Where ssh itself looks for this user's host keys."""
    return (Path.home() / ".ssh" / "known_hosts", Path("/etc/ssh/ssh_known_hosts"))


def known(files: Iterable[Path], address: str, port: int) -> list[str]:
    """Keys that known_hosts files (hashed or not) have for a machine."""
    found = [line.split() for line in _lines(files, address, port) if line[0] != "@"]
    return list(dict.fromkeys(" ".join(words[1:3]) for words in found if len(words) >= 3))


def require_unrevoked(
    name: str, shown: Sequence[str], files: Iterable[Path], address: str, port: int
) -> None:
    """Raise a sentence when a machine shows a key that known_hosts files revoke.

    Raises:
        UserError: it does.
    """
    for line in _lines(files, address, port):
        words = line.split()
        if words[0] == "@revoked" and " ".join(words[2:4]) in shown:
            raise UserError(
                f"machine {name} shows the host key {_told([' '.join(words[2:4])])}, which "
                "known_hosts has as revoked (@revoked): give the machine a new host key."
            )


def _lines(files: Iterable[Path], address: str, port: int) -> list[str]:
    """What files have on a machine, comments aside."""
    found: list[str] = []
    for file in files:
        if file.exists():
            done = subprocess.run(
                ["ssh-keygen", "-F", field_of(address, port), "-f", str(file)],
                capture_output=True,
                text=True,
                check=False,
                timeout=30,
            )
            found += [line for line in done.stdout.splitlines() if line and line[0] != "#"]
    return found


def judge(
    name: str,
    shown: Sequence[str],
    *,
    vouched: Sequence[str],
    expected: str | None = None,
    accept: bool = False,
) -> list[str]:
    """The keys of a machine to be pinned.

    Args:
        name: what people call the machine.
        shown: keys that it shows.
        vouched: keys that files have for it.
        expected: a public key, or the fingerprint of one, that the user says it has.
        accept: whether a key that nobody vouches for is taken at first sight.

    Raises:
        UserError: the machine shows another key than it should, or nobody vouches for it.
    """
    if expected is not None:
        same = [key for key in shown if _is(key, expected)]
        if not same:
            raise UserError(
                f"machine {name} shows the host key {_told(shown)}, and host_key says {expected}: "
                "if that is its key of another kind, give the one of this kind; else this is "
                "another machine, or somebody listens in between; find out which."
            )
        return same
    types = {key.split()[0] for key in vouched}
    for key in shown:
        # As with ssh one of several of a kind will do, such as an old one beside a new one.
        if key.split()[0] in types and key not in vouched:
            raise UserError(
                f"machine {name} shows the host key {_told([key])}, and known_hosts has another: "
                "it was installed anew, or somebody listens in between; find out which, then mend "
                "known_hosts."
            )
    if vouched:
        return list(vouched)
    if accept:
        return list(shown)
    raise UserError(
        f"machine {name} shows the host key {_told(shown)}, for which nobody vouches: compare it "
        "with what `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints there, then give a "
        "known_hosts file or this host_key in site.options, or take what is shown "
        "(--accept-host-keys)."
    )


def _is(key: str, expected: str) -> bool:
    if expected.startswith("SHA256:"):
        return fingerprint(key) == expected.rstrip("=")
    return key.split()[:2] == expected.split()[:2]


def _told(keys: Sequence[str]) -> str:
    return ", ".join(f"{fingerprint(key)} ({key.split()[0]})" for key in keys)


def pin(path: Path, keys: Mapping[tuple[str, int], Sequence[str]]) -> None:
    """Write a known_hosts file from (address or name, port) -> its keys."""
    lines = [
        f"{field_of(address, port)} {key}"
        for (address, port), listed in keys.items()
        for key in listed
    ]
    write_file(path, "\n".join(lines) + "\n", 0o600)


def is_address(text: str) -> bool:
    """Whether it is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
