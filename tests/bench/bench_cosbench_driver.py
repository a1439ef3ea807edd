"""Cost of a request in the COSBench driver, compared with swift-bench on the same store in one run.

The bench measures the load tool's processor time (user and system) per request, and requests per
second. cosdrive and swift-bench alternately write, read and delete objects of 64 KiB, 4 at a time.
The store is memswift, in memory: it answers faster than any Swift, so the tools are the bottleneck.
A run of a few requests measures the start of a process, which is subtracted. swift-bench comes from
PyPI, pinned with hashes, into a temporary folder; if unavailable, its row says so.
"""

from __future__ import annotations

import csv
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
from typing import NamedTuple

from frame import PROGRAMS, SMALL, Row, row, show

LOCK = Path(__file__).with_name("swift-bench.lock")
REQUESTS = 200 if SMALL else 2000
ROUNDS = 1 if SMALL else 3
STARTING = 8  # requests of a run that measures its start
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
    """Login of a tenant of a store, with a key of its own."""

    url: str
    user: str
    key: str


@contextmanager
def store() -> Iterator[Login]:
    """Provide a store in memory."""
    with subprocess.Popen([PROGRAMS / "memswift"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield Login(server.stdout.readline().strip(), "test:tester", "testing")
        finally:
            server.terminate()


class Took(NamedTuple):
    """Processor seconds and clock seconds of a run."""

    processor_s: float
    clock_s: float


FAILED = re.compile(r"\*\*FINAL\*\* \[(\d+) failures\]")
"""swift-bench's summary line for each kind of request."""


def took(command: list[str]) -> Took:
    """Run a command and return its costs; show its output if it fails. Failed requests are cheap,
    so any failed request makes the result invalid."""
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
    """Return the text of a tool's input."""
    return text.format(**login._asdict(), n=requests, size=OBJECT_BYTES)


def cosdrive(login: Login, folder: Path, requests: int) -> Took:
    """Run this many writes, reads and deletes each; only this user may read `folder`."""
    xml = folder / "bench.xml"
    xml.write_text(filled(WORKLOAD, login, requests))
    archive = folder / "archive"
    found = took([str(PROGRAMS / "cosdrive"), "run", str(xml), "--archive", str(archive)])
    newest = max(archive.glob("w*-bench/w*-bench.csv"), key=lambda path: path.stat().st_mtime_ns)
    with newest.open() as file:
        ratios = {row["Op-Type"]: row["Succ-Ratio"] for row in csv.DictReader(file)}
    for kind in ("write", "read", "delete"):  # creating containers counts no requests
        if ratios.get(kind) != "100%":
            raise RuntimeError(f"requests of cosdrive failed: {kind} {ratios.get(kind)} succeeded.")
    return found


def swift_bench(tool: Path, login: Login, folder: Path, requests: int) -> Took:
    """Run the same requests with swift-bench."""
    conf = folder / "swift-bench.conf"
    conf.write_text(filled(SWIFT_BENCH, login, requests))
    return took([str(tool), str(conf)])


def installed(folder: Path) -> Path:
    """Install swift-bench in its own folder. LookupError: it is unavailable here."""
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
    """Return the processor seconds of the release's processes so far. LookupError: none runs
    here."""
    ticks: list[int] = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "cwd").resolve() == release.resolve():
                name, _, rest = (process / "stat").read_text().partition("(")[2].rpartition(")")
                if name == "java":
                    ticks.append(sum(map(int, rest.split()[11:13])))  # utime and stime
        except OSError:  # it has ended, or belongs to another user
            continue
    if not ticks:
        raise LookupError(f"no COSBench of {release} runs here: start it (start-all.sh)")
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def cosbench(release: Path, login: Login, folder: Path, requests: int) -> Took:
    """Run the same requests with a running COSBench. LookupError: it does not run, or did not
    finish the workload."""
    from schemas.errors import HotbedError
    from testbed.ssh import LocalShell
    from workloads.cosbench.real import ArchiveSource, ControllerClient, run

    before, began = java_s(release), time.monotonic()
    xml = filled(WORKLOAD, login, requests)
    out = folder / f"cosbench-{len(list(folder.iterdir()))}"
    source = ArchiveSource(LocalShell("here"), str(release / "archive"))
    try:
        archive = run(ControllerClient("localhost"), source, xml, out)
    except HotbedError as error:
        raise LookupError(f"COSBench: {error}") from error
    if not archive.finished:
        raise LookupError("COSBench did not finish the workload: its archive says why")
    return Took(java_s(release) - before, time.monotonic() - began)


def release_s(
    login: Login, folder: Path, requests: int = REQUESTS, rounds: int = ROUNDS
) -> tuple[list[Cost], str | None]:
    """Return the cost of a request in the user's COSBench, or the reason why it is unknown."""
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
    """Processor and clock microseconds of a request."""

    processor_us: float
    clock_us: float


def each(whole: Took, start: Took, requests: int = REQUESTS) -> Cost:
    """Return the cost of a request without the start; a run has three kinds of requests."""
    more = 3 * (requests - STARTING)
    return Cost(*((w - s) / more * 1e6 for w, s in zip(whole, start, strict=True)))


def median(costs: list[Cost]) -> Cost:
    """Return the median over rounds."""
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
) -> list[Row]:
    """Return the bench's rows from the costs of a request per round: of cosdrive, of swift-bench,
    of the user's COSBench."""
    mine, n = median(ours), len(ours) * 3 * requests

    def fewer(tool: str, costs: list[Cost], missing: str | None) -> Row:
        value, n_of, about = None, n, missing
        if costs:
            other = median(costs).processor_us
            value, about = other / mine.processor_us, f"{tool} {other:.0f} us a request"
        if tool == "COSBench":
            n_of = len(costs) * 3 * requests
        name = f"{what}, times less processor time than {tool} takes"
        return row(name, value, "times", TIMES_FEWER, n=n_of, note=about, at_least=True)

    rate = f"swift-bench {1e6 / median(theirs).clock_us:.0f} /s" if theirs else why
    cost = f"{what}, processor time a request (64 KiB)"
    return [
        row(cost, mine.processor_us, "us", n=n, note=note),
        fewer("swift-bench", theirs, why),
        row(f"{what}, requests a second (4 at a time)", 1e6 / mine.clock_us, "/s", n=n, note=rate),
        fewer("COSBench", real, real_why),
    ]


class Measured(NamedTuple):
    """Costs of a request per round for cosdrive, swift-bench and the user's COSBench, and the
    reasons why the last two are missing."""

    ours: list[Cost]
    theirs: list[Cost]
    why: str | None
    real: list[Cost]
    real_why: str | None


def measured(login: Login, requests: int = REQUESTS, rounds: int = ROUNDS) -> Measured:
    """Run all tools alternately on one store."""
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
        show(rows(*measured(login)))


if __name__ == "__main__":
    main()
