"""External text printed to a terminal: names of nodes and files, keys, reasons."""

from __future__ import annotations

import json
import sys
import unicodedata
import zipfile
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich import box
from rich.table import Table
from rich.text import Text

import hotbed.progress as progress_module
from campaigns.engine import display
from campaigns.engine.display import Bar, CampaignResult
from campaigns.engine.job import Outcome
from hotbed import cli, contained, output
from hotbed.progress import progress
from schemas.errors import UserError
from schemas.shown import clean
from tests.hotbed.runner import hotbed

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\u2066\x00\x7f\udc80[/red][bold]:skull:"


def speaks(text: str) -> set[str]:
    """Return the characters of `text` that a terminal interprets."""
    return {
        each
        for each in text
        if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") and each not in "\n\t"
    }


def table() -> Table:
    made = Table(HOSTILE, box=box.SIMPLE_HEAD, title=HOSTILE, caption=HOSTILE)
    made.add_row(HOSTILE)
    made.add_row(Text(HOSTILE, style="red"))
    return made


def fail() -> None:
    raise UserError(f"{HOSTILE}: there is no such node.")


@pytest.mark.parametrize(
    "say",
    [
        lambda: print(HOSTILE),
        lambda: print(HOSTILE, file=sys.stderr),
        lambda: typer.echo(HOSTILE, err=True),
        lambda: output.emit({}, False, table),
        lambda: output.emit({}, False, lambda: HOSTILE),
        fail,
    ],
    ids=["print", "stderr", "echo", "table", "text", "error"],
)
def test_nothing_printed_acts_on_the_terminal(say, monkeypatch, capsys):
    app = typer.Typer()
    app.command()(lambda: say() and None)
    monkeypatch.setattr(cli, "build", lambda: app)
    hotbed()
    said = capsys.readouterr()
    printed = said.out + said.err
    assert not speaks(printed)
    assert "evil" in printed
    assert "[/red]" in printed.replace("\n", "")  # brackets are no markup


def test_progress_in_a_notebook_is_one_line_of_html(monkeypatch, capsys):
    shown: list[str] = []
    for module in (display, progress_module):
        monkeypatch.setattr(module, "in_kernel", lambda: True)
        monkeypatch.setattr(module, "live", lambda: shown.append)
    campaign = display.suitable()
    cells: Any = [SimpleNamespace(block=0, parameters=SimpleNamespace(label=lambda: "<b>"))] * 2
    campaign.begin(SimpleNamespace(campaign=SimpleNamespace(name="c"), cells=cells), 0, 9.0)  # type: ignore[arg-type]
    campaign.cell_ended(cells[0], Outcome("done", seconds=1.0), 9.0)
    campaign.cell_ended(cells[1], Outcome("failed", "it broke", 1.0), 0.0)
    assert "&lt;b&gt;" in shown[-2] and 'value="0.500"' in shown[-2]
    assert "it broke" in capsys.readouterr().out  # it stays
    with progress("work") as report:
        report("half", 0.5)
    assert "work: half" in shown[-1]


def test_bars_on_a_terminal_hold_no_sequence_but_their_own(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    plan: Any = SimpleNamespace(campaign=SimpleNamespace(name=HOSTILE), cells=())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    shown = Bar()
    shown.begin(plan, 0, 1.0)
    shown.message(HOSTILE)
    shown.end(CampaignResult(HOSTILE, 0, 0, 0))
    with progress(f"{HOSTILE}{{0.__class__}}") as report:
        report(HOSTILE, 0.5)
    printed = capsys.readouterr().err
    assert printed.count(r"\x1b[2J\x1b]0;owned") >= 4
    assert clean(HOSTILE) in printed
    assert not [each for each in ("\x1b[2J", "\x1b]0", *"\x07\x9b\u202e\x00") if each in printed]


def test_json_holds_the_text_itself_and_no_raw_control_character(monkeypatch, capsys):
    app = typer.Typer()
    app.command()(lambda: output.emit({HOSTILE: ["größer \U000e0041"]}, True, table))
    monkeypatch.setattr(cli, "build", lambda: app)
    hotbed()
    said = capsys.readouterr().out
    assert not speaks(said)
    assert "größer" in said
    assert json.loads(said) == {HOSTILE: ["größer \U000e0041"]}


def test_a_bundle_does_not_speak(tmp_path, capsys, monkeypatch):
    """The manifest may name files that do not exist."""
    name = HOSTILE.replace("\udc80", "")
    entry = {"path": f"{name}\nbundle.zip: as stated.", "sha256": "0" * 64, "bytes": 1}
    body = {
        "schema_version": 1,
        "report": "dlr-tiny",
        "campaigns": ["dlr-tiny"],
        "hotbed_version": name,
        "commit": None,
        "libraries": {},
        "files": [{**entry, "role": "source"}],
    }
    with zipfile.ZipFile(tmp_path / "\x1b[31mx.zip", "w") as made:
        made.writestr("manifest.json", json.dumps(body))
    made = contained.verify(tmp_path / "\x1b[31mx.zip")
    monkeypatch.setattr(contained, "verify", lambda *_, **__: made)
    for words in ([], ["--json"]):
        assert hotbed("verify", made.path, *words) != 0
        said = capsys.readouterr()
        assert not speaks(said.out + said.err)
        assert r"bundle.zip: as stated." in said.out
        assert not any(one.startswith("bundle.zip:") for one in said.out.splitlines())
