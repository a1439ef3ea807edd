"""The client node's open-loop program: its start, and its way to the store."""

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


@pytest.fixture
def shell(tmp_path, monkeypatch):
    with FakeSystemdShell(tmp_path) as shell:
        monkeypatch.setattr(openloop_verbs, "reach", lambda config, node: shell)
        yield shell


def payload(plan: WritePlan = PLAN, **more: Any) -> dict[str, Any]:
    ask = {"node": "osd0", "name": "load-open-loop", "plan": plan.to_json()}
    return {**ask, "max_s": 30, "wait_s": 20, **more}


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
