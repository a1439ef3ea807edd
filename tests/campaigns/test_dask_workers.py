"""Choice of Dask workers; workers that would compute something else are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from campaigns.engine.dask import Workers, refuse_others
from campaigns.engine.identity import Code
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


OURS = Code({"code": "abc", "python": "3.11", "pandas": "2.2", "arithmetic": "123"})


@pytest.mark.parametrize(
    ("changes", "problem", "said"),
    [
        ({"code": "other"}, None, "another code"),
        ({"code": "other"}, "has no simulator", "another code"),
        ({}, "has no simulator", "has no simulator"),
        ({"arithmetic": "other"}, None, "another arithmetic"),
        ({"python": "3.12"}, None, "3.11"),
        ({"pandas": "2.3"}, None, "another pandas"),
    ],
)
def test_a_worker_that_computes_with_something_else_is_refused(changes, problem, said, monkeypatch):
    theirs = Code({**OURS.parts, **changes}, problem)
    monkeypatch.setattr("campaigns.engine.identity._here", lambda same: OURS)

    class Client:
        def run(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"tcp://10.0.0.2:1": OURS, "tcp://10.0.0.3:1": theirs}

    with raises(UserError, said) as raised:
        refuse_others(Client(), SIMULATIONS)  # type: ignore[arg-type]
    assert str(raised.value).startswith("the worker tcp://10.0.0.3:1 ")
    assert "\n" not in str(raised.value)


def test_a_simulator_of_other_sources_is_named():
    def broken() -> str:
        raise StoreError("the simulator was built from other sources.")

    same = replace(SIMULATIONS, probe=broken)
    found = same.here()
    assert found.problem == "cannot use its simulator: the simulator was built from other sources"
    with pytest.raises(UserError):
        refuse_others(None, same)  # type: ignore[arg-type]
    assert "run `make setup`" in str(replace(SIMULATIONS, program="nothing").here().problem)


def test_a_worker_without_hotbed_is_one_sentence():
    class Client:
        def run(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"tcp://10.0.0.2:1": ModuleNotFoundError("No module named 'campaigns'")}

    with pytest.raises(UserError):
        refuse_others(Client(), SIMULATIONS)  # type: ignore[arg-type]
