"""`hotbed try`: a first comparison on a simulated Ceph, and a page that says what to do next."""

from __future__ import annotations

import base64
import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from hotbed.exit_codes import stopped, unfinished
from hotbed.options import option
from hotbed.output import JsonFlag, Output
from hotbed.verbs.compare import ranking_table

if TYPE_CHECKING:
    from analysis.comparison.build import Ranking

CONTROLLERS = Path("my-controllers")
COPY = "my-copy"
"""The reader's copy of the template; the tutorials' my-controller stays free."""
POLICY = CONTROLLERS / COPY.replace("-", "_") / "policy.py"


def verb(
    *,
    output: Path = option("Folder for the runs, the figure and the page.", Path("artifacts")),
    as_json: JsonFlag = False,
) -> Output:
    """Make a first figure on a simulated Ceph: default Ceph, DLR and your copy of a template.

    It needs neither root nor a testbed. Your copy is my-controllers/my_copy/policy.py: change it
    and give the same command again. Exit 1 when a run is missing in the end.
    """
    from campaigns import comparison
    from campaigns.new_controller import new_controller

    if not POLICY.parent.exists():
        new_controller(COPY, CONTROLLERS)
    ask = comparison.Ask(
        controllers=("dlr", COPY), ops=("rand",), artifacts=output, controllers_dir=CONTROLLERS
    )
    made = comparison.compare(ask)
    if stopped(made.result) is not None:
        return unfinished(made.result)
    from analysis.comparison.build import build

    ranking = build(made.folder, made.comparison, output / "try")
    page = _page(ranking)
    facts = {
        "ok": made.result.ok,
        "sentence": made.result.sentence,
        "ranking": ranking.rows,
        "page": page,
        "policy": POLICY.resolve(),
    }
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.stdout.isatty() and screen and not as_json:
        webbrowser.open(page.as_uri())
    lines = [f"Your controller: {POLICY.resolve()}", f"Page: {page}"]
    return Output(facts, lambda: [ranking_table(ranking), *lines], code=int(not made.result.ok))


def _page(ranking: Ranking) -> Path:
    """Write the page next to the figure; return its path."""
    from analysis.comparison.build import heads
    from analysis.core.report import render
    from schemas.durable import write_file

    activate = Path(sys.prefix, "bin", "activate")
    shown = {
        "ranking": ranking,
        "heads": {name: text for name, text in heads("default").items() if name in _COLUMNS},
        "image": base64.b64encode(ranking.figure.read_bytes()).decode(),
        "policy": POLICY.resolve(),
        "artifacts": ranking.folder.parent,
        "controllers": CONTROLLERS,
        "here": Path.cwd(),
        "activate": activate if activate.is_file() else None,
        "copy": COPY,
    }
    page = (ranking.folder / "index.html").resolve()
    write_file(page, render("try.html.j2", shown))
    return page


_COLUMNS = ("controller", "level", "gain", "interval", "n", "verdict")
