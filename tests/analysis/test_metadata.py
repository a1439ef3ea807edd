"""Metadata of an artefact's files."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from analysis.bundle.describe import CampaignOrigin, Contents, crate, trovi, zenodo
from schemas.bundle import About, Author


def about_of(**more: Any) -> About:
    body: dict[str, Any] = {
        "title": "x",
        "short_description": "x",
        "description": "x",
        "date": "2026-01-01",
        "authors": (Author(name="A group"),),
    }
    return About.model_validate(body | more)


def test_files_are_identified_by_uris() -> None:
    about = about_of()
    path = "controllers/mine/read me 100%.md"
    made = CampaignOrigin("dlr-tiny", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", [path])
    parts = [(path, "Notes"), ("artifacts/dlr-tiny/", "Runs")]
    graph = {one["@id"]: one for one in crate(about, Contents(parts, [made], "0"))["@graph"]}
    told = "controllers/mine/read%20me%20100%25.md"
    assert graph[told]["@type"] == "File"
    assert graph["artifacts/dlr-tiny/"]["@type"] == "Dataset"
    assert [part["@id"] for part in graph["./"]["hasPart"]] == [told, "artifacts/dlr-tiny/"]
    assert graph["#run-dlr-tiny"]["object"] == [{"@id": told}]


def test_files_have_their_sizes_where_those_are_known() -> None:
    parts = [("LICENSE", "License"), ("manifest.json", "Every file"), ("artifacts/a/", "Runs")]
    made = crate(about_of(), Contents(parts, [], "0", {"LICENSE": 42}))
    graph = {one["@id"]: one for one in made["@graph"]}
    assert graph["LICENSE"]["contentSize"] == "42"
    assert "contentSize" not in graph["manifest.json"]
    assert "contentSize" not in graph["artifacts/a/"]
    license_id = graph["./"]["license"]["@id"]
    assert "Apache-2.0" in graph[license_id]["description"]


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


def test_zenodo_is_told_in_its_html_what_was_written_as_text() -> None:
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


def test_a_license_of_another_spelling_is_named() -> None:
    with pytest.raises(ValidationError, match=r"CC-BY-4\.0 is meant"):
        about_of(license="cc-by-4.0")


@pytest.mark.parametrize("orcid", ["0000-0000-0000-0001", "0000-0000-0000-001X"])
def test_an_orcid_with_its_check_digit_is_taken(orcid: str) -> None:
    assert Author(name="A group", orcid=orcid).orcid == orcid


@pytest.mark.parametrize("orcid", ["0000-0000-0000-0000", "0000-0000-0000-0010"])
def test_a_slip_in_an_orcid_is_told(orcid: str) -> None:
    with pytest.raises(ValidationError, match="look for a slip"):
        Author(name="A group", orcid=orcid)
