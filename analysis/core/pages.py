"""The only environment that renders pages: a text in a template's expression stays a text.

Only templates hold HTML. The exception is `markupsafe.Markup` for sentences of the project itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

_TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, shown: Mapping[str, object], **filters: Callable[..., object]) -> str:
    """Render the file `template` with the values `shown`, as HTML, or as Markdown if its name ends
    in ``.md.j2``."""
    from jinja2 import Environment, FileSystemLoader

    markdown = template.endswith(".md.j2")
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=not markdown,
        finalize=(lambda value: in_markdown(str(value))) if markdown else None,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= filters
    return environment.get_template(template).render(shown)


def in_markdown(text: str) -> str:
    """Return `text` escaped so that Markdown finds no HTML and no link in it."""
    return re.sub(r"\](?=[(:\[])", r"]\\", text.replace("<", "&lt;"))
