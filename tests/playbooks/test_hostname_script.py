"""Host name of a machine: the inventory's name, until the store is removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def test_the_old_name_comes_back(
    script: Callable[[str, str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script("hostname", "hostname")
    now = ["leased-17"]
    (tmp_path / "cloud").mkdir()
    monkeypatch.setattr(module, "BEFORE", tmp_path / "before")
    monkeypatch.setattr(module, "CLOUD", tmp_path / "cloud" / "keep.cfg")
    monkeypatch.setattr(module.socket, "gethostname", lambda: now[0])
    monkeypatch.setattr(module, "call", lambda name: now.__setitem__(0, name))

    assert len(module.name_it("osd0")) == 2
    assert module.name_it("osd0") == []
    assert now == ["osd0"]
    assert (tmp_path / "cloud" / "keep.cfg").read_text() == "preserve_hostname: true\n"
    assert len(module.undo()) == 2
    assert now == ["leased-17"] and module.undo() == []
    assert list(tmp_path.rglob("*.cfg")) == []
