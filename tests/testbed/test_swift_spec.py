"""Spec with Swift microstores, the role's parameters from it, and its secrets."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from schemas.errors import UserError
from testbed.deploy import swift_variables
from testbed.deploy.inventory import agent_config
from testbed.deploy.swift_variables import Packages
from testbed.sites.fake import FakeSite
from testbed.spec import SwiftSpec, TestbedSpec, load_spec
from tests.errors import raises

DISK = {"size": "2GiB", "scratch": 0}
STORE: dict[str, Any] = {
    "kind": "swift",
    "microstores": [
        {"name": "small", "proxies": ["proxy0"], "storage": ["store"]},
        {"name": "large", "proxies": ["proxy1"], "storage": ["store"]},
    ],
    "tenants": [{"name": "a", "microstore": "small"}, {"name": "b", "microstore": "large"}],
}
GROUPS: list[dict[str, Any]] = [
    {"name": "admin", "roles": ["admin", "client"]},
    {"name": "proxy", "count": 2, "roles": ["proxy"]},
    {"name": "store", "count": 2, "roles": ["storage"], "disk": DISK, "disks": 2},
]
SPEC: dict[str, Any] = {"name": "t", "groups": GROUPS, "store": STORE}


def swift(**changes: Any) -> SwiftSpec:
    return SwiftSpec.model_validate(STORE | changes)


def test_shares_left_out_are_even_in_whole_steps() -> None:
    spec = swift(layouts={"uneven": {"small": {"proxy_cores": 0.6}}})
    assert spec.shares("static", "proxy_cores") == pytest.approx({"small": 0.4, "large": 0.4})
    assert spec.shares("uneven", "proxy_cores") == pytest.approx({"small": 0.6, "large": 0.2})
    assert spec.shares("uneven", "network") == pytest.approx({"small": 200e6, "large": 200e6})
    odd = swift(pool={"proxy_cores": 0.5})
    assert odd.shares("static", "proxy_cores") == pytest.approx({"small": 0.3, "large": 0.2})


def test_the_admin_node_gets_names_ports_and_layouts_and_no_secret(tmp_path: Path) -> None:
    spec = TestbedSpec.model_validate(SPEC)
    testbed = FakeSite(tmp_path).provision(spec)
    assert isinstance(spec.store, SwiftSpec)
    packages = Packages(tmp_path / "p.tar", "abc", "3.11-x86_64")
    found = swift_variables.variables_of(testbed, spec, spec.store, lambda: packages)
    cluster = found["swift_cluster"]
    assert cluster["microstores"]["large"] == {
        "proxies": ["proxy1"],
        "storage": ["store0", "store1"],
        "port": 6210,
    }
    assert cluster["layouts"]["default"]["tenants"] == {"a": ["small", "large"]} | {
        "b": ["small", "large"]
    }
    assert cluster["layouts"]["static"]["tenants"] == {"a": ["small"], "b": ["large"]}
    assert cluster["pool"]["total"]["network"] == 50e6
    assert cluster["disks"] == {"store0": ["d0", "d1"], "store1": ["d0", "d1"]}
    secrets = json.loads(Path(found["swift_secrets"]).read_text())
    for secret in (secrets["prefix"], secrets["suffix"], *secrets["keys"].values()):
        assert len(secret) == 48
        assert secret not in json.dumps(found)
    assert agent_config(testbed, spec).store == "swift"
    hosts = swift_variables.hosts_of(testbed, spec)
    assert [disk["name"] for disk in hosts["store1"]["hotbed_swift_disks"]] == ["d0", "d1"]


def test_proxies_that_no_microstore_names_are_the_pools_machines(tmp_path: Path) -> None:
    machine = {"proxy_cores": 0.2, "storage_cores": 0.2, "network": "100Mbit"}
    groups = [group | {"count": 4} if group["name"] == "proxy" else group for group in GROUPS]
    body = SPEC | {"groups": groups, "store": STORE | {"pool": {"machine": machine}}}
    spec = TestbedSpec.model_validate(body)
    assert isinstance(spec.store, SwiftSpec)
    found = swift_variables.cluster_of(FakeSite(tmp_path).provision(spec), spec, spec.store)
    assert found["spare_proxies"] == ["proxy2", "proxy3"]
    assert found["pool"]["machine"] == {
        "proxy_cores": 0.2,
        "storage_cores": 0.2,
        "network": 12.5e6,
    }
    # If only shares move, it could not be assigned to anybody.
    spec = TestbedSpec.model_validate(SPEC | {"groups": groups})
    assert isinstance(spec.store, SwiftSpec)
    found = swift_variables.cluster_of(FakeSite(tmp_path).provision(spec), spec, spec.store)
    assert found["spare_proxies"] == []


def test_keys_stay_when_a_tenant_comes(tmp_path: Path) -> None:
    testbed = FakeSite(tmp_path).provision(TestbedSpec.model_validate(SPEC))
    path = swift_variables.secrets_of(testbed, swift())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = json.loads(path.read_text())
    more = [*STORE["tenants"], {"name": "c", "microstore": "small"}]
    swift_variables.secrets_of(testbed, swift(tenants=more))
    after = json.loads(path.read_text())
    assert set(after["keys"]) == {"a", "b", "c"}
    assert after["keys"]["a"] == before["keys"]["a"]
    assert after["prefix"] == before["prefix"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layout": "mos"}, "'mos'"),
        ({"pool": {"machine": {"proxy_cores": 0.5, "network": "100Mbit"}}}, "2 machines"),
        ({"replicas": 3}, "'small'"),
        ({"tenants": [{"name": "a", "microstore": "x"}]}, "'a'"),
        ({"proxy_workers": 0}, "store.proxy_workers"),
        ({"pool": {"proxy_cores": 0.85}}, "0.85"),
        ({"pool": {"network": "400Mbps!"}}, "store.pool.network"),
        ({"pool": {"proxy_cores": 1.2}}, "'proxy0'"),
        ({"layouts": {"big": {"small": {"proxy_cores": 0.8}}}}, "layout big"),
        ({"layouts": {"big": {"medium": {}}}}, "layouts.big"),
        ({"layouts": {"static": {}}}, "'static'"),
        ({"microstores": [STORE["microstores"][0] | {"proxies": ["store0"]}]}, "store"),
        (
            {"microstores": [STORE["microstores"][0], STORE["microstores"][0] | {"name": "large"}]},
            "'proxy0'",
        ),
        (
            {
                "microstores": [
                    STORE["microstores"][0],
                    STORE["microstores"][1] | {"storage": ["x"]},
                ]
            },
            "microstore 'large': storage",
        ),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SPEC | {"store": STORE | changes}))
    with raises(UserError, said) as caught:
        load_spec(path)
    assert "\n" not in str(caught.value)


def test_the_specs_are_good(root: Path) -> None:
    for name in ("mos", "mos-quick", "mos-machines"):
        spec = load_spec(root / f"testbed/specs/{name}.yaml")
        assert isinstance(spec.store, SwiftSpec)
        assert spec.store.layout == "static"


@pytest.mark.parametrize("name", ["cluster", "node", "secrets"])
def test_a_tenants_file_is_none_of_ours(name: str) -> None:
    """Tenants' files on client nodes carry the tenants' names, next to our own files."""
    with raises(ValidationError, name):
        swift(tenants=[{"name": name, "microstore": "small"}])


def test_a_microstores_shares_are_not_the_proxys() -> None:
    """Both on one node would be one group."""
    stores = [{"name": "proxy", "proxies": ["proxy0"], "storage": ["store"]}]
    with raises(ValidationError, "'proxy'"):
        swift(microstores=stores, tenants=[{"name": "a", "microstore": "proxy"}])
