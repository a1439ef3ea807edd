"""The command line as a whole: groups of verbs, lists of names, completion, verbosity, width."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from analysis.core.papers import SHORT_NAMES
from campaigns.engine.display import CampaignResult, Progress, suitable
from hotbed import cli, completion, exit_codes, logs, output
from hotbed.progress import progress
from hotbed.verbs.run import next_of
from tests.campaigns.tiny_kinds import TWOCHOICE
from tests.hotbed.runner import run

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _usual_logging():
    yield
    logs.configure()


def test_every_verb_is_in_one_group():
    grouped = " ".join(cli.PANELS.values()).split()
    assert sorted(grouped) == sorted(cli.command(cli.build()).commands)


def test_every_verb_that_reports_takes_json():
    def without(command: Any, name: str) -> list[str]:
        if hasattr(command, "commands"):
            below = command.commands.items()
            return [one for key, each in below for one in without(each, f"{name} {key}".strip())]
        return [] if any("--json" in one.opts for one in command.params) else [name]

    # A server, and a command that becomes the node's shell.
    assert without(cli.command(cli.build()), "") == ["ui", "ssh"]


def test_the_version(capsys):
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert re.fullmatch(r"hotbed \d+\.\d+\S*\n", out)


@pytest.mark.parametrize(
    "case",
    [
        ("campaigns", "campaign", "dlr-quick"),
        ("campaigns ursa", "campaign", "ursa-quick"),
        ("campaigns dlr-today", "campaign", "dlr-today-goals"),
        ("papers", "paper", "pm"),
        ("figures ursa", "figure", "7"),
        ("controllers", "controller", "dlr-pg"),
        ("specs", "spec", "dlr"),
        ("testbeds", "name", "small"),
    ],
)
def test_lists(case, site, monkeypatch, capsys):
    what, key, name = case
    monkeypatch.setattr(site, "names", lambda: ["small"])
    code, out, _ = run(capsys, "list", *what.split(), "--json")
    rows = json.loads(out)
    assert code == 0
    assert name in {row[key] for row in rows}
    assert "dlr-quick" not in out or what == "campaigns"
    code, out, _ = run(capsys, "list", *what.split())
    assert code == 0
    assert re.search(rf"(?<!\S){name}(?!\S)", out)


def test_a_campaign_s_row(capsys):
    _, out, _ = run(capsys, "list", "campaigns", "--json")
    (row,) = (row for row in json.loads(out) if row["campaign"] == "dlr-quick")
    assert (row["ground"], row["cells"], row["figures"][0]) == ("local", 30, "1a")
    assert row["about"] == "What `make reproduce` runs"
    assert "did you mean ursa?" in run(capsys, "list", "campaigns", "usra")[2]
    assert "did you mean ursa?" in run(capsys, "list", "figures", "usra")[2]


@pytest.mark.slow  # starts a worker
def test_a_run_ends_with_the_next_command_and_is_listed(tmp_path, capsys):
    file, art = tmp_path / "u.yaml", tmp_path / "a b"
    grid = {**TWOCHOICE["grids"][0], "vary": {"scheduler": ["fixed"]}, "repetitions": 1}
    file.write_text(yaml.safe_dump({**TWOCHOICE, "grids": [grid]}))
    code, out, err = run(capsys, "-q", "run", file, "--artifacts", art)
    report = art / TWOCHOICE["name"] / "report.html"
    assert (code, err) == (0, "")
    said = f"Next: hotbed report {TWOCHOICE['name']} --artifacts '{art}'\nReport: {report}\n"
    assert out == said
    _, out, _ = run(capsys, "list", "runs", "--artifacts", art, "--json")
    (row,) = json.loads(out)
    assert row["done"] == row["cells"] > 0
    assert (row["campaign"], row["ground"], row["report"]) == (TWOCHOICE["name"], "sim", "")


def test_a_failed_run_is_to_be_repeated(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["hotbed", "run", "x"])
    failed = CampaignResult("x", 2, 0, 1, missing=(("cell", "why"),))
    assert next_of(failed, Path("artifacts"))["next"] == "hotbed run x"


def test_no_runs(tmp_path, capsys):
    assert run(capsys, "list", "runs", "--artifacts", tmp_path, "--json")[1] == "[]\n"
    assert "hotbed run" in run(capsys, "list", "runs", "--artifacts", tmp_path)[1]


# Completion.


def completed(words: str) -> list[str]:
    environment = {**os.environ, "_HOTBED_COMPLETE": "complete_bash", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(words.count(" "))
    made = subprocess.run(
        [sys.executable, "-m", "hotbed.cli"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert made.stderr == ""
    return made.stdout.split()


def test_a_shell_completes_verbs_and_names():
    assert completed("hotbed ver") == ["verify"]
    assert completed("hotbed run dlr-quick --figure 6") == ["6a", "6b", "6c"]


def test_names_that_are_completed(site, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "artifacts" / "my-own").mkdir(parents=True)
    (tmp_path / "artifacts" / "my-own" / "campaign.json").write_text("{}")
    assert completion.reports("my") == ["my-own"]
    assert set(SHORT_NAMES) <= set(completion.reports(""))
    assert "ursa-quick" in completion.campaigns("ursa-q")
    assert completion.controllers("dlr,oracle") == ["dlr,oracle", "dlr,oracle-move"]
    monkeypatch.setattr(site, "names", lambda: ["small", "large"])
    assert completion.testbeds("") == ["large", "small"]
    monkeypatch.setattr(site, "names", lambda: 1 / 0)
    assert completion.testbeds("") == []
    context: Any = SimpleNamespace(params={"name": "dlr-quick-sim"}, args=[])
    assert completion.figures(context, "7") == ["7"]


# Verbosity.


def test_quiet_and_verbose(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert run(capsys, "-q", "-v", "status")[0] == exit_codes.EXIT_USER
    assert run(capsys, "-v", "run", "nonesuch")[2].startswith("hotbed: INFO: ")
    assert "Traceback" in run(capsys, "-v", "run", "nonesuch")[2]
    assert "Traceback" not in run(capsys, "run", "nonesuch")[2]
    logs.configure(verbose=1)
    subprocess.run(["true", "a b"], check=True)
    assert "hotbed: INFO: run true 'a b'\n" in capsys.readouterr().err
    logs.configure(quiet=True)
    subprocess.run(["true"], check=True)
    with progress("work") as report:
        report("phase", 0.5)
    assert type(suitable()) is Progress
    assert capsys.readouterr().err == ""
    logs.configure()
    assert type(suitable()) is not Progress


def test_one_configuration_of_logging(capsys):
    for verbose, shown in ((0, "other"), (2, "other dask other")):
        logs.configure(verbose)
        logging.getLogger("some.library").warning("other")
        logging.getLogger("distributed.core").warning("dask")
        logging.getLogger("some.library").debug("other")
        lines = capsys.readouterr().err.splitlines()
        assert " ".join(line.rpartition(" ")[2] for line in lines) == shown
    logging.captureWarnings(False)  # pytest replaces the printer of warnings in each test
    logs.configure()
    warnings.showwarning("old", UserWarning, "x.py", 1)
    assert "py.warnings: WARNING: x.py:1: UserWarning: old" in capsys.readouterr().err


def test_a_quiet_failure_is_said(capsys):
    logs.configure(quiet=True)
    result = CampaignResult("x", 2, 0, 1, missing=(("cell", "why"),))
    assert exit_codes.code_of(result) == exit_codes.EXIT_FAILED
    assert "missing: cell: why" in capsys.readouterr().err


# Terminals, and what the documentation says.


def test_a_table_too_wide_for_the_terminal_is_a_list_a_row(monkeypatch, capsys):
    rows = [("one", "x" * 20), ("two", None)]
    table = output.new_table(("name", "file"), rows, title="Files", caption="all")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    shown = {}
    for columns in (80, 22):
        monkeypatch.setenv("COLUMNS", str(columns))
        output.emit([], False, lambda: table)
        shown[columns] = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert any(line.split() == ["one", "x" * 20] for line in shown[80])
    narrow = [line for line in shown[22] if line]
    assert narrow == ["Files", "name  one", f"file  {'x' * 16}", "xxxx", "name  two", "all"]


def test_no_colour_is_printed_if_asked(monkeypatch, capsys):
    from rich.text import Text

    monkeypatch.setenv("FORCE_COLOR", "1")
    for value, coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", value)
        output.emit([], False, lambda: Text("red", style="red"))
        assert ("\x1b[31m" in capsys.readouterr().out) == coloured


def test_the_page_of_exit_codes():
    codes = {
        value for name, value in vars(exit_codes).items() if re.fullmatch(r"EXIT_[A-Z_]+", name)
    }
    assert set(exit_codes.MEANINGS) == codes
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", (ROOT / "docs/exit-codes.md").read_text(), re.M)
    assert rows == [(str(code), text) for code, text in exit_codes.MEANINGS.items()]
