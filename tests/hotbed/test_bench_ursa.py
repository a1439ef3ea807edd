"""Ursa's bench at a small size: every row that `hotbed bench` shows at the large one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ALONE = ["--no-scaling", "--no-large", "--no-osdmaptool"]
BENCH = Path(__file__).resolve().parents[1] / "bench" / "bench_ursa.py"


@pytest.mark.slow
def test_rows_of_a_small_instance() -> None:
    words = ["--size", "100", "20K", "--kinds", "s2", "--methods", "htoc", "joint", *ALONE]
    done = subprocess.run(
        [sys.executable, str(BENCH), *words], stdout=subprocess.PIPE, text=True, check=True
    )
    rows = {row["name"]: row for row in json.loads(done.stdout.splitlines()[-1])}
    name = "ursa alp s2 100-20K"
    each = ("decision", "memory beyond the input", "nodes still hot", "cost above the bound")
    assert set(rows) == {
        *(f"{name}, {what}" for what in each),
        *(f"ursa alp s2 (loads at most 3:1) 100-20K, {what}" for what in each),
        "ursa htoc s2 100-20K, cost over alp's",
        "ursa alp s2 100-20K, cost above the joint bound",
        "ursa joint s2 100-20K, cost above the bound over all plans",
    }
    assert rows[f"{name}, decision"]["n"] == 3
    assert rows[f"{name}, decision"]["value"] > 0
    assert rows[f"{name}, decision"]["limit"] is None, "limits are of the large size"
    assert rows[f"{name}, nodes still hot"]["value"] == 0
    assert rows[f"{name}, cost above the bound"]["value"] >= -1e-6
    assert 1 <= rows["ursa htoc s2 100-20K, cost over alp's"]["value"] < 1e6


@pytest.mark.slow
def test_what_fails_is_a_row_without_a_value() -> None:
    words = ["--size", "100", "20K", "--kinds", "s1", "--methods", *ALONE]
    code = (
        "import runpy, sys; sys.argv = ['b', *sys.argv[1:]];"
        f"module = runpy.run_path({str(BENCH)!r});"
        "module['main'].__globals__['decide'] = lambda *_: {'error': 'it broke'};"
        "module['main']()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=BENCH.parents[2],
    )
    rows = json.loads(done.stdout.splitlines()[-1])
    assert len(rows) == 2
    assert all(row["value"] is None and row["note"] == "it broke" for row in rows)
