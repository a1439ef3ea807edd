"""JSON Schemas for editors: every shipped YAML file names its schema and fits it, and a schema
finds typical mistakes as the model does."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from campaigns.engine.session import Request, dry_run
from campaigns.papers.prioritymeister.topology import load_topology
from schemas.errors import UserError
from schemas.yaml_file import read
from testbed.simulated.parameters import load_parameters
from testbed.sites import open_site
from testbed.spec import load_spec

ROOT = Path(__file__).resolve().parents[2]
COMMENT = "# yaml-language-server: $schema="
SHIPPED = {
    "campaign": "campaigns/files/*.yaml",
    "spec": "testbed/specs/*.yaml",
    "model": "testbed/simulated/*.yaml",
    "topology": "tests/golden/inputs/topology.yaml",
}
PLAIN = {"name", "kind", "address", "user", "port", "release", "lease", "patience", "mtu", "orcid"}
"""Fields with names that say everything."""


@cache
def validator(kind: str) -> Draft202012Validator:
    schema = json.loads((ROOT / "schemas" / "json" / f"{kind}.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def mistake(kind: str, data: Any) -> str | None:
    """Return the place of the mistake that an editor shows first."""
    found = best_match(validator(kind).iter_errors(data))
    return None if found is None else found.json_path


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        pytest.param(kind, file, id=file.name)
        for kind, pattern in SHIPPED.items()
        for file in sorted(ROOT.glob(pattern))
    ],
)
def test_a_shipped_file_names_its_schema_and_fits_it(kind: str, file: Path) -> None:
    first = file.read_text().partition("\n")[0]
    assert first.startswith(COMMENT)
    schema = file.parent / first.removeprefix(COMMENT)
    assert schema.resolve() == ROOT / "schemas" / "json" / f"{kind}.json"
    assert mistake(kind, read(file)) is None


def _spec(path: Path) -> None:
    site = load_spec(path).site
    open_site(site.kind, site.options)


READERS: dict[str, Callable[[Path], object]] = {
    "campaign": lambda path: dry_run(Request(str(path), artifacts=path.parent / "artifacts")),
    "spec": _spec,
    "model": load_parameters,
    "topology": load_topology,
}
SPEC = "testbed/specs/dlr.yaml"
CAMPAIGN = "campaigns/files/dlr-quick.yaml"
SIMULATED = "campaigns/files/mos-sim-quick.yaml"
TOPOLOGY = SHIPPED["topology"]
REEF = "testbed/simulated/reef.yaml"


@pytest.mark.parametrize(
    ("file", "right", "wrong", "place"),
    [
        (SPEC, "cpus: 1.5", "cpu: 1.5", "$.groups[0]"),
        (SPEC, "memory: 3GiB", "memory: 3Gib", "$.groups[0].memory"),
        (SPEC, "roles: [osd]", "roles: [ods]", "$.groups[1].roles[0]"),
        (SPEC, "count: 8", "count: eight", "$.groups[1].count"),
        (SPEC, "kind: ceph", "kind: cef", "$.store.kind"),
        (SPEC, "pg_num: 128", "pg_num: 0", "$.store.pools[0].pg_num"),
        (SPEC, "  kind: ceph", "  deployer: cephad", "$.store.deployer"),
        (SPEC, "kind: local", "kind: loca", "$.site.kind"),
        (SPEC, "kind: local", "options: {suite: wheezy}", "$.site.options.suite"),
        (CAMPAIGN, "retries: 1", "tries: 1", "$"),
        (CAMPAIGN, "ground: local", "ground: moon", "$.ground"),
        (CAMPAIGN, "time_scale: 0", "time_scale: a0", "$.time_scale"),
        (CAMPAIGN, "repetitions: 4", "repetitions: four", "$.grids[0].repetitions"),
        (CAMPAIGN, "op: seq", "opp: seq", "$.grids[0].fixed"),
        (CAMPAIGN, "duration_s: 100", "duration_s: long", "$.parameters.duration_s"),
        (
            *(CAMPAIGN, "scenario: heterogeneity", "scenario: heterogenity"),
            "$.grids[0].fixed.scenario",
        ),
        (SIMULATED, "system: mos", "system: moss", "$.system"),
        (SIMULATED, "[mos,", "[mops,", "$.grids[0].vary.policy[0]"),
        (TOPOLOGY, "link: 1Gbit", "link: 1Gib", "$.hosts.c0.link"),
        (TOPOLOGY, "slo:", "slos:", "$.workloads[0]"),
        (REEF, "op_queue: mclock_scheduler", "op_queue: mclock", "$.op_queue"),
        (REEF, "op_queue: mclock_scheduler", "reorder: high", "$.reorder"),
    ],
)
def test_schema_and_model_find_the_same_mistakes(
    file: str, right: str, wrong: str, place: str, tmp_path: Path
) -> None:
    text = (ROOT / file).read_text()
    kind = Path(text.partition("\n")[0]).stem
    assert right in text
    path = tmp_path / Path(file).name
    path.write_text(text.replace(right, wrong, 1))
    assert mistake(kind, read(path)) == place
    with pytest.raises(UserError):
        READERS[kind](path)


@pytest.mark.parametrize(
    ("right", "short"),
    [
        ("  kind: ceph\n", ""),
        ("  kind: ceph\n", "  deployer: cephadm\n"),
        ("  kind: ceph\n", "  deployer: {kind: cephadm, engine: docker}\n"),
        ("memory: 3GiB", "memory: 3000000000"),
        ("kind: local", "options: {suite: sid}"),
        (
            "{kind: local}",
            "{kind: inventory, options: {hosts: [192.0.2.1, {address: disk0}], wipe: /dev/sdb@osd0,"
            " nodes: {osd: disk0}, proxy_jump: cc@gate, devices: {osd0: /dev/sdb, osd1: [/dev/sdc],"
            " osd2: {osd: /dev/sdd, scratch: /dev/sde}}}}",
        ),
    ],
)
def test_a_schema_accepts_short_forms(right: str, short: str, tmp_path: Path) -> None:
    text = (ROOT / SPEC).read_text()
    assert right in text
    path = tmp_path / "spec.yaml"
    path.write_text(text.replace(right, short, 1))
    _spec(path)
    assert mistake("spec", read(path)) is None


@pytest.mark.parametrize("kind", SHIPPED)
def test_fields_have_descriptions(kind: str) -> None:
    """Names that say everything aside, the docstring of a model describes each field."""
    models = validator(kind).schema["$defs"]
    fields = {
        f"{name}.{key}": field
        for name, one in models.items()
        for key, field in one.get("properties", {}).items()
        if key not in PLAIN and "$ref" not in field
    }
    parameters = {name: one for name, one in models.items() if "properties" not in one}
    assert not [name for name, one in (fields | parameters).items() if not one.get("description")]
