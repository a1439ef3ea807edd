"""`hotbed mos plan` and `rules`: same facts for people and programs, and reports of bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from campaigns.papers.mos.profile.document import model_of, points_of
from campaigns.papers.mos.profile.fit import fit, most_of
from controllers.microstores.performance import PiecewiseLinear
from controllers.registry import create, find
from hotbed.exit_codes import EXIT_MISSED
from hotbed.verbs.mos import _read
from schemas.errors import UserError
from testbed.simulated.cosperf.machines import Constants
from tests.controllers.mos_stores import MODEL
from tests.hotbed.runner import Runner

SPEC = """
model: profile.json
pool: {proxy_cores: 0.8, storage_cores: 0.8, network_mbit_s: 400, ssds: 2, hdds: 4}
step: {proxy_cores: 0.1, storage_cores: 0.1, network_mbit_s: 20}
tenants:
  web: {microstore: small, workload: A, workers: 8, sla: {latency_ms: 90}}
  video: {microstore: large, workload: C, workers: 4, sla: {bandwidth_mb_s: 20}}
holds:
  small: {proxy_cores: 0.6, storage_cores: 0.4, network_mbit_s: 120, ssds: 2}
  large: {proxy_cores: 0.2, storage_cores: 0.4, network_mbit_s: 280, hdds: 4}
prices: {proxy_core: 0.04, storage_core: 0.04, network_gbit_s: 0.02, ssd: 0.03, hdd: 0.01}
"""


def spec() -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(SPEC)
    return made


def write(folder: Path, data: object) -> Path:
    (folder / "profile.json").write_text(json.dumps(MODEL.to_json()))
    path = folder / "spec.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return path


def hotbed(*words: object) -> Result:
    return Runner().run(["mos", *map(str, words)])


def test_a_plan_for_people_and_for_programs(tmp_path):
    path = write(tmp_path, spec())
    shown = hotbed("plan", path)
    assert shown.exit_code == 0, shown.output
    assert "rules broken: none" in shown.output
    report = {}
    for solver in ("highs", "exact"):
        ended = hotbed("plan", path, "--solver", solver, "--json")
        report[solver] = json.loads(ended.stdout)
    assert report["highs"]["microstores"] == report["exact"]["microstores"]
    assert report["highs"]["violated"] == []
    assert [tenant["met"] for tenant in report["highs"]["tenants"]] == [True, True]
    assert {finding["rule"] for finding in report["highs"]["rules"]} >= {"R1", "R2", "R7"}
    assert sum(b["price_an_hour"] for b in report["highs"]["bills"]) == pytest.approx(
        report["highs"]["cost"]
    )


def test_a_profile_is_named_or_a_file(tmp_path):
    named = write(tmp_path, spec() | {"model": "local"})
    found = json.loads(hotbed("plan", named, "--json").stdout)
    model = model_of(points_of("local")).to_json()
    inline = write(tmp_path, spec() | {"model": model})
    assert json.loads(hotbed("plan", inline, "--json").stdout) == found
    shown = hotbed("plan", inline).output
    assert "an hour by highs" in shown and "price an hour" in shown
    error = hotbed("plan", write(tmp_path, spec() | {"model": "locl"})).exception
    assert isinstance(error, UserError)
    assert "local" in error.do
    assert "pools" in hotbed("plan", write(tmp_path, _with("prices", None))).output


def test_a_missed_sla_is_an_exit_code(tmp_path):
    body = spec()
    body["tenants"]["video"]["sla"] = {"bandwidth_mb_s": 2000}  # 16 Gbit/s of a pool of 0.4
    ended = hotbed("plan", write(tmp_path, body), "--json")
    assert json.loads(ended.stdout)["violated"]
    assert ended.exit_code == EXIT_MISSED


def test_the_controller_takes_what_is_written_for_it(tmp_path):
    path, out = write(tmp_path, spec()), tmp_path / "mos-pp.yaml"
    assert hotbed("plan", path, "--parameters-out", out).exit_code == 0
    parameters = yaml.safe_load(out.read_text())
    made = create(find("mos-pp"), parameters, 1)
    assert dict(made.parameters()) | parameters == made.parameters()
    assert set(parameters["tenants"]) == {"web", "video"}
    ended = hotbed("plan", path, "--parameters-out", out)
    assert "is not overwritten" in str(ended.exception)
    none = tmp_path / "none.yaml"
    ended = hotbed("plan", path, "--solver", "x", "--parameters-out", none)
    assert isinstance(ended.exception, UserError)
    assert not none.exists()
    ended = hotbed("plan", none)
    assert isinstance(ended.exception, UserError)
    assert "none.yaml: there is no such file" in str(ended.exception)


@pytest.mark.slow
def test_a_profile_has_errors_and_a_model_for_planning(tmp_path):
    path = tmp_path / "profile.json"
    shown = hotbed("profile", "local", "--out", path)
    assert shown.exit_code == 0, shown.output
    assert "errors on configurations held out" in shown.output
    assert "8 runs, cospurf of 10 others" in shown.output
    written = json.loads(path.read_text())
    points = points_of("local").runs
    whole = fit(points, most_of(points), written["source"])
    assert PiecewiseLinear.from_json(written) == whole
    assert set(whole.tables) == {"A", "C"}
    assert set(written["errors"]) == {"cospurf", "simulator"}
    Constants.model_validate(written["simulator"])
    assert json.loads(hotbed("profile", "local", "--json").stdout) == written
    assert "overwritten" in str(hotbed("profile", "local", "--out", path).exception)


def _with(path: str, value: object) -> dict[str, Any]:
    data = spec()
    at: Any = data
    *where, last = path.split("/")
    for key in where:
        at = at[key]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("tenants: {", "is not YAML"),
        (_with("pool/ssds", 10**400), "allowed: a number"),
        (_with("pool/ssds", 10**6), "more than 1,000 steps of ssds"),
        ("step: 1\nstep: 2\n", "the key 'step' of line 1 is there again in line 2"),
        (_with("colour", 1), "unknown key 'colour'"),
        (_with("model", None), "model is missing"),
        (_with("model", "none.json"), "none.json: cannot be read"),
        (_with("pool/proxy_cores", "many"), "pool: proxy_cores: 'many'"),
        (_with("pool/ssds", 0.5), "ssds: 0.5 is not allowed; allowed: a whole number"),
        (_with("step/proxy_cores", 9), "at most what the pool has"),
        (_with("step/network_mbit_s", 1e-6), "more than 100,000 steps"),
        (_with("pool", {"proxy_cores": 1, "storage_cores": 1, "network_mbit_s": 20}), "no disks"),
        (_with("tenants", {}), "at least one tenant"),
        (_with("tenants/web/workload", "Z"), "'Z' is not allowed; allowed: A, C"),
        (_with("tenants/web/workers", -1), "workers: -1 is not allowed"),
        (_with("tenants/web/sla", {}), "exactly one of latency_ms and bandwidth_mb_s"),
        (_with("holds/small/proxy_cores", 5), "holds: "),
        (_with("holds/large", None), "holds: large is missing"),
        (_with("headroom", 0.5), "headroom: 0.5"),
    ],
)
def test_a_bad_file_is_reported_in_one_sentence(tmp_path, data, words):
    with pytest.raises(UserError) as report:
        _read(write(tmp_path, data))
    assert words in str(report.value)
    assert "\n" not in str(report.value)
