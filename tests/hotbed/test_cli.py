"""Conventions of the command: exit codes, one sentence per mistake, JSON, a quick start."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from pydantic import BaseModel
from rich.table import Table
from runner import hotbed

from hotbed import cli, output
from schemas.errors import HotbedError, UserError
from testbed.sites.contract import SiteError


def _app_raising(error: BaseException) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def verb() -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("spec.yaml: no such node: give a."), 2, "spec.yaml: no such node: give a."),
        (HotbedError("the node went away."), 1, "the node went away."),
        (KeyboardInterrupt(), 130, ""),
        (OSError(errno.EIO, "Input/output error", "a/run.json"), 1, "a/run.json: Input"),
        (OSError(errno.EXDEV, "Invalid link", b"a", None, b"b"), 1, "b: Invalid link."),
        (OSError("no number"), 1, "no number."),
        (SiteError("the lease failed", retry_after_s=None), 1, "the lease failed\n"),
        (SiteError("the lease failed", retry_after_s=0.0), 1, "the lease failed. Try again.\n"),
        (SiteError("it failed", retry_after_s=30.0), 1, "it failed. Try again in 30 s.\n"),
    ],
)
def test_exit_codes(error, code, said, monkeypatch, capsys):
    monkeypatch.setattr(cli, "build", lambda: _app_raising(error))
    assert hotbed() == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"hotbed: {said}" in captured.err if said else not captured.err
    assert len(captured.err.strip().splitlines()) == (1 if said else 0)
    monkeypatch.setattr(cli, "build", lambda: _app_raising(ZeroDivisionError("bug")))
    with pytest.raises(ZeroDivisionError):  # a bug keeps its traceback
        cli.main([])


NO_PLACE = {"a file": Path(cli.__file__), "not ours": Path("/sys")}
"""Places where no user, including root, can make a folder."""


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("a file", "run dlr-quick --ground sim --artifacts PLACE"),
        ("not ours", "run pm-quick --artifacts PLACE"),
        ("a file", "compare --artifacts PLACE"),
        ("not ours", "scale --quick --artifacts PLACE"),
        ("a file", "bench --artifacts PLACE"),
        ("not ours", "new controller mine --dir PLACE"),
        ("a file", "ursa generate --nodes 10 --partitions 100 --out PLACE"),
        ("not ours", "cosbench xml A --out PLACE"),
        ("a file", "mos profile local --out PLACE"),
        ("not ours", "pm trace standin A PLACE"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_sentence(place, words, capsys):
    where = NO_PLACE[place] / "x"
    assert hotbed(*words.replace("PLACE", str(where)).split()) in (1, 2)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("hotbed: ")
    assert str(NO_PLACE[place]) in said[0]


def test_a_full_standard_output_is_one_sentence():
    words = [sys.executable, "-m", "hotbed.cli", "list", "controllers", "--json"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("hotbed: ")


def test_termination_runs_the_cleanup(tmp_path):
    script = tmp_path / "verb.py"
    script.write_text(
        "import signal, sys, time, typer\n"
        "from hotbed import cli\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # as in shells' background commands
        "app = typer.Typer()\n"
        "@app.command()\n"
        "def verb():\n"
        "    try:\n"
        "        print('ready', flush=True)\n"
        # A signal between the last check and the sleep does not interrupt that sleep.
        "        while True: time.sleep(0.05)\n"
        "    finally:\n"
        "        print('cleaned', flush=True)\n"
        "cli.build = lambda: app\n"
        "cli.main([])\n"
    )
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
        assert (out, process.returncode) == ("cleaned\n", code)


def test_every_verb_is_found_and_explains_itself():
    group = typer.main.get_command(cli.build())
    verbs = Path(cli.__file__).parent / "verbs"
    assert "doctor" in group.commands
    assert len(group.commands) >= len([p for p in verbs.glob("*.py") if p.name != "__init__.py"])
    for name, command in group.commands.items():
        assert command.help, f"hotbed {name} has no help"


def test_the_command_line_imports_nothing_heavy():
    """This keeps `hotbed --help` quick on any machine."""
    code = (
        "import sys, hotbed.cli\n"
        "hotbed.cli.build()\n"
        "print([m for m in ('pandas', 'numpy', 'matplotlib', 'papermill', 'scipy', 'pyarrow',"
        " 'ansible_runner', 'nbformat', 'numba', 'highspy', 'dask', 'distributed', 'pydantic')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


class _Model(BaseModel):
    name: str
    value: float | None


@dataclass(frozen=True)
class _Row:
    node: str
    rate: float
    path: Path


def test_emit_json_of_models_dataclasses_and_what_is_no_number(capsys):
    data = {
        "model": _Model(name="x", value=float("nan")),
        "rows": [_Row("osd0", float("inf"), Path("a/b"))],
        "roles": frozenset({"osd", "mon"}),
    }
    output.emit(data, True, lambda: pytest.fail("no table when JSON is asked for"))
    assert json.loads(capsys.readouterr().out) == {
        "model": {"name": "x", "value": None},
        "rows": [{"node": "osd0", "rate": None, "path": "a/b"}],
        "roles": ["mon", "osd"],
    }


def test_a_table_is_not_cut_when_piped_and_text_is_printed_as_it_is(capsys):
    table = Table("a", "b")
    table.add_row("x" * 60, "[y]" * 30)
    output.emit([], False, lambda: table)
    assert "x" * 60 in capsys.readouterr().out
    output.emit({}, False, lambda: "[bold]not markup[/bold]")
    assert capsys.readouterr().out == "[bold]not markup[/bold]\n"


def test_a_closed_pipe_is_no_traceback():
    words = [sys.executable, "-m", "hotbed.cli", "list", "controllers", "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    error = process.stderr.read()
    process.wait(timeout=20)
    assert "Traceback" not in error and "Exception" not in error
