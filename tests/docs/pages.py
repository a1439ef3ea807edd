"""Code in the documentation: README.md, docs/ and the text of the notebooks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^ {0,3}```")
_INDENTED = re.compile(r"^ {4}\S")
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Code:
    """Span, or line of a block (lines continued by a backslash are one)."""

    line: int
    text: str
    is_span: bool


@dataclass(frozen=True)
class Page:
    """Page by its name in the repository."""

    name: str
    text: str

    @property
    def folder(self) -> Path:
        """Folder in which the page's links begin."""
        return (ROOT / self.name).parent

    def code(self) -> list[Code]:
        """Return every line of its blocks and every span of its prose, top to bottom."""
        blocks, prose = _blocks_and_prose(self.text)
        for match in _SPAN.finditer(prose):
            line = prose.count("\n", 0, match.start()) + 1
            blocks.append(Code(line, " ".join(match[1].split()).replace("\\|", "|"), True))
        return sorted(blocks, key=lambda one: one.line)

    def links(self) -> list[tuple[int, str]]:
        """Return line and target of every link that leads neither to the web nor, in a template, to
        a place that it fills in."""
        prose = _blocks_and_prose(self.text)[1]
        found = ((prose.count("\n", 0, m.start()) + 1, m[1]) for m in _LINK.finditer(prose))
        away = "://|^X" if self.name.endswith(".j2") else "://"
        return [(line, target) for line, target in found if not re.search(away, target)]

    def anchors(self) -> set[str]:
        """Return the heading names available to links, as GitHub makes them."""
        return {_slug(heading) for heading in _HEADING.findall(_blocks_and_prose(self.text)[1])}


def _blocks_and_prose(text: str) -> tuple[list[Code], str]:
    """Return the lines of blocks, and the text with these lines empty."""
    code: list[Code] = []
    prose: list[str] = []
    fenced, held = False, ""
    for number, line in enumerate(text.split("\n"), 1):
        above = "".join(prose[-1:])
        if _FENCE.match(line):
            fenced = not fenced
            prose.append("")
        elif fenced or (_INDENTED.match(line) and not above):
            prose.append("")
            held += line.removesuffix("\\")
            if not line.endswith("\\"):
                code.append(Code(number, held.strip(), False))
                held = ""
        else:
            prose.append(line)
    return code, "\n".join(prose)


def _slug(heading: str) -> str:
    shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.replace("`", "").replace("*", ""))
    return re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")


@cache
def pages() -> tuple[Page, ...]:
    """Return README.md, docs/*.md, the report templates and the notebooks, all as Markdown."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [Page(str(file.relative_to(ROOT)), file.read_text()) for file in files]
    for file in sorted((ROOT / "analysis" / "core" / "templates").glob("*.j2")):
        text = re.sub(r"\{[{%#].*?[}%#]\}", "X", file.read_text(), flags=re.DOTALL)
        found.append(Page(str(file.relative_to(ROOT)), re.sub(r"</?code>", "`", text)))
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text = "\n\n".join(_cells(json.loads(file.read_text())))
        found.append(Page(str(file.relative_to(ROOT)), text))
    return tuple(found)


def _cells(notebook: dict[str, Any]) -> Iterator[str]:
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        yield source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
