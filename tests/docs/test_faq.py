"""The errors that docs/faq.md quotes are those that the code raises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.docs.pages import ROOT

ROOMS = ("analysis", "campaigns", "controllers", "hotbed", "schemas", "testbed")
OF_THE_SHELL = "hotbed: command not found"


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a file that are not docstrings, with dots for what is put in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring
            node.value = ast.Constant(None)
        elif isinstance(node, ast.JoinedStr):
            parts = (
                each.value if isinstance(each, ast.Constant) else "..." for each in node.values
            )
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_quoted_error_is_in_the_code() -> None:
    files = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    code = "\n".join(text for path in files for text in texts(ast.parse(path.read_bytes())))
    headings = re.findall(r"^### `([^`]+)`$", (ROOT / "docs" / "faq.md").read_text(), re.MULTILINE)
    assert len(headings) > 10
    for heading in headings:
        if heading != OF_THE_SHELL:
            parts = [part.strip() for part in heading.split("...") if part.strip()]
            pattern = r"[^\n]{1,80}?".join(map(re.escape, parts))
            assert re.search(pattern, code), heading
