"""Node preparation by the role `swift`."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = "{}.{}-{}".format(*sys.version_info[:2], platform.machine())


@pytest.fixture
def prepare(
    script: Callable[[str, str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    module = script("swift", "prepare")
    monkeypatch.setattr(module, "LINK", tmp_path / "link")
    monkeypatch.setattr(module, "run", lambda *argv, check=True: "")
    return module


def wanted(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "digest": "abc",
        "packages": True,
        "platform": HERE,
        "archive": str(folder / "packages.tar"),
        "venv": str(folder / "venv"),
        "etc": str(folder / "etc/hotbed/swift"),
        "user": "root",
        "devices": str(folder / "srv"),
        "disks": [],
        "min_bytes": 1,
        "label": "hotbed-swift",
        "wipe": False,
        **changes,
    }


def said(
    prepare: ModuleType,
    verb: str,
    asked: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", ["-", verb, json.dumps(asked)])
    prepare.main()
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_nodes_that_run_no_swift_get_no_packages(
    prepare: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients have only the daemon, which is standard library: any Python is enough."""
    whole = wanted(tmp_path)
    found = said(prepare, "look", whole, capsys, monkeypatch)
    assert found == {"problems": [], "needs_packages": True}
    other = said(prepare, "look", whole | {"platform": "3.9-riscv"}, capsys, monkeypatch)
    assert "Swift's packages are for 3.9-riscv" in other["problems"][0]
    client = wanted(tmp_path, packages=False, platform="3.9-riscv")
    found = said(prepare, "look", client, capsys, monkeypatch)
    assert found == {"problems": [], "needs_packages": False}
    made = said(prepare, "make", client, capsys, monkeypatch)
    assert made["changed"] == [f"{client['etc']} made", f"{tmp_path / 'link'} made"]
    assert not Path(client["venv"]).exists()
    assert Path(client["etc"]).stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "link").readlink() == Path(client["etc"])
    assert said(prepare, "make", client, capsys, monkeypatch) == {"changed": []}


def test_a_link_to_another_swifts_settings_is_not_taken(
    prepare: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, link = wanted(tmp_path), tmp_path / "link"
    link.symlink_to(ours["etc"])  # from an earlier deployment
    assert said(prepare, "look", ours, capsys, monkeypatch)["problems"] == []
    for other in (tmp_path, tmp_path / "gone"):
        link.unlink()
        link.symlink_to(other)
        (problem,) = said(prepare, "look", ours, capsys, monkeypatch)["problems"]
        assert "has a Swift of its own" in problem
