"""Test runs of `hotbed ursa`, and small instances for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.hotbed.runner import run

Arrays = dict[str, Any]


def answer(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    """Return the JSON of a verb that ends with `code`."""
    ended, out, err = run(capsys, "ursa", *words, "--json")
    assert ended == code, err
    found: dict[str, Any] = json.loads(out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Return the one sentence of a verb that refuses."""
    code, out, err = run(capsys, "ursa", *words)
    assert (code, out, len(err.strip().splitlines())) == (2, "", 1), err
    assert err.startswith("hotbed: ")
    return err


def arrays(**changes: Any) -> Arrays:
    """Return six nodes on a line; node 0 is hot and swaps are not enough."""
    made: Arrays = {
        "replica_node": np.array([[0, 1, 2], [0, 2, 3], [0, 3, 4], [5, 4, 1]], np.int32),
        "primary_load": np.array([8, 6, 4, 2], np.float32),
        "secondary_load": np.array([4, 3, 2, 1], np.float32),
        "capacity": np.array([6, 12, 12, 12, 12, 12], np.float32),
        "fault_domain": np.arange(6, dtype=np.int32),
        "node_xy": np.array([[n, 0] for n in range(6)], np.float32),
    }
    made |= changes
    return {name: array for name, array in made.items() if array is not None}


def write(path: Path, **changes: Any) -> Path:
    """Write an instance file."""
    np.savez(path, **arrays(**changes))
    return path
