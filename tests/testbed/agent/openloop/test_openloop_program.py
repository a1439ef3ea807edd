"""The client node's open-loop program, really run on a stand-in for librados."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import RemoteError, StoreError, UserError
from testbed.agent import openloop_verbs, units
from testbed.agent.contract import AgentConfig, AgentNode
from testbed.agent.openloop.plan import BALLAST_BYTES, WritePlan, pg_of
from testbed.stores.ceph.pool_objects import (
    PoolObjects,
    ballast_names,
    confirm,
    object_names,
    pool_of,
)
from tests.errors import raises
from tests.testbed.agent.fake_systemd import FakeSystemdShell
from workloads.open_loop import parse_open_loop

PLAN = WritePlan(
    pool="bench",
    object_bytes=100,
    duration_s=1.0,
    seed=1,
    rates={"1.0": 30.0, "1.5": 10.0},
    objects_per_pg=2,
    drain_s=0.5,
)
CONFIG = AgentConfig("t", "ceph", (AgentNode("osd0", "10.0.0.1", ("admin",), "iowait"),))
FAKE_RADOS = """
import json, threading
class Error(OSError): pass
class Completion:
    def get_return_value(self): return 0
class Ioctx:
    def aio_write_full(self, name, data, oncomplete):
        assert len(data) == 100
        threading.Timer(0.01, oncomplete, [Completion()]).start()
class Rados:
    def __init__(self, conffile, name, conf): pass
    def connect(self, timeout): pass
    def open_ioctx(self, pool): return Ioctx()
    def mon_command(self, text, data, timeout):
        command = json.loads(text)
        if command["prefix"] == "osd dump":
            return 0, json.dumps({"pools": [
                {"pool": 1, "pool_name": "bench", "pg_num": 8, "object_hash": 2}]}).encode(), ""
        from testbed.agent.openloop.plan import pg_of
        return 0, json.dumps({"pgid": pg_of(command["object"], 1, 8)}).encode(), ""
"""


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Return a shell with librados' stand-in where python3 looks first."""
    with FakeSystemdShell(tmp_path) as shell:
        (shell.programs / "rados.py").write_text(FAKE_RADOS)
        shell.env["PYTHONPATH"] = str(shell.programs)
        monkeypatch.setattr(openloop_verbs, "reach", lambda config, node: shell)
        yield shell


def payload(plan: WritePlan = PLAN, **more: Any) -> dict[str, Any]:
    ask = {"node": "osd0", "name": "load-open-loop", "plan": plan.to_json()}
    return {**ask, "max_s": 30, "wait_s": 20, **more}


@pytest.mark.slow
def test_the_program_runs_alone_and_what_it_prints_is_read(shell):
    started = openloop_verbs.start(CONFIG, payload())["started_wall"]
    with raises(UserError, "already running"):
        openloop_verbs.start(CONFIG, payload())
    unit = units.wait(shell, "load-open-loop", timeout_s=20)
    assert (unit.exit_code, unit.stderr) == (0, "")
    result = parse_open_loop(unit.stdout)
    assert result.started_wall == started
    assert result.done == result.intended > 0
    assert result.outstanding == result.failed == result.held == 0
    assert set(result.pgs) == {"1.0", "1.5"}
    assert result.p50_s is not None and result.p50_s >= 0.01
    assert sum(row["done"] for row in result.series) == result.done
    assert result.cpu_s is not None and result.cpu_s > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"pool": "none"}, "'none'"),
        ({"rates": {"1.8": 1.0}}, "PG 1.8"),
    ],
)
def test_what_cannot_be_written_is_reported_and_leaves_no_unit(shell, plan, said):
    with raises(UserError, said):
        openloop_verbs.start(CONFIG, payload(WritePlan(**{**PLAN.to_json(), **plan})))
    assert units.live(shell) == []


def test_a_payload_that_lacks_something_is_refused():
    with raises(UserError, "needs 'plan'"):
        openloop_verbs.start(CONFIG, {"node": "osd0", "name": "x"})
    with raises(UserError, "unknown field"):
        openloop_verbs.start(CONFIG, payload() | {"plan": {**PLAN.to_json(), "x": 1}})
    with raises(UserError, where="ballast_per_pg"):
        replace(PLAN, ballast_per_pg=-1)


@pytest.mark.slow
def test_a_start_that_takes_too_long_is_given_up(shell, monkeypatch):
    monkeypatch.setattr(openloop_verbs, "_MAIN", b"import time; time.sleep(60)")
    with raises(RemoteError, "did not start within 0 s"):
        openloop_verbs.start(CONFIG, payload(wait_s=0))
    assert units.live(shell) == []


# -- the way to the store -------------------------------------------------------------------------


class Ioctx:
    """Stand-in that answers at once from `codes` and repeats the last code."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.names: list[str] = []

    def aio_write_full(self, object_name: str, to_write: bytes, oncomplete: Any) -> None:
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        if code > 0:
            raise OSError(code, "not sent")
        self.names.append(object_name)

        class Completion:
            def get_return_value(self) -> int:
                return code

        oncomplete(Completion())


def test_every_object_is_written_once_before_the_start():
    ioctx = Ioctx(0)
    names = object_names(PLAN, 1, 8)
    PoolObjects(ioctx, names, b"x").fill()
    assert ioctx.names == [name for each in names.values() for name in each]


def test_ballast_is_written_once_into_every_group_and_never_again():
    plan = replace(PLAN, ballast_per_pg=3)
    ballast = ballast_names(plan, 1, 8)
    assert {pg: len(names) for pg, names in ballast.items()} == {"1.0": 3, "1.5": 3}
    assert all(pg_of(name, 1, 8) == pg for pg, names in ballast.items() for name in names)
    written: list[tuple[str, int]] = []

    class Sizes(Ioctx):
        def aio_write_full(self, object_name: str, to_write: bytes, oncomplete: Any) -> None:
            written.append((object_name, len(to_write)))
            super().aio_write_full(object_name, to_write, oncomplete)

    objects = PoolObjects(Sizes(0), object_names(plan, 1, 8), b"x", ballast)
    objects.fill()
    heavy = {name for name, size in written if size == BALLAST_BYTES}
    assert heavy == {name for names in ballast.values() for name in names}
    assert len(written) == 2 * (2 + 3)
    objects.send("1.0", 0, lambda code: None)
    assert written[-1][1] == 1
    assert ballast_names(replace(plan, prefill=False), 1, 8) == {}


@pytest.mark.parametrize("codes", [(0, -errno.ENOSPC, 0), (0, errno.ENOSPC, 0)])
def test_a_prefill_that_fails_is_reported(codes):
    with raises(StoreError, "1 of 4", "28"):
        PoolObjects(Ioctx(*codes), object_names(PLAN, 1, 8), b"x").fill()


def test_the_cluster_is_asked_for_pools_and_where_objects_are():
    asked = []

    def ask(prefix: str, **arguments: Any) -> Any:
        asked.append(arguments["object"])
        return {"pgid": "1.7"}

    with raises(StoreError, "hashes names in another"):
        confirm(ask, "bench", ["hotbed-ol-0"], 1, 4)
    assert asked == ["hotbed-ol-0"]
    pool = {"pool": 3, "pool_name": "p", "pg_num": 100, "object_hash": 2}
    assert pool_of({"pools": [pool]}, "p") == (3, 100)
    with raises(UserError, "rjenkins"):
        pool_of({"pools": [{**pool, "object_hash": 1}]}, "p")
    assert json.loads(json.dumps(PLAN.to_json()))["rates"] == PLAN.rates
