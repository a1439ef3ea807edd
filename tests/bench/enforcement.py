"""PriorityMeister's data plane: decisions of the enforcer, and the NFS proxy against the direct
path.

Server (in memory), proxy and load generator are separate processes on loopback; direct and through
the proxy alternate. `WORK` makes a call cost the server about as much processor time as in
nfs-ganesha 4.3. There, on two cores of an AMD EPYC, a read took 29 to 36 us for 4 KiB and 58 to 70
us for 64 KiB. A server that only copies memory is also shown, without a limit.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frame import PROGRAMS, SMALL, Row, answer, go_benchmarks, not_built, row, unmeasured

ROUNDS = 2 if SMALL else 7
SECONDS = 0.3 if SMALL else 1.0
WORK = "30us"
FILE_SIZE = "64MiB"
LOADS = {"4 KiB, 1 in flight": ("4KiB", 1), "4 KiB, 16": ("4KiB", 16), "64 KiB, 16": ("64KiB", 16)}
PROFILE = {
    "type": "storageConstant",
    "base": 1e-5,
    "readBandwidth": 1e9,
    "writeBandwidth": 1e9,
}


def decisions() -> Row:
    """Measure the slowest policy with 200 workloads of eight buckets (BenchmarkDecisions)."""
    name = "enforcer, decisions of the slowest policy with 200 workloads"
    pattern, times = "Decisions/.*/200$", 2000 if SMALL else 50_000
    found, problem = go_benchmarks("./enforcer", pattern, times)
    if not found:
        return unmeasured(name, f"the Go benchmark did not run: {problem}", "1/s", 100_000)
    rates = {bench.split("/")[1]: values["decisions/cpu-s"] for bench, values in found.items()}
    note = ", ".join(f"{policy} {1e-6 * rate:.2g} M/s" for policy, rate in rates.items())
    note = f"a second of processor time; {note}"
    return row(name, min(rates.values()), "1/s", 100_000, n=len(rates), note=note, at_least=True)


@contextmanager
def serving(folder: Path, work: str) -> Iterator[tuple[str, str]]:
    """Provide the addresses of a server and of its proxy, with a filled file `f`."""
    (folder / "profile.json").write_text(json.dumps(PROFILE))
    running: list[subprocess.Popen[str]] = []

    def start(*command: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        running.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
        return running[-1]

    try:
        server_process = start(str(PROGRAMS / "memnfs"), "--work", work)
        assert server_process.stdout is not None
        server = server_process.stdout.readline().strip()
        workload = {"name": "a", "clients": ["127.0.0.1"], "pairs": [[100, 10], [50, 20]]}
        parameters = {"policy": "pm", "depth": 64, "workloads": [workload]}
        config = {
            "nfs": {"listen": "127.0.0.1:0", "server": server},
            "control": str(folder / "control"),
            "profile": str(folder / "profile.json"),
            "parameters": parameters,
        }
        (folder / "config.json").write_text(json.dumps(config))
        proxy_process = start(str(PROGRAMS / "nfsproxy"), "--config", str(folder / "config.json"))
        assert proxy_process.stderr is not None
        proxy = proxy_process.stderr.readline().rpartition(" ")[2].strip()
        prepare = [str(PROGRAMS / "replay"), "prepare", "--server", server]
        subprocess.run([*prepare, "--file", "f", "--size", FILE_SIZE], check=True)
        yield server, proxy
    finally:
        for process in reversed(running):
            process.terminate()
            process.communicate()


def load(server: str, mount: str, size: str, depth: int) -> tuple[float, float]:
    """Return operations per second and median latency in seconds of reads at random places."""
    result = answer(
        *("replay", "load", "--server", server, "--mount", mount, "--file", "f"),
        *("--size", size, "--depth", str(depth), "--duration", f"{SECONDS}s"),
    )
    if result["errors"]:
        raise RuntimeError(f"reads failed: {result['errors']}")
    return result["whole"]["requests"] / result["elapsed"], result["whole"]["latency"]["p50"]


def paths(work: str) -> dict[str, list[tuple[float, float, float, float]]]:
    """Measure (direct rate, proxy rate, direct median, proxy median) by load and round."""
    found: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in LOADS}
    with (
        tempfile.TemporaryDirectory(prefix="hotbed-bench-") as folder,
        serving(Path(folder), work) as (server, proxy),
    ):
        for turn in range(ROUNDS):
            for name, (size, depth) in LOADS.items():
                first, second = (server, proxy) if turn % 2 == 0 else (proxy, server)
                results = {first: load(first, server, size, depth)}
                results[second] = load(second, server, size, depth)
                direct, through = results[server], results[proxy]
                found[name].append((direct[0], through[0], direct[1], through[1]))
    return found


def proxy_rows(work: str, *, limits: bool) -> list[Row]:
    """Return rows of the proxy before a server with calls of `work` processor time."""
    found = paths(work)
    kind = f"server with {work} a call" if limits else "server that only copies memory"

    def share(load: str, limit: float, what: str) -> Row:
        ratios = [through / direct for direct, through, _, _ in found[load]]
        direct = statistics.median(path[0] for path in found[load])
        return row(
            f"NFS proxy, {load}: share of the direct path's {what}, {kind}",
            statistics.median(ratios),
            limit=limit if limits else None,
            n=len(ratios),
            note=f"direct {direct:,.0f}/s; {min(ratios):.2f} to {max(ratios):.2f}",
            at_least=True,
        )

    single = found["4 KiB, 1 in flight"]
    added = [1e6 * (through - direct) for _, _, direct, through in single]
    direct = 1e6 * statistics.median(path[2] for path in single)
    return [
        share("4 KiB, 16", 0.8, "operations"),
        share("64 KiB, 16", 0.85, "bandwidth"),
        row(
            f"NFS proxy, 4 KiB, 1 in flight: added median latency, {kind}",
            statistics.median(added),
            "us",
            40.0 if limits else None,
            n=len(added),
            note=f"direct {direct:.3g} us; {min(added):.3g} to {max(added):.3g}",
        ),
    ]


def rows() -> list[Row]:
    """Return all rows; a row says if programs are not built."""
    if why := not_built("memnfs", "nfsproxy", "replay"):
        return [decisions(), unmeasured("NFS proxy", why)]
    return [decisions(), *proxy_rows(WORK, limits=True), *proxy_rows("0s", limits=False)]
