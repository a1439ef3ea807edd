"""What must not leave with a bundle, as patterns over bytes: addresses, homes, mail. (Machines'
names are in `hosts`, secrets in `credentials`.)

`redact` replaces what may occur in honest runs; `scan` looks for all of it again, on what is about
to be packed. Cheap tests come before the patterns: runs are hundreds of megabytes of numbers.
"""

from __future__ import annotations

import ipaddress
import re

_ESCAPED = (
    rb"(?<=\dm)|(?<=\x1b\[[A-Za-z])|(?<=1[bB]\[[A-Za-z])|(?<=\[\d[A-Za-z])|(?<=%[0-9a-fA-F]{2})"
    rb"|(?<=\\[nrt])|(?<=\\u[0-9a-fA-F]{4})|(?<=\\x[0-9a-fA-F]{2})"
)


def begins(before: bytes) -> bytes:
    r"""A pattern for where a word begins: not after a character of the class `before`, but after
    what looks like a letter and is none: the end of what steers a terminal (``ESC[32m``), and a
    line's end or another character as JSON, Python and URLs write it (``\n``, ``%2F``)."""
    return rb"(?:(?<!" + before + rb")|" + _ESCAPED + rb")"


# An underscore joins an address to a word (mon_10.0.0.1); no number with three dots has one. A
# fifth number is tcpdump's port; of more it is no address.
IPV4 = re.compile(
    begins(rb"[A-Za-z0-9.]") + rb"(?:\d{1,3}\.){3}\d{1,3}(?![A-Za-z0-9]|\.\d+(?:\.\d|[A-Za-z]))"
)
_IPV4_HINT = re.compile(rb"\.\d{1,3}\.\d{1,3}\.\d")
# What follows may be a colon (of a log, of YAML), and after eight numbers one and a port.
IPV6 = re.compile(
    begins(rb"[\w:.]") + rb"[0-9a-fA-F]{4}(?:::?[0-9a-fA-F]{1,4}){0,7}(?:::)?"
    rb"(?!\w|:[0-9a-fA-F]{0,4}:)"
)
_IPV6_HINT = re.compile(rb"(?i)(?:f[cd]|fe[89ab]|[23][0-9a-f])[0-9a-f]{1,2}:[0-9a-f:]")
_COLONS = re.compile(rb":[0-9a-fA-F]{0,4}:")  # what every IPv6 address has, and few numbers
MAC = re.compile(begins(rb"[\w:-]") + rb"(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w-]|:\w)")
_MAC_HINT = re.compile(rb":[0-9a-fA-F]{2}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}:")
HOME = re.compile(
    begins(rb"[\w.$}-]")
    + rb"(?:(?:/(?:export|mnt|nfs|net|srv|var|data|shared))?/home\d?|/[Uu]sers)"
    rb"/[^/\s\"'\\:,;)\]<>|]+|" + begins(rb"[\w.$}-]") + rb"/root(?=[/\"'\s\\:,;)\]<]|$)"
)
MAIL = re.compile(rb"[\w.+-]{1,64}@(?:[\w-]+\.)+[a-zA-Z]{2,}")

_NOT_MAIL = re.compile(
    rb"(?i)@(?:[\w-]+\.)*example(?:\.(?:com|org|net))?$|^git@"
    rb"|\.(?:service|timer|socket|mount|slice|target|scope|path|py|json|yaml|yml|txt|log)$"
)
_VERSIONS_END = 24
"""A dotted quad that begins below it, and is no private address, is taken for a version."""
_PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"),
    )
)
_PUBLIC_KNOWLEDGE = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15", "127.0.0.0/8"),
    )
)
_DOCUMENTED = ipaddress.ip_network("2001:db8::/32")


def addresses_v4(data: bytes) -> list[bytes]:
    """Addresses of machines: every private one, and public ones that cannot be versions. (Those
    that RFC 5737 and RFC 2544 set aside, and loopback's, are of nobody.)"""
    if not _IPV4_HINT.search(data):
        return []
    return [found for found in IPV4.findall(data) if _of_somebody(found)]


def _of_somebody(text: bytes) -> bool:
    try:
        address = ipaddress.IPv4Address(text.decode())
    except ValueError:
        return False
    if any(address in network for network in _PRIVATE):
        return True
    if any(address in network for network in _PUBLIC_KNOWLEDGE):
        return False
    return _VERSIONS_END <= address.packed[0] < 224


def addresses_v6(data: bytes) -> list[bytes]:
    """Private, link-local and public IPv6 addresses of machines."""
    if not _COLONS.search(data) or not _IPV6_HINT.search(data):
        return []
    return [found for found in IPV6.findall(data) if _of_somebody_v6(found)]


def _of_somebody_v6(text: bytes) -> bool:
    try:
        address = ipaddress.IPv6Address(text.decode())
    except ValueError:
        return False
    return address not in _DOCUMENTED and (
        address.is_link_local or address.packed[0] & 0xFE == 0xFC or address.packed[0] >> 5 == 1
    )


def macs(data: bytes) -> list[bytes]:
    """Hardware addresses, but those that `redact` puts in their place."""
    if not _MAC_HINT.search(data):
        return []
    return [found for found in MAC.findall(data) if not found.startswith(b"02:00:00:")]


def mails(data: bytes) -> list[bytes]:
    """Mail addresses of people."""
    if b"@" not in data:
        return []
    return [found for found in MAIL.findall(data) if not _NOT_MAIL.search(found)]


def homes(data: bytes) -> list[bytes]:
    """Home folders."""
    if not any(hint in data for hint in (b"/home", b"/Users/", b"/users/", b"/root")):
        return []
    return HOME.findall(data)


_LETTERS = bytes.maketrans(bytes(range(65, 91)), bytes(range(97, 123)))
_NO_LETTERS = b"0123456789.,"
"""Half of a run's bytes: without them hints are found in half of the time."""


def letters(data: bytes) -> bytes:
    """What hints are looked for in: a text in small letters, without digits, points and commas."""
    return data.translate(_LETTERS, _NO_LETTERS)
