"""Network limits of NFS hosts: translation to tc and nft, applying, checking and removing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
def keep(tmp_path):
    return tmp_path / "run" / "kept.json"


@pytest.fixture
def kernel(monkeypatch):
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


def test_a_device_with_the_kernels_default_gets_it_back(kernel, keep):
    kernel.root = None
    netenforcer.apply(HOST, kernel, keep)
    assert kernel.state == shaping.wanted(HOST, 1.25e8)
    netenforcer.remove(kernel, keep)
    assert kernel.root is None
    assert not [line for line in kernel.said if line.startswith("tc qdisc replace")]


def test_somebody_elses_queueing_is_left_alone(kernel, keep, monkeypatch):
    other = [{"kind": "htb", "handle": "8:", "root": True}]
    monkeypatch.setattr(kernel, "_qdiscs", lambda: other)
    with pytest.raises(UserError):
        netenforcer.apply(HOST, kernel, keep)
    assert kernel.state is None
    assert not keep.exists()


@pytest.mark.parametrize("refused", ["tc -batch", "nft -f"])
def test_what_the_kernel_refuses_leaves_nothing(kernel, keep, refused):
    kernel.refuse = refused
    with raises(EnforcerError, "failed: no"):
        netenforcer.apply(HOST, kernel, keep)
    assert (kernel.root, kernel.segments, kernel.table) == (TBF, 65535, False)
    assert not keep.exists()


def test_what_did_not_come_into_force_is_reported_and_taken_away(kernel, keep):
    kernel.lose = True
    with raises(EnforcerError, "after it was applied qdisc"):
        netenforcer.apply(HOST, kernel, keep)
    assert (kernel.root, kernel.table, keep.exists()) == (TBF, False, False)


def test_all_flows_must_leave_by_one_device(kernel):
    def run(*argv: str, **_: Any) -> str:
        return json.dumps([{"dev": "eth1" if argv[-1] == "10.1.0.2" else "eth0"}])

    assert netenforcer.device_to({"10.1.0.1/32"}, run) == "eth0"
    with raises(UserError, "eth0", "eth1"):
        netenforcer.device_to({"10.1.0.1/32", "10.1.0.2/32"}, run)


# -- translation to commands -----------------------------------------------------------------------


LINK = 25e6


def flow(**changes: Any) -> dict[str, Any]:
    return {
        "workload": "web",
        "stage": "network-in",
        "to": "server",
        "level": 2,
        "dscp": 48,
        "pairs": [[1e6, 4e4], [2.5e5, 2e5], [1e5, 1e6]],
        "source": ["10.1.0.2"],
        "destination": ["10.1.0.1"],
        **changes,
    }


def host(*flows: dict[str, Any], rate: float = LINK) -> dict[str, Any]:
    return {"queue": "c0->switch", "rate": rate, "flows": list(flows)}


@pytest.mark.parametrize(
    ("flows", "said"),
    [
        ([flow(level=8)], "flow web network-in"),
        ([flow(level=0)], "level is 0"),
        ([flow(dscp=64)], "64"),
        ([flow(destination=[])], "has no destination"),
        ([flow(destination=["server"])], "'server'"),
        ([flow(pairs=[[0, 5]])], "a pair is [0"),
        ([flow(pairs=[[float("nan"), 5]])], "a pair is [nan, 5]"),
        ([flow(), flow(workload="copy")], "10.1.0.2/32"),
        ([flow(destination=[f"10.0.{n}.1"]) for n in range(250)] * 2, "500"),
    ],
)
def test_a_mistake_is_reported(flows, said):
    with raises(ValueError, said):
        shaping.flows_of(host(*flows))


@given(st.lists(st.tuples(st.floats(1.0, 1e9), st.floats(0.0, 1e9)), min_size=1, max_size=12))
def test_buckets_let_a_trace_of_their_pairs_through(pairs):
    """Values that HTB cannot keep are enlarged, never reduced; and no data is lost."""
    state = shaping.wanted(host(flow(pairs=[list(pair) for pair in pairs])), LINK)
    inner = [c for c in state.classes if not c.classid.startswith("1:")]
    kept = [(c.rate, c.burst) for c in inner] + [(c.ceil, c.cburst) for c in inner]
    slower = [pair for pair in pairs if pair[0] < LINK]
    for rate, burst in slower:
        found = shaping.bucket(rate, burst)
        assert found in kept
        assert found[0] >= rate
        assert found[1] >= burst
        assert found[1] / found[0] <= shaping.LONGEST_S * (1 + 1e-9)
    assert len(inner) == -(-len(slower) // 2)
    assert all(c.rate <= c.ceil for c in inner)


# -- readback of a real device's output ------------------------------------------------------------


@pytest.fixture
def data(root):
    return root / "tests/data/netenforcer"


@pytest.fixture
def wanted(data):
    return shaping.wanted(json.loads((data / "host.json").read_text()), LINK)


@pytest.fixture
def printed(data):
    names = {"qdiscs": "json", "classes": "txt", "filters": "txt", "table": "json"}
    return {name: (data / f"{name}.{end}").read_text() for name, end in names.items()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("classes", "prio 6 rate", "prio 5 rate"),
            "class 1:101 is at 1:1 with priority 5, not at",
        ),
        (
            ("classes", "rate 10Mbit ceil 20Mbit", "rate 11Mbit ceil 20Mbit"),
            "class 1001:1 has rate",
        ),
        (("classes", "burst 256Kb", "burst 200Kb"), "class 1001:1 has burst 204800, not 262144"),
        (("table", '"10.99.0.3"', '"10.99.0.9"'), "mark 10.99.0.3/32 8 is missing"),
        (("filters", "0a630003", "0a630004"), "filter ip 0a630003/ffffffff at 16 1:101 is missing"),
        (("qdiscs", '"handle":"1001:"', '"handle":"1009:"'), "qdisc 1001: 1000:1 htb is missing"),
        (("table", '"cs7"', '"cs6"'), "mark 10.99.0.1/32 10.99.0.2/32 56 is missing"),
    ],
)
def test_a_change_is_seen(wanted, printed, change, said):
    where, old, new = change
    assert old in printed[where]
    printed[where] = printed[where].replace(old, new, 1)
    found = readback.differences(wanted, readback.installed(**printed))
    assert any(one.startswith(said) for one in found), found


def test_what_is_missing_or_too_much_is_reported(wanted, printed):
    nothing = readback.installed("[]", "", "", "")
    assert nothing == shaping.ShapingState(*(frozenset(),) * 4)
    said = readback.differences(wanted, nothing)
    assert "class 1:100 is missing" in said
    fewer = replace(wanted, marks=frozenset(), classes=frozenset())
    said = readback.differences(fewer, readback.installed(**printed))
    assert "class 1:100 is not ours" in said
    assert any(one.startswith("mark ") and one.endswith("is not ours") for one in said)
    with raises(ValueError, "8001:1"):
        readback.installed("[]", "class tbf 8001:1 parent 8001: \n", "", "")
