"""Runs of version 1, which have no kind, and of version 2, parsed as current runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from schemas.cells import cells_of
from schemas.run import Run

OLDER = sorted((Path(__file__).parents[1] / "data" / "runs-of-version-1").glob("*.json"))
KINDS = {
    "dlr": "dlr",
    "ursa": "ursa",
    "twochoice": "twochoice",
    "objects": "twochoice-objects",
    "pm": "prioritymeister",
    "mos": "mos",
}
"""Kind by the prefix of a recorded file's name."""

RENAMED = {
    ("dlr", "controller"): {"ursa": "nearest"},
    ("ursa", "method"): {
        "alp": "alp-fast",
        "algorithm1": "algorithm1-pruned",
        "greedy": "nearest",
    },
}
"""Algorithms of Ursa that versions 1 and 2 called otherwise, by kind and parameter."""


@pytest.mark.parametrize("file", OLDER, ids=lambda file: file.stem)
def test_an_older_run_is_read_as_one_of_its_kind(file):
    assert {one.stem.split("-")[0] for one in OLDER} == set(KINDS)
    run = Run.model_validate_json(file.read_bytes())
    assert run.kind == KINDS[file.stem.split("-")[0]]
    older = json.loads(file.read_text())
    assert run.seed == older["seed"]
    cell = cells_of(run.kind, run.ground).check(run.parameters, "run")
    assert cell.model_dump(mode="json") == run.parameters
    kept = older["parameters"].keys() & run.parameters.keys() - {"setup", "policy"}
    kept -= {name for name in kept if (run.kind, name) in RENAMED}
    if run.parameters.get("policy") != "cake":
        kept -= {"cake_upper"}
    assert {name: run.parameters[name] for name in kept} == {
        name: older["parameters"][name] for name in kept
    }
    assert Run.model_validate_json(run.model_dump_json()) == run


@pytest.mark.parametrize(
    ("name", "parameter"), [("mos-load", "setup"), ("mos-sim-mos-pp", "policy")]
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_mos_pp_is_the_learning_one(name, parameter, version):
    older = json.loads(next(one for one in OLDER if one.stem == name).read_text())
    assert older["parameters"][parameter] == "mos-pp"
    if version > 1:
        older |= {"schema_version": version, "kind": "mos"}
    run = Run.model_validate(older)
    assert run.schema_version == 3
    assert run.parameters[parameter] == ("mos-pp" if version == 3 else "mos-pp-learning")


@pytest.mark.parametrize(
    ("kind", "parameter", "older", "present"),
    [(*key, older, now) for key, names in RENAMED.items() for older, now in names.items()],
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_name_of_an_algorithm_is_read_as_its_present_one(
    kind, parameter, older, present, version
):
    file = {"dlr": "dlr-open", "ursa": "ursa-alp"}[kind]
    run = json.loads(next(one for one in OLDER if one.stem == file).read_text())
    run["parameters"][parameter] = older
    if version > 1:
        run |= {"schema_version": version, "kind": kind}
    read = Run.model_validate(run)
    assert read.parameters[parameter] == (older if version == 3 else present)


@pytest.mark.parametrize(("policy", "upper"), [("cake", 1.2), ("pm", 4.0), ("none", 4.0)])
@pytest.mark.parametrize("version", [1, 2])
def test_an_older_bound_of_cake_is_kept_for_cake_alone(version, policy, upper):
    older = json.loads(next(one for one in OLDER if one.stem == "pm-local").read_text())
    assert older["parameters"]["cake_upper"] == 1.2
    older["parameters"]["policy"] = policy
    if version > 1:
        older |= {"schema_version": version, "kind": "prioritymeister"}
    run = Run.model_validate(older)
    assert cells_of(run.kind, run.ground).row(run.parameters)["cake_upper"] == upper


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": {}},
        {"parameters": {"op": "seq", "partitions": 1}},
        {"parameters": 1},
        {"schema_version": 2},
        {"schema_version": 3},
        {"schema_version": 2, "kind": "mos", "parameters": 1},
        {"schema_version": 4, "kind": "dlr"},
    ],
    ids=str,
)
def test_a_run_of_no_known_kind_or_version_is_refused(changes):
    older = json.loads(OLDER[0].read_text())
    with pytest.raises(ValidationError):
        Run.model_validate(older | changes)
