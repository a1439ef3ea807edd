"""Doctor's check of back ends that must be closed, and the rule that closes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from runpy import run_path

import pytest

from schemas.errors import RemoteError
from testbed import doctor
from testbed.doctor import ABSENT, peer_findings
from testbed.sites.contract import Node, Testbed
from testbed.ssh import Completed
from tests.testbed.test_ports import SWIFT, spec_of

SPEC = spec_of(SWIFT, ("p", 2, "proxy"), ("s", 2, "storage"))
NODES = tuple(
    Node(name, f"10.0.0.{number}", frozenset(group.roles), group.name)
    for group in SPEC.groups
    for number, name in enumerate(group.node_names(), 10 * SPEC.groups.index(group))
)
TESTBED = Testbed("t", "fake", NODES, Path("k"), Path("known"), Path("d"), "h")


@pytest.fixture
def rules(root: Path) -> dict[str, str]:
    """Return the rules of each kind of node, as the role writes them."""
    made = run_path(str(root / "playbooks/roles/base/files/peers.py"))["rules"]
    addresses = [node.address for node in NODES]
    ports = {"p": ["11211"], "s": ["873", "6200-6219"]}
    return {kind: made(numbers, addresses) for kind, numbers in ports.items()}


def test_the_rule_names_every_node_of_either_family(root: Path) -> None:
    made = run_path(str(root / "playbooks/roles/base/files/peers.py"))["rules"]
    four, six = (
        line for line in made(["1"], ["10.0.0.1", "fd00::1"]).splitlines() if "drop" in line
    )
    assert "ip saddr != { 127.0.0.1, 10.0.0.1 }" in four
    assert "ip6 saddr != { ::1, fd00::1 }" in six


def test_a_node_without_the_rule_or_with_another_is_found(
    rules: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        "p0": rules["p"],
        "p1": ABSENT,
        "s0": rules["p"],  # rules for other ports
        "s1": rules["s"].replace(NODES[1].address, "10.9.9.9"),  # a node's address has changed
    }

    class Shell:
        def __init__(self, node: str) -> None:
            self.node = node

        def run(self, argv: Sequence[str], **_: object) -> Completed:
            return Completed(tuple(argv), 0, said[self.node].encode(), b"")

    monkeypatch.setattr(doctor, "spec_of", lambda testbed: SPEC)
    monkeypatch.setattr(doctor, "shell_to", lambda testbed, node: Shell(node.name))
    found = peer_findings(TESTBED)
    assert {name: one.ok for name, one in found.items()} == {
        **{"p0": True, "p1": True},
        **{"s0": False, "s1": False},
    }
    assert NODES[1].address in found["s1"].found


def test_a_node_that_cannot_be_asked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(testbed: Testbed, node: Node) -> None:
        raise RemoteError(f"{node.name} is away")

    monkeypatch.setattr(doctor, "spec_of", lambda testbed: SPEC)
    monkeypatch.setattr(doctor, "shell_to", away)
    found = peer_findings(TESTBED)
    assert not any(one.ok for one in found.values())
    assert "s1 is away" in found["s1"].found
