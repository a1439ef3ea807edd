"""Tiny campaigns on the fake ground."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from campaigns.grounds.sim import SIMULATIONS
from campaigns.papers.dlr.kind import KIND
from testbed.sites.contract import Testbed

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from tiny_campaigns import TINY  # noqa: E402


@pytest.fixture(autouse=True)
def fake_ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the ground `fake` available, with locks and traces in the test's own folder."""
    monkeypatch.setenv("HOTBED_FAKE_GROUND", str(HERE / "fake_ground.py"))
    monkeypatch.setenv("HOTBED_FAKE_LOCKS", str(tmp_path))
    monkeypatch.setenv("HOTBED_FAKE_TRACE", str(tmp_path / "trace"))
    for name in ("FAULT", "CODE", "CONTROLLERS", "LACKS", "LEASE"):
        monkeypatch.delenv(f"HOTBED_FAKE_{name}", raising=False)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let cells of the ground `fake` run in this process, for tests of results alone: a process for
    each takes half a second."""
    monkeypatch.setitem(KIND.grounds, "fake", replace(KIND.grounds["fake"], same=SIMULATIONS))


@pytest.fixture
def campaign_file(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a campaign file: TINY with changes."""

    def write(**changes: Any) -> Path:
        path = tmp_path / "tiny.yaml"
        path.write_text(yaml.safe_dump({**TINY, **changes}))
        return path

    return write


@pytest.fixture
def live_campaign(tmp_path: Path, deployed: Testbed) -> Callable[..., Path]:
    """Return a function that writes a campaign file for the tests' own Ceph."""
    from live_campaigns import writer

    return writer(tmp_path, deployed)
