"""Compiled loops cached on disk, while other processes compile and sources change."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

from controllers.jit_cache import SafeFiles

MOMENTS = range(2)  # a save replaces two files, the data and the index


def files(folder: Path, stamp: str = "new source") -> SafeFiles:
    return SafeFiles(str(folder), "loop-1.py311", stamp)


def meanwhile(monkeypatch, moment, then):
    """Call `then` just before the file with number `moment` is put in place."""
    replace, count = os.replace, 0

    def replacing(old, new):
        nonlocal count
        number, count = count, count + 1
        if number == moment:
            then()
        replace(old, new)

    monkeypatch.setattr(os, "replace", replacing)


@pytest.mark.parametrize("moment", MOMENTS)
def test_code_of_an_older_source_is_never_read(tmp_path, monkeypatch, moment):
    files(tmp_path, "old source").save("int32", "old code")
    read = []
    meanwhile(monkeypatch, moment, lambda: read.append(files(tmp_path).load("int32")))
    files(tmp_path).save("int32", "new code")
    assert read == [None]
    assert files(tmp_path).load("int32") == "new code"
    assert len(list(tmp_path.glob("*.nbc"))) == 1, "the older source's is gone"


@pytest.mark.parametrize("moment", MOMENTS)
def test_code_for_other_types_is_never_read(tmp_path, monkeypatch, moment):
    def other():
        monkeypatch.undo()
        files(tmp_path).save("int64", "code for int64")

    meanwhile(monkeypatch, moment, other)
    files(tmp_path).save("int32", "code for int32")
    for kind in ("int32", "int64"):  # one of them may be lost and is then compiled again
        assert files(tmp_path).load(kind) in (None, f"code for {kind}")
        files(tmp_path).save(kind, f"code for {kind}")
    for kind in ("int32", "int64"):
        assert files(tmp_path).load(kind) == f"code for {kind}"


def test_what_is_kept_is_found_again_and_nothing_else_is_removed(tmp_path):
    other = SafeFiles(str(tmp_path), "loop-1.py3110", "new source")
    other.save("int32", "another function's")
    for number in range(3):
        files(tmp_path).save(f"int{number}", number)
    assert [files(tmp_path).load(f"int{number}") for number in range(3)] == [0, 1, 2]
    assert other.load("int32") == "another function's"


@pytest.mark.slow  # compiles
def test_a_callee_in_another_module_that_is_changed_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "hotbed_caller.py").write_text(
        "from controllers.jit import njit\n"
        "from hotbed_callee import step\n"
        "@njit\ndef twice(x):\n    return step(step(x))\n"
    )

    def twice(source):
        (tmp_path / "hotbed_callee.py").write_text(
            f"from controllers.jit import njit\n@njit\ndef step(x):\n    return {source}\n"
        )
        for name in ("hotbed_caller", "hotbed_callee"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("hotbed_caller").twice

    first = twice("x + 1")
    assert first(5) == 7 and sum(first.stats.cache_misses.values()) == 1
    again = twice("x + 1")
    assert again(5) == 7 and sum(again.stats.cache_hits.values()) == 1
    assert twice("x * 10")(5) == 500
