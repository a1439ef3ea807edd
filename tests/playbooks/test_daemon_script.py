"""Script that starts Ceph's daemons: the manager's stand-in for bcrypt."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

PYO3, CFFI = b"PyO3 modules do not yet support subinterpreters", b"cffi"


@pytest.mark.parametrize(
    ("module", "needed"),
    [(("bcrypt", PYO3), True), (("bcrypt", CFFI), False), (("json", PYO3), False)],
)
def test_managers_get_a_stand_in_where_bcrypt_cannot_be_loaded(
    script, tmp_path, monkeypatch, module, needed
):
    """Reef in trixie, Pacific in bookworm, Tentacle in sid."""
    daemon = script("ceph", "daemon")
    package, modules = tmp_path / "site" / "bcrypt", tmp_path / "mgr"
    for folder in (package, modules):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "_bcrypt.abi3.so").write_bytes(module[1])
    (modules / "mgr_util.py").write_text(f"import os\nimport {module[0]}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "bcrypt", raising=False)
    monkeypatch.setattr(daemon, "MODULES", modules)
    assert daemon.write_stub() is needed
    assert (modules / "bcrypt.py").exists() is needed
    assert daemon.write_stub() is False


def test_the_stand_in_refuses_passwords(script, tmp_path: Path) -> None:
    names: dict[str, object] = {}
    exec(script("ceph", "daemon").STUB, names)
    with pytest.raises(NotImplementedError):
        names["hashpw"](b"password", b"salt")  # type: ignore[operator]


def test_nothing_is_written_without_a_manager(script, tmp_path, monkeypatch):
    daemon = script("ceph", "daemon")
    monkeypatch.setattr(daemon, "MODULES", tmp_path)
    assert daemon.write_stub() is False
