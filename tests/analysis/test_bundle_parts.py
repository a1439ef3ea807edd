"""Parts of bundling and verifying: comparison, file roles, copies of runs, metadata of files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any, cast

import matplotlib.pyplot as plt
import pytest
from pydantic import ValidationError

from analysis.bundle.derive import Derived
from analysis.bundle.describe import CampaignOrigin, Contents, crate, trovi, zenodo
from analysis.bundle.differences import differences
from analysis.bundle.verify import (
    _cells,
    is_run,
    look_alike,
    misdeclared,
    opened,
    verify,
    written,
)
from schemas.bundle import About, Author, Entry, Manifest
from schemas.errors import UserError
from tests.errors import raises


def places(one: object, other: object) -> list[str]:
    return [found.where for found in differences("f", one, other)]


def test_numbers_are_compared_by_value() -> None:
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


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ('{"schema_version": 2, "hotbed_version": "9.1", "sealed": true}', "install Hotbed 9.1"),
        ('{"schema_version": 1e999, "hotbed_version": "1"}', "manifest.json"),
        ("[" * 100_000, "manifest.json"),
        ('{"hotbed_version": "1"}', "manifest.json"),
        ("[1]", "manifest.json"),
    ],
)
def test_a_manifest_that_is_none_or_of_a_later_format(
    tmp_path: Path, manifest: str, said: str
) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as made:
        made.writestr("manifest.json", manifest)
    with raises(UserError, "x.zip", said):
        verify(tmp_path / "x.zip")


def test_files_that_are_stated_and_are_not_there_are_not_looked_for(tmp_path: Path) -> None:
    """Not even outside the bundle's folder; all other checks still run."""
    stated = [
        {"path": path, "sha256": "0" * 64, "bytes": 1, "role": "source"}
        for path in ("LICENSE", "specs/../../../../../etc/hostname")
    ]
    manifest = {"report": "dlr-tiny", "campaigns": ["dlr-tiny"], "hotbed_version": "0.1.0"}
    manifest |= {"commit": None, "libraries": {}, "files": stated}
    about = dict.fromkeys(("title", "short_description", "description"), "x")
    about |= {"authors": [{"name": "A group"}], "date": "2026-01-01"}
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
        body = {"report": "a", "campaigns": ("a",), "hotbed_version": "0", "commit": None}
        body |= {"libraries": {}, "files": tuple(map(entry, paths))}
        manifest = Manifest.model_validate(body)
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


def about_of(**more: Any) -> About:
    body: dict[str, Any] = {
        "title": "x",
        "short_description": "x",
        "description": "x",
        "date": "2026-01-01",
        "authors": (Author(name="A group"),),
    }
    return About.model_validate(body | more)


def test_files_are_identified_by_uris_and_have_their_known_sizes() -> None:
    about = about_of()
    path = "controllers/mine/read me 100%.md"
    made = CampaignOrigin("dlr-tiny", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", [path])
    parts = [(path, "Notes"), ("artifacts/dlr-tiny/", "Runs")]
    whole = Contents(parts, [made], "0", {path: 42})
    graph = {one["@id"]: one for one in crate(about, whole)["@graph"]}
    told = "controllers/mine/read%20me%20100%25.md"
    assert (graph[told]["@type"], graph[told]["contentSize"]) == ("File", "42")
    assert graph["artifacts/dlr-tiny/"]["@type"] == "Dataset"
    assert "contentSize" not in graph["artifacts/dlr-tiny/"]
    assert "Apache-2.0" in graph[graph["./"]["license"]["@id"]]["description"]
    assert [part["@id"] for part in graph["./"]["hasPart"]] == [told, "artifacts/dlr-tiny/"]
    assert graph["#run-dlr-tiny"]["object"] == [{"@id": told}]


def test_trovi_finds_its_own_file() -> None:
    """Trovi's importer expects a descriptor with the file's name and has its own limits."""
    about = about_of(title="word " * 49, description="more " * 1200)
    graph = {one["@id"]: one for one in trovi(about)["@graph"]}
    assert graph["trovi.json"]["about"] == {"@id": "./"}
    assert "ro-crate-metadata.json" not in graph
    assert len(graph["./"]["name"]) <= 140
    assert len(graph["./"]["description"]) <= 5000
    text = about_of(description="First.\n\n- a\n- b")
    assert {one["@id"]: one for one in trovi(text)["@graph"]}["./"]["description"] == (
        text.description
    )
    assert zenodo(about_of(description="a < b & c"))["description"] == "a &lt; b &amp; c"


@pytest.mark.parametrize(
    "wrong",
    [
        {"keywords": []},
        {"keywords": ["Ceph", "Ceph"]},
        {"license": "My-Own-1.0"},
        {"license": "Apache-2.0+"},
        {"license": "cc-by-4.0"},
        {"doi": "10.5281/a b"},
        {"doi": "10.5281/a<b>"},
    ],
)
def test_what_the_formats_refuse_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        about_of(**wrong)


def test_an_orcid_has_its_check_digit() -> None:
    for orcid in ("0000-0000-0000-0001", "0000-0000-0000-001X"):
        assert Author(name="A group", orcid=orcid).orcid == orcid
    for orcid in ("0000-0000-0000-0000", "0000-0000-0000-0010"):
        with pytest.raises(ValidationError, match="look for a slip"):
            Author(name="A group", orcid=orcid)
