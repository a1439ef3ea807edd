"""Parts of bundling and verifying: comparison, file roles, copies of runs."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any, cast

import matplotlib.pyplot as plt
import pytest

from analysis.bundle.derive import Derived
from analysis.bundle.differences import differences
from analysis.bundle.verify import (
    _cells,
    is_run,
    look_alike,
    misdeclared,
    opened,
    shown_in,
    verify,
    written,
)
from schemas.bundle import Entry, Manifest
from schemas.errors import UserError


def test_numbers_are_compared_by_value() -> None:
    def places(one: object, other: object) -> list[str]:
        return [found.where for found in differences("f", one, other)]

    assert not places({"a": [1.0, 1e-17]}, {"a": [1.0 + 1e-12, 0.0]})
    assert places({"a": [1.0, 2.0]}, {"a": [1.0, 2.001]}) == ["a[1]"]
    assert places({"a": 1, "b": 2}, {"a": 1, "c": 2}) == ["b", "c"]
    assert places([1, 2], [1]) == [""]
    assert places({"a": None}, {"a": 0.0}) == ["a"]
    assert places({"a": True}, {"a": 1}) == ["a"]
    assert places(float("nan"), float("nan")) == []


def test_a_small_number_beside_a_large_one_counts() -> None:
    """This holds in a table's row, a point and a bar. Around zero, the neighbours in the column or
    direction set the scale."""

    def places(one: object, other: object) -> list[str]:
        return [found.where for found in differences("f", one, other)]

    tables = [_cells(f"name,bytes,share\na,1234567890,{share}\n") for share in (0.5, 0.9)]
    assert places(*tables) == ["[1][2]"]
    assert places([[1e9, 0.5], [2e9, 0.6]], [[1e9, 0.5], [2e9, 0.9]]) == ["[1][1]"]
    assert not places([[1e9, 0.5], [2e9, 1e-17]], [[1e9, 0.5], [2e9, 0.0]])
    bars = [{"bar": [x, 0.0, 0.8, 1e9]} for x in (1.0, 1.1)]
    assert places(*bars) == ["bar[0]"]
    bars = [{"bar": [x, 0.0, 0.8, 1e9]} for x in (0.0, 1e-17)]
    assert not places(*bars)
    assert places([[1, 2], [3]], [[1, 2], [4]]) == ["[1][0]"]
    assert places([[1, [2]], [3]], [[1, [2]], [3, 4]]) == ["[1]"]


def test_runs_lie_where_runs_do() -> None:
    for path in (
        *("campaign.json", "ledger.jsonl", "0af/attempt-1/run.json"),
        "0af/attempt-12/logs/osd0/x.log",
    ):
        assert is_run(f"artifacts/a/{path}", ("a", "b"))
        assert not is_run(f"artifacts/c/{path}", ("a", "b"))
        assert not is_run(f"x/a/{path}", ("a",))
    for path in ("claims.json", "figures/data/x.json", "0af/attempt-1", "0af/x/run.json", "x/y"):
        assert not is_run(f"artifacts/a/{path}", ("a",))


def test_a_page_is_told_from_its_pictures() -> None:
    page = b'<p>1</p><img src="data:image/png;base64,iVBORw0K"><p>2</p>'
    assert shown_in(page) == (b'<p>1</p><img src=""><p>2</p>', [b"iVBORw0K"])


def test_a_later_format_is_told_before_what_is_new_in_it(tmp_path: Path) -> None:
    body = {"schema_version": 2, "hotbed_version": "9.1", "sealed": True}
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as made:
        made.writestr("manifest.json", json.dumps(body))
    with pytest.raises(UserError, match=r"a later Hotbed .version 2.*install Hotbed 9\.1"):
        verify(tmp_path / "x.zip")


@pytest.mark.parametrize(
    "manifest",
    [
        '{"schema_version": 1e999, "hotbed_version": "1"}',
        "[" * 100_000,
        '{"hotbed_version": "1"}',
        "[1]",
        "",
    ],
)
def test_a_manifest_that_is_none_is_one_sentence(tmp_path: Path, manifest: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as made:
        made.writestr("manifest.json", manifest)
    with pytest.raises(UserError, match=r"x\.zip: manifest\.json"):
        verify(tmp_path / "x.zip")


def test_a_folder_is_no_manifest(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as made:
        made.writestr("manifest.json/x", "{}")
    with pytest.raises(UserError, match=r"has no manifest\.json, so it is no bundle"):
        verify(tmp_path / "x.zip")


def test_files_that_are_stated_and_are_not_there_are_not_looked_for(tmp_path: Path) -> None:
    """Not even outside the bundle's folder; all other checks still run."""
    stated = [
        {"path": path, "sha256": "0" * 64, "bytes": 1, "role": "source"}
        for path in ("LICENSE", "specs/../../../../../etc/hostname")
    ]
    manifest = {
        "report": "dlr-tiny",
        "campaigns": ["dlr-tiny"],
        "hotbed_version": "0.1.0",
        "commit": None,
        "libraries": {},
        "files": stated,
    }
    about = {
        "title": "x",
        "short_description": "x",
        "description": "x",
        "authors": [{"name": "A group"}],
        "date": "2026-01-01",
    }
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as made:
        made.writestr("manifest.json", json.dumps(manifest))
        made.writestr("about.json", json.dumps(about))
    with opened(tmp_path / "x.zip", progress=lambda phase, share: None) as bundle:
        found = written(bundle, Derived("x", (), (), {}, tmp_path / "dlr-tiny", 0), tmp_path)
    assert found is not None
    assert b"LICENSE" not in found["ro-crate-metadata.json"]
    assert b"hostname" not in found["ro-crate-metadata.json"]


def test_what_made_the_runs_lies_where_it_is_looked_for() -> None:
    """A user's own page does not pass for a source, because sources are not compared."""

    def entry(path: str) -> Entry:
        return Entry(path=path, sha256="0" * 64, bytes=0, role="source")

    def named(*paths: str) -> set[str]:
        manifest = Manifest(
            report="a",
            campaigns=("a",),
            hotbed_version="0",
            commit=None,
            libraries={},
            files=tuple(map(entry, paths)),
        )
        return {one.file for one in misdeclared(manifest, (), ())}

    assert not named(
        *("LICENSE", "campaigns/a.yaml", "specs/b.yaml", "notebooks/c.ipynb", "models/d.json"),
        *("controllers/mine/inner/e.py", "environment/requirements.lock"),
    )
    wrong = {"CLAIMS.md", "APPENDIX2.html", "artifacts/a/best.csv", "campaigns/b.yaml", "x/y"}
    assert named(*wrong) == wrong


def bars(file: Path, heights: tuple[int, ...], **settings: Any) -> Path:
    """Draw a plot as a PNG file with these settings."""
    with plt.rc_context(cast(Any, settings)):
        figure, axes = plt.subplots(figsize=(6, 4))
        axes.bar(range(3), heights, yerr=[3, 3, 3])
        axes.set(title="Throughput under heterogeneity", ylabel="MB/s")
        axes.set_xticks(range(3), ["default", "reweight", "dlr"])
        figure.savefig(file, dpi=160)
        plt.close(figure)
    return file


@pytest.mark.slow
def test_pictures_look_alike_but_for_how_they_are_drawn(tmp_path: Path) -> None:
    """Another drawing library's differences are ignored; different results are not."""
    one = bars(tmp_path / "one.png", (100, 98, 125))
    drawn: list[dict[str, Any]] = [
        {"text.hinting": "none"},
        {"font.family": "serif"},
        {"text.antialiased": False, "lines.antialiased": False},
    ]
    for settings in drawn:
        assert look_alike(one, bars(tmp_path / "other.png", (100, 98, 125), **settings))
    for heights in ((100, 98, 112), (100, 98, 100), (125, 98, 100)):
        assert not look_alike(one, bars(tmp_path / "other.png", heights))
