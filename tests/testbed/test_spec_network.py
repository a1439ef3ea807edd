"""Network settings of a spec: packet sizes, congestion control, priority levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from campaigns.engine.provenance import calibration
from schemas.errors import UserError
from testbed.sites.chameleon.site import ChameleonSite
from testbed.sites.inventory.site import InventorySite
from testbed.sites.local.network import CONGESTION_CONTROL, congestion_control_of
from testbed.sites.own_network import refuse_settings
from testbed.sites.records import Records
from testbed.spec import TestbedSpec, load_spec
from tests.errors import raises

BODY: dict[str, Any] = {
    "name": "t",
    "store": None,
    "groups": [{"name": "admin", "roles": ["admin"]}],
}


def spec(network: dict[str, Any] | None = None) -> TestbedSpec:
    return TestbedSpec.model_validate(BODY | {"network": network})


def test_what_is_usual_where_nothing_is_said() -> None:
    for one in (spec(), spec({})):
        assert (one.mtu, one.priority_levels) == (1500, 0)
        assert congestion_control_of(one) == CONGESTION_CONTROL == "reno"


def test_a_size_of_packets_alone_orders_none() -> None:
    assert spec({"mtu": 9000}).priority_levels == 0
    assert spec({"mtu": 9000}).mtu == 9000
    assert congestion_control_of(spec({"congestion_control": "cubic"})) == "cubic"


def test_results_stay_those_of_their_spec() -> None:
    """The digest covers only differences from the default, so older specs keep theirs."""
    assert spec({"mtu": 1500}).digest() == spec({}).digest() == spec().digest()
    levels = spec({"priority_levels": 7})
    assert levels.digest() == spec({"priority_levels": 7, "mtu": 1500}).digest()
    different = [
        levels,
        spec(),
        spec({"mtu": 9000}),
        spec({"priority_levels": 7, "mtu": 9000}),
        spec({"congestion_control": "cubic"}),
    ]
    assert len({one.digest() for one in different}) == len(different)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ({"mtu": 1279}, "network.mtu"),
        ({"mtu": 65521}, "network.mtu"),
        ({"mtu": "jumbo"}, "network.mtu"),
        ({"congestion_control": "no such"}, "congestion_control"),
        ({"congestion_control": ""}, "congestion_control"),
        ({"priority_levels": -1}, "priority_levels"),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, network: dict[str, Any], said: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(BODY | {"network": network}))
    with raises(UserError, where=said):
        load_spec(path)


def test_a_name_cannot_hold_a_command() -> None:
    with pytest.raises(ValidationError):
        spec({"congestion_control": "reno\ncubic"})
    with pytest.raises(ValidationError):
        spec({"congestion_control": "reno\n"})


def test_machines_with_a_network_of_their_own_keep_it() -> None:
    for fine in (None, {}, {"priority_levels": 3}, {"mtu": 1500}):
        refuse_settings(spec(fine), "inventory")
    with raises(UserError, "network.mtu", "9000", where="testbed t"):
        refuse_settings(spec({"mtu": 9000}), "inventory")
    with raises(UserError, "network.congestion_control"):
        refuse_settings(spec({"congestion_control": "reno"}), "chameleon")


def test_their_sites_refuse_before_any_machine_is_asked(root: Path, tmp_path: Path) -> None:
    large = {"network": {"mtu": 9000}}
    host = {"name": "h", "address": "192.0.2.1"}
    inventory = InventorySite({"hosts": [host]}, records=Records("inventory", tmp_path))
    with raises(UserError, "network.mtu", "9000"):
        inventory.plan(TestbedSpec.model_validate(BODY | large))
    body = load_spec(root / "testbed/specs/dlr-chameleon.yaml").model_dump()
    with raises(UserError, "network.mtu", "9000"):
        ChameleonSite().plan(TestbedSpec.model_validate(body | large))


def test_the_record_of_a_run_has_what_was_asked_for() -> None:
    assert calibration(spec({"mtu": 9000}))["network"]["mtu"] == 9000
    assert "network" not in calibration(spec())


def test_the_testbeds_of_prioritymeister_have_large_packets(root: Path) -> None:
    for name in ("pm", "pm-local"):
        found = load_spec(root / f"testbed/specs/{name}.yaml")
        assert (found.mtu, found.priority_levels) == (9000, 7)
