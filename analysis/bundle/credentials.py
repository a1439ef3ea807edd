"""Secrets as patterns over bytes. None of them is in an honest run: they are never replaced, always
refused. Each begins with cheap hints, for runs are hundreds of megabytes of numbers."""

from __future__ import annotations

import re

_QUOTE = rb"\\{0,3}[\"']"
_PLACEHOLDER = (
    rb"(?:\*+|[xX]{3,}|\.{3}|\$(?-i:[A-Z_][A-Z0-9_]*|[a-z_]+)|\$\{[^}\n]*\}|\$\([^)\n]*\)"
    rb"|<[^>\n]*>|\xe2\x80\xb9[^\n\"']*|\{\{[^\n]*?\}\}|\{[\w.!]*\}|%s|%\(\w+\)s"
    rb"|None|null|true|false|VALUE_SPECIFIED_IN_NO_LOG_PARAMETER)"
)
_JOINED = rb"[\s`]*\+\s*[\w.()\[\]]+\s*\+[\s`]*"  # a program's variable, between two texts
_QUOTED = (  # all between a quote and the next of its kind, but for what stands for a secret
    rb"(?:\\{1,3}\"(?!" + _PLACEHOLDER + rb"\\{1,3}\")[^\"\\\n]{6,500}\\{1,3}\""
    rb"|\"(?!(?:" + _PLACEHOLDER + rb"|" + _JOINED + rb")\")(?:[^\"\\\n]|\\[^\n]){6,500}\""
    rb"|'(?!(?:" + _PLACEHOLDER + rb"|" + _JOINED + rb")')(?:[^'\\\n]|\\[^\n]){6,500}')"
)
_BARE = rb"[^\s\"'\\,;&}<>*$()\[\]]"
_NO_CODE = rb"(?![\w(\[])"
_WITH_DIGIT = rb"(?=" + _BARE + rb"{0,500}?\d)" + _BARE + rb"{6,500}+" + _NO_CODE
_MIXED = (  # letters and digits, and no number
    rb"(?![-+]?[\d.]+(?:e[-+]?\d+)?(?!" + _BARE + rb"))"
    rb"(?=" + _BARE + rb"{0,500}?[a-z])" + _WITH_DIGIT
)
_OPENSTACK = (
    rb"OS_(?:PASSWORD|TOKEN|APPLICATION_CREDENTIAL_SECRET|APPLICATION_CREDENTIAL_ID"
    rb"|USERNAME|PROJECT_ID|PROJECT_NAME|ACCESS_TOKEN)"
)
_SOME = _QUOTE + rb"(?!" + _PLACEHOLDER + _QUOTE + rb"|\\?[\"'])"  # the beginning of a text
# A name in quotes is a program's, or JSON's; what has none behind it is a variable there.
_IN_A_PROGRAM = _QUOTE + rb"\s*(?:\]\s*=|,(?!\s*" + _QUOTE + rb"OS_))\s*" + _SOME
_AS_A_PAIR = _QUOTE + rb"\s*[=:]\s*(?:" + _SOME + rb"|" + _WITH_DIGIT + rb")"
_IN_A_SHELL = (
    rb"\s*[=:]\s*(?:" + _SOME + rb"|(?![\"'\\<*{]|" + _PLACEHOLDER + rb"(?![^\s\"',;)]))\S)"
)
_PASSWORD = rb"(?:passw(?:or)?d|passphrase)"
_PASS = rb"(?:(?<=[_-])pass|(?-i:(?<=[a-z])Pass))"
_SECRET = rb"(?:secret(?:_?access)?(?:_?key)?)"
_TOKEN = rb"(?:access_?key|auth_?key|token|api_?key)"

SECRETS: tuple[tuple[str, tuple[bytes, ...], re.Pattern[bytes]], ...] = (
    (
        "a private key",
        (b"private key",),
        re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
    ),
    (
        "an OpenStack credential",
        (b"os_",),
        re.compile(
            _OPENSTACK + rb"(?:" + _IN_A_PROGRAM + rb"|" + _AS_A_PAIR + rb"|" + _IN_A_SHELL + rb")"
        ),
    ),
    (
        "a token of an OpenStack service",
        (b"gaaaaab", b"x-", b"auth_tk"),
        re.compile(
            rb"(?<![\w/+])gAAAAAB[\w-]{40,}|AUTH_tk[0-9a-f]{32}"
            rb"|(?i:X-(?:Auth|Subject|Storage|Service)-(?:Token|Key|Pass)|Temp-URL-Key(?:-2)?)"
            rb"(?:" + _QUOTE + rb"\]?\s*[:,=]\s*" + _QUOTE + rb"|\s*:\s*)[\w.+/=-]{6,}"
        ),
    ),
    (
        "a signed web token",
        (b"eyj",),
        re.compile(rb"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"),
    ),
    (
        "an access key of a service",
        (
            *(b"ghp_", b"gho_", b"ghs_", b"github_pat_", b"glpat-"),
            *(b"akia", b"asia", b"xox", b"hf_", b"sk-"),
        ),
        re.compile(
            rb"(?<!\w)(?:gh[pos]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{18,}"
            rb"|(?:AKIA|ASIA)[0-9A-Z]{16}(?!\w)"
            rb"|xox[abp]-[\w-]{10,}|hf_\w{30,}|sk-[\w-]{30,})"
        ),
    ),
    (
        "a key of Ceph",
        (b"aq",),
        re.compile(rb"(?<![\w/+])AQ[\w+/]{36}==(?!=)"),
    ),
    (
        "a password in an address",
        (b"://",),
        re.compile(rb"://[^\s/:@\"'<>]+:[^\s/@\"'<>]+@"),
    ),
    (
        "a bearer's token",
        (b"bearer ", b"basic "),
        re.compile(
            rb"[Bb]earer [\w.~+/-]{16,}"
            rb"|(?i:authorization)(?:" + _QUOTE + rb")?\s*[:=,]\s*(?:" + _QUOTE + rb")?"
            rb"(?i:basic) [\w+/=-]{8,}"
        ),
    ),
    (
        "a password or secret",
        (
            *(b"pass", b"secret", b"token", b"pi_key", b"pikey", b"ss_key", b"sskey"),
            *(b"th_key", b"thkey"),
        ),
        re.compile(
            rb"(?i)(?:" + _PASSWORD + rb"|" + _PASS + rb"|" + _SECRET + rb"|" + _TOKEN + rb")"
            rb"(?:" + _QUOTE + rb"\]?)?\s*[=:]\s*" + _QUOTED
        ),
    ),
    (
        "a password or secret",  # as in a file of settings, or in COSBench's access
        (b"pass", b"secret", b"token", b"pi_key", b"pikey", b"ss_key", b"sskey"),
        re.compile(
            rb"(?i)(?:"
            + _PASSWORD
            + rb"|"
            + _PASS
            + rb"|secret(?:_?access)?_?key)\s*[=:]\s*"
            + _WITH_DIGIT
            + rb"|(?:secret|token|api_?key|access_?key)\s*[=:]\s*"
            + _MIXED
        ),
    ),
    (
        "a password or secret",  # as programs are given it
        (b"--",),
        re.compile(
            rb"--[\w-]{0,40}(?:password|passwd|secret|token)[\"']?[,\s]\s*[\"']?" + _WITH_DIGIT
        ),
    ),
    (
        "a password or secret",
        (b"sshpass",),
        re.compile(rb"sshpass[\"']?[,\s]\s*[\"']?-p[\"',\s]*(?!-)" + _BARE + rb"{4,}"),
    ),
    (
        "a password or secret",
        (b"curl",),
        re.compile(
            rb"curl[^\n]{0,200}?[\s\"'](?:-u|--user)[\"',\s=]*"
            + _BARE
            + rb"{1,64}?:"
            + _BARE
            + rb"{4,}"
        ),
    ),
    (
        "a password or secret",  # of .netrc
        (b"login ",),
        re.compile(rb"login\s+\S{1,64}\s+password\s+(?![<*$])\S{4,}"),
    ),
)
"""What it is, which of these a text must hold (as `private.letters` leaves it), and the pattern."""
