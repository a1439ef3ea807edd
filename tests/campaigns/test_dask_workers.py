"""Choice of Dask workers; workers that would compute something else are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tiny_kinds import job

from campaigns.engine.dask import Workers, refuse_others
from campaigns.engine.identity import WrongWorker
from campaigns.grounds.sim import SIMULATIONS
from schemas.errors import StoreError, UserError
from testbed.simulated.process import PROGRAM
from tests.errors import raises

pytestmark = [
    pytest.mark.slow,  # the tests probe the code and libraries of a worker
    pytest.mark.skipif(not PROGRAM.is_file(), reason="the simulator is not built"),
]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scheduler": "10.0.0.1:8786"}, "no address of a Dask"),
        ({"scheduler": "http://x:1"}, "no address of a Dask"),
        ({"scheduler": "tcp://x:1\n"}, "no address of a Dask"),
        ({"scheduler": "tcp://x:1", "count": 2}, "give one of them"),
        ({"count": 0}, "--workers: 0"),
    ],
)
def test_workers_that_cannot_be_are_one_sentence(given, said):
    with raises(UserError, said):
        Workers(**given)


class Client:
    """Client of a worker like this machine, and of another one."""

    def __init__(self, theirs: object) -> None:
        self.theirs = theirs

    def run(self, digest: Callable[[], str], **_: Any) -> dict[str, Any]:
        return {"tcp://10.0.0.2:1": digest(), "tcp://10.0.0.3:1": self.theirs}


@pytest.mark.parametrize(
    "changes",
    [{"code": ("schemas",)}, {"libraries": ("numpy",)}, {"probe": lambda: "another"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_worker_that_computes_with_something_else_is_refused(changes):
    theirs = replace(SIMULATIONS, **changes).digest()
    with raises(UserError, "`make setup`", where="worker tcp://10.0.0.3:1") as raised:
        refuse_others(Client(theirs), SIMULATIONS)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)


def test_a_worker_without_hotbed_or_simulator_is_named():
    for error in (ModuleNotFoundError("No module named 'campaigns'"), StoreError("none")):
        with raises(UserError, str(error), where="worker tcp://10.0.0.3:1"):
            refuse_others(Client(error), SIMULATIONS)  # type: ignore[arg-type]
    without = replace(SIMULATIONS, program="nothing")
    with raises(StoreError, "run `make setup`"):
        refuse_others(Client(""), without)  # type: ignore[arg-type]
    with raises(WrongWorker, "this worker: ", "run `make setup`"):
        without.require("", job({}))
