"""The newcomer's map: its picture is the code's, and every paper is two links from README."""

from __future__ import annotations

from tests.docs.pages import ROOT, pages
from tools.architecture import PICTURE, drawing

PAGE = "docs/architecture.md"


def test_the_picture_is_what_the_code_gives() -> None:
    assert PICTURE.read_text() == drawing(), "draw it again: python -m tools.architecture"
    assert f"({PICTURE.name})" in (ROOT / PAGE).read_text()


def test_every_paper_is_two_links_from_the_readme() -> None:
    by_name = {page.name: page for page in pages()}
    assert PAGE in {link for _, link in by_name["README.md"].links()}
    linked = {link.removeprefix("../") for _, link in by_name[PAGE].links()}
    for room in ("campaigns/papers", "analysis/papers"):
        shelves = {path.parent.name for path in (ROOT / room).glob("*/__init__.py")}
        assert len(shelves) == 5
        assert {f"{room}/{shelf}" for shelf in shelves} <= linked
    algorithms = [link for link in linked if link.startswith(("controllers/", "dataplane/"))]
    assert {"controllers/dlr/policy.py", "controllers/ursa/plan.py"} <= set(algorithms)
