"""Device profiles of other machines: remote commands and their results."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from campaigns.papers.prioritymeister.profiling import profile_device
from controllers.prioritymeister.profiles import load_profile
from schemas.errors import UserError
from testbed.ssh import Completed
from workloads.errors import WorkloadError


class Node:
    """Shell that answers as a node with fio does: 4 KiB take 10 ms, long reads 100 MB/s."""

    node = "server"

    def __init__(self, *, fio: bool = True, look: dict[str, object] | None = None) -> None:
        self.fio = fio
        self.look = {"size": 2**33, "error": None, "used": False} | (look or {})
        self.calls: list[tuple[str, ...]] = []
        self.jobs = ""

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> Completed:
        self.calls.append(tuple(argv))
        code, out = 0, ""
        if argv[0] == "python3":
            out = json.dumps(self.look)
        elif argv[0] == "sh":
            code = 0 if self.fio else 127
        else:
            assert input is not None
            self.jobs = input.decode()
            out = "fio: note\n" + json.dumps({"jobs": [self._job(j) for j in self._names()]})
        return Completed(tuple(argv), code, out.encode(), b"")

    def _names(self) -> list[str]:
        return [n for n in re.findall(r"^\[(.*)\]$", self.jobs, re.MULTILINE) if n != "global"]

    def _job(self, name: str) -> dict[str, object]:
        kind = name.split("-")[0]
        part = {"total_ios": 100, "bw_bytes": 100e6, "lat_ns": {"mean": 10e6}}
        return {"jobname": name, "error": 0, kind: part}

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        raise AssertionError("nothing is written on the node")

    def popen(self, argv: Sequence[str]) -> object:
        raise AssertionError("nothing is left running on the node")


def profiled(node: Node, out: Path, **changes: object) -> dict[str, object]:
    asked: dict[str, object] = {"kind": "by-distance", "depth": 1, "seconds": 2.0, "writes": False}
    asked |= {"tell": lambda _: None, "shell": node}
    return profile_device("/dev/hotbed/scratch", out, **(asked | changes))  # type: ignore[arg-type]


def test_a_nodes_device_is_measured_there_and_the_profile_is_kept_here(tmp_path: Path) -> None:
    node, told = Node(), list[str]()
    made = profiled(node, tmp_path / "p.json", tell=told.append)
    assert node.calls[-1] == ("fio", "--output-format=json", "-")
    assert "filename=/dev/hotbed/scratch\n" in node.jobs
    assert "rw=randwrite" not in node.jobs
    assert told[0].startswith("measuring /dev/hotbed/scratch of node server for about ")
    assert made["read"] == made["write"]
    assert load_profile(tmp_path / "p.json").storage is not None


@pytest.mark.parametrize(
    ("look", "writes", "words"),
    [
        ({"used": True}, True, "of node server is in use: --overwrite would destroy"),
        ({"error": "cannot be opened (No such file or directory)"}, False, "cannot be opened"),
        ({"size": 4096}, False, "too few to profile"),
    ],
)
def test_a_device_that_is_not_fit_is_refused(
    tmp_path: Path, look: dict[str, object], writes: bool, words: str
) -> None:
    node = Node(look=look)
    with pytest.raises(UserError, match=words):
        profiled(node, tmp_path / "p.json", writes=writes)
    assert not any(call[0] == "fio" for call in node.calls)
    assert not (tmp_path / "p.json").exists()


def test_a_node_without_fio_and_a_fio_that_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fio is not installed on server"):
        profiled(Node(fio=False), tmp_path / "p.json")
    node = Node()
    node._names = list  # type: ignore[method-assign]
    with pytest.raises(WorkloadError, match="no job"):
        profiled(node, tmp_path / "p.json")
    assert not (tmp_path / "p.json").exists()
