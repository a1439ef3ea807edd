"""What the bench beside osdmaptool reads and asks for, on the tool's recorded output (8 OSDs)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

TESTS = Path(__file__).resolve().parents[1]
DATA = TESTS / "data" / "ceph" / "16.2.15" / "osdmaptool"
pytestmark = pytest.mark.slow  # it plans


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The bench's module, for 8 OSDs."""
    spec = importlib.util.spec_from_file_location("osdmaptool", TESTS / "bench" / "osdmaptool.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["osdmaptool"] = module
    spec.loader.exec_module(module)
    module.OSDS = 8
    return module


def table(bench: ModuleType, name: str) -> np.ndarray:
    """A recorded dump."""
    return np.asarray(bench.parsed((DATA / name).read_text()))


def test_the_commands_make_of_the_table_what_ceph_makes(bench: ModuleType) -> None:
    before, after = table(bench, "before.txt"), table(bench, "after.txt")
    assert before.shape == (64, 3)
    assert before[0].tolist() == [7, 0, 2]
    found, moves = bench.applied(before, (DATA / "upmap.txt").read_text())
    assert moves == 8
    assert np.array_equal(found, after)
    assert (bench.deviation(before), bench.deviation(after)) == (4, 1)


def test_a_command_that_does_not_fit_is_refused(bench: ModuleType) -> None:
    before = table(bench, "before.txt")
    for command in ("1.0 5 6", "1.0 7 0"):
        with pytest.raises(ValueError, match="PG 0 cannot go"):
            bench.applied(before, f"ceph osd pg-upmap-items {command}\n")


@pytest.mark.parametrize("most", [1, 2, 3])
def test_ours_is_within_the_same_deviation_with_the_fewest_moves(
    bench: ModuleType, most: int
) -> None:
    before = table(bench, "before.txt")
    ours = bench.by_count(before, most)
    assert bench.deviation(ours.table) <= most
    number = bench.numbers(before)
    over = np.maximum(number - (24 + most), 0).sum()
    under = np.maximum((24 - most) - number, 0).sum()
    assert ours.moves == max(over, under)
    assert all(len(set(row)) == 3 for row in ours.table.tolist())


def test_capacities_hold_all_replicas(bench: ModuleType) -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    for _ in range(50):
        number = rng.integers(0, 20, 8)
        most = int(rng.integers(1, 5))
        found = bench.capacities(number, most)
        assert found.sum() == number.sum()
        assert (np.abs(found - number.mean()) <= most).all()


def test_ours_by_load_relieves_the_heaviest(bench: ModuleType) -> None:
    before = table(bench, "before.txt")
    loads = bench.pareto(len(before))
    assert bench.heaviest(before, loads) > 1 + bench.LOAD_DEVIATION
    after = bench.loaded(before, loads)
    assert bench.heaviest(after.table, loads) <= 1 + bench.LOAD_DEVIATION + 1e-6


def test_the_root_image_s_tool_is_taken_where_the_machine_has_none(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTBED_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bench.command() == []
    root = bench.image.folder(tmp_path)
    loader, program = root / "lib64/ld-linux-x86-64.so.2", root / "usr/bin/osdmaptool"
    for file in (loader, program):
        file.parent.mkdir(parents=True)
        file.touch()
    libraries = root / "usr/lib/x86_64-linux-gnu"
    (libraries / "ceph").mkdir(parents=True)
    path = f"{root / 'usr/lib'}:{libraries}:{libraries / 'ceph'}"
    assert bench.command() == [str(loader), "--library-path", path, str(program)]
