"""A deployed store as its agent tells it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.deployers import KINDS, contract, deployer
from testbed.deployers.contract import Deployed
from tests.testbed.deployers.beds import bed_of, spec_with

ANSWERS: Mapping[str, Any] = {
    "facts": {"osd1": {"osds": [0]}, "osd0": {"osds": [2, 1]}, "admin": {"osds": []}, "x": {}},
    "versions": {"ceph": "20.2.0", "fio": "3.33"},
    "health": {"status": "HEALTH_OK", "osds": 3},
}


class Agent:
    """Answers from `ANSWERS`."""

    def call(self, verb: str) -> Any:
        return ANSWERS[verb]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_same_whoever_deployed_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "agent_client", lambda _: Agent())
    found = deployer(kind).status(bed_of(spec_with(kind), tmp_path))
    assert found == Deployed(kind, "20.2.0", "HEALTH_OK", {"osd0": (2, 1), "osd1": (0,)})
