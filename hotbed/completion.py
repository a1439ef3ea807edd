"""Names that a shell completes. Completion prints no error: unreadable files have no names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import typer

_FIGURES = re.compile(r"^\s+figures: *\[([^]]*)\]", re.MULTILINE)


def campaigns(incomplete: str) -> list[str]:
    """Return the campaigns that come with Hotbed."""
    return _starting(incomplete, _campaign_files())


def papers(incomplete: str) -> list[str]:
    """Return the papers: every campaign's name begins with its paper."""
    return _starting(incomplete, {name.partition("-")[0] for name in _campaign_files()})


def reports(incomplete: str) -> list[str]:
    """Return the papers, the campaigns that come with Hotbed, and those with files in artifacts."""
    there = {path.parent.name for path in Path("artifacts").glob("*/campaign.json")}
    return sorted({*papers(incomplete), *campaigns(incomplete), *_starting(incomplete, there)})


def figures(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the figures of the campaign or paper that the command line names."""
    named = ctx.params.get("campaign") or ctx.params.get("name")
    name = str(named or next(iter(ctx.args), ""))  # not parsed while an option lacks its value
    found: set[str] = set()
    for campaign, path in _campaign_files().items():
        if f"{campaign}-".startswith(f"{name}-") or name.startswith(f"{campaign}-"):
            for listed in _FIGURES.findall(path.read_text()):
                found |= {figure.strip(" \"'\n") for figure in listed.split(",")}
    return _starting(incomplete, found - {""})


def testbeds(incomplete: str) -> list[str]:
    """Return the existing testbeds."""
    with suppress(Exception):
        from testbed.choose import existing

        return _starting(incomplete, {name for _, name in existing()})
    return []


def units(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the short names of the units on the node that the command line names."""
    with suppress(Exception):
        from testbed.choose import choose_partly
        from testbed.overview import units_of

        testbed = choose_partly(ctx.params.get("testbed"))
        node = testbed.node(ctx.params.get("node") or ctx.args[0])
        return _starting(incomplete, {row["name"] for row in units_of(testbed, node)})
    return []


def nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the nodes and groups of the testbed that the command line names."""
    with suppress(Exception):
        from testbed.choose import choose_partly

        found = choose_partly(ctx.params.get("testbed")).nodes
        return _starting(incomplete, {name for node in found for name in (node.name, node.group)})
    return []


def controllers(incomplete: str) -> list[str]:
    """Return the built-in controllers, also after a comma."""
    before, comma, last = incomplete.rpartition(",")
    with suppress(Exception):
        from controllers.registry import available

        return [f"{before}{comma}{name}" for name in _starting(last, available())]
    return []


def _campaign_files() -> dict[str, Path]:
    import campaigns

    return {path.stem: path for path in Path(campaigns.__path__[0], "files").glob("*.yaml")}


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
