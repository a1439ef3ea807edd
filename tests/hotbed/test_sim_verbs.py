"""`hotbed run --ground sim` and `hotbed validate` at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hotbed import cli
from tests.hotbed.runner import Runner


def test_a_campaign_is_planned_on_the_ground_sim(tmp_path: Path) -> None:
    words = ["run", "dlr-quick", "--ground", "sim", "--dry-run", "--json"]
    ended = Runner().run([*words, "--artifacts", str(tmp_path)])
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert told["campaign"] == "dlr-quick-sim"
    assert told["cells"] == len(told["pending"])
    assert told["pending_s"] < 300
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "dlr-quick", "--ground", "moon"], "--ground moon: there is no such ground"),
        (["run", "dlr-quick", "--model", "x.yaml"], "a model belongs to the ground sim"),
        (["run", "dlr-quick", "--ground", "sim", "--model", "x.yaml"], "x.yaml: cannot be read"),
        (["validate"], "no finished run of ground local"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([*arguments, "--artifacts", str(tmp_path)])
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.strip().splitlines()) == 1
