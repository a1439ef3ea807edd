"""What must not leave with a bundle, as patterns over bytes: addresses, homes, mail, secrets.

`redact` replaces what may occur in honest runs; `scan` looks for all of it again, on what is about
to be packed. Cheap tests come before the patterns: runs are hundreds of megabytes of numbers.
"""

from __future__ import annotations

import ipaddress
import re

_ESCAPED = rb"(?<=\dm)|(?<=\\[nrt])|(?<=\\u[0-9a-fA-F]{4})|(?<=\\x[0-9a-fA-F]{2})"


def begins(before: bytes) -> bytes:
    r"""A pattern for where a word begins: not after a character of the class `before`, but after
    what looks like a letter and is none: the end of a terminal's colour (``ESC[32m``), and a line's
    end or another character as JSON and Python write it (``\n``)."""
    return rb"(?:(?<!" + before + rb")|" + _ESCAPED + rb")"


# An underscore joins an address to a word (mon_10.0.0.1); no number with three dots has one.
IPV4 = re.compile(begins(rb"[A-Za-z0-9.]") + rb"(?:\d{1,3}\.){3}\d{1,3}(?![A-Za-z0-9]|\.\d)")
_IPV4_HINT = re.compile(rb"\.\d{1,3}\.\d{1,3}\.\d")
IPV6 = re.compile(begins(rb"[\w:.]") + rb"[0-9a-fA-F]{4}:[0-9a-fA-F:]{2,34}(?![\w:])")
_IPV6_HINT = re.compile(rb"(?i)(?:f[cd]|fe[89ab]|[23][0-9a-f])[0-9a-f]{1,2}:[0-9a-f:]")
_COLONS = re.compile(rb":[0-9a-fA-F]{0,4}:")  # what every IPv6 address has, and few numbers
MAC = re.compile(begins(rb"[\w:-]") + rb"(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:-])")
_MAC_HINT = re.compile(rb":[0-9a-fA-F]{2}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}:")
HOME = re.compile(
    begins(rb"[\w.$}-]") + rb"/(?:(?:home|Users)/[^/\s\"'\\:,;)\]<>|]+|root(?=[/\"'\s\\:,;)\]<]|$))"
)
MAIL = re.compile(rb"[\w.+-]+@(?:[\w-]+\.)+[a-zA-Z]{2,}")

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
    if b"/home/" not in data and b"/Users/" not in data and b"/root" not in data:
        return []
    return HOME.findall(data)


_NAMED = rb"(?:password|passwd|passphrase|secret(?:_?access)?(?:_?key)?|access_?key|token|api_?key)"
_VALUE = rb"[^\s\"'\\,;}<>*$]{6,}"
SECRETS: tuple[tuple[str, tuple[bytes, ...], re.Pattern[bytes]], ...] = (
    (
        "a private key",
        (b"PRIVATE KEY",),
        re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    ),
    (
        "an OpenStack credential",
        (b"OS_",),
        re.compile(
            rb"OS_(?:PASSWORD|TOKEN|APPLICATION_CREDENTIAL_SECRET|APPLICATION_CREDENTIAL_ID"
            rb"|USERNAME|PROJECT_ID|PROJECT_NAME|ACCESS_TOKEN)[\"']?\s*[=:]\s*[\"']?[^\s\"'$<*]+"
        ),
    ),
    (
        "a token of an OpenStack service",
        (b"gAAAAAB", b"X-Auth-Token", b"X-Subject-Token"),
        re.compile(
            rb"(?<![\w/+])gAAAAAB[\w-]{40,}"
            rb"|X-(?:Auth|Subject)-Token[\"']?\s*:\s*[\"']?[\w.-]{8,}"
        ),
    ),
    (
        "a signed web token",
        (b"eyJ",),
        re.compile(rb"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"),
    ),
    (
        "an access key of a service",
        (b"ghp_", b"gho_", b"ghs_", b"github_pat_", b"glpat-", b"AKIA", b"xox", b"hf_", b"sk-"),
        re.compile(
            rb"(?<!\w)(?:gh[pos]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{18,}|AKIA[0-9A-Z]{16}"
            rb"|xox[abp]-[\w-]{10,}|hf_\w{30,}|sk-[\w-]{30,})"
        ),
    ),
    (
        "a key of Ceph",
        (b"AQ",),
        re.compile(rb"(?<![\w/+])AQ[\w+/]{36}==(?!=)"),
    ),
    (
        "a password in an address",
        (b"://",),
        re.compile(rb"://[^\s/:@\"'<>]+:[^\s/@\"'<>]+@"),
    ),
    (
        "a bearer's token",
        (b"Bearer ", b"bearer "),
        re.compile(rb"[Bb]earer [\w.~+/-]{16,}"),
    ),
    (
        "a password or secret",
        (b"assw", b"ecret", b"oken", b"pi_key", b"pikey", b"ASSW", b"ECRET", b"OKEN", b"cess_key"),
        re.compile(
            rb"(?i)(?<![a-z])(?:[a-z]+_)*" + _NAMED + rb"\\?[\"']?\s*[=:]\s*\\?[\"']"
            rb"(?!None|null|true|false)" + _VALUE + rb"\\?[\"']"
        ),
    ),
    (
        "a password or secret",  # as in a file of settings, or in COSBench's access
        (b"assw", b"ecret", b"ASSW", b"ECRET"),
        re.compile(
            rb"(?i)(?<![a-z])(?:[a-z]+_)*(?:password|passwd|secret(?:_?access)?_?key)\s*[=:]\s*"
            rb"(?=[^\s\"'\\,;&}<>*$()]*\d)[^\s\"'\\,;&}<>*$()]{6,}(?![\w(])"
        ),
    ),
)
"""What it is, which of these a text must hold, and the pattern. None of it occurs in an honest run:
it is never replaced, always refused."""
