"""Engine reactions to Dask's reports: lost results, lost workers, and workers of other code."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_campaigns import ONE_CELL, plan_of, tiny
from tiny_kinds import job

from campaigns.engine.attempts import AttemptRecords
from campaigns.engine.dask import DaskExecutor, Made, Task, Workers, refuse_others
from campaigns.engine.display import Progress
from campaigns.engine.engine import Engine
from campaigns.engine.identity import Recipe, Sameness, WrongWorker
from campaigns.engine.job import Job
from campaigns.engine.kind import Prepared
from campaigns.engine.store import RUN_FILE, Ledger, RunStore
from campaigns.grounds.sim import SIMULATIONS
from schemas.errors import StoreError, UserError
from schemas.names import UnsafeNameError
from testbed.simulated.process import PROGRAM
from tests.errors import raises

pytestmark = [
    pytest.mark.slow,  # Importing Dask takes more than a second, minutes on a busy machine
    pytest.mark.timeout(600),
]
built = pytest.mark.skipif(not PROGRAM.is_file(), reason="the simulator is not built")
RECIPE = Recipe(lambda job, folder: None, Sameness((), ()))
Result = Callable[[Job], Made]


def test_a_worker_writes_no_file_outside_the_attempt(tmp_path):
    with pytest.raises(UnsafeNameError):
        Made({"../evil": zlib.compress(b"x")}, 1.0).unpack(tmp_path / "attempt")
    assert list(tmp_path.rglob("evil")) == []


class Future:
    """Future that has ended; fetching its result may take long."""

    def __init__(self, result: Callable[[], Made]) -> None:
        self.result = result

    def add_done_callback(self, report: Callable[[Any], None]) -> None:
        report(self)


class Client:
    """Client of `threads` workers; submitted jobs end at once, with one `result` each."""

    def __init__(self, *results: Result, threads: int = 1) -> None:
        self.results = list(results)
        self.threads = threads
        self.closed = threading.Event()

    def nthreads(self) -> dict[str, int]:
        return {f"tcp://10.0.0.{index}:1": 1 for index in range(self.threads)}

    def submit(self, work: Any, task: Task, **_: Any) -> Future:
        result, job = self.results.pop(0), Job.model_validate_json(task.job)
        return Future(lambda: result(job))

    def cancel(self, *_: Any, **__: Any) -> None:
        self.closed.set()

    def never(self, job: Job) -> Made:
        """Wait until somebody cancels: the result was lost with its worker."""
        self.closed.wait()
        raise OSError("cancelled")


def made(job: Job) -> Made:
    record = job.record("done", None).model_dump_json().encode()
    return Made({RUN_FILE: zlib.compress(record)}, 1.0)


def killed(job: Job) -> Made:
    from distributed import KilledWorker

    last = SimpleNamespace(address="tcp://10.0.0.1:1")
    raise KilledWorker(job.run_id, last, 3)  # type: ignore[arg-type]


def engine_of(client: Any, folder: Path, **changes: Any) -> Engine:
    plan, store = plan_of(tiny(grids=ONE_CELL, **changes)), RunStore(folder / "runs")
    store.prepare()
    ledger = Ledger(store.folder / "ledger.jsonl")
    file = folder / "tiny.yaml"
    prepared = Prepared(plan.campaign, file, plan, plan, store, "dlr", file)
    attempts = AttemptRecords(prepared, ledger, job({}).provenance)
    executor = DaskExecutor(attempts, RECIPE, client)
    return Engine(plan, store, executor, Progress())


def statuses(folder: Path) -> list[tuple[str, str | None]]:
    return [(run.status, run.reason) for run in RunStore(folder / "runs").runs()]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for workers."""
    monkeypatch.setattr("campaigns.engine.dask.ALONE_S", 0.1)
    monkeypatch.setattr("campaigns.engine.dask.WIDTH_S", 0.02)


def test_a_result_that_died_with_others_workers_is_made_alone(tmp_path):
    """The result was lost between its end and the fetch; the worker that recomputed it died too."""
    client = Client(killed, made)
    result = engine_of(client, tmp_path, retries=0).run()
    assert (result.ok, result.failed_attempts) == (True, 0)
    assert not client.results


def test_who_kills_its_workers_alone_has_failed(tmp_path):
    assert not engine_of(Client(killed, killed), tmp_path, retries=0).run().ok
    ((status, reason),) = statuses(tmp_path)
    assert status == "failed"
    assert "its worker died, and so did 3 others" in str(reason)


def test_ctrl_c_ends_the_wait_for_a_result_that_does_not_come(tmp_path):
    def wait(job: Job) -> Made:
        engine.stop()
        return client.never(job)

    client = Client(wait)
    engine = engine_of(client, tmp_path)
    assert engine.run().interrupted
    assert statuses(tmp_path) == [("interrupted", "interrupted")]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("ended", [True, False])
def test_no_result_is_waited_for_when_all_workers_are_gone(tmp_path, monkeypatch, ended):
    client = Client(threads=0)
    client.results.append(client.never)
    if not ended:
        monkeypatch.setattr(Future, "add_done_callback", lambda *_: None)
    result = engine_of(client, tmp_path).run()
    assert result.gave_up is not None
    assert result.gave_up.startswith("no Dask worker has been there for 0.1 s")
    assert [status for status, _ in statuses(tmp_path)] == ["failed"]


# Choice of workers; those that would compute something else are refused.


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


class TwoWorkers:
    """Client of a worker like this machine, and of another one."""

    def __init__(self, theirs: object) -> None:
        self.theirs = theirs

    def run(self, digest: Callable[[], str], **_: Any) -> dict[str, Any]:
        return {"tcp://10.0.0.2:1": digest(), "tcp://10.0.0.3:1": self.theirs}


@built
@pytest.mark.parametrize(
    "changes",
    [{"code": ("schemas",)}, {"libraries": ("numpy",)}, {"probe": lambda: "another"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_worker_that_computes_with_something_else_is_refused(changes):
    theirs = replace(SIMULATIONS, **changes).digest()
    with raises(UserError, "`make setup`", where="worker tcp://10.0.0.3:1") as raised:
        refuse_others(TwoWorkers(theirs), SIMULATIONS)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)


@built
def test_a_worker_without_hotbed_or_simulator_is_named():
    for error in (ModuleNotFoundError("No module named 'campaigns'"), StoreError("none")):
        with raises(UserError, str(error), where="worker tcp://10.0.0.3:1"):
            refuse_others(TwoWorkers(error), SIMULATIONS)  # type: ignore[arg-type]
    without = replace(SIMULATIONS, program="nothing")
    with raises(StoreError, "run `make setup`"):
        refuse_others(TwoWorkers(""), without)  # type: ignore[arg-type]
    with raises(WrongWorker, "this worker: ", "run `make setup`"):
        without.require("", job({}))
