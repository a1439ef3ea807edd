"""The roles' small scripts: files, scratch file system, control plane."""

from __future__ import annotations

import base64
import io
import json
import os
import pwd
import runpy
import stat
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from testbed.deploy import bundle

Run = Callable[..., list[str]]


@pytest.fixture
def write_files(root, monkeypatch, capsys) -> Run:
    """Return a function that runs write_files.py as this user, and returns what it changed."""
    owner = pwd.getpwuid(os.getuid()).pw_name

    def run(*wanted: dict[str, str]) -> list[str]:
        text = json.dumps([{"owner": owner, **each} for each in wanted])
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        runpy.run_path(str(root / "playbooks/files/write_files.py"), run_name="__main__")
        found: list[str] = json.loads(capsys.readouterr().out)["changed"]
        return found

    return run


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_written_once_and_put_right(write_files, tmp_path):
    folder, key, open_one = tmp_path / "a/b", tmp_path / "a/b/key", tmp_path / "a/b/open"
    wanted: list[dict[str, str]] = [
        {"path": str(folder), "mode": "0700"},
        {"path": str(key), "content": "geheim ü\n", "mode": "0600"},
        {"path": str(open_one), "content": ""},
    ]
    assert write_files(*wanted) == [str(folder), str(key), str(open_one)]
    assert key.read_text() == "geheim ü\n"
    assert [mode(path) for path in (folder, key, open_one)] == [0o700, 0o600, 0o644]
    assert write_files(*wanted) == []
    key.chmod(0o644)
    open_one.write_bytes(b"\xff")
    assert write_files(*wanted) == [str(key), str(open_one)]
    assert (mode(key), open_one.read_text()) == (0o600, "")
    assert sorted(path.name for path in folder.iterdir()) == ["key", "open"]


def test_scratch_is_made_mounted_and_then_left_alone(script, tmp_path, monkeypatch, capsys):
    module, unit = script("scratch", "scratch"), "var-lib-hotbed-scratch.mount"
    called: list[tuple[str, ...]] = []
    states = {"UnitFileState": "disabled", "ActiveState": "inactive", "NeedDaemonReload": "yes"}

    def call(*argv: str) -> None:
        called.append(argv[:2])
        states.update(
            {
                "daemon-reload": {"NeedDaemonReload": "no"},
                "enable": {"UnitFileState": "enabled"},
                "start": {"ActiveState": "active"},
            }.get(argv[1], {})
        )

    def changed(*, made: bool) -> list[str]:
        wanted = {"device": "/dev/x", "label": "l", "made": made, "unit": unit, "text": "[Mount]\n"}
        monkeypatch.setattr(sys, "argv", ["-", json.dumps(wanted)])
        module.main()
        found: list[str] = json.loads(capsys.readouterr().out)["changed"]
        return found

    monkeypatch.setattr(module, "UNITS", tmp_path)
    monkeypatch.setattr(module, "call", call)
    monkeypatch.setattr(module, "shown", lambda unit, name: states[name])
    assert len(changed(made=False)) == 4
    assert [words[0] for words in called] == ["mkfs.ext4", *["systemctl"] * 3]
    assert [words[1] for words in called[1:]] == ["daemon-reload", "enable", "start"]
    assert (tmp_path / unit).read_text() == "[Mount]\n"
    assert changed(made=True) == [] and len(called) == 4


def test_the_control_plane_is_unpacked_once_and_replaced_by_another(script, tmp_path, monkeypatch):
    module, root = script("agent", "unpack"), tmp_path / "opt/hotbed"

    def unpack(mark: str, **files: bytes) -> str:
        archive = base64.b64encode(bundle.pack(files)).decode()
        monkeypatch.setattr(sys, "argv", ["-", str(root), mark])
        monkeypatch.setattr(sys, "stdin", io.StringIO(archive))
        with redirect_stdout(io.StringIO()) as printed:
            module.main()
        return printed.getvalue()

    assert unpack(".bundle-1", old=b"\xc3\xbc") == '{"changed": true}'
    assert unpack(".bundle-1", never=b"") == '{"changed": false}'
    (root / "by-hand").touch()
    assert unpack(".bundle-2", new=b"") == '{"changed": true}'
    assert {path.name for path in root.iterdir()} == {"new", "BUNDLE", ".bundle-2"}
    assert [path.name for path in root.parent.iterdir()] == ["hotbed"]
    monkeypatch.setattr(bundle, "pack", lambda files: b"no archive")
    with pytest.raises(SystemExit):
        unpack(".bundle-3")
    assert (root / ".bundle-2").exists()
