"""Choice of a spec's deployer, refusals, and the deployer's part in a spec's identity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.errors import UserError
from testbed.deploy import contract, deployers
from testbed.deploy.contract import Deployed, Deployer
from testbed.deploy.deployers import KINDS, deployer
from testbed.deploy.foreign import (
    DAEMON_BYTES,
    DEFAULTS,
    memory_target,
    network_of,
    packages,
    quiet_settings,
    volumes,
)
from testbed.spec import TestbedSpec, load_spec
from tests.errors import raises
from tests.testbed.deployers.beds import GROUPS, bed_of, spec_with

SPECS = sorted((Path(__file__).resolve().parents[3] / "testbed" / "specs").glob("*.yaml"))


def refused(tmp_path: Path, store: dict[str, object]) -> str:
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump({"name": "t", "groups": GROUPS, "store": store}))
    with pytest.raises(UserError) as error:
        load_spec(file)
    return str(error.value).removeprefix(f"{file}: ")


def test_every_deployer_has_the_whole_interface_and_a_plan() -> None:
    for kind in KINDS:
        found = deployer(kind)
        assert isinstance(found, Deployer) and found.kind == kind
        plan = found.plan(spec_with(kind))
        assert plan.deployer == kind and plan.steps
        assert found.usable().what == f"deployer {kind}"
        assert deployers.choose(spec_with(kind)).kind == kind
    with pytest.raises(UserError):
        deployer("rook")


@pytest.mark.parametrize(("kind", "said"), [("nfs", "own: NFS"), (None, "own: no store")])
def test_a_plan_is_of_the_specs_store(kind: str | None, said: str) -> None:
    nodes = [{"name": "a", "roles": ["admin", "client"]}, {**GROUPS[1], "roles": ["nfs"]}]
    store = {"kind": kind} if kind else None
    spec = TestbedSpec.model_validate({"name": "t", "groups": nodes, "store": store})
    told = deployers.choose(spec).plan(spec).sentences()
    assert told.startswith(said)
    assert "OSD" not in told and "Ceph" not in told


def test_the_default_leaves_a_specs_identity_alone_and_another_one_changes_it() -> None:
    plain = TestbedSpec.model_validate({"name": "t", "groups": GROUPS})
    assert spec_with("own").digest() == plain.digest()
    assert len({spec_with(kind).digest() for kind in KINDS}) == 3


@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.stem)
def test_specs_that_say_nothing_are_deployed_by_the_projects_own(file: Path) -> None:
    assert deployers.choose(load_spec(file)).kind == "own"


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ({"deployer": "rook"}, "store.deployer: kind is 'rook'; there are own, ceph-ansible and"),
        (
            {"deployer": {"kind": "cephadm", "release": "pacific"}},
            "store.deployer.release: 'pacific'",
        ),
        ({"deployer": {"kind": "own", "image": "x"}}, "store.deployer.image: there is no such key"),
        (
            {"deployer": {"kind": "ceph-ansible", "variables": {"fsid": "x"}}},
            "store.deployer.variables: variables: fsid follows from the rest of the spec",
        ),
        ({"deployer": {"kind": "ceph-ansible", "mirror": "x"}}, "store.deployer.mirror: mirror is"),
        ({"deployer": "cephadm", "objectstore": "filestore"}, "store: objectstore filestore is"),
        ({"deployer": "ceph-ansible", "twochoice": {}}, "store: twochoice names OSDs by numbers"),
        ({"pools": [{"name": "bench", "size": 2, "min_size": 3}]}, "store.pools.0: min_size is 3"),
    ],
)
def test_what_cannot_be_deployed_so_is_refused_in_a_sentence(
    tmp_path: Path, store: dict[str, object], said: str
) -> None:
    sentence = refused(tmp_path, store)
    assert sentence.startswith(said), sentence
    assert "\n" not in sentence


def test_another_deployer_by_option_is_held_to_the_same_rules() -> None:
    assert deployers.with_kind(spec_with(), "cephadm").ceph().deployer.kind == "cephadm"
    kept = spec_with({"kind": "cephadm", "release": "reef"})
    assert deployers.with_kind(kept, "cephadm") == kept
    with raises(UserError, where="--deployer cephadm: store"):
        deployers.with_kind(spec_with(objectstore="filestore"), "cephadm")
    nfs = [{"name": "a", "roles": ["admin", "client"]}, {**GROUPS[1], "roles": ["nfs"]}]
    files = TestbedSpec.model_validate({"name": "t", "groups": nfs, "store": {"kind": "nfs"}})
    assert deployers.with_kind(files, "own") == files
    with raises(UserError, "has the store nfs"):
        deployers.with_kind(files, "cephadm")


def test_a_store_is_removed_before_another_deployer_comes(tmp_path: Path) -> None:
    bed = bed_of(spec_with(), tmp_path)
    deployers.claim(bed, "ceph-ansible")
    deployers.claim(bed, "ceph-ansible")
    with pytest.raises(UserError):
        deployers.claim(bed, "cephadm")
    edited = spec_with({"kind": "cephadm", "release": "reef"})
    assert deployers.choose(deployers.as_deployed(bed, edited)).kind == "ceph-ansible"
    deployers.disclaim(bed)
    assert deployers.as_deployed(bed, edited) == edited
    deployers.claim(bed, "cephadm")
    assert deployers.as_deployed(bed, edited) == edited


def test_a_store_of_before_there_was_a_choice_is_the_projects_own(tmp_path: Path) -> None:
    bed = bed_of(spec_with(), tmp_path)
    (tmp_path / "deploy.log").touch()
    with raises(UserError, "was deployed by own"):
        deployers.claim(bed, "cephadm")
    deployers.claim(bed, "own")


def test_the_network_is_the_smallest_that_holds_every_node(tmp_path: Path) -> None:
    bed = bed_of(spec_with(), tmp_path)
    assert network_of(bed) == "10.1.0.8/29"  # 10.1.0.10 to .14


def test_volumes_have_the_same_names_at_every_deployment(tmp_path: Path) -> None:
    bed = bed_of(spec_with(), tmp_path)
    first = [volumes(bed, node) for node in bed.nodes]
    assert first == [volumes(bed, node) for node in bed_of(spec_with("cephadm"), tmp_path).nodes]
    assert [len(found) for found in first] == [0, 1, 1, 1, 0]
    assert first[1][0]["device"] == "/dev/sdb2"


def test_quiet_settings_are_the_roles_own_without_what_only_it_does() -> None:
    defaults = yaml.safe_load(DEFAULTS.read_text())["ceph_default_settings"]
    settings = quiet_settings(spec_with(config={"mds": {"x": 1}}).ceph())
    assert settings["mds"] == {"x": "1"}
    assert set(settings) - {"mds"} <= set(defaults)
    told = [value for values in settings.values() for value in values.values()]
    assert all(isinstance(value, str) and "{{" not in value for value in told)
    assert settings["osd"]["osd_max_scrubs"] == str(defaults["osd"]["osd_max_scrubs"])
    assert settings["osd"]["osd_mclock_override_recovery_settings"] == "true"
    assert settings["mon"]["mon_warn_on_pool_no_redundancy"] == "false"


def test_a_machines_osds_share_half_of_its_memory() -> None:
    assert memory_target(2**34, 2) == 2**32
    assert memory_target(2**30, 1) == DAEMON_BYTES
    assert memory_target(None, 1) == 2**31


def test_packages_are_asked_for_by_group() -> None:
    jinja2 = pytest.importorskip("jinja2")
    text = packages(True, "podman")
    inner = text.removeprefix("{{ ").removesuffix(" }}")
    found = jinja2.Environment().compile_expression(inner)
    assert found(group_names=["osds"]) == ["fio", "podman", "lvm2"]
    assert found(group_names=["admins"])[2:4] == ["ceph-common", "python3-rados"]


ANSWERS: Mapping[str, Any] = {
    "facts": {"osd1": {"osds": [0]}, "osd0": {"osds": [2, 1]}, "admin": {"osds": []}, "x": {}},
    "versions": {"ceph": "20.2.0", "fio": "3.33"},
    "health": {"status": "HEALTH_OK", "osds": 3},
}


class Agent:
    """Agent that answers from `ANSWERS`."""

    def call(self, verb: str) -> Any:
        return ANSWERS[verb]


@pytest.mark.parametrize("kind", KINDS)
def test_a_status_is_the_same_with_every_deployer(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "agent_client", lambda _: Agent())
    found = deployer(kind).status(bed_of(spec_with(kind), tmp_path))
    assert found == Deployed(kind, "20.2.0", "HEALTH_OK", {"osd0": (2, 1), "osd1": (0,)})
