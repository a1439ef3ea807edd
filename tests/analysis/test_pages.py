"""Pages with texts from runs, specs, controllers and claims: texts remain plain text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_run
from test_bundle_appendix import claim

from analysis.bundle.describe import Derived, Figure, PackedCells, Ran
from analysis.bundle.describe import pages as documents
from analysis.comparison.build import build as compare
from analysis.core.report import Report, build, in_markdown
from analysis.validation import Validation
from campaigns.engine.display import CampaignView, RunView
from hotbed.live_view import LiveView
from schemas.bundle import About, Author, Manifest
from schemas.run import Run
from testbed.sites.contract import Cost, Node, State, Status
from tests.analysis.test_comparison import make

TEXT = """"'><script>alert(1)</script><img src=x onerror=y>](javascript:z)`"""


class Page(HTMLParser):
    """Page as a browser reads it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.text += data
        self.texts.append(data)

    def is_inert(self) -> bool:
        """Return True if no text became a script, an event handler or an external picture."""
        return not any(
            tag in ("script", "iframe", "object", "base", "form")
            or any(name.startswith("on") for name in attributes)
            or (tag == "img" and not str(attributes.get("src")).startswith("data:image/png;"))
            for tag, attributes in self.tags
        )

    def policy(self) -> str:
        """Return the content security policy, which must precede everything that it governs."""
        before = [tag for tag, _ in self.tags[: [tag for tag, _ in self.tags].index("title")]]
        assert set(before) == {"html", "head", "meta"}
        (found,) = (
            str(attributes["content"])
            for tag, attributes in self.tags
            if attributes.get("http-equiv") == "Content-Security-Policy"
        )
        return found


def leaves(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every string in a record."""
    if isinstance(body, dict | list):
        for key, inner in body.items() if isinstance(body, dict) else enumerate(body):
            yield from leaves(inner, (*path, key))
    elif isinstance(body, str):
        yield path


def replaced(body: Any, path: tuple[Any, ...]) -> Any:
    """Return a copy of a record with `TEXT` in one place."""
    made = json.loads(json.dumps(body))
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = TEXT
    return made


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a campaign of runs, each with `TEXT` in a different string field."""
    artifacts = tmp_path_factory.mktemp("pages")
    campaign = artifacts / "dlr-tiny"
    fixed = {"op": "seq", "scenario": "heterogeneity"}
    for block in range(3):
        for controller, speed in (("default", 100.0), ("dlr", 125.0)):
            write_run(campaign, {**fixed, "controller": controller}, block, speed + block)
    record = json.loads(next(campaign.glob("*/attempt-1/run.json")).read_text())
    record["provenance"] |= {
        "commit": "c" * 40,
        "calibration": {"disk": {"kind": "x"}},
        "hosts": {"osd0": {"processor": "x", "cpus": 2}},
    }
    record["parameters"]["controller_parameters"] = {"mode": "x"}
    for number, path in enumerate(leaves(record)):
        made = write_run(campaign, {**fixed, "controller": "default", "mark": number}, 0, 100.0)
        own = record | {"run_id": made.parent.name}
        (made / "run.json").write_text(json.dumps(replaced(own, path)))
    return artifacts


@pytest.fixture(scope="module")
def report(runs: Path) -> Report:
    return build(runs, "dlr-tiny")


@pytest.mark.slow
def test_a_report_holds_no_script(report):
    page = Page(report.path.read_text())
    assert page.is_inert()
    assert page.text.count("<script>alert(1)</script>") >= 4  # site, versions, calibration, ...
    assert "disk.kind" in page.texts  # a row of the calibration
    policy = page.policy().split("; ")
    assert "default-src 'none'" in policy
    assert not [part for part in policy if part.startswith("script-src")]


def test_appendices_hold_no_script(tmp_path):
    """All sources of the texts are untrusted."""
    texts = dict.fromkeys(
        ("id", "paper", "figure", "statement", "ground", "unit", "baseline", "note"), TEXT
    )
    found = [
        claim("1", verdict).model_copy(update={**texts, "depends_on": [TEXT]})
        for verdict in ("inconclusive", "not run")
    ]
    figures = (Figure(TEXT, TEXT, None, TEXT), Figure(TEXT, TEXT, "dlr-fig1", None))
    derived = Derived(TEXT, tuple(found), figures, {}, tmp_path, 6, {TEXT: TEXT})
    part = PackedCells(TEXT, TEXT, (TEXT,), 1, 1, 1, 1.0)
    ran = Ran(TEXT, TEXT, TEXT, TEXT, (part,), 1, 1.0, TEXT, TEXT, (TEXT,), (part,))
    said = dict.fromkeys(("title", "description", "version"), TEXT)
    said |= {"short_description": "x", "date": "2026-01-01"}
    by = (Author(name=TEXT, affiliation=TEXT),)
    about = About.model_validate(said | {"authors": by, "repository": "https://example.org/x"})
    body = {"report": "dlr-tiny", "campaigns": ("dlr-tiny",), "files": (), "notes": (TEXT,)}
    body |= {"hotbed_version": TEXT, "commit": TEXT, "libraries": {TEXT: TEXT}}
    manifest = Manifest.model_validate(body | {"redacted": {TEXT: 1}, "left_out": {TEXT: 1}})
    made = documents(about, manifest, derived, (ran,))
    page = Page(made["appendix.html"].decode())
    assert page.is_inert()
    assert "default-src 'none'" in page.policy()
    text = made["APPENDIX.md"].decode()
    assert "<script" not in text
    assert "<img" not in text
    assert "](javascript:" not in text
    assert "alert(1)" in text


def test_a_comparison_holds_no_script(tmp_path):
    campaign, comparison = make(tmp_path, {"default": 1.0, TEXT: 1.2}, blocks=3)
    ranking = compare(campaign, comparison.model_copy(update={"left_out": {TEXT: TEXT}}))
    assert Page(ranking._repr_html_()).is_inert()
    text = (campaign / "comparison.md").read_text()
    assert "<script" not in text
    assert "](javascript:" not in text
    kept = "+12 % [-3, +29] & *more* | 5 > 3"
    assert in_markdown(kept) == kept


@pytest.mark.slow
def test_what_notebooks_show_holds_no_script(runs, report):
    records = [
        Run.model_validate_json(file.read_bytes())
        for file in sorted((runs / "dlr-tiny").glob("*/attempt-1/run.json"))
        if all(
            f'"{field}":{json.dumps(TEXT)}' not in file.read_text().replace(": ", ":")
            for field in ("status", "ground", "kind")
        )
    ]
    node = Node(TEXT, TEXT, frozenset({TEXT}), TEXT, signal=TEXT)
    view = LiveView(lambda count: iter(()))  # type: ignore[arg-type,return-value]
    view._problem = TEXT
    pages = [
        replace(report, path=Path(TEXT))._repr_html_(),
        Validation(TEXT, (), 0)._repr_html_(),
        CampaignView(TEXT, tuple(records))._repr_html_(),
        *(RunView(run, None, Path(TEXT))._repr_html_() for run in records),
        node._repr_html_(),
        Status(State.READY, TEXT, {TEXT: TEXT}, 1.0)._repr_html_(),
        Cost(1.0, 1, 1, 0, TEXT)._repr_html_(),
        view.html,
    ]
    for page in pages:
        assert Page(page).is_inert(), page
