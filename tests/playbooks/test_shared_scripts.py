"""The roles' small scripts: files, scratch file system, names, control plane, units of metrics."""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import pwd
import runpy
import socket
import stat
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

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


class FakeSystemd:
    """systemd, as far as the scripts ask it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.are: set[tuple[str, str]] = set()

    def __call__(self, *words: str) -> str:
        self.asked.append(words)
        verb, unit = words[0], words[-1]
        if verb in ("is-enabled", "is-active"):
            state = verb.removeprefix("is-")
            return state if (state, unit) in self.are else "no"
        if verb in ("enable", "start", "restart"):
            self.are.add(("enabled" if verb == "enable" else "active", unit))
        return ""

    def shown(self, unit: str, name: str) -> str:
        state = {"UnitFileState": "enabled", "ActiveState": "active"}.get(name, "")
        return state if (state, unit) in self.are else "no"

    def took(self, verb: str) -> list[str]:
        return [words[-1] for words in self.asked if words[0] == verb]


@pytest.fixture
def said(monkeypatch, capsys) -> Callable[[Any, dict[str, Any]], list[str]]:
    """Return a function that gives what a script changed."""

    def said(module: Any, wanted: dict[str, Any]) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["-", json.dumps(wanted)])
        module.main()
        found: list[str] = json.loads(capsys.readouterr().out)["changed"]
        return found

    return said


def test_scratch_is_made_mounted_and_then_left_alone(script, said, tmp_path, monkeypatch):
    module, units = script("scratch", "scratch"), FakeSystemd()
    made: list[tuple[str, ...]] = []

    def call(*argv: str) -> None:
        if argv[0] == "systemctl":
            units(*argv[1:])
        else:
            made.append(argv)

    monkeypatch.setattr(module, "UNITS", tmp_path)
    monkeypatch.setattr(module, "call", call)
    monkeypatch.setattr(module, "shown", units.shown)
    unit = "var-lib-hotbed-scratch.mount"
    wanted = {"device": "/dev/x", "label": "l", "made": False, "unit": unit, "text": "[Mount]\n"}
    assert len(said(module, wanted)) == 4
    assert made[0][0] == "mkfs.ext4" and made[0][-1] == "/dev/x"
    assert (tmp_path / unit).read_text() == "[Mount]\n"
    assert units.are == {("enabled", unit), ("active", unit)}
    assert said(module, wanted | {"made": True}) == []
    assert len(made) == 1


def test_units_of_metrics_start_again_only_after_changes(script, said, tmp_path, monkeypatch):
    module, units = script("metrics", "start"), FakeSystemd()
    monkeypatch.setattr(module, "systemctl", units)
    monkeypatch.setattr(module, "UNITS", tmp_path)
    monkeypatch.setattr(module, "MASKS", tmp_path)
    (tmp_path / "prometheus.service").symlink_to("/dev/null")
    with socket.create_server(("127.0.0.1", 0)) as server:
        wanted = {
            "packages": ["prometheus", "other"],
            "units": {"a.service": "one", "b.service": "two"},
            "again": False,
            "listen": [server.getsockname()],
            "timeout_s": 0,
        }
        assert len(said(module, wanted)) == 6
        assert units.took("unmask") == units.took("disable") == ["prometheus.service"]
        assert units.took("restart") == ["a.service", "b.service"]
        assert said(module, wanted) == []
        assert len(said(module, wanted | {"again": True})) == 2
    with pytest.raises(SystemExit) as stopped:
        said(module, wanted)
    assert "127.0.0.1" in str(stopped.value.code)


def test_machines_are_named_once_also_where_hosts_is_a_mount(script, said, tmp_path, monkeypatch):
    module, hosts = script("base", "machine"), tmp_path / "hosts"
    monkeypatch.setattr(module, "HOSTS", hosts)
    hosts.write_bytes(b"127.0.0.1 localhost \xe9")
    wanted = {"names": {"a": "10.0.0.1"}, "directory": str(tmp_path / "state")}
    assert said(module, wanted) == [str(hosts), str(tmp_path / "state")]
    block = b"# BEGIN hotbed\n10.0.0.1 a\n# END hotbed\n"
    assert hosts.read_bytes() == b"127.0.0.1 localhost \xe9\n" + block
    assert said(module, wanted) == []

    def is_a_mount(*_: object) -> None:
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr(Path, "replace", is_a_mount)
    hosts.write_bytes(hosts.read_bytes() + b"10.0.0.9 z\n")
    assert said(module, wanted | {"names": {"a": "10.0.0.2"}}) == [str(hosts)]
    block = block.replace(b"10.0.0.1", b"10.0.0.2")
    assert hosts.read_bytes() == b"127.0.0.1 localhost \xe9\n" + block + b"10.0.0.9 z\n"
    assert {path.name for path in tmp_path.iterdir()} == {"hosts", "state"}


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
