"""Features that a deployed store offers, queried on its admin node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from campaigns.grounds import testbed as facts
from schemas.errors import HotbedError
from testbed.ssh import Completed
from testbed.stores.contract import HOT, OSDS, PRESSURE, PRIMARY_AFFINITY, Needs

STAND_INS = {
    "config.py": "def load_config():\n    return 'the config'\n",
    "sense.py": (
        "from types import SimpleNamespace\n"
        "def open_store(config, signal):\n"
        "    assert (config, signal) == ('the config', None)\n"
        "    needs = SimpleNamespace(senses=frozenset({'osds', 'hot'}),\n"
        "        acts=frozenset({'primary-affinity'}))\n"
        "    return SimpleNamespace(offers=lambda: needs)\n"
    ),
}


class AdminNode:
    """Admin node that runs commands here, with a stand-in for the agent's code."""

    def __init__(self, root: Path, answer: bytes | None = None) -> None:
        self.root = root
        self.answer = answer

    def run(self, argv: list[str], **_: Any) -> Completed:
        if self.answer is not None:
            return Completed(tuple(argv), 0, self.answer, b"")
        here = [sys.executable if word == "python3" else word for word in argv]
        here[1] = f"PYTHONPATH={self.root}"
        done = subprocess.run(here, capture_output=True, check=True, cwd=self.root)
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)


def a_testbed(monkeypatch: pytest.MonkeyPatch, node: AdminNode) -> Any:
    monkeypatch.setattr(facts, "shell_to", lambda testbed, admin: node)
    return SimpleNamespace(name="dlr", admin="admin")


def test_the_store_on_the_admin_node_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("testbed", "testbed/agent"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    for name, text in STAND_INS.items():
        (tmp_path / "testbed" / "agent" / name).write_text(text)
    found = facts.read_offers(a_testbed(monkeypatch, AdminNode(tmp_path)))
    # The store is opened without a sensor; a testbed has sensors.
    assert found == Needs(frozenset({OSDS, HOT, PRESSURE}), frozenset({PRIMARY_AFFINITY}))


@pytest.mark.parametrize("answer", [b"", b"nonsense", json.dumps({"senses": []}).encode()])
def test_nonsense_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    with pytest.raises(HotbedError, match="does not report what its store offers"):
        facts.read_offers(a_testbed(monkeypatch, AdminNode(tmp_path, answer)))
