"""Loader of a role's script as a module: the script is in no package, as it runs on stdin."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest


@pytest.fixture
def script(root):
    def load(role: str, name: str) -> ModuleType:
        path = root / "playbooks" / "roles" / role / "files" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"role_{role}_{name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
