"""Names in a spec, which become host names, folders and interface names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from schemas.campaign import Campaign
from schemas.errors import UserError
from testbed.sites.chameleon.options import ChameleonOptions
from testbed.spec import NfsSpec, TestbedSpec, load_spec
from testbed.spec.stores import (
    CephadmDeployer,
    CephAnsibleDeployer,
    MicrostoreSpec,
    SwiftSpec,
    TenantSpec,
)
from tests.errors import raises

SWIFT = {
    "microstores": [{"name": "m", "proxies": ["p"], "storage": ["s"]}],
    "tenants": [{"name": "t", "microstore": "m"}],
}
BAD = ["Big", "0th", "-a", "a_b", "a.b", "a" * 21, "", "a\n"]
GOOD = ["a", "a-1", "a" * 20]


def written(path: Path, *, testbed: str = "t", group: str = "admin") -> Path:
    admin = {"name": group, "roles": ["admin", "client"]}
    path.write_text(yaml.safe_dump({"name": testbed, "store": None, "groups": [admin]}))
    return path


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_is_one_sentence(tmp_path: Path, name: str) -> None:
    for where, told in (("testbed", "name"), ("group", "groups.0.name")):
        path = written(tmp_path / "spec.yaml", **{where: name})
        with raises(UserError, "20") as error:
            load_spec(path)
        assert told in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_name_is_taken(tmp_path: Path, name: str) -> None:
    found = load_spec(written(tmp_path / "spec.yaml", testbed=name, group=name))
    assert (found.name, found.groups[0].name) == (name, name)


@pytest.mark.parametrize(
    ("model", "body", "said"),
    [
        (CephAnsibleDeployer, {"variables": {"a\n": 1}}, "no name of a variable"),
        (CephadmDeployer, {"image": "example.org/ceph\n"}, "image is a reference"),
        (NfsSpec, {"kind": "nfs", "export": "/export\n"}, "write a name after a slash"),
        (ChameleonOptions, {"site": "KVM@TACC", "devices": {"osd": "/dev/sdb\n"}}, "is no device"),
        (Campaign, {"name": "a\n"}, "a name is lower-case"),
        (MicrostoreSpec, {"name": "a\n", "proxies": ["p"], "storage": ["s"]}, "1 to 20 lower"),
        (TenantSpec, {"name": "a\n", "microstore": "m"}, "20"),
        (SwiftSpec, SWIFT | {"layouts": {"a\n": {}}}, "is no name for a layout"),
    ],
)
def test_what_ends_in_a_new_line_is_no_name(
    model: type[BaseModel], body: dict[str, Any], said: str
) -> None:
    """A dollar sign in the pattern would accept such a name."""
    with raises(ValidationError, said):
        model.model_validate(body)


@pytest.mark.parametrize("text", ["{{ lookup('pipe', 'id') }}", "{% set a = 1 %}"])
def test_a_spec_holds_no_template_of_ansibles(text: str) -> None:
    """A template would run on the engine's machine, and a spec may be from a stranger."""
    roles = ["admin", "mon", "mgr", "client", "osd"]
    group = {"name": "a", "roles": roles, "disk": {"size": "8GiB"}}
    body = {"name": "x", "groups": [group, {**group, "name": "b", "roles": ["osd"]}]}
    with raises(ValidationError, "begins a template"):
        TestbedSpec.model_validate(body | {"store": {"config": {"global": {"a": text}}}})
    TestbedSpec.model_validate(body | {"store": {"config": {"global": {"a": "{} {1} %d"}}}})
