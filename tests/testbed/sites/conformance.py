"""Contract of every site. A site's test module subclasses `SiteConformance` and provides the
fixtures `site` (fresh or shared) and `spec` (small; at least one node with a disk).

The tests accept any initial state: they may run in any order, on one testbed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schemas.errors import UserError
from testbed.sites.contract import (
    FaultSite,
    ShapingSite,
    Site,
    SnapshotSite,
    State,
    Testbed,
    UsageSite,
)
from testbed.spec import TestbedSpec, renamed
from tests.errors import raises

ABILITIES: dict[str, tuple[type, ...]] = {
    "fake": (SnapshotSite, ShapingSite, FaultSite, UsageSite),
    "local": (SnapshotSite, ShapingSite, FaultSite, UsageSite),
}


def needs(site: Site, ability: type) -> None:
    """Skip a test of an ability that the site's kind does not have."""
    if ability not in ABILITIES.get(site.kind, (UsageSite,)):
        pytest.skip(f"site {site.kind} is no {ability.__name__}")
    assert isinstance(site, ability)


class Heard:
    """Progress that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []

    def __call__(self, phase: str, share: float) -> None:
        self.calls.append((phase, share))


class SiteConformance:
    @pytest.fixture
    def up(self, site: Site, spec: TestbedSpec) -> Iterator[Testbed]:
        yield site.provision(spec)

    def disk_node(self, testbed: Testbed) -> str:
        return next(node.name for node in testbed.nodes if "osd" in node.devices)

    def test_a_plan_changes_nothing_and_counts(self, site: Site, spec: TestbedSpec) -> None:
        assert isinstance(site, Site)
        other = renamed(spec, "planned")
        cost = site.plan(other)
        assert cost.nodes == sum(group.count for group in spec.groups)
        assert cost.disk_bytes >= sum(g.count * g.disk.size for g in spec.groups if g.disk)
        assert cost.memory_bytes == sum(g.count * g.memory for g in spec.groups)
        assert cost.node_hours == pytest.approx(cost.nodes * (cost.hours or 0.0))
        assert "planned" not in site.names()
        assert site.status("planned").state is State.ABSENT

    def test_what_is_not_there(self, site: Site) -> None:
        assert site.status("nothing").state is State.ABSENT
        assert site.find("nothing") is None
        assert site.find("nothing", partly=True) is None
        site.release("nothing")
        assert site.extend("nothing", 60.0).state is State.ABSENT

    def test_provision_gives_what_the_spec_says(self, site, spec, up):
        assert up.name == spec.name
        assert up.site == site.kind
        assert up.spec_hash == spec.digest()
        wanted = {name: group for group in spec.groups for name in group.node_names()}
        assert [node.name for node in up.nodes] == list(wanted)
        assert len({node.address for node in up.nodes}) == len(up.nodes)
        for node in up.nodes:
            group = wanted[node.name]
            assert node.group == group.name
            assert node.roles == frozenset(group.roles)
            assert ({"osd", "scratch"} <= node.devices.keys()) == (group.disk is not None)
            assert node.signal in {"iowait", "io_pressure"}
            assert (node.pressure_file is not None) == (node.signal == "io_pressure")
        assert "admin" in up.admin.roles

    def test_a_ready_testbed_is_found_and_provision_changes_nothing(
        self, site: Site, spec: TestbedSpec, up: Testbed
    ) -> None:
        heard = Heard()
        assert site.find(spec.name) == up == site.provision(spec, heard)
        assert spec.name in site.names()
        status = site.status(spec.name)
        assert status.state is State.READY
        assert set(status.nodes) == {node.name for node in up.nodes}
        shares = [share for _, share in heard.calls]
        assert shares[-1] == 1.0
        assert all(0.0 <= share <= 1.0 for share in shares)
        assert all(phase for phase, _ in heard.calls)
        after = site.extend(spec.name, 60.0)
        assert after.state is State.READY
        assert status.ends_at_s is None or (after.ends_at_s or 0.0) >= status.ends_at_s + 60.0

    def test_another_spec_under_the_name_is_refused(self, site, spec, up):
        body = spec.model_dump()
        body["groups"][0]["memory"] = spec.groups[0].memory + 2**20
        with raises(UserError, spec.name):
            site.provision(TestbedSpec.model_validate(body))
        assert site.status(spec.name).state is State.READY

    def test_snapshots(self, site: Site, spec: TestbedSpec, up: Testbed) -> None:
        needs(site, SnapshotSite)
        if "first" not in site.snapshots(spec.name):
            site.snapshot(spec.name, "first")
        assert list(site.snapshots(spec.name)) == ["first"]
        with raises(UserError, "first"):
            site.snapshot(spec.name, "first")
        with raises(UserError, "no snapshot 'never'"):
            site.restore(spec.name, "never")
        assert site.status(spec.name).state is State.READY
        restored = site.restore(spec.name, "first")
        assert [node.name for node in restored.nodes] == [node.name for node in up.nodes]
        site.snapshot(spec.name, "second")
        site.delete_snapshot(spec.name, "first")
        assert list(site.snapshots(spec.name)) == ["second"]
        with raises(UserError, "no snapshot 'first'"):
            site.delete_snapshot(spec.name, "first")
        assert site.restore(spec.name, "second") == restored
        site.delete_snapshot(spec.name, "second")

    def test_shaping(self, site: Site, spec: TestbedSpec, up: Testbed) -> None:
        needs(site, ShapingSite)
        for on in (False, False, True, True):
            site.shape(spec.name, on)
        with raises(UserError, "nothing"):
            site.shape("nothing", True)

    def test_faults(self, site: Site, spec: TestbedSpec, up: Testbed) -> None:
        needs(site, FaultSite)
        node = self.disk_node(up)
        for state in (False, False, True, True):
            site.link(spec.name, node, state)
        site.disk_fault(spec.name, node, slow=2.0)
        site.disk_fault(spec.name, node)
        with raises(UserError, "nobody"):
            site.link(spec.name, "nobody", False)
        with raises(UserError, "nobody"):
            site.disk_fault(spec.name, "nobody", slow=2.0)

    def test_a_limited_link_and_a_stopped_node(self, site, spec, up):
        needs(site, FaultSite)
        node = self.disk_node(up)
        site.check_link(spec.name, node, packets=False)
        site.shape_link(spec.name, node, bits_per_s=1e7)
        site.shape_link(spec.name, node)
        for on in (False, False, True, True):
            site.power(spec.name, node, on)
            status = site.status(spec.name)
            assert (status.nodes[node] == "running") is on
            assert (status.state is State.READY) is on
        assert site.find(spec.name) == up
        with raises(UserError, "nobody"):
            site.power(spec.name, "nobody", False)

    def test_a_cut_link_is_named_and_raised_by_the_next_provision(self, site, spec, up):
        needs(site, FaultSite)
        node = self.disk_node(up)
        site.link(spec.name, node, False)
        status = site.status(spec.name)
        assert (status.state, status.nodes[node]) == (State.FAILED, "link down")
        assert site.find(spec.name, partly=True) == up
        assert site.provision(spec) == up
        assert site.status(spec.name).state is State.READY

    def test_usage(self, site: Site, spec: TestbedSpec, up: Testbed) -> None:
        needs(site, UsageSite)
        before = site.usage_counters(spec.name)
        usage = site.usage_between(before, site.usage_counters(spec.name))
        assert usage.interval_s >= 0
        assert usage.outside_cores >= 0
        assert 0 <= usage.steal <= 1
        assert set(usage.node_cores) == {node.name for node in up.nodes}

    def test_two_testbeds_side_by_side(self, site: Site, spec: TestbedSpec, up: Testbed) -> None:
        other = site.provision(renamed(spec, "second"))
        try:
            assert {"second", spec.name} <= set(site.names())
            assert site.find(spec.name) == up
            mine = {node.address for node in up.nodes}
            assert mine.isdisjoint(node.address for node in other.nodes)
        finally:
            site.release("second")
        assert "second" not in site.names()
        assert site.status(spec.name).state is State.READY

    def test_release_removes_and_may_be_repeated(self, site: Site, spec: TestbedSpec) -> None:
        site.provision(spec)
        heard = Heard()
        site.release(spec.name, heard)
        site.release(spec.name)
        assert heard.calls[-1][1] == 1.0
        assert spec.name not in site.names()
        assert site.find(spec.name) is None
        assert site.status(spec.name).state is State.ABSENT
        assert site.provision(spec).name == spec.name
        site.release(spec.name)
