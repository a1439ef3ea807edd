"""Hooks of mkdocs (mkdocs.yml).

The navigation is that of docs/index.md. What pages link to outside of docs/ becomes part of the
site: a picture or a Markdown page as it is, another file as a page with its text, and a folder as a
list of its files.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
AS_IT_IS = {".md", ".png", ".svg"}
_LINK = re.compile(r"\]\(\.\./([\w./-]+)")
_FENCES = {".py": "python", ".go": "go", ".yaml": "yaml"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from the lists of docs/index.md."""
    index = (Path(config.docs_dir) / "index.md").read_text()
    nav: list[Any] = [{"Home": "index.md"}]
    for section in index.split("\n## ")[1:]:
        listed = re.findall(r"^- \[(.+?)\]\(([\w-]+\.md)\)", section, re.M)
        nav.append({section.partition("\n")[0]: [{title: page} for title, page in listed]})
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files and folders that pages link to."""
    text = "".join(path.read_text() for path in sorted(Path(config.docs_dir).glob("*.md")))
    for name in sorted(set(_LINK.findall(text))):
        path = ROOT / name
        if not path.exists():
            continue  # the check of links reports it
        if path.suffix in AS_IT_IS:
            files.append(File.generated(config, _place(name), abs_src_path=str(path)))
        else:
            files.append(File.generated(config, _place(name), content=_shown(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Lead the links of a page to these files, and the links of these files back to the pages."""
    if page.file.src_uri.startswith("source/"):
        return re.sub(r"\]\((?:docs/)?([\w-]+\.md)", r"](../\1", markdown)
    return _LINK.sub(lambda match: f"]({_place(match[1])}", markdown)


def _place(name: str) -> str:
    """Return the place in the site of a file or folder of the repository."""
    return f"source/{name}" if Path(name).suffix in AS_IT_IS else f"source/{name.rstrip('/')}.md"


def _shown(path: Path) -> str:
    title = f"# {path.relative_to(ROOT)}\n\n"
    if path.is_dir():
        names = sorted(one.name for one in path.iterdir() if not one.name.startswith(("_", ".")))
        return title + "".join(f"- `{name}`\n" for name in names)
    return f"{title}````{_FENCES.get(path.suffix, 'text')}\n{path.read_text()}\n````\n"
