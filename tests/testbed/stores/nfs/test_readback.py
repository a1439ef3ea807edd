"""Output of tc and nft from a real device, compared with the applied parameters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.stores.nfs import readback, shaping
from tests.errors import raises

LINK = 25e6


@pytest.fixture
def data(root: Path) -> Path:
    return root / "tests/data/netenforcer"


@pytest.fixture
def wanted(data: Path) -> shaping.ShapingState:
    return shaping.wanted(json.loads((data / "host.json").read_text()), LINK)


@pytest.fixture
def printed(data: Path) -> dict[str, str]:
    names = {"qdiscs": "json", "classes": "txt", "filters": "txt", "table": "json"}
    return {name: (data / f"{name}.{end}").read_text() for name, end in names.items()}


def test_what_was_installed_is_found_again(wanted: Any, printed: dict[str, str]) -> None:
    assert readback.differences(wanted, readback.installed(**printed)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("classes", "prio 6 rate", "prio 5 rate"),
            "class 1:101 is at 1:1 with priority 5, not at",
        ),
        (
            ("classes", "rate 10Mbit ceil 20Mbit", "rate 11Mbit ceil 20Mbit"),
            "class 1001:1 has rate",
        ),
        (("classes", "burst 256Kb", "burst 200Kb"), "class 1001:1 has burst 204800, not 262144"),
        (("filters", "0a630003", "0a630004"), "filter ip 0a630003/ffffffff at 16 1:101 is missing"),
        (("qdiscs", '"handle":"1001:"', '"handle":"1009:"'), "qdisc 1001: 1000:1 htb is missing"),
        (("table", '"cs7"', '"cs6"'), "mark 10.99.0.1/32 10.99.0.2/32 56 is missing"),
        (("table", '"10.99.0.3"', '"10.99.0.9"'), "mark 10.99.0.3/32 8 is missing"),
    ],
)
def test_a_change_is_seen(
    wanted: Any, printed: dict[str, str], change: tuple[str, str, str], said: str
) -> None:
    where, old, new = change
    assert old in printed[where]
    printed[where] = printed[where].replace(old, new, 1)
    found = readback.differences(wanted, readback.installed(**printed))
    assert any(one.startswith(said) for one in found), found


def test_what_is_missing_or_too_much_is_told(wanted: Any, printed: dict[str, str]) -> None:
    nothing = readback.installed("[]", "", "", "")
    assert nothing == shaping.ShapingState(*(frozenset(),) * 4)
    said = readback.differences(wanted, nothing)
    assert "class 1:100 is missing" in said
    fewer = replace(wanted, marks=frozenset(), classes=frozenset())
    said = readback.differences(fewer, readback.installed(**printed))
    assert "class 1:100 is not ours" in said
    assert any(one.startswith("mark ") and one.endswith("is not ours") for one in said)


def test_somebody_elses_class_is_no_class_of_ours() -> None:
    with raises(ValueError, "8001:1"):
        readback.installed("[]", "class tbf 8001:1 parent 8001: \n", "", "")
