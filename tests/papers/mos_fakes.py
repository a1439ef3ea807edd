"""Swift testbed that answers at once with chosen numbers, to test their evaluation."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaigns.grounds.live import LiveTestbed
from campaigns.papers.mos.drives import FOLDER
from campaigns.papers.mos.swift import Swift
from testbed.agent.contract import UnitResult
from testbed.spec import load_spec
from testbed.ssh import Completed
from tests.papers.live_fakes import RecordingAgent, printed
from tests.testbed.fake_site import FakeSite

SPEC = Path("testbed/specs/mos.yaml")
RATE, BYTES = {"a": 50, "b": 40, "c": 4, "d": 3, "o": 10}, {"a": 65_000, "b": 65_000}
"""Operations per second of a driver and bytes per operation, by the first letter of its name."""
SERIES = "second,stage,op,tenant,ops,bytes,errors,mean_s,p95_s,work,measured"
RESULTS = (
    "Stage,Op-Name,Op-Type,Op-Count,Byte-Count,Avg-ResTime,Avg-ProcTime,60%-ResTime,80%-ResTime,"
    "90%-ResTime,95%-ResTime,99%-ResTime,100%-ResTime,Throughput,Bandwidth,Succ-Ratio,Status,"
    "Detailed Status"
)


def archive_of(
    name: str,
    seconds: int,
    started_at: float,
    failed: int = 0,
    *,
    kind: str = "timeout",
    status: str = "completed",
) -> dict[str, str]:
    """Return the files of a driver that read `RATE` objects per second, each in 20 ms."""
    rate, size = RATE[name[0]], BYTES.get(name[0], 2_500_000)
    op = "write" if name[0] in "bd" else "read"
    count = rate * seconds
    lines = [
        f"{at},s1-main,{op},{name},{rate},{rate * size},{failed if at == 0 else 0},0.02,0.03,"
        f"main,true"
        for at in range(seconds)
    ]
    whole = f"s1-main,{op},{op},{count},{count * size},20,10,20,20,20,20,20,20"
    histogram = {
        "state": "finished",
        "started_unix_s": started_at,
        "stopped_unix_s": started_at + seconds,
        "seed": 1,
        "stages": [
            {
                "stage": "s1-main",
                "started_unix_s": started_at,
                "operations": [
                    {
                        "work": "main",
                        "operation": op,
                        "type": op,
                        "window_begin_s": 0.0,
                        "window_end_s": float(seconds),
                        "ops": count,
                        "bytes": count * size,
                        "errors": {kind: failed} if failed else {},
                        "throughput_s": float(rate),
                        "bandwidth_bytes_s": float(rate * size),
                        "mean_s": 0.02,
                        "max_s": 0.03,
                        "buckets": [[19_000_000, 20_000_000, count]],
                    }
                ],
            }
        ],
    }
    return {
        f"w1-{name}/w1-{name}.csv": (
            f"{RESULTS}\n{whole},{rate},{rate * size},100%,{status},running @ 2026-01-01 00:00:00\n"
        ),
        f"w1-{name}/series.csv": "\n".join([SERIES, *lines, ""]),
        f"w1-{name}/histograms.json": json.dumps(histogram),
    }


class FakeShell:
    """Node that keeps its files and, on a client, pretends to have run drivers."""

    def __init__(self, node: str, bed: FakeBed) -> None:
        self.node, self._bed = node, bed
        self.files: dict[str, bytes] = {}
        self.modes: dict[str, int] = {}
        self.ran: list[list[str]] = []

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> Completed:
        self.ran.append(list(argv))
        out = b""
        if argv[0] == "sh" and "exec cat" in argv[2]:
            tenant = Path(argv[-1]).stem
            out = json.dumps(self._bed.endpoints(tenant)).encode()
        elif argv[0] == "tar":
            out = self._packed()
        elif argv[0] == "tail":
            out = b"cosdrive: the store refused\n"
        elif argv[0] == "sh" and "rm -rf" in argv[-1]:
            self.files.clear()
        return Completed(tuple(argv), 0, out, b"")

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        self.files[path] = data
        self.modes[path] = mode
        if path.endswith(".xml"):
            self._bed.xmls[Path(path).stem] = data.decode()

    def _packed(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path in self.files:
                name = Path(path).stem
                if not path.startswith(FOLDER):
                    continue
                for file, text in self._bed.archive(name).items():
                    member = tarfile.TarInfo(f"./{name}.archive/{file}")
                    member.size = len(text.encode())
                    archive.addfile(member, io.BytesIO(text.encode()))
        return buffer.getvalue()


class FakeAgent(RecordingAgent):
    """Verbs of the admin node; units end at once with `exit_code`."""

    def __init__(self, bed: FakeBed) -> None:
        super().__init__()
        self._bed = bed
        self.exit_code: int | None = 0

    def call(
        self, verb: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 60.0
    ) -> Any:
        given = dict(payload or {})
        if verb == "swift-layout":
            self._bed.layout = given
        if verb == "control-log":
            self.calls.append((verb, given))
            text = self._bed.journal()
            return {"text": text[given["offset"] :], "offset": len(text), "size": len(text)}
        answer = super().call(verb, given)
        return {"samples": self._bed.samples()} if verb == "recorder-fetch" else answer

    def unit_wait(self, node: str, name: str, *, timeout_s: float) -> UnitResult:
        super().unit_wait(node, name, timeout_s=timeout_s)
        return printed(code=self.exit_code)


class FakeBed:
    """Testbed of a spec. The test sets `start`, the time when the loads begin."""

    def __init__(self, folder: Path, start: float, seconds: int, spec: Path = SPEC) -> None:
        self.site = FakeSite(folder)
        self.spec = load_spec(spec)
        self.testbed = self.site.provision(self.spec)
        self.testbed.directory.mkdir(parents=True, exist_ok=True)
        self.start, self.seconds = start, seconds
        self.failed, self.kind, self.prepared = 0, "timeout", "completed"
        self.layout: dict[str, Any] = {}
        self.xmls: dict[str, str] = {}
        self.disks: dict[str, list[tuple[float, float]]] = {}
        self.agent = FakeAgent(self)
        self.shells = {node.name: FakeShell(node.name, self) for node in self.testbed.nodes}
        self.live = LiveTestbed(
            site=self.site,
            testbed=self.testbed,
            spec=self.spec,
            agent=self.agent,
            shell_to=lambda name: self.shells[name],  # type: ignore[return-value]
        )
        self.swift = Swift(self.live)

    def endpoints(self, tenant: str) -> dict[str, Any]:
        together = self.layout.get("layout") == "default"
        order = ["proxy0", "proxy1"] if tenant == "small" else ["proxy1", "proxy0"]
        names = order if together else order[:1]
        urls = [f"http://[{self.testbed.node(name).address}]:8080" for name in names]
        return {
            "auth_url": f"{urls[0]}/auth/v1.0",
            "user": f"{tenant}:{tenant}",
            "key": f"secret-of-{tenant}",
            "proxies": urls,
            "s3": True,
        }

    def archive(self, name: str) -> dict[str, str]:
        if name.startswith("objects-"):
            return archive_of(name, 1, self.start, status=self.prepared)
        return archive_of(name, self.seconds, self.start, self.failed, kind=self.kind)

    def samples(self) -> list[dict[str, Any]]:
        values = {"cpu_cores": 0.2, "net_tx_mb_s": 5.0, "disk_util": 30.0}
        nodes = [node.name for node in self.testbed.nodes]
        return [
            {"wall": self.start + at, "values": {node: dict(values) for node in nodes}, "lost": {}}
            for at in range(self.seconds)
        ]

    def journal(self) -> str:
        """Return a journal of two steps; the second one also changes a share."""
        share: dict[str, Any] = {
            "proxy_cores": 0.4,
            "storage_cores": 0.4,
            "network": 25e6,
            "ssds": 0,
            "hdds": 0,
        }
        stores: list[dict[str, Any]] = [
            {"name": name, "resources": share, "utilization": {"proxy_cpu": 0.5}, "slots": []}
            for name in ("small", "large")
        ]
        more = {"action": "SetResources", "microstore": "small", "kind": "resources"}
        steps: list[dict[str, Any]] = [
            {"actions": []},
            {"actions": [more | {"resources": share | {"proxy_cores": 0.3}}]},
        ]
        head = {"schema": 1, "header": True, "needs": {"senses": [], "acts": []}}
        head |= {"policy": "mos-pp", "code_hash": "that of a test: there is no such code"}
        lines = [json.dumps(head)]
        for number, step in enumerate(steps):
            line = {
                "schema": 1,
                "step": number,
                "t_s": 12.0 * number,
                "wall": self.start + 12.0 * number,
                "observation": {"microstores": {"stores": stores}},
                "effects": [
                    {"ok": True, "message": "", "seconds": 0.1, "detail": {}}
                    for _ in step["actions"]
                ],
                "sense_s": 0.1,
                "decide_s": 0.01,
                "act_s": 0.2,
                "error": None,
            }
            lines.append(json.dumps(line | step))
        return "\n".join([*lines, ""])
