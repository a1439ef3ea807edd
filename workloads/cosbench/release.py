"""Check of an unpacked release of COSBench: is it there, and can it run on this machine?"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import UserError

SCRIPTS = ("start-controller.sh", "start-driver.sh", "cosbench-start.sh")
SEEN = re.compile(r"^0\.4\.\d+(\.\w+)?$")
"""Versions with archives and controllers known to these modules."""

JAXB = "/usr/share/java/jaxb-api.jar"
_JAVA = re.compile(r'version "(?:1\.)?(\d+)')
_PACKAGES = ("net", "lang", "util", "lang.reflect", "io")
_CLOSED_SINCE = 16  # Java then keeps its own packages closed unless an option opens them
_MODULES_SINCE = 9


@dataclass(frozen=True)
class ReleaseFinding:
    """Result of one check; `advice` if it is not good. A finding that is not `needed` may stay."""

    what: str
    good: bool
    found: str
    advice: str = ""
    needed: bool = True


@dataclass(frozen=True)
class Release:
    """Results of all checks. `java_options` is for the environment variable JDK_JAVA_OPTIONS."""

    folder: str
    version: str | None
    java: str | None
    java_options: str
    findings: tuple[ReleaseFinding, ...]

    @property
    def good(self) -> bool:
        """True if it can run."""
        return all(finding.good for finding in self.findings if finding.needed)


def java_options(major: int, *, s3: bool = False) -> tuple[str, ...]:
    """Return options that let a COSBench of 2013 run on a modern Java; none for Java 8.

    Args:
        major: Java's version.
        s3: also for its s3 adaptor, with Debian's libjaxb-api-java.
    """
    if major < _MODULES_SINCE:
        return ()
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _PACKAGES]
    extra = (f"-Xbootclasspath/a:{JAXB}", "-Dorg.osgi.framework.bootdelegation=javax.xml.bind")
    return (
        *opened,
        "-Dosgi.parentClassloader=ext",
        "-Dosgi.java.profile=file:JavaSE-1.6.profile",
        *(extra if s3 else ()),
    )


def examine(folder: Path, *, java: str | None = None) -> Release:
    """Examine a release.

    Args:
        folder: folder of the unpacked release.
        java: the program; by default JAVA_HOME's or the one on the path.

    Raises:
        UserError: there is no release in the folder.
    """
    missing = [name for name in SCRIPTS if not (folder / name).is_file()]
    if len(missing) == len(SCRIPTS):
        inner = sorted(path.parent for path in folder.glob(f"*/{SCRIPTS[0]}"))
        raise UserError(
            f"holds no release of COSBench ({SCRIPTS[0]} is not there)",
            where=folder,
            do=f"name {inner[0]}" if inner else "unpack one and name its folder",
        )
    version = _text(folder / "VERSION").strip() or None
    major, shown = _java(java)
    findings = [
        ReleaseFinding(
            *("start scripts", not missing, ", ".join(missing) or "there"),
            advice="unpack the release again, whole",
        ),
        ReleaseFinding(
            *("version", bool(version and SEEN.match(version)), version or "no file VERSION"),
            advice="releases 0.4.x are known; archives of another one may look different",
            needed=False,
        ),
        _controller_conf(folder),
        ReleaseFinding(
            *("java", major >= 7, shown or "none"),
            advice="install a Java runtime, on Debian openjdk-17-jre-headless, or give "
            "--java PROGRAM",
        ),
    ]
    if major >= _CLOSED_SINCE:
        given = _text(folder / "cosbench-start.sh") + os.environ.get("JDK_JAVA_OPTIONS", "")
        absent = [one for one in java_options(major) if one not in given.replace("= ", "=")]
        findings.append(
            ReleaseFinding(
                *(f"options for Java {major}", not absent),
                *("given" if not absent else f"{len(absent)} are not given",),
                "export JDK_JAVA_OPTIONS as shown, then start it (the role cosbench does so)",
                needed=False,
            )
        )
    return Release(str(folder), version, shown, " ".join(java_options(major)), tuple(findings))


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def _controller_conf(folder: Path) -> ReleaseFinding:
    what, advice = "conf/controller.conf", "give [controller] drivers=N and a url for each driver"
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(_text(folder / "conf" / "controller.conf"))
        count = parser.getint("controller", "drivers")
        addresses = [parser.get(f"driver{n}", "url") for n in range(1, count + 1)]
    except (ValueError, configparser.Error) as error:
        return ReleaseFinding(what, False, str(error).splitlines()[0], advice)
    at_once = parser.get("controller", "concurrency", fallback="1")
    found = f"{', '.join(addresses)}; {at_once} workload(s) at once"
    return ReleaseFinding(what, bool(addresses), found, advice)


def _java(java: str | None) -> tuple[int, str | None]:
    """Return Java's major version (17 of 17.0.2, 8 of 1.8.0; 0: none) and its own name of it."""
    home = os.environ.get("JAVA_HOME")
    program = java or (f"{home}/bin/java" if home else shutil.which("java"))
    if not program:
        return 0, None
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=20.0, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, f"{program} cannot be run"
    text = (done.stderr or done.stdout).strip()
    match = _JAVA.search(text)
    return int(match[1]) if match else 0, text.splitlines()[0] if text else None
