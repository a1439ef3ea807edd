"""What an artefact's metadata say of its files."""

from __future__ import annotations

from analysis.bundle.metadata import Contents, Made, crate
from schemas.bundle import About, Author


def test_files_are_identified_by_uris() -> None:
    about = About(
        title="x",
        short_description="x",
        description="x",
        date="2026-01-01",
        authors=(Author(name="A group"),),
    )
    path = "controllers/mine/read me 100%.md"
    made = Made("dlr-tiny", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", [path])
    parts = [(path, "Notes"), ("artifacts/dlr-tiny/", "Runs")]
    graph = {one["@id"]: one for one in crate(about, Contents(parts, [made], "0"))["@graph"]}
    told = "controllers/mine/read%20me%20100%25.md"
    assert graph[told]["@type"] == "File"
    assert graph["artifacts/dlr-tiny/"]["@type"] == "Dataset"
    assert [part["@id"] for part in graph["./"]["hasPart"]] == [told, "artifacts/dlr-tiny/"]
    assert graph["#run-dlr-tiny"]["object"] == [{"@id": told}]
