"""The Ceph store on a deployed testbed: affinities, swaps, restore, counters, signals, recorder."""

from __future__ import annotations

import itertools
import json
import time

import pytest

from schemas.errors import UserError
from testbed.client import agent_client
from testbed.reach import shell_to
from tests.errors import raises

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def found(deployed):
    return deployed


@pytest.fixture
def agent(found):
    return agent_client(found)


def test_health_reports_every_osd_and_pg(agent):
    health = agent.call("health")
    assert health["up"] == health["in"] == health["osds"] > 0
    assert set(health["pgs"]) == {"active+clean"}
    assert health["removing"] == 0


@pytest.mark.parametrize("signal", ["node", "osd", "op_r_latency"])
def test_affinity_swap_and_restore_with_every_signal(agent, signal):
    report = agent.call("store-selftest", {"signal": signal}, timeout_s=120)
    assert report["restored"]
    assert report["lost"] == {} or signal == "op_r_latency"  # idle: there may be no reads
    for step in ("affinity", "affinity_back", "swap", "clear"):
        assert report[step]["errors"] == [], step
        assert report[step]["late"] == 0, step
        assert report[step]["moved"] == 0, step
    assert report["affinity"]["changed"] > 0
    assert report["swap"]["changed"] == report["pgs"]
    assert report["sense_s"]["median"] < 0.5
    assert report["affinity"]["act_s"] < 0.5
    if signal != "op_r_latency":
        assert len(report["pressure"]) == agent.call("health")["osds"]
        assert all(0 <= value <= 100 for value in report["pressure"].values())


def test_clean_puts_right_what_somebody_left(agent, found):
    code = (
        "from testbed.agent.contract import load_config;"
        "from testbed.agent.sense import open_store;"
        "from testbed.stores.contract import *; store = open_store(load_config(), None);"
        # No PG of osd.0: its low affinity would reverse the swap.
        "pg = next(p for p in store.sense(frozenset({PGS})).pgs if 0 not in p.up);"
        "acts = [SetPrimaryAffinity(0, 0.3), SwapPrimary(pg.id, pg.up[1]), SetBalancer('upmap')];"
        "import json; print(json.dumps([e.ok for e in store.act(acts)]), flush=True);"
        "import os; os._exit(0)"
    )
    shell = shell_to(found, found.admin)
    done = shell.run(["env", "PYTHONPATH=/opt/hotbed", "python3", "-c", code])
    assert json.loads(done.text) == [True, True, True]
    report = agent.call("clean", {}, timeout_s=120)
    words = " ".join(report["put_right"])
    for part in ("balancer none, off", "primary affinity of osd.0 to 1", "upmap"):
        assert part in words
    assert agent.call("clean", {}, timeout_s=120)["put_right"] == []
    assert report["caches"]["failed"] == {}


def test_acts_of_todays_ceph_are_seen_and_put_right(agent, found):
    """The release offers an act and carries it out, or neither."""
    code = (
        "from testbed.agent.contract import load_config;"
        "from testbed.agent.sense import open_store;"
        "from testbed.stores.contract import *; store = open_store(load_config(), None);"
        "pg = store.sense(frozenset({PGS})).pgs[0];"
        "acts = [SetUpmapPrimary(pg.id, pg.up[1]), SetOption('osd_mclock_profile',"
        " 'high_client_ops'), SetOption('rados_replica_read_policy', 'balance'),"
        " RunReadBalancer(), SetBalancer('upmap-read')];"
        "offers = store.offers(); done = [e.ok for e in store.act(acts)];"
        "seen = store.sense(frozenset({PGS, LATENCY} | {READ_BALANCE} & offers.senses));"
        "kinds = [a.kind for a in acts[:-1]] + [BALANCER_READ];"
        "import json; print(json.dumps([[k in offers.acts for k in kinds], done,"
        " seen.pgs[0].primary == pg.up[1], seen.read_balance]), flush=True);"
        "import os; os._exit(0)"
    )
    shell = shell_to(found, found.admin)
    run = shell.run(["env", "PYTHONPATH=/opt/hotbed", "python3", "-c", code])
    offered, done, swapped, scores = json.loads(run.text)
    print(offered, done, swapped, scores)
    assert done == offered
    if offered[3]:
        assert scores["bench"] >= 1
    else:
        assert swapped == offered[0]
    words = " ".join(agent.call("clean", {}, timeout_s=120)["put_right"])
    parts = ("upmap primary of", "osd_mclock_profile removed", "rados_replica_read_policy removed")
    assert [part in words for part in parts] == offered[:3]
    assert agent.call("clean", {}, timeout_s=120)["put_right"] == []


def test_a_pool_is_made_and_removed(agent):
    name = "hotbed-test"
    agent.call("pool-create", {"name": name, "pg_num": 16}, timeout_s=120)
    agent.call("pool-create", {"name": name, "pg_num": 16}, timeout_s=120)
    with raises(UserError, "exists with 16 PGs"):
        agent.call("pool-create", {"name": name, "pg_num": 32})
    assert agent.call("pool-delete", {"name": name}, timeout_s=120) == {"deleted": True}
    assert agent.call("pool-delete", {"name": name}, timeout_s=120) == {"deleted": False}
    assert set(agent.call("health")["pgs"]) == {"active+clean"}


def test_nobody_is_warned_between_a_pools_creation_and_its_application(agent, found):
    """Reef's manager looks every two seconds, and monitors repeat what it saw until it looks
    again."""
    shell = shell_to(found, found.admin)
    shell.run(["ceph", "osd", "pool", "create", "hotbed-test", "1"], timeout_s=60)
    try:
        end, seen = time.monotonic() + 7, dict[str, str]()
        while time.monotonic() < end:
            seen |= agent.call("health")["checks"]
            time.sleep(0.5)
    finally:
        agent.call("pool-delete", {"name": "hotbed-test"}, timeout_s=120)
    assert seen == {}


def test_recorder_records_a_second_a_line_with_every_metric(agent, found):
    """A busy machine delays samples, but four in a row arrive on time eventually."""
    name = f"test-{time.time_ns()}"
    agent.call("recorder-start", {"name": name, "max_s": 100}, timeout_s=60)
    end = time.monotonic() + 60
    while True:
        time.sleep(1.0)
        samples = agent.call("recorder-fetch", {"name": name})["samples"]
        gaps = [b["wall"] - a["wall"] for a, b in itertools.pairwise(samples)]
        good = "".join("y" if 0.8 < gap < 1.3 else "n" for gap in gaps)
        if "yyyy" in good:
            break
        assert time.monotonic() < end, gaps
    assert agent.call("recorder-stop") == {"stopped": True}
    samples = agent.call("recorder-fetch", {"name": name, "forget": True})["samples"]
    last = samples[-1]
    assert last["lost"] == {}
    node = found.with_role("osd")[0].name
    assert {"pressure", "disk_util", "disk_queue", "net_tx_mb_s", "cpu_cores", "hot"} <= set(
        last["values"][node]
    )
    assert {"primary_affinity", "reweight", "primaries"} <= set(last["values"]["osd.0"])


def test_top_streams_and_ends(agent):
    samples = list(agent.stream("top", {"count": 2}))
    assert len(samples) == 2
    assert samples[1]["wall"] > samples[0]["wall"]
    assert samples[1]["lost"] == {}


def test_versions_and_facts(agent):
    assert agent.call("versions")["ceph"].count(".") == 2
    facts = agent.call("facts")
    assert all("error" not in host and host["memory_bytes"] > 0 for host in facts.values())
