"""Links have a target, every page is reachable, and named files exist."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page, pages

PAGES = pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)


@cache
def _tracked() -> set[Path]:
    """Return the files of the repository and their folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    files = {Path(name) for name in listed.split("\0") if name}
    return files | {folder for file in files for folder in file.parents}


@cache
def _anchors() -> dict[str, set[str]]:
    """Return the heading names of every page."""
    return {page.name: page.anchors() for page in pages()}


def _target(page: Page, link: str) -> tuple[str, str]:
    """Return page and anchor of a link's target."""
    file, _, anchor = link.partition("#")
    there = (page.folder / file).resolve() if file else ROOT / page.name
    return str(there.relative_to(ROOT)), anchor


@PAGES
def test_every_link_leads_somewhere(page: Page) -> None:
    for line, link in page.links():
        there, anchor = _target(page, link)
        assert Path(there) in _tracked(), f"line {line}: {link}"
        if anchor:
            assert anchor in _anchors()[there], f"line {line}: {link} has no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    by_name = {page.name: page for page in pages()}
    reached = {"README.md"}
    waiting = ["README.md"]
    while waiting:
        page = by_name[waiting.pop()]
        for _, link in page.links():
            there, _ = _target(page, link)
            if there in by_name and there not in reached:
                reached.add(there)
                waiting.append(there)
    assert not {name for name in by_name if name.startswith("docs/")} - reached


@PAGES
def test_files_of_the_repository_that_are_named_are_there(page: Page) -> None:
    tops = "|".join(re.escape(path.name) for path in _tracked() if len(path.parts) == 1)
    path = re.compile(rf"(?<![\w/$~.-])(?:{tops})/[\w./*-]*[\w*]")
    missing = [
        f"line {code.line}: {found[0]}"
        for code in page.code()
        for found in path.finditer(code.text)
        if not _is_there(found[0], page)
    ]
    assert not missing


def _is_there(name: str, page: Page) -> bool:
    if name.startswith("artifacts/") or re.search(r"\b[A-Z]{4,}\b", name):
        return True  # output of runs, and placeholder names
    if "*" in name:
        return any(path.match(name) for path in _tracked())
    return Path(name) in _tracked() or name.startswith("dataplane/bin")
