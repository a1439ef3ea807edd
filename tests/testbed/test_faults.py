"""Faults by hand: their record, and what undoes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import HotbedError, RemoteError, UserError
from schemas.locks import started
from testbed.faults import (
    LOG,
    RECORD,
    Fault,
    FaultKind,
    FaultMaker,
    Settings,
    faults_between,
    forget,
    in_force,
    refuse_faults,
)
from testbed.sites.contract import Node, Site
from testbed.ssh import Completed
from tests.errors import raises
from tests.papers.live_fakes import RecordingAgent
from tests.testbed.fake_site import FakeSite
from tests.testbed.plain_specs import CEPH_ROLES, plain_spec
from tests.testbed.sites.fake_shells import PlayedShell, ended

CUT = Fault("link", "osd1", {"cut": True}, 1e9)
SPEC = plain_spec(admin=CEPH_ROLES, store={"pools": []})


class Daemons:
    """Daemons of the testbed's nodes, behind shells; a stopped node does not answer."""

    def __init__(self, site: FakeSite) -> None:
        self.site = site
        self.all = {"admin": {"ceph-mon@admin"}, "osd0": {"ceph-osd@0"}, "osd1": {"ceph-osd@1"}}
        self.running = {node: set(units) for node, units in self.all.items()}
        self.fails = ""
        self.code = 0
        self.ran: list[list[str]] = []

    def off(self, node: str) -> bool:
        return self.site.status("small").nodes[node] == "stopped"

    def shell_to(self, node: Node) -> Any:
        return OneShell(self, node.name)


class OneShell(PlayedShell):
    def __init__(self, daemons: Daemons, node: str) -> None:
        self.daemons, self.node = daemons, node

    def answer(self, argv: list[str], input: bytes | None) -> str | Completed:
        daemons, (_, _, script, _, *words) = self.daemons, argv
        if daemons.off(self.node) or daemons.fails in (self.node, "all"):
            raise RemoteError(f"node {self.node} cannot be reached", retry=True)
        daemons.ran.append(argv)
        running = daemons.running[self.node]
        if "list-units" in script:
            found = [unit for unit in sorted(running) if f"-{words[0]}@" in unit]
            return "\n".join(found)
        if "systemctl kill" in script:
            running -= set(words)
        elif "systemctl start" in script:
            running |= set(words)
        return ended(argv, daemons.code, err="no such device")


class Disturber(RecordingAgent):
    """Agent with one disturbance plan; `dead` are nodes on which fio ends at once."""

    def __init__(self) -> None:
        super().__init__()
        self.on: set[str] = set()
        self.plan: list[Mapping[str, Any]] = []
        self.dead: set[str] = set()

    def call(self, verb: str, payload: Mapping[str, Any] | None = None, **_: Any) -> Any:
        if verb == "disturb-start":
            assert payload is not None
            self.plan = payload["plan"]
            self.on = {step["node"] for step in self.plan if step["t_s"] == 0}
        elif verb == "disturb-stop":
            self.on = set()
        loads = [{"node": n, "alive": n not in self.dead, "said": "?"} for n in sorted(self.on)]
        return {"running": bool(self.on), "loads": loads}


class Bed:
    """A testbed in memory, with its faults."""

    def __init__(self, folder: Path, *, faulty: bool = True) -> None:
        self.now = 1000.0
        self.fake = FakeSite(folder)
        self.daemons, self.agent = Daemons(self.fake), Disturber()
        self.watchers = 0
        testbed = self.fake.provision(SPEC)
        site: Site = self.fake if faulty else Plain(self.fake)
        self.maker = FaultMaker(
            site, testbed, self.agent, self.daemons.shell_to, self.watch, lambda: self.now
        )
        self.folder = testbed.directory

    def watch(self) -> int:
        self.watchers += 1
        return os.getpid()

    def inject(
        self, kind: FaultKind, node: str, given: Settings | None = None, **more: Any
    ) -> list[Fault]:
        if kind == "load":
            step = {"t_s": 0.0, "node": node, "name": f"load-hot-{node}", "argv": ["fio"]}
            more = {"steps": {node: step | {"rate_iops": None}}, **more}
        return self.maker.inject(kind, [self.maker.testbed.node(node)], given or {}, **more)

    def state(self) -> object:
        """Return everything that a fault changes."""
        kept = self.fake._kept["small"]
        daemons = {node: sorted(units) for node, units in self.daemons.running.items()}
        return (
            *(set(kept.cut), dict(kept.shaped), dict(kept.slow), set(kept.off)),
            *(daemons, set(self.agent.on)),
        )


class Plain:
    """A site of real machines: the contract without faults."""

    kind = "plain"

    def __init__(self, site: FakeSite) -> None:
        for name in ("plan", "provision", "status", "find", "folder", "names", "extend", "release"):
            setattr(self, name, getattr(site, name))


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


@pytest.fixture
def plain(tmp_path: Path) -> Bed:
    return Bed(tmp_path, faulty=False)


# -- the record --------------------------------------------------------------------------------


UNKNOWN = json.dumps({"faults": [CUT.as_json() | {"kind": "x"}], "watcher": None})


@pytest.mark.parametrize("text", ["", "[]", '{"faults": [1], "watcher": null}', UNKNOWN])
def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, text: str):
    (tmp_path / RECORD).write_text(text)
    with raises(UserError, where=str(tmp_path / RECORD)):
        in_force(tmp_path)


# -- made and undone ---------------------------------------------------------------------------

EVERY: list[tuple[FaultKind, Settings]] = [
    ("link", {"cut": True}),
    ("link", {"rate": 1e7}),
    ("link", {"delay": 0.01, "loss": 0.1}),
    ("disk", {"slow": 4.0}),
    ("disk", {"error": True}),
    ("osd", {}),
    ("node", {}),
    ("load", {"load": "hotspot"}),
]


@pytest.mark.parametrize(("kind", "given"), [*EVERY, ("mon", {})])
def test_a_fault_is_made_recorded_and_undone(bed: Bed, kind: FaultKind, given: Settings):
    before, node = bed.state(), "admin" if kind == "mon" else "osd1"
    made = bed.inject(kind, node, given)
    assert bed.state() != before
    assert in_force(bed.folder) == made
    assert (made[0].kind, made[0].node, made[0].since_s) == (kind, node, 1000.0)
    with raises(UserError, made[0].what(), do="hotbed fault clear"):
        refuse_faults(bed.folder, "small")
    bed.now = 1010.0
    assert bed.maker.clear() == made
    assert bed.state() == before
    assert bed.maker.clear() == []
    assert in_force(bed.folder) == []


STEPS = st.one_of(
    st.tuples(
        st.sampled_from(EVERY),
        st.sampled_from(["osd0", "osd1"]),
        st.sampled_from([None, 5.0, 50.0]),
    ),
    st.sampled_from([["osd0"], ["osd1"], 10.0, 100.0]),
)


@given(steps=st.lists(STEPS, max_size=12))
@settings(max_examples=40)
def test_clear_restores_everything_in_any_order(tmp_path_factory, steps):
    """Faults on two nodes are made, replaced, cleared by node and ended by time, in any order."""
    bed = Bed(tmp_path_factory.mktemp("bed"))
    before = bed.state()
    for step in steps:
        if isinstance(step, float):
            bed.now += step
            bed.agent.on -= {  # the plan's own stops
                one.node
                for one in in_force(bed.folder)
                if one.kind == "load" and one.until_s is not None and one.until_s <= bed.now
            }
            bed.maker.current()
        elif isinstance(step, list):
            bed.maker.clear(step)
        else:
            (kind, given), node, for_s = step
            try:
                bed.inject(kind, node, given, for_s=for_s)
            except UserError:
                assert any(one.node == node for one in in_force(bed.folder))  # stopped
        if not in_force(bed.folder):
            assert bed.state() == before
    bed.maker.clear()
    assert bed.state() == before


def test_a_node_that_starts_again_meets_its_other_faults(bed: Bed):
    bed.inject("disk", "osd0", {"slow": 4.0})
    bed.inject("osd", "osd0")
    during = bed.state()
    bed.inject("node", "osd0", for_s=60)
    bed.daemons.running["osd0"] = set(bed.daemons.all["osd0"])  # systemd starts it with the node
    bed.now += 60
    assert [one.kind for one in bed.maker.current()] == ["disk", "osd"]
    assert bed.state() == during


def test_the_same_fault_replaces_and_others_combine(bed: Bed):
    before = bed.state()
    bed.inject("link", "osd0", {"cut": True})
    bed.now += 1
    bed.inject("link", "osd0", {"rate": 1e6})
    bed.inject("disk", "osd0", {"slow": 2.0})
    bed.inject("osd", "osd0")
    bed.inject("osd", "osd0")
    assert [one.kind for one in in_force(bed.folder)] == ["link", "disk", "osd"]
    assert bed.fake.status("small").nodes["osd0"] == "running"
    assert len(bed.maker.clear(["osd0"])) == 3
    assert bed.state() == before


def test_a_fault_that_fails_is_undone(bed: Bed):
    before = bed.state()
    bed.agent.dead = {"osd0"}
    with pytest.raises(HotbedError, match="ended"):
        bed.inject("load", "osd0", {"load": "hotspot"})
    assert bed.state() == before
    assert in_force(bed.folder) == []


def test_a_half_made_fault_is_recorded_and_undone(bed: Bed, monkeypatch: pytest.MonkeyPatch):
    """As after kill -9 between the record and the end of the command."""
    before = bed.state()
    with monkeypatch.context() as patched:
        patched.setattr(FaultMaker, "_end", lambda *_: [])
        patched.setattr(FaultMaker, "_set", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bed.inject("osd", "osd0")
    assert [one.kind for one in in_force(bed.folder)] == ["osd"]
    bed.daemons.running["osd0"].clear()
    bed.maker.clear()
    assert bed.state() == before


def test_what_cannot_be_undone_stays_recorded(bed: Bed):
    bed.inject("osd", "osd0")
    bed.inject("disk", "osd1", {"slow": 2.0})
    bed.daemons.fails = "osd0"
    with pytest.raises(HotbedError, match="osd0"):
        bed.maker.clear()
    assert [one.kind for one in in_force(bed.folder)] == ["osd"]
    bed.daemons.fails = ""
    assert [one.kind for one in bed.maker.clear()] == ["osd"]


def test_a_store_that_is_not_ceph_has_neither(tmp_path: Path):
    bed = Bed(tmp_path)
    nodes = tuple(replace(node, roles=frozenset({"nfs"})) for node in bed.maker.testbed.nodes)
    maker = replace(bed.maker, testbed=replace(bed.maker.testbed, nodes=nodes))
    for kind in ("osd", "mon"):
        with raises(UserError, allowed="link, disk, node"):
            maker.inject(kind, [nodes[0]], {})  # type: ignore[arg-type]


def test_a_node_that_nobody_stopped_by_hand_is_refused(bed: Bed):
    bed.fake.power("small", "osd0", False)
    with pytest.raises(UserError):
        bed.inject("node", "osd0")


# -- times -------------------------------------------------------------------------------------


def test_a_fault_with_an_end_is_undone_by_a_process_of_its_own(bed: Bed):
    before = bed.state()
    bed.inject("disk", "osd0", {"slow": 2.0}, for_s=60)
    bed.inject("osd", "osd1", for_s=5)
    bed.inject("link", "osd1", {"cut": True})
    assert bed.watchers == 1

    def sleep(seconds: float) -> None:
        assert 0 <= seconds <= 1
        bed.now += seconds

    bed.maker.keep_times(sleep)
    assert bed.now == pytest.approx(1060)
    assert [one.kind for one in in_force(bed.folder)] == ["link"]
    assert json.loads((bed.folder / RECORD).read_text())["watcher"] is None
    bed.maker.clear()
    assert bed.state() == before
    ended = [json.loads(line) for line in (bed.folder / LOG).read_text().splitlines()]
    assert [one["kind"] for one in ended] == ["osd", "disk", "link"]
    assert [one["until_s"] for one in ended] == pytest.approx([1005, 1060, 1060])


def test_an_end_that_fails_is_tried_again(bed: Bed):
    bed.inject("osd", "osd0", for_s=5)
    bed.daemons.fails, slept = "osd0", list[float]()

    def sleep(seconds: float) -> None:
        bed.now += seconds
        slept.append(seconds)
        if bed.now > 1020:
            bed.daemons.fails = ""

    bed.maker.keep_times(sleep)
    assert in_force(bed.folder) == []
    assert slept.count(5.0) >= 3


def test_the_process_ends_with_the_testbed(bed: Bed):
    bed.inject("osd", "osd0", for_s=5)
    bed.fake.release("small")
    bed.maker.keep_times(lambda seconds: None)


def test_an_overdue_fault_is_undone_by_whoever_comes(bed: Bed):
    bed.inject("osd", "osd0", for_s=5)
    bed.now += 6
    bed.inject("disk", "osd1", {"slow": 2.0})
    assert [one.kind for one in in_force(bed.folder)] == ["disk"]
    assert bed.daemons.running["osd0"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("how", ["clear", "forget"])
def test_clear_and_down_end_the_process(bed: Bed, sleeper, how: str):
    replace(bed.maker, watch=lambda: sleeper.pid).inject(
        "osd", [bed.maker.testbed.node("osd0")], {}, for_s=60
    )
    assert sleeper.poll() is None
    bed.maker.clear() if how == "clear" else forget(bed.fake, "small")
    assert sleeper.wait(10) == -15


def test_a_later_process_of_the_same_id_is_left_alone(bed: Bed, sleeper):
    replace(bed.maker, watch=lambda: sleeper.pid).inject(
        "osd", [bed.maker.testbed.node("osd0")], {}, for_s=60
    )
    record = json.loads((bed.folder / RECORD).read_text())
    assert record["watcher"] == [sleeper.pid, started(sleeper.pid)]
    record["watcher"][1] = "1"
    (bed.folder / RECORD).write_text(json.dumps(record))
    bed.maker.clear()
    assert sleeper.poll() is None


def test_a_run_meets_the_faults_of_its_time(bed: Bed):
    bed.inject("osd", "osd0", for_s=5)
    bed.now = 1005.0
    bed.maker.current()
    bed.now = 1020.0
    bed.inject("disk", "osd1", {"slow": 2.0})

    def met(began: float, ended: float) -> list[str]:
        return [one.kind for one in faults_between(bed.folder, began, ended)]

    assert met(900, 999) == []
    assert met(990, 1001) == met(1002, 1003) == met(1004, 1010) == ["osd"]
    assert met(1006, 1010) == []
    assert sorted(met(900, 1030)) == ["disk", "osd"]
    assert met(1030, 1040) == ["disk"]
    with (bed.folder / LOG).open("a") as log:
        log.write('{"kind": "os')  # cut off by a crash
    assert met(1030, 1040) == ["disk"]


# -- loads -------------------------------------------------------------------------------------


def test_loads_share_a_plan_that_ends_them(bed: Bed):
    bed.inject("load", "osd0", {"load": "hotspot"}, for_s=60)
    bed.now += 10
    bed.inject("load", "osd1", {"load": "background", "share": 0.5}, for_s=20)
    stops = {step["node"]: step["t_s"] for step in bed.agent.plan if step["argv"] is None}
    assert bed.agent.on == {"osd0", "osd1"}
    assert stops == {"osd0": 50.0, "osd1": 20.0}
    bed.maker.clear(["osd0"], ["load"])
    assert bed.agent.on == {"osd1"}
    bed.maker.clear()
    assert bed.agent.on == set()


def test_the_disturbance_of_a_campaign_is_left_alone(bed: Bed):
    bed.agent.on = {"osd1"}
    with raises(UserError, "osd1"):
        bed.inject("load", "osd0", {"load": "hotspot"})
    bed.agent.on = set()
    bed.inject("load", "osd0", {"load": "hotspot"})
    bed.agent.on = {"osd1"}  # a cell's plan has replaced it
    bed.maker.clear()
    assert bed.agent.on == {"osd1"}


# -- real machines -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given"), [("link", {"cut": True}), ("disk", {"slow": 2.0}), ("node", {})]
)
def test_real_machines_refuse_by_name(plain: Bed, kind: FaultKind, given: Settings):
    with raises(UserError, "plain"):
        plain.inject(kind, "osd0", given)
    assert not (plain.folder / RECORD).exists()


def test_real_machines_limit_packets_by_tc(plain: Bed):
    plain.inject("link", "osd0", {"delay": 0.02, "loss": 0.01, "rate": 1e7})
    check, limit = (argv[4:] for argv in plain.daemons.ran)
    words = "netem limit 10000 delay 20000us loss 1% rate 10000000bit"
    peers = [node.address for node in plain.maker.testbed.nodes if node.name != "osd0"]
    assert check == ["check", words, *peers]
    assert limit == ["limit", words, *peers]
    plain.maker.clear()
    assert plain.daemons.ran[-1][4] == "free"
    plain.inject("osd", "osd0")
    assert plain.daemons.running["osd0"] == set()
    plain.maker.clear()
    assert plain.daemons.running["osd0"]


@pytest.mark.parametrize(("code", "kind"), [(4, UserError), (5, UserError), (1, RemoteError)])
def test_the_reason_of_tc_is_given(plain: Bed, code: int, kind: type[HotbedError]):
    plain.daemons.code = code
    with raises(kind, "osd0"):
        plain.inject("link", "osd0", {"rate": 1e7})
    assert in_force(plain.folder) == []


def test_down_undoes_what_would_outlive_the_testbed(plain: Bed, monkeypatch: pytest.MonkeyPatch):
    plain.inject("link", "osd0", {"rate": 1e7})
    made: Callable[..., FaultMaker] = lambda site, testbed: plain.maker  # noqa: E731
    monkeypatch.setattr(FaultMaker, "on", made)
    forget(plain.maker.site, "small")
    assert plain.daemons.ran[-1][4] == "free"
