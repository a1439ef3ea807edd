"""Translation of parameters to tc and nft commands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.stores.nfs import shaping
from tests.errors import raises

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


def test_the_commands_of_a_flow_with_three_buckets() -> None:
    state = shaping.wanted(host(flow()), LINK)
    leaf, borrow = "burst 1538", "ceil 200000000bit cburst 25000"
    assert shaping.tc_commands(state, "eth0") == [
        "qdisc replace dev eth0 root handle 1: htb default 2",
        "class add dev eth0 parent 1: classid 1:1 htb rate 200000000bit burst 25000 "
        "ceil 200000000bit cburst 25000 prio 0 quantum 1538",
        f"class add dev eth0 parent 1:1 classid 1:2 htb rate 8000bit {leaf} {borrow} prio 7 "
        "quantum 1538",
        "qdisc add dev eth0 parent 1:2 handle 2: bfifo limit 16777216",
        f"class add dev eth0 parent 1:1 classid 1:3 htb rate 10000000bit burst 6152 {borrow} "
        "prio 7 quantum 1538",
        "qdisc add dev eth0 parent 1:3 handle 3: bfifo limit 16777216",
        # Level 2 is HTB's priority 1; the slowest buckets are outermost.
        f"class add dev eth0 parent 1:1 classid 1:100 htb rate 8000bit {leaf} {borrow} prio 1 "
        "quantum 1538",
        "qdisc add dev eth0 parent 1:100 handle 1000: htb default 1",
        "class add dev eth0 parent 1000: classid 1000:1 htb rate 800000bit burst 1000000 "
        "ceil 2000000bit cburst 200000 prio 0 quantum 1538",
        "qdisc add dev eth0 parent 1000:1 handle 1001: htb default 1",
        "class add dev eth0 parent 1001: classid 1001:1 htb rate 8000000bit burst 40000 "
        "ceil 8000000bit cburst 40000 prio 0 quantum 1538",
        "qdisc add dev eth0 parent 1001:1 handle 1002: bfifo limit 16777216",
        "filter add dev eth0 parent 1: protocol arp prio 5 u32 match u32 0x00000000 0x00000000 "
        "at 0 flowid 1:3",
        "filter add dev eth0 parent 1: protocol ip prio 10 u32 match u32 0x00060000 0x00ff0000 "
        "at 8 match u32 0x00000016 0x0000ffff at 20 flowid 1:3",
        "filter add dev eth0 parent 1: protocol ip prio 10 u32 match u32 0x00060000 0x00ff0000 "
        "at 8 match u32 0x00160000 0xffff0000 at 20 flowid 1:3",
        "filter add dev eth0 parent 1: protocol ip prio 20 u32 match u32 0x0a010002 0xffffffff "
        "at 12 match u32 0x0a010001 0xffffffff at 16 flowid 1:100",
    ]
    assert shaping.nft_commands(state) == (
        "table ip hotbed\ndelete table ip hotbed\ntable ip hotbed {\n"
        "  chain classify {\n    type filter hook postrouting priority mangle; policy accept;\n"
        "    ip saddr 10.1.0.2/32 ip daddr 10.1.0.1/32 counter ip dscp set 48\n  }\n}\n"
    )


def test_a_flow_without_buckets_or_mark_is_only_ordered() -> None:
    state = shaping.wanted(host(flow(pairs=[], dscp=0, level=1, source=[])), LINK)
    assert ("1000:", "1:100", "bfifo") in state.qdiscs
    assert not state.marks
    assert next(c for c in state.classes if c.classid == "1:100").prio == 0
    assert ("ip", "0a010001/ffffffff at 16", "1:100") in state.filters


def test_a_bucket_as_fast_as_the_link_is_the_links_own_matter() -> None:
    """HTB showed a burst of 0 for 13.7 kB at 500 GB/s, as in a plan of a real trace."""
    state = shaping.wanted(host(flow(pairs=[[5e11, 13716.8], [LINK, 2e4], [1e6, 4e4]])), LINK)
    inner = [c for c in state.classes if not c.classid.startswith("1:")]
    assert [(c.rate, c.ceil, c.burst, c.cburst) for c in inner] == [(1e6, 1e6, 4e4, 4e4)]


def test_classes_hold_the_frames_of_a_device_with_large_packets() -> None:
    slow = 1e6
    state = shaping.wanted(host(flow(pairs=[[1e5, 100.0]])), slow, 9038)
    bursts = {c.classid: (c.burst, c.cburst) for c in state.classes}
    assert bursts == {
        "1:1": (18076.0, 18076.0),
        "1:2": (1538.0, 18076.0),
        "1:3": (6152.0, 18076.0),
        "1:100": (1538.0, 18076.0),
        "1000:1": (9038.0, 9038.0),
    }
    lines = [line for line in shaping.tc_commands(state, "eth0", 9038) if "class add" in line]
    assert len(lines) == 5 and all(line.endswith("quantum 9038") for line in lines)


def test_flows_have_classes_and_handles_of_their_own() -> None:
    many = [flow(workload=f"w{n}", destination=[f"10.2.{n}.1"]) for n in range(60)]
    state = shaping.wanted(host(*many), LINK)
    handles = [handle for handle, _, _ in state.qdiscs]
    assert len(set(handles)) == len(handles) == 3 + 60 * 3
    assert max(int(handle[:-1], 16) for handle in handles) < 0xFFFF


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
def test_a_mistake_is_told(flows: list[dict[str, Any]], said: str) -> None:
    with raises(ValueError, said):
        shaping.flows_of(host(*flows))


@given(st.lists(st.tuples(st.floats(1.0, 1e9), st.floats(0.0, 1e9)), min_size=1, max_size=12))
def test_buckets_let_a_trace_of_their_pairs_through(pairs: list[tuple[float, float]]) -> None:
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
