"""What a request costs the COSBench driver, beside swift-bench, on the same store in one run.

Processor time (user and system) of the load tool's process a request, and requests a second:
objects of 64 KiB are written, read and deleted, 4 at a time, by cosdrive and by swift-bench, in
turns. The store is memswift, in memory: it answers quicker than any Swift, so that what is slow
are the tools. What a process takes to start is measured by a run of a few requests, and left out.
swift-bench is installed from PyPI into a folder that is removed, pinned with hashes; where it
cannot be had, its row says so. HOTBED_BENCH_SMALL=1 takes fewer requests.
"""

from __future__ import annotations

import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
PROGRAMS = ROOT / "dataplane" / "bin"
LOCK = Path(__file__).with_name("swift-bench.lock")
SMALL = bool(os.environ.get("HOTBED_BENCH_SMALL"))
REQUESTS = 200 if SMALL else 2000
ROUNDS = 1 if SMALL else 3
STARTING = 8  # requests of a run that is measured for its start
OBJECT_BYTES = 65536
TIMES_FEWER = 5.0
INSTALL_S = 120

WORKLOAD = """<?xml version="1.0" encoding="UTF-8"?>
<workload name="bench">
  <auth type="swauth" config="username={user};password={key};auth_url={url}"/>
  <storage type="swift" config="timeout=30000"/>
  <workflow>
    <workstage name="init"><work type="init" workers="1" config="containers=r(1,4)"/></workstage>
    <workstage name="put"><work name="put" workers="4" totalOps="{n}"><operation type="write"
      ratio="100" config="containers=c(1);objects=s(1,{n});sizes=c({size})B"/></work></workstage>
    <workstage name="get"><work name="get" workers="4" totalOps="{n}"><operation type="read"
      ratio="100" config="containers=c(1);objects=u(1,{n})"/></work></workstage>
    <workstage name="del"><work name="del" workers="4" totalOps="{n}"><operation type="delete"
      ratio="100" config="containers=c(1);objects=s(1,{n})"/></work></workstage>
    <workstage name="dispose"><work type="dispose" workers="1" config="containers=r(1,4)"/>
    </workstage>
  </workflow>
</workload>
"""

SWIFT_BENCH = """[bench]
auth = {url}
user = {user}
key = {key}
auth_version = 1.0
object_size = {size}
num_objects = {n}
num_gets = {n}
num_containers = 4
put_concurrency = 4
get_concurrency = 4
del_concurrency = 4
delete = yes
"""


class Login(NamedTuple):
    """How a tenant of a store logs in; the key is nobody else's."""

    url: str
    user: str
    key: str


@contextmanager
def store() -> Iterator[Login]:
    """A store in memory."""
    with subprocess.Popen([PROGRAMS / "memswift"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield Login(server.stdout.readline().strip(), "test:tester", "testing")
        finally:
            server.terminate()


class Took(NamedTuple):
    """What a run took, in seconds, of processors and by the clock."""

    processor_s: float
    clock_s: float


FAILED = re.compile(r"\*\*FINAL\*\* \[(\d+) failures\]")
"""What swift-bench says of each kind of requests."""


def took(command: list[str]) -> Took:
    """What a command takes; its output is shown when it fails. Requests that fail are cheap: with
    any of them nothing is told."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read()
    if process.returncode != 0 or "Traceback" in said:
        raise RuntimeError(f"{Path(command[0]).name}: {said.strip()[-300:]}")
    failed = sum(map(int, FAILED.findall(said)))
    if failed:
        raise RuntimeError(f"{failed} requests of {Path(command[0]).name} failed.")
    return Took(used.ru_utime + used.ru_stime, time.monotonic() - began)


def filled(text: str, login: Login, requests: int) -> str:
    """What a tool is told."""
    return text.format(**login._asdict(), n=requests, size=OBJECT_BYTES)


def cosdrive(login: Login, folder: Path, requests: int) -> Took:
    """That many writes, reads and deletes each; `folder` is nobody else's to read."""
    xml = folder / "bench.xml"
    xml.write_text(filled(WORKLOAD, login, requests))
    archive = folder / "archive"
    found = took([str(PROGRAMS / "cosdrive"), "run", str(xml), "--archive", str(archive)])
    newest = max(archive.glob("w*-bench/w*-bench.csv"), key=lambda path: path.stat().st_mtime_ns)
    with newest.open() as file:
        ratios = {row["Op-Type"]: row["Succ-Ratio"] for row in csv.DictReader(file)}
    for kind in ("write", "read", "delete"):  # making containers counts no requests
        if ratios.get(kind) != "100%":
            raise RuntimeError(f"requests of cosdrive failed: {kind} {ratios.get(kind)} succeeded.")
    return found


def swift_bench(tool: Path, login: Login, folder: Path, requests: int) -> Took:
    """The same by swift-bench."""
    conf = folder / "swift-bench.conf"
    conf.write_text(filled(SWIFT_BENCH, login, requests))
    return took([str(tool), str(conf)])


def installed(folder: Path) -> Path:
    """swift-bench, in a folder of its own.

    Raises:
        LookupError: it cannot be had here.
    """
    uv = str(Path(sys.executable).with_name("uv"))
    python = str(folder / "bin" / "python")
    for command in (
        [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
        [uv, "pip", "install", "--quiet", "--require-hashes", "--python", python, "-r", str(LOCK)],
    ):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=INSTALL_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LookupError(f"swift-bench cannot be installed: {error}") from error
        if done.returncode != 0:
            raise LookupError(f"swift-bench cannot be installed: {done.stderr.strip()[-200:]}")
    return folder / "bin" / "swift-bench"


def java_s(release: Path) -> float:
    """Processor seconds that the release's processes have taken so far.

    Raises:
        LookupError: none runs here.
    """
    ticks: list[int] = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "cwd").resolve() == release.resolve():
                name, _, rest = (process / "stat").read_text().partition("(")[2].rpartition(")")
                if name == "java":
                    ticks.append(sum(map(int, rest.split()[11:13])))  # utime and stime
        except OSError:  # it has ended, or is somebody else's
            continue
    if not ticks:
        raise LookupError(f"no COSBench of {release} runs here: start it (start-all.sh)")
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def cosbench(release: Path, login: Login, folder: Path, requests: int) -> Took:
    """The same by a COSBench that runs.

    Raises:
        LookupError: it does not, or did not finish the workload.
    """
    from schemas.errors import HotbedError
    from workloads.cosbench.real import Controller, LocalSource, run

    before, began = java_s(release), time.monotonic()
    xml = filled(WORKLOAD, login, requests)
    out = folder / f"cosbench-{len(list(folder.iterdir()))}"
    try:
        archive = run(Controller("localhost"), LocalSource(release / "archive"), xml, out)
    except HotbedError as error:
        raise LookupError(f"COSBench: {error}") from error
    if not archive.finished:
        raise LookupError("COSBench did not finish the workload: its archive says why")
    return Took(java_s(release) - before, time.monotonic() - began)


def release_s(
    login: Login, folder: Path, requests: int = REQUESTS, rounds: int = ROUNDS
) -> tuple[list[Cost], str | None]:
    """What a request costs the user's COSBench, and why it is not known."""
    named = os.environ.get("HOTBED_COSBENCH")
    if not named:
        return [], "HOTBED_COSBENCH names no release that runs here"
    release, found = Path(named), []
    try:
        start = cosbench(release, login, folder, STARTING)
        for _ in range(rounds):
            found.append(each(cosbench(release, login, folder, requests), start, requests))
    except LookupError as error:
        return [], str(error)
    return found, None


class Cost(NamedTuple):
    """What a request takes, in microseconds, of processors and by the clock."""

    processor_us: float
    clock_us: float


def each(whole: Took, start: Took, requests: int = REQUESTS) -> Cost:
    """What a request takes without the start; a run has three kinds of requests."""
    more = 3 * (requests - STARTING)
    return Cost(*((w - s) / more * 1e6 for w, s in zip(whole, start, strict=True)))


def median(costs: list[Cost]) -> Cost:
    """Of rounds."""
    return Cost(*(statistics.median(column) for column in zip(*costs, strict=True)))


def rows(
    ours: list[Cost],
    theirs: list[Cost],
    why: str | None,
    real: list[Cost],
    real_why: str | None,
    *,
    what: str = "COSBench driver",
    note: str = "writes, reads and deletes of a store in memory",
    requests: int = REQUESTS,
) -> list[dict[str, Any]]:
    """The bench's rows, from what a request took in each round: of cosdrive, of swift-bench, of the
    user's COSBench."""
    mine = median(ours)
    n = len(ours) * 3 * requests
    found: list[dict[str, Any]] = [
        {
            "name": f"{what}, processor time a request (64 KiB)",
            "value": mine.processor_us,
            "unit": "us",
            "limit": None,
            "n": n,
            "note": note,
        },
        {
            "name": f"{what}, times less processor time than swift-bench takes",
            "value": None,
            "unit": "times",
            "limit": TIMES_FEWER,
            "at_least": True,
            "n": n,
            "note": why,
        },
        {
            "name": f"{what}, requests a second (4 at a time)",
            "value": 1e6 / mine.clock_us,
            "unit": "/s",
            "limit": None,
            "n": n,
            "note": why,
        },
    ]
    beside_real = found[1] | {
        "name": f"{what}, times less processor time than COSBench takes",
        "n": len(real) * 3 * requests,
        "note": real_why,
    }
    found.append(beside_real)
    if real:
        other = median(real)
        beside_real["value"] = other.processor_us / mine.processor_us
        beside_real["note"] = f"COSBench {other.processor_us:.0f} us a request"
    if theirs:
        other = median(theirs)
        found[1]["value"] = other.processor_us / mine.processor_us
        found[1]["note"] = f"swift-bench {other.processor_us:.0f} us a request"
        found[2]["note"] = f"swift-bench {1e6 / other.clock_us:.0f} /s"
    return found


class Measured(NamedTuple):
    """What a request took in each round, of cosdrive, of swift-bench and of the user's COSBench,
    and why there is nothing of the last two."""

    ours: list[Cost]
    theirs: list[Cost]
    why: str | None
    real: list[Cost]
    real_why: str | None


def measured(login: Login, requests: int = REQUESTS, rounds: int = ROUNDS) -> Measured:
    """All tools on one store, in turns."""
    ours: list[Cost] = []
    theirs: list[Cost] = []
    why = None
    with tempfile.TemporaryDirectory(prefix="hotbed-bench.") as name:
        folder = Path(name)
        tool = None
        try:
            tool = installed(folder / "swift-bench")
        except LookupError as error:
            why = str(error)
        start = cosdrive(login, folder, STARTING)
        other_start = swift_bench(tool, login, folder, STARTING) if tool else start
        for _ in range(rounds):
            ours.append(each(cosdrive(login, folder, requests), start, requests))
            if tool:
                whole = swift_bench(tool, login, folder, requests)
                theirs.append(each(whole, other_start, requests))
        real, real_why = release_s(login, folder, requests, rounds)
    return Measured(ours, theirs, why, real, real_why)


def main() -> None:
    """Print the rows."""
    with store() as login:
        print(json.dumps(rows(*measured(login))))


if __name__ == "__main__":
    main()
