"""Example of docs/controllers.md, exactly as printed, from a folder outside the repository."""

from __future__ import annotations

import re
from pathlib import Path

from virtual import run_loop

from controllers.decider import ChildDecider
from controllers.journal import read_journal
from controllers.registry import find
from controllers.replay import replay
from testbed.stores.fake import FakeStore

DOCS = Path(__file__).parents[2] / "docs" / "controllers.md"


def example(folder: Path) -> Path:
    code = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(code) == 1
    (folder / "half_on_hot").mkdir()
    (folder / "half_on_hot" / "policy.py").write_text(code[0])
    return folder


def test_it_runs_and_replays(tmp_path):
    dirs = [example(tmp_path)]
    decider = ChildDecider("half-on-hot", {"above": 70}, 1, dirs)
    affinities = []

    class Watching(FakeStore):
        def act(self, actions):
            effects = super().act(actions)
            affinities.append([osd.primary_affinity for osd in self.osds.values()])
            return effects

    store = Watching(pressures=lambda n: {osd: 80.0 if osd == n else 5.0 for osd in range(8)})
    outcome, journal = run_loop(
        tmp_path, store, decider=decider, child=find("half-on-hot", dirs), steps=3
    )
    assert outcome.code == 0
    # The first sense only starts the interval: step 0 sees osd.1 busy, step 1 sees osd.2.
    assert affinities[0] == [1, 0.5, 1, 1, 1, 1, 1, 1]
    assert affinities[1] == [1, 1, 0.5, 1, 1, 1, 1, 1]
    found = replay(read_journal(tmp_path / "journal.jsonl"), dirs)
    assert found.equal
    assert found.same_code
    assert found.decisions == len(journal.steps) == 3
