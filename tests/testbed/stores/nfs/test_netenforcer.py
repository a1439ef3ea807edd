"""Applying, checking and removing settings, on a kernel that records its commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UserError
from testbed.stores.nfs import netenforcer, readback, shaping
from testbed.stores.nfs.netenforcer import EnforcerError
from tests.errors import raises

HOST = {
    "rate": 1.25e8,
    "flows": [
        {
            "workload": "web",
            "stage": "network-in",
            "to": "server",
            "level": 1,
            "dscp": 56,
            "pairs": [[1e6, 4e4]],
            "source": [],
            "destination": ["10.1.0.1"],
        }
    ],
}
TBF = {"rate": 25e6, "burst": 98300.0, "lat": 25000.0}


class Kernel:
    """Kernel with one device, its root and our table: enough to show the settings in force."""

    def __init__(self, root: Any = None, segments: int = 65535, mtu: int = 1500) -> None:
        self.root, self.segments, self.mtu = root, segments, mtu
        self.state: shaping.ShapingState | None = None
        self.table = False
        self.refuse = ""
        self.lose = False  # accepts and forgets
        self.said: list[str] = []

    def __call__(self, *argv: str, text: str | None = None, check: bool = True) -> str:
        line = " ".join(argv)
        self.said.append(line)
        if self.refuse and line.startswith(self.refuse):
            raise EnforcerError(f"{line} failed: no.")
        if line.startswith("ip -j route get"):
            return json.dumps([{"dst": argv[-1], "dev": "eth0"}])
        if line.startswith("ip -d -j link"):
            return json.dumps([{"gso_max_segs": self.segments, "mtu": self.mtu}])
        if line.startswith("ip link set"):
            self.segments = int(argv[-1])
        elif line.startswith("tc -j qdisc show"):
            return json.dumps(self._qdiscs())
        elif line.startswith("tc qdisc del"):
            self.root = self.state = None
        elif line.startswith("tc qdisc replace"):
            rate, burst, lat = argv[8], argv[10], argv[12]
            # tc also shows rounded values.
            self.root = {
                "rate": int(rate.removesuffix("bit")) / 8,
                "burst": int(burst) - 4.0,
                "lat": float(lat.removesuffix("us")),
            }
        elif line == "nft delete table ip hotbed":
            self.table = False
        elif line == "nft -f -":
            self.table = True
        elif line.startswith("nft -j list"):
            return "{}" if self.table else ""
        return ""

    def _qdiscs(self) -> list[dict[str, Any]]:
        if self.root is None:
            return [{"kind": "noqueue", "handle": "0:", "root": True}]
        return [{"kind": "tbf", "handle": "8001:", "root": True, "options": dict(self.root)}]


@pytest.fixture
def keep(tmp_path: Path) -> Path:
    return tmp_path / "run" / "kept.json"


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Return a kernel with the last installed state; tests of readback cover the texts."""
    found = Kernel(dict(TBF))

    def install(state: shaping.ShapingState, device: str, frame: int, run: Any) -> None:
        assert frame == found.mtu + 38
        run("ip", "link", "set", "dev", device, "gso_max_segs", "1")
        run("tc", "-batch", "-")
        run("nft", "-f", "-")
        found.state = None if found.lose else state

    nothing = shaping.ShapingState(*(frozenset[Any](),) * 4)
    monkeypatch.setattr(netenforcer, "_install", install)
    monkeypatch.setattr(netenforcer, "read", lambda device, run: found.state or nothing)
    return found


def test_applied_checked_applied_again_and_removed(kernel: Kernel, keep: Path) -> None:
    before = (dict(TBF), 65535, False)
    assert netenforcer.check(None, kernel, keep) == []
    assert netenforcer.check(HOST, kernel, keep) == ["nothing is in force"]
    assert netenforcer.apply(HOST, kernel, keep) == {
        "changed": True,
        "device": "eth0",
        "flows": 1,
    }
    assert kernel.state == shaping.wanted(HOST, 25e6)  # the site's link is slower than the plan's
    assert kernel.segments == 1
    assert netenforcer.check(HOST, kernel, keep) == []
    assert netenforcer.check(None, kernel, keep)[-1] == "device eth0 is enforced"
    assert netenforcer.apply(HOST, kernel, keep)["changed"] is False
    faster = {**HOST, "flows": [{**HOST["flows"][0], "level": 2}]}  # type: ignore[index]
    assert netenforcer.check(faster, kernel, keep)
    assert netenforcer.apply(faster, kernel, keep)["changed"] is True
    assert netenforcer.remove(kernel, keep) == {"changed": True, "device": "eth0"}
    assert (kernel.root, kernel.segments, kernel.table) == before
    assert kernel.state is None
    assert not keep.exists()
    assert netenforcer.remove(kernel, keep) == {"changed": False, "device": None}


def test_a_device_with_the_kernels_default_gets_it_back(kernel: Kernel, keep: Path) -> None:
    kernel.root = None
    netenforcer.apply(HOST, kernel, keep)
    assert kernel.state == shaping.wanted(HOST, 1.25e8)
    netenforcer.remove(kernel, keep)
    assert kernel.root is None
    assert not [line for line in kernel.said if line.startswith("tc qdisc replace")]


def test_somebody_elses_queueing_is_left_alone(
    kernel: Kernel, keep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = [{"kind": "htb", "handle": "8:", "root": True}]
    monkeypatch.setattr(kernel, "_qdiscs", lambda: other)
    with pytest.raises(UserError):
        netenforcer.apply(HOST, kernel, keep)
    assert kernel.state is None
    assert not keep.exists()


@pytest.mark.parametrize("refused", ["tc -batch", "nft -f"])
def test_what_the_kernel_refuses_leaves_nothing(kernel: Kernel, keep: Path, refused: str) -> None:
    kernel.refuse = refused
    with raises(EnforcerError, "failed: no"):
        netenforcer.apply(HOST, kernel, keep)
    assert (kernel.root, kernel.segments, kernel.table) == (TBF, 65535, False)
    assert not keep.exists()


def test_what_did_not_come_into_force_is_told_and_taken_away(kernel: Kernel, keep: Path) -> None:
    kernel.lose = True
    with raises(EnforcerError, "after it was applied qdisc"):
        netenforcer.apply(HOST, kernel, keep)
    assert (kernel.root, kernel.table, keep.exists()) == (TBF, False, False)


def test_a_host_without_flows_is_freed(kernel: Kernel, keep: Path) -> None:
    netenforcer.apply(HOST, kernel, keep)
    assert netenforcer.apply({"rate": 1e6, "flows": []}, kernel, keep)["changed"] is True
    assert kernel.state is None


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ({}, "network parameters"),
        ({"rate": 1, "flows": [{"workload": "a", "stage": "s"}]}, "'level' is missing"),
        ({"rate": 1, "flows": 3}, "not iterable"),
    ],
)
def test_parameters_that_are_none_are_told(
    kernel: Kernel, keep: Path, host: dict[str, Any], said: str
) -> None:
    with raises(UserError, said):
        netenforcer.apply(host, kernel, keep)


def test_all_flows_must_leave_by_one_device(kernel: Kernel) -> None:
    def run(*argv: str, **_: Any) -> str:
        return json.dumps([{"dev": "eth1" if argv[-1] == "10.1.0.2" else "eth0"}])

    assert netenforcer.device_to({"10.1.0.1/32"}, run) == "eth0"
    with raises(UserError, "eth0", "eth1"):
        netenforcer.device_to({"10.1.0.1/32", "10.1.0.2/32"}, run)


def test_the_command_answers_in_json_and_in_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert netenforcer.main(["apply", str(tmp_path / "none.json")]) == 2
    assert "none.json: is missing" in capsys.readouterr().err
    assert netenforcer.main(["paint"]) == 2
    assert "give apply, check or remove" in capsys.readouterr().err
    monkeypatch.setattr(netenforcer, "check", lambda host: [f"{host}"])
    monkeypatch.setattr("sys.stdin", __import__("io").StringIO("null"))
    assert netenforcer.main(["check", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == {"differences": ["None"]}


def test_buckets_hold_a_frame_of_the_devices_packets(kernel: Kernel, keep: Path) -> None:
    kernel.mtu = 9000
    small = HOST | {"flows": [HOST["flows"][0] | {"pairs": [[1e6, 100.0]]}]}  # type: ignore[index]
    netenforcer.apply(small, kernel, keep)
    assert kernel.state == shaping.wanted(small, 25e6, 9038)
    assert {c.burst for c in kernel.state.classes if c.classid == "1000:1"} == {9038.0}
    kernel.mtu = 1500  # the original value counts, as for all restored settings
    assert netenforcer.check(small, kernel, keep) == []


def test_what_an_earlier_version_kept_is_read(keep: Path) -> None:
    keep.parent.mkdir()
    keep.write_text(json.dumps({"device": "eth0", "root": None, "segments": 65535}))
    found = netenforcer.load(keep)
    assert found is not None and found.mtu == 1500


def test_readback_is_what_read_uses(root: Path) -> None:
    """The four outputs are from readback's commands, in readback's order."""
    data, asked = root / "tests/data/netenforcer", list[str]()
    answers = {
        "tc -j qdisc show": (data / "qdiscs.json").read_text(),
        "tc class show": (data / "classes.txt").read_text(),
        "tc filter show": (data / "filters.txt").read_text(),
        "nft -j list table": (data / "table.json").read_text(),
    }

    def run(*argv: str, **_: Any) -> str:
        line = " ".join(argv)
        asked.append(line)
        return next(text for start, text in answers.items() if line.startswith(start))

    wanted = shaping.wanted(json.loads((data / "host.json").read_text()), 25e6)
    assert readback.differences(wanted, netenforcer.read("eth0", run)) == []
    assert len(asked) == 4
