"""`hotbed bench`: limits in both directions, values that cannot be measured, the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotbed.verbs import bench as verb
from tests.hotbed.runner import Runner


def _run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any]
) -> tuple[int, list[dict[str, Any]]]:
    benches = folder / "tests" / "bench"
    benches.mkdir(parents=True)
    (benches / "bench_made.py").write_text(f"print({json.dumps(json.dumps(rows))})\n")
    monkeypatch.setattr(verb, "BENCHES", benches)
    artifacts = folder / "artifacts"
    done = Runner().run(["bench", "--artifacts", str(artifacts), "--json"])
    (path,) = (artifacts / "bench").glob("*.json")
    results: list[dict[str, Any]] = json.loads(path.read_text())["results"]
    return done.exit_code, results


def _row(value: float | None, limit: float | None, **more: object) -> dict[str, Any]:
    return {"name": "a", "value": value, "unit": "s", "limit": limit, "n": 1, "note": "", **more}


def test_a_bench_runs_with_its_parts(tmp_path, monkeypatch):
    for name in ("a", "a_part", "ab"):
        row = json.dumps([_row(1.0, None) | {"name": name}])
        (tmp_path / f"bench_{name}.py").write_text(f"print({row!r})\n")
    monkeypatch.setattr(verb, "BENCHES", tmp_path)
    words = ["bench", "--artifacts", str(tmp_path), "--json", "--only"]
    for only, names in (("a", ["a", "a_part"]), ("a_part", ["a_part"]), ("ab", ["ab"])):
        done = Runner().run([*words, only])
        assert [row["name"] for row in json.loads(done.stdout)["results"]] == names


@pytest.mark.parametrize(
    ("row", "within", "code"),
    [
        (_row(1.0, 2.0), True, 0),
        (_row(3.0, 2.0, at_least=True), True, 0),
        (_row(None, 2.0), None, 0),
        (_row(3.0, None), None, 0),
        (_row(3.0, 2.0), False, 1),
        (_row(1.0, 2.0, at_least=True), False, 1),
    ],
)
def test_limits_are_the_most_or_the_least(*, row, within, code, tmp_path, monkeypatch):
    ended, (result,) = _run(tmp_path, monkeypatch, row)
    assert (ended, result["within"]) == (code, within)


def test_what_went_to_other_machines_is_reported(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    monkeypatch.setattr(verb, "PROC_STAT", stat)

    def run(_: Path) -> list[dict[str, Any]]:
        stat.write_text("cpu  600 50 150 9000 40 0 0 350 0 0\ncpu0 1 2 3\n")
        return [_row(3.0, 2.0, note="a note", within=False)]

    monkeypatch.setattr(verb, "_run", run)
    stat.write_text("cpu  500 50 100 8000 30 0 0 200 0 0\n")
    (tmp_path / "bench_made.py").touch()
    monkeypatch.setattr(verb, "BENCHES", tmp_path)
    words = ["bench", "--artifacts", str(tmp_path / "artifacts")]
    done = Runner().run(words)
    assert "a note; other machines took 50%" in " ".join(done.stdout.split())
    (path,) = (tmp_path / "artifacts" / "bench").glob("*.json")
    assert json.loads(path.read_text())["results"][0]["stolen"] == 0.5
    for text in ("", "nothing of the kind\n", "cpu  1 2 3 4 5 6 7\n"):
        stat.write_text(text)
        assert verb.stolen_between(verb.processors(), verb.processors()) == 0.0
    stat.unlink()
    assert verb.stolen_between(verb.processors(), verb.processors()) == 0.0
