"""Options, filters, time slots, flavors and credentials of the site `chameleon`."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import UserError
from testbed.deploy.inventory import fio_file_bytes
from testbed.sites.chameleon import cloud as clouds
from testbed.sites.chameleon.cloud import FLAVOR, HOST, BlazarHost, Booking, NoCredentials
from testbed.sites.chameleon.lease import HostsNeeded, asks_of, choose_flavors, next_slot
from testbed.sites.chameleon.options import (
    check_spec,
    holds,
    read_filter,
    read_options,
    same,
    text_of,
)
from testbed.sites.chameleon.servers import signal_of
from testbed.spec import load_spec
from tests.errors import raises
from tests.testbed.sites.chameleon_world import BARE, VIRTUAL, spec_of
from tests.testbed.sites.fake_cloud import FLAVORS

WRONG = {
    "no machines": ({"site": "CHI@UC"}, "needs a node_type"),
    "not a site": ({**BARE, "site": "Chameleon"}, "site.options: site"),
    "a flavor of bare metal": ({**BARE, "flavor": "m1.small"}, "give node_type, not flavor"),
    "a type of virtual": ({**VIRTUAL, "node_type": "storage"}, "give flavor, not node_type"),
    "too long": ({**BARE, "lease": {"hours": 169}}, "at most 168"),
    "a naive time": ({**BARE, "lease": {"start": "2026-12-01T08:00"}}, "needs its offset"),
    "shrinking": ({**BARE, "lease": {"hours": 9, "prolong": {"upto_hours": 8}}}, "below hours"),
    "a wrong filter": ({**BARE, "filters": '["~", "$a", "b"]'}, "is no filter"),
    "a filter that is no JSON": ({**BARE, "filters": "[=="}, "is not JSON"),
    "no device": ({**BARE, "devices": {"osd": "sdb"}}, "is no device"),
    "unknown": ({**BARE, "nodes": 3}, "nodes"),
    "a name that Blazar has no room for": ({**BARE, "lease": {"name": "x" * 81}}, "80 characters"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_are_told_in_a_sentence(case: str) -> None:
    options, words = WRONG[case]
    with raises(UserError, words) as error:
        read_options(options)
    assert "\n" not in str(error.value)


UNFIT = {
    "alternatives": (
        {**BARE, "filters": ["or", ["==", "$node_name", "a"], ["==", "$node_name", "b"]]},
        "Blazar does not take `or`",
    ),
    "alternatives inside": (
        {**BARE, "filters": '["and", [">", "$a", "1"], ["or", ["==", "$b", "1"]]]'},
        "Blazar does not take `or`",
    ),
    "a group that is none": ({**BARE, "node_type": {"disk": "storage"}}, "'disk'; allowed: "),
    "a group without a type": ({**BARE, "node_type": {"osd": "storage"}}, "group 'admin'"),
    "devices of no node": ({**BARE, "devices": {"osd9": "/dev/sdb"}}, "'osd9'"),
    "devices without a disk": ({**BARE, "devices": {"admin": "/dev/sdb"}}, "no disk block"),
    "too many": ({**BARE, "devices": {"osd": ["/dev/sdb", "/dev/sdc"]}}, "2 for the store"),
    "no scratch": ({**BARE, "devices": {"osd": {"osd": "/dev/sdb1"}}}, "give scratch a device"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_options_that_do_not_fit_the_spec(case: str) -> None:
    options, words = UNFIT[case]
    with raises(UserError, words):
        check_spec(spec_of(options), read_options(options))


JOINED = ["and", ["==", "$node_name", "nc01"], [">=", "$architecture.smt_size", "48"]]


@pytest.mark.parametrize(
    "filters",
    [
        {"node_name": "nc01", "architecture.smt_size": ">=48"},
        JOINED,
        '["and", ["and", ["==", "$node_name", "nc01"], [">=", "$architecture.smt_size", 48]]]',
    ],
    ids=["a mapping", "flat", "nested"],
)
def test_a_type_and_several_filters_are_joined_flat(filters: object) -> None:
    """Blazar reads only the first part of a nested `and`."""
    made = read_options({**BARE, "filters": filters}).filter_of("osd")
    assert made == ["and", ["==", "$node_type", "compute_skylake"], *JOINED[1:]]


@pytest.mark.parametrize(
    ("given", "properties", "passes"),
    [
        (JOINED, {"architecture.smt_size": "64", "node_name": "nc01"}, True),
        (JOINED, {"architecture.smt_size": "40", "node_name": "nc01"}, False),
        (JOINED, {"node_name": "nc01"}, False),
        # Blazar compares all values except its own columns as text.
        ([">=", "$architecture.smt_size", "48"], {"architecture.smt_size": "8"}, True),
        (["==", "$ram", "16"], {"ram": "16.0"}, False),
        ([">=", "$vcpus", "48"], {"vcpus": "8"}, False),
        ([">=", "$memory_mb", "9000"], {"memory_mb": "128000"}, True),
    ],
)
def test_hosts_pass_as_in_blazar(
    given: list[Any], properties: dict[str, str], passes: bool
) -> None:
    assert holds(given, properties) is passes


def test_filters_that_state_the_same() -> None:
    """Leases of earlier versions have nested filters."""
    nested = '["and", ["==", "$node_type", "a"], ["and", ["==", "$x", 1], ["==", "$y", "2"]]]'
    flat = '["and", ["==", "$y", "2"], ["==", "$node_type", "a"], ["=", "$x", "1"]]'
    assert same(nested, flat)
    assert not same(nested, '["==", "$node_type", "a"]')
    assert same("", "")


values = st.one_of(st.integers(0, 99).map(str), st.sampled_from(["storage", "compute"]))
leaf = st.tuples(
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    st.sampled_from(["$a", "$b"]),
    values,
).map(list)
trees = st.recursive(
    leaf,
    lambda inner: st.tuples(
        st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)
    ).map(lambda pair: [pair[0], *pair[1]]),
    max_leaves=6,
)


@settings(max_examples=40)
@given(trees, st.dictionaries(st.sampled_from(["a", "b"]), values))
def test_a_filter_survives_its_text(tree: list[Any], properties: dict[str, str]) -> None:
    read = read_filter(text_of(read_filter(tree)))
    assert same(text_of(read), json.dumps(tree))
    assert holds(read, properties) == holds(read_filter(tree), properties)


bookings = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-5, 9), st.integers(1, 6)), max_size=7
).map(lambda many: [Booking(f"h{host}", start, start + length) for host, start, length in many])
MACHINES = [
    BlazarHost("h0", "h0", True, {"t": "a"}),
    BlazarHost("h1", "h1", True, {"t": "a", "big": "1"}),
    BlazarHost("h2", "h2", True, {"t": "a", "big": "1"}),
    BlazarHost("h3", "h3", False, {"t": "a", "big": "1"}),
]


@settings(max_examples=60)
@given(bookings, st.integers(0, 3), st.integers(0, 2), st.integers(1, 4))
def test_the_next_slot_is_the_first_in_which_all_are_free(
    booked: list[Booking], small: int, big: int, length: int
) -> None:
    """The reference tries every minute and every choice of hosts."""
    needs = [HostsNeeded(["==", "$t", "a"], small), HostsNeeded(["==", "$big", "1"], big)]
    slot = next_slot(needs, MACHINES, booked, now_s=0, seconds=length)

    def serves(start: int) -> bool:
        free = [
            host
            for host in MACHINES
            if host.reservable
            and all(
                b.end_s <= start or b.start_s >= start + length
                for b in booked
                if b.host_id == host.id
            )
        ]
        bigs = [host for host in free if "big" in host.properties]
        return any(len(free) - big >= small for _ in combinations(bigs, big))

    first = next((start for start in range(40) if serves(start)), None)
    assert slot.start_s == first


def test_machines_of_one_kind_share_a_reservation() -> None:
    (ask,) = asks_of(spec_of(BARE), read_options(BARE))
    assert (ask.wanted.kind, ask.wanted.amount, ask.groups) == (HOST, 3, ("admin", "osd"))


def test_the_smallest_flavor_that_fits() -> None:
    options = read_options(VIRTUAL)
    chosen = choose_flavors(spec_of(VIRTUAL), options, FLAVORS)
    assert {group: flavor.name for group, flavor in chosen.items()} == {
        "admin": "m1.small",
        "osd": "m1.small",  # 8 GiB for the system and 10 GiB for a disk
    }
    (ask,) = asks_of(spec_of(VIRTUAL), options, chosen)
    assert (ask.wanted.kind, ask.wanted.amount, ask.wanted.flavor_id) == (FLAVOR, 3, "2")


@pytest.mark.parametrize(
    ("flavor", "words"), [("m9.huge", "'m9.huge'"), ("baremetal", "is smaller")]
)
def test_flavors_that_do_not_serve(flavor: str, words: str) -> None:
    options = {**VIRTUAL, "flavor": flavor}
    with raises(UserError, words):
        choose_flavors(spec_of(options), read_options(options), FLAVORS)


@pytest.mark.parametrize(
    ("wanted", "facts", "signal"),
    [
        ("auto", {"cpus": 2, "pressure": True}, ("iowait", None)),
        ("auto", {"cpus": 48, "pressure": True}, ("io_pressure", "/proc/pressure/io")),
        ("auto", {"cpus": 48, "pressure": False}, ("iowait", None)),
        ("io_pressure", {"cpus": 2}, ("io_pressure", "/proc/pressure/io")),
    ],
)
def test_signal(wanted: str, facts: dict[str, Any], signal: tuple[str, str | None]) -> None:
    assert signal_of(wanted, facts) == signal


APPLICATION = {
    "OS_AUTH_TYPE": "v3applicationcredential",
    "OS_AUTH_URL": "https://chi.uc.chameleoncloud.org:5000/v3",
    "OS_APPLICATION_CREDENTIAL_ID": "id",
    "OS_APPLICATION_CREDENTIAL_SECRET": "very-secret",
    "OS_REGION_NAME": "CHI@UC",
}


def test_credentials_that_serve() -> None:
    assert clouds.login_of("CHI@UC", "CHI-1", APPLICATION) == clouds.CloudLogin(False, True)
    hub = {"OS_AUTH_TYPE": "v3oidcaccesstoken", "JUPYTERHUB_API_TOKEN": "t", "OS_REGION_NAME": "x"}
    assert clouds.login_of("CHI@TACC", "CHI-1", hub) == clouds.CloudLogin(True, False)
    for method in ("v3password", "v3oidcpassword"):  # whichever method a site's openrc file names
        password = {"OS_AUTH_TYPE": method, "OS_USERNAME": "u", "OS_PASSWORD": "very-secret"}
        assert clouds.login_of("CHI@TACC", "CHI-1", password) == clouds.CloudLogin(True, False)


REFUSED = {
    "none": ({}, "OS_*"),
    "clouds.yaml": ({"OS_CLOUD": "uc"}, "clouds.yaml, which python-chi does not read"),
    "another site's": ({**APPLICATION, "OS_REGION_NAME": "CHI@TACC"}, "is for CHI@TACC"),
    "another project's": ({**APPLICATION, "OS_PROJECT_NAME": "CHI-2"}, "is for project CHI-2"),
    "without its secret": (
        {k: v for k, v in APPLICATION.items() if "SECRET" not in k},
        "OS_APPLICATION_CREDENTIAL_SECRET is not set",
    ),
    "without its kind": (
        {"OS_PASSWORD": "very-secret"},
        "OS_AUTH_TYPE is not",
    ),
    "of a way that python-chi does not know": (
        {"OS_AUTH_TYPE": "password", "OS_USERNAME": "u", "OS_PASSWORD": "very-secret"},
        "v3applicationcredential",
    ),
    "without a project": (
        {"OS_AUTH_TYPE": "v3password", "OS_USERNAME": "u", "OS_PASSWORD": "very-secret"},
        "no project is chosen",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_credentials_that_cannot_serve(case: str) -> None:
    environ, words = REFUSED[case]
    project = None if case == "without a project" else "CHI-1"
    with raises(UserError, words) as error:
        clouds.login_of("CHI@UC", project, environ)
    assert "very-secret" not in str(error.value)
    assert isinstance(error.value, NoCredentials) == (case in ("none", "clouds.yaml"))


@pytest.mark.parametrize(("name", "nodes"), [("dlr-kvm", 9), ("dlr-chameleon", 9)])
def test_the_specs_that_come_with_hotbed_are_right(root: Path, name: str, nodes: int) -> None:
    spec = load_spec(root / "testbed" / "specs" / f"{name}.yaml")
    options = read_options(spec.site.options)
    check_spec(spec, options)
    flavors = choose_flavors(spec, options, FLAVORS) if options.virtual else None
    assert sum(ask.wanted.amount for ask in asks_of(spec, options, flavors)) == nodes
    if flavors is not None:
        assert {flavor.name for flavor in flavors.values()} == {"m1.medium"}
    for group in spec.groups:
        if group.disk is not None:
            assert fio_file_bytes(group.disk, group.name) > 0
