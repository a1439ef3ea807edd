"""What of a campaign's runs on real microstores a change of a controller makes anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.kinds.session import prepare
from campaigns.mos.live import ground
from campaigns.session import Request


def test_a_changed_controller_leaves_what_others_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ids() -> dict[str, set[str]]:
        plan = prepare(Request(campaign="mos-local", artifacts=tmp_path)).plan
        found: dict[str, set[str]] = {}
        for cell in plan.cells:
            found.setdefault(cell.parameters.controller, set()).add(cell.run_id)
        return found

    before, real = ids(), ground.of_controller
    monkeypatch.setattr(
        ground, "of_controller", lambda name: real(name) + "changed" * (name == "mos-pp")
    )
    after = ids()
    assert before["mos-pp"].isdisjoint(after.pop("mos-pp"))
    assert after == {name: found for name, found in before.items() if name != "mos-pp"}
    assert {"static", "default", "proxy", "storage"} <= set(after)
