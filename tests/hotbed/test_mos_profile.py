"""`hotbed mos profile`: errors for people and programs, and a file for planning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from click.testing import CliRunner

from controllers.microstores.performance import PiecewiseLinear
from hotbed.mos_profile import profile
from schemas.errors import UserError
from tests.errors import raises


def run(*arguments: str) -> str:
    app, group = typer.Typer(), typer.Typer()
    app.add_typer(group, name="mos")
    profile(group)
    group.command()(lambda: None)  # typer would omit the name of a single command
    command = typer.main.get_command(app)
    done = CliRunner().invoke(command, ["mos", "profile", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
def test_it_tells_errors_and_writes_a_model(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    shown = run("local", "--out", str(path))
    assert "errors on configurations held out" in shown
    assert "8 runs, cospurf of 10 others" in shown
    written = json.loads(path.read_text())
    model = PiecewiseLinear.from_json(written)
    assert set(model.tables) == {"A", "C"}
    assert json.loads(run("local", "--json")) == written
    with raises(UserError, "overwritten", where=str(path)):
        run("local", "--out", str(path))
