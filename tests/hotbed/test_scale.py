"""`hotbed scale`, from the command line to figures, tables and claims."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from own_controllers import write_shy
from typer.testing import Result

from testbed.simulated.process import PROGRAM
from tests.drawing import texts_by_figure, texts_of
from tests.hotbed.runner import Runner

pytestmark = pytest.mark.timeout(600)
built = pytest.mark.skipif(not PROGRAM.is_file(), reason="the simulator is not built")


def scale(tmp_path: Path, *arguments: str) -> Result:
    words = ["scale", "--artifacts", str(tmp_path / "artifacts"), *arguments]
    return Runner().run(words)


@built
@pytest.mark.slow
def test_a_small_sweep_with_a_controller_of_one_s_own(tmp_path, monkeypatch):
    drawn = texts_by_figure(monkeypatch)
    folder = write_shy(tmp_path / "own")
    words = ["--quick", "--figure", "osds", "--osds", "8,16", "--blocks", "2", "--workers", "1"]
    words += ["--controllers", "dlr,shy", "--controllers-dir", str(folder)]
    ended = scale(tmp_path, *words, "--json")
    assert ended.exit_code == 0, ended.output
    facts = json.loads(ended.stdout)
    assert facts["ok"]
    assert {row["controller"] for row in facts["tables"]["stops-osds"]} == {"dlr", "shy"}
    assert set(facts["figures"]) == {"osds"}
    assert Path(facts["figures"]["osds"]).stat().st_size > 10_000
    assert {"simulated", "shy", "DLR", "16"} <= texts_of(drawn)
    made = tmp_path / "artifacts" / "dlr-scale-quick"
    assert "<b>Simulated.</b>" in (made / "report.html").read_text()
    assert {claim["paper_value"] for claim in facts["claims"]} == {None}
    again = scale(tmp_path, *words)
    assert "12 of 12 runs done (12 of them before)" in again.output
    assert "Where each stops helping: OSDs" in again.output
