"""User's own controller against default Ceph on a real cluster, through `hotbed compare`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from own_controllers import write_shy

from analysis.comparison.build import build
from campaigns.comparison import Ask, compare, plan
from campaigns.engine.display import Lines
from controllers.journal import read_journal
from schemas.campaign import Limits
from testbed.deploy.roles import spec_of
from tests.drawing import texts_by_figure, texts_of

pytestmark = [pytest.mark.local, pytest.mark.timeout(900)]


def test_it_is_in_figure_table_and_claims_of_a_real_cluster(tmp_path, deployed, monkeypatch):
    drawn = texts_by_figure(monkeypatch)
    folder = write_shy(tmp_path / "own")
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(spec_of(deployed).model_dump(mode="json")))
    ask = Ask(
        controllers=("shy",),
        ground=deployed.site,
        ops=("rand",),
        blocks=1,
        parameters={"hot_nodes": 1, "duration_s": 60, "object_size": 1048576},
        time_scale=0.1,
        spec=spec,
        testbed=deployed.name,
        artifacts=tmp_path / "artifacts",
        controllers_dir=folder,
        # The machine that runs tests is never quiet.
        limits=Limits(outside_cores=100, steal=1, client_share=1),
    )
    # A real Ceph is queried for its features; `all` includes every controller that can run.
    everybody = plan(replace(ask, controllers=("all",))).comparison
    assert {"default", "dlr", "dlr-pg", "oracle", "shy"} <= set(everybody.controllers)
    assert set(everybody.left_out) == {"mos", "mos-pp", "static-microstores"}

    made = compare(ask, progress=Lines())
    assert made.result.ok, made.result.sentence
    ranking = build(made.folder, made.comparison)
    assert {"default", "shy"} <= texts_of(drawn)
    assert "| shy |" in (ranking.folder / "comparison.md").read_text()
    claims = {claim["id"]: claim for claim in json.loads(ranking.claims_path.read_text())}
    claim = claims["compare-shy-heterogeneity-rand-throughput"]
    assert (claim["n"], claim["ground"], claim["paper_value"]) == (1, deployed.site, None)
    # One block has no interval, however large the difference.
    assert (claim["verdict"], claim["ci95"]) == ("inconclusive", None)
    (run_folder,) = made.runs_of("shy")
    journal = read_journal(run_folder / "journal.jsonl")
    assert journal.header["policy"] == "shy"
    assert len(journal.steps) >= 2
