"""Topology settings for the parts of a plan that the network enforces."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from campaigns.papers.prioritymeister.links import LINK_SHARE, Links, htb_links
from campaigns.papers.prioritymeister.placement import place
from campaigns.papers.prioritymeister.scenario import Setting, scenario_of
from campaigns.papers.prioritymeister.simulate import simulate_topology
from campaigns.papers.prioritymeister.study import Measured, plan_of, planned
from campaigns.papers.prioritymeister.topology import Topology, load_topology
from controllers.prioritymeister.plan import FRAME, Plan, make_plan
from schemas.errors import UserError
from tests.campaigns.test_pm_apply import written

HTB = {"share": LINK_SHARE, "mtu": 9000, "enforcer": "htb"}


def loaded(folder: Path, **links: Any) -> tuple[Topology, Path]:
    path = written(folder, **({"links": links} if links else {}))
    return load_topology(path), path


def network_pairs(plan: Plan) -> list[tuple[float, float]]:
    return [
        pair
        for workload in plan.workloads
        for stage in workload.stages
        if stage.level is not None
        for pair in stage.pairs
    ]


def test_a_topology_that_says_nothing_is_planned_with_all_of_its_links(tmp_path: Path) -> None:
    topology, path = loaded(tmp_path)
    known = Measured(tmp_path)
    tenants = [known.tenant(topology, workload) for workload in topology.workloads]
    plain = make_plan(tenants, topology.queues())
    assert plan_of(topology, path) == plain
    assert topology.kept == Links()
    assert min(burst for _, burst in network_pairs(plain)) < FRAME
    told, file = loaded(tmp_path, share=1.0)
    assert plan_of(told, file) == plain


def test_a_topologys_links_make_the_plan_that_a_campaign_makes(tmp_path: Path) -> None:
    bare, path = loaded(tmp_path)
    known = Measured(tmp_path)
    tenants = [known.tenant(bare, workload) for workload in bare.workloads]
    campaigns = planned(bare, tenants, links=htb_links(9038))
    topology, path = loaded(tmp_path, **HTB)
    made = plan_of(topology, path)
    assert made == campaigns
    assert min(burst for _, burst in network_pairs(made)) == 9038
    for more, less in zip(made.workloads, plan_of(bare, path).workloads, strict=True):
        assert more.bound > less.bound
        assert more.bound_blocking > less.bound_blocking
    rates = {queue.queue: queue.bandwidth for queue in made.queues}
    assert rates["s0:disk"] == 1.0
    assert rates["s0->switch"] == pytest.approx(LINK_SHARE * 1e9 / 8)


def test_each_link_setting_does_what_it_says(tmp_path: Path) -> None:
    plain = plan_of(*loaded(tmp_path))
    shared = plan_of(*loaded(tmp_path, share=0.5))
    for queue, other in zip(plain.queues, shared.queues, strict=True):
        half = 1.0 if ":" in queue.queue else 0.5
        assert other.bandwidth == half * queue.bandwidth
    assert network_pairs(shared) == network_pairs(plain)
    large = plan_of(*loaded(tmp_path, mtu=9000))
    assert network_pairs(large) == network_pairs(plain)
    assert [w.bound for w in large.workloads] == [w.bound for w in plain.workloads]
    assert any(
        more.bound_blocking > less.bound_blocking
        for more, less in zip(large.workloads, plain.workloads, strict=True)
    )
    over = plan_of(*loaded(tmp_path, overshoot="3kB"))
    assert network_pairs(over) == network_pairs(plain)
    assert all(m.bound > n.bound for m, n in zip(over.workloads, plain.workloads, strict=True))
    kept = loaded(tmp_path, enforcer="htb", overshoot="1kB")[0].kept
    assert (kept.frame, kept.overshoot, kept.share) == (1538, 1000, 1.0)
    assert kept.bucket is not None


def test_servers_are_chosen_with_what_the_links_keep(tmp_path: Path) -> None:
    """Two workloads of 33 MB/s each on a link of 125 MB/s, and on two fifths of the link."""
    path = written(tmp_path, links={"share": 0.4})
    (tmp_path / "t.csv").write_text(
        "".join(f"{n * 33_000_000},{10**6:x},DiskRead\n" for n in range(40))
    )
    text = path.read_text()
    path.write_text(
        text.replace("client: c1\n  name: copy\n  server: s0", "client: c1\n  name: copy")
    )
    assert path.read_text() != text
    assert not place(load_topology(path), path).placed
    path.write_text(path.read_text().replace("share: 0.4", "share: 1.0"))
    assert place(load_topology(path), path).placed


def test_packets_are_simulated_as_large_as_a_topology_says(tmp_path: Path) -> None:
    topology, path = loaded(tmp_path, mtu=9000)
    plan = plan_of(topology, path)
    assert scenario_of(topology, path, plan, Setting()).document["frame"] == 9038
    longer = scenario_of(topology, path, plan, Setting(frame=9039.0)).proofs["web"].why_not
    assert longer is not None and "longer than the 9038 bytes" in longer
    bounds = [one.bound for one in simulate_topology(topology, path, Setting()).workloads]
    assert all(bound is not None and bound.held for bound in bounds)
    bare, path = loaded(tmp_path)
    assert scenario_of(bare, path, plan_of(bare, path), Setting()).document["frame"] == FRAME


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ({"share": 2}, "links.share: 2 is not allowed; allowed: a number of at most 1"),
        ({"share": 0}, "links.share: 0 is not allowed; allowed: a number above 0"),
        ({"mtu": 500}, "links.mtu: 500 is not allowed; allowed: a number of at least 1,280"),
        ({"enforcer": "tbf"}, "links.enforcer: .*'exact' or 'htb'"),
        ({"overshoot": "3 frames"}, "links.overshoot: .*is not a size"),
        ({"overshot": 3}, r"links.overshot: there is .* \(did you mean overshoot\?\)"),
    ],
)
def test_links_that_are_none_are_told(tmp_path: Path, links: dict[str, Any], said: str) -> None:
    path = written(tmp_path, links=links)
    with pytest.raises(UserError, match=said):
        load_topology(path)


def test_what_a_testbed_keeps_are_settings_of_a_topology(tmp_path: Path) -> None:
    told, keeps = loaded(tmp_path, **HTB)[0].kept, htb_links(9038)
    assert told.bucket is not None and keeps.bucket is not None
    assert told.bucket(1e6, 5.0) == keeps.bucket(1e6, 5.0) == (1e6, 9038.0)
    assert dataclasses.replace(told, bucket=None) == dataclasses.replace(keeps, bucket=None)
