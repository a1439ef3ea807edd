"""Looks at an unpacked release of COSBench: is it whole, and can it run on this machine?"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import socket
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import UserError
from workloads.cosbench.controller_api import PORT, Controller
from workloads.errors import WorkloadError

SCRIPTS = ("start-controller.sh", "start-driver.sh", "cosbench-start.sh")
SERVICES = ("controller", "driver")
SEEN = re.compile(r"^0\.4\.\d+(\.\w+)?$")
"""Versions whose archives and controllers these modules know."""

DRIVER_PORT = 18088
JAXB = "/usr/share/java/jaxb-api.jar"
_CONSOLE = 1  # the console's port is that much above the service's
_JAVA = re.compile(r'version "(\d+)(?:\.(\d+))?')
_PACKAGES = ("net", "lang", "util", "lang.reflect", "io")
_CLOSED_SINCE = 16  # from then on Java keeps its own packages closed unless told otherwise
_MODULES_SINCE = 9
_WAIT_S = 20.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `advice` where it is not good. Unless `needed` it may stay."""

    what: str
    good: bool
    found: str
    advice: str = ""
    needed: bool = True


@dataclass(frozen=True)
class Release:
    """What was found. `java_options` is for the environment variable JDK_JAVA_OPTIONS."""

    folder: str
    version: str | None
    java: str | None
    java_options: str
    findings: tuple[Finding, ...]

    @property
    def good(self) -> bool:
        """Whether it can run."""
        return all(finding.good for finding in self.findings if finding.needed)


def java_options(major: int, *, s3: bool = False) -> tuple[str, ...]:
    """Options by which a COSBench of 2013 runs on a Java of today; for Java 8 none.

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


def java_major(text: str) -> int | None:
    """The major version in what ``java -version`` prints: 17 of 17.0.2, 8 of 1.8.0."""
    match = _JAVA.search(text)
    if match is None:
        return None
    first, second = int(match[1]), int(match[2] or 0)
    return second if first == 1 else first


def examine(
    folder: Path,
    *,
    java: str | None = None,
    ports: bool = True,
    listens: Callable[[int], bool] | None = None,
) -> Release:
    """Look at a release.

    Args:
        folder: where it was unpacked.
        java: the program; by default JAVA_HOME's or the one on the path.
        ports: also look whether its ports are free, or its own controller answers there.
        listens: whether something listens at a port of this machine.

    Raises:
        UserError: there is no release in the folder.
    """
    if not folder.is_dir() or not any((folder / name).exists() for name in SCRIPTS):
        inner = sorted(path.parent for path in folder.glob(f"*/{SCRIPTS[0]}"))
        hint = f": did you mean {inner[0]}?" if inner else "; unpack one and name its folder."
        raise UserError(f"{folder} holds no release of COSBench ({SCRIPTS[0]} is not there){hint}")
    program, major, shown = _java(java)
    version = _version(folder)
    findings = [
        *_scripts(folder),
        _known(version),
        *(finding for service in SERVICES for finding in _jars(folder, service)),
        _controller_conf(folder),
        _java_finding(program, major, shown),
    ]
    findings += _options_finding(folder, major)
    if ports:
        findings += _ports(listens or _listens)
    return Release(
        folder=str(folder),
        version=version,
        java=shown,
        java_options=" ".join(java_options(major or 0)),
        findings=tuple(findings),
    )


def _scripts(folder: Path) -> Iterator[Finding]:
    missing = [name for name in SCRIPTS if not (folder / name).is_file()]
    advice = "unpack the release again, whole"
    yield Finding("start scripts", not missing, _listed(missing) or "there", advice)
    writable = os.access(folder, os.W_OK)
    yield Finding(
        "log and archive folders",
        writable,
        "can be written" if writable else "cannot be written",
        f"run it as the owner of {folder}",
    )


def _version(folder: Path) -> str | None:
    try:
        return (folder / "VERSION").read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _known(version: str | None) -> Finding:
    good = bool(version and SEEN.match(version))
    return Finding(
        "version",
        good,
        version or "no file VERSION",
        "releases 0.4.x are known; archives of another one may look different",
        needed=False,
    )


def _jars(folder: Path, service: str) -> Iterator[Finding]:
    """Java's libraries that a service loads, from its own list."""
    what = f"jars of the {service}"
    advice = "unpack the release again, whole"
    config = folder / "conf" / f".{service}" / "config.ini"
    try:
        text = config.read_text().replace("\\\n", "")
    except (OSError, UnicodeDecodeError):
        yield Finding(what, False, f"{config.relative_to(folder)} cannot be read", advice)
        return
    listed = re.search(r"(?m)^osgi\.bundles\s*=\s*(.*)$", text)
    names = [part.partition("@")[0].strip() for part in (listed[1].split(",") if listed else [])]
    framework = re.search(r"(?m)^osgi\.framework\s*=\s*(\S+)$", text)
    wanted = [f"osgi/{name}" for name in names if name] + ["main/org.eclipse.equinox.launcher"]
    wanted += [framework[1]] if framework else ["osgi/org.eclipse.osgi"]
    missing, damaged = [], []
    for name in wanted:
        path = _jar(folder, name)
        if path is None:
            missing.append(name)
        elif not zipfile.is_zipfile(path):
            damaged.append(name)
    found = "; ".join(
        f"{_listed(which)} {state}"
        for which, state in ((missing, "missing"), (damaged, "damaged"))
        if which
    )
    yield Finding(what, not found, found or f"{len(wanted)} there", advice)


def _jar(folder: Path, name: str) -> Path | None:
    """A bundle's file: its name may leave out the version."""
    path = folder / name
    if path.is_file():
        return path
    for pattern in (f"{path.name}_*.jar", f"{path.name}-*.jar", f"{path.name}.jar"):
        found = sorted(path.parent.glob(pattern))
        if found:
            return found[0]
    return None


def _controller_conf(folder: Path) -> Finding:
    what, path = "conf/controller.conf", folder / "conf" / "controller.conf"
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(path.read_text())
        count = parser.getint("controller", "drivers")
        addresses = [parser.get(f"driver{n}", "url") for n in range(1, count + 1)]
    except (OSError, UnicodeDecodeError, ValueError, configparser.Error) as error:
        reason = str(error).splitlines()[0]
        return Finding(what, False, reason, "give [controller] drivers=N and a url for each driver")
    at_once = parser.get("controller", "concurrency", fallback="1")
    found = f"{_listed(addresses)}; {at_once} workload(s) at once"
    return Finding(what, bool(addresses), found, "give [controller] drivers=1 or more")


def _java(java: str | None) -> tuple[str | None, int | None, str | None]:
    home = os.environ.get("JAVA_HOME")
    program = java or (f"{home}/bin/java" if home else shutil.which("java"))
    if not program:
        return None, None, None
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_WAIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return program, None, None
    text = (done.stderr or done.stdout).strip()
    return program, java_major(text), text.splitlines()[0] if text else None


def _java_finding(program: str | None, major: int | None, shown: str | None) -> Finding:
    advice = "install a Java runtime, on Debian openjdk-17-jre-headless, or give --java PROGRAM"
    if major is None:
        return Finding("java", False, f"{program} tells no version" if program else "none", advice)
    return Finding("java", major >= 7, shown or str(major), advice)


def _options_finding(folder: Path, major: int | None) -> list[Finding]:
    if major is None or major < _CLOSED_SINCE:
        return []
    try:
        script = (folder / "cosbench-start.sh").read_text()
    except (OSError, UnicodeDecodeError):
        script = ""
    given = script + os.environ.get("JDK_JAVA_OPTIONS", "")
    missing = [option for option in java_options(major) if option not in given.replace("= ", "=")]
    return [
        Finding(
            f"options for Java {major}",
            not missing,
            "given" if not missing else f"{len(missing)} are not given",
            "export JDK_JAVA_OPTIONS as shown, then start it (the role cosbench does so)",
            needed=False,
        )
    ]


def _ports(listens: Callable[[int], bool]) -> Iterator[Finding]:
    for service, port in (("controller", PORT), ("driver", DRIVER_PORT)):
        taken = [p for p in (port, port + _CONSOLE) if listens(p)]
        if not taken:
            yield Finding(f"ports of the {service}", True, f"{port}, {port + _CONSOLE} are free")
        elif service == "controller" and _answers(port):
            yield Finding("ports of the controller", True, f"a controller answers at {port}")
        else:
            yield Finding(
                f"ports of the {service}",
                False,
                f"something listens at {', '.join(map(str, taken))}",
                "it may be this release, started before: stop-all.sh; else stop what is there",
                needed=False,
            )


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answers(port: int) -> bool:
    try:
        Controller(f"127.0.0.1:{port}", timeout_s=5.0).index()
    except (WorkloadError, UserError):
        return False
    return True


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
