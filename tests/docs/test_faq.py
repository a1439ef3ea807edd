"""The errors that docs/faq.md quotes are those that the code raises."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

ROOMS = ("analysis", "campaigns", "controllers", "hotbed", "schemas", "testbed")
OF_THE_SHELL = "hotbed: command not found"


def test_every_quoted_error_is_in_the_code() -> None:
    files = (path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(files))
    headings = re.findall(r"^### `([^`]+)`$", (ROOT / "docs" / "faq.md").read_text(), re.MULTILINE)
    assert len(headings) > 10
    for heading in headings:
        if heading != OF_THE_SHELL:
            parts = [part.strip() for part in heading.split("...") if part.strip()]
            pattern = r"[^\n]{1,80}?".join(map(re.escape, parts))
            assert re.search(pattern, code), heading
