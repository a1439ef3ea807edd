"""Sweeps on Dask: same results on every worker, lost or slow workers, and Ctrl-C."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deadly_ground import DeadlyGround

from campaigns.engine import session
from campaigns.engine.attempts import AttemptRecords
from campaigns.engine.dask import LOCAL, DaskExecutor, Workers, open_cluster
from campaigns.engine.display import CampaignResult, Progress
from campaigns.engine.engine import Engine
from campaigns.engine.identity import Recipe, Sameness
from campaigns.engine.provenance import provenance
from campaigns.engine.session import Request
from campaigns.engine.store import Ledger, RunStore
from campaigns.grounds.sim import SIMULATIONS
from campaigns.new_controller import new_controller
from campaigns.papers.dlr.cell import make_cell
from schemas.errors import UserError
from testbed.simulated.process import PROGRAM
from testbed.spec import load_spec

pytestmark = [
    pytest.mark.slow,  # each starts a cluster
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PROGRAM.is_file(), reason="the simulator is not built"),
]
SAME = ("summary.json", "journal.jsonl", "samples.parquet", "latency.parquet")
SWEEP: dict[str, Any] = {
    "ground": "sim",
    "name": "sweep",
    "paper": "dlr-scale",
    "time_scale": 1,
    "parameters": {"op": "rand", "duration_s": 6, "interval_s": 3, "hot_share": 0.25},
    "grids": [
        {
            "name": "osds",
            "figures": ["osds"],
            "vary": {"osds": [8, 20], "controller": ["default", "dlr"]},
            "fixed": {"scenario": "heterogeneity"},
            "repetitions": 1,
        }
    ],
}
ONE = [SWEEP["grids"][0] | {"vary": {"osds": [8], "controller": ["default", "dlr"]}}]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Return the address of a scheduler with two workers, like a cluster's."""
    with cluster_of(2) as found:
        yield found


@contextmanager
def cluster_of(workers: int) -> Iterator[str]:
    """Return the address of a cluster's scheduler; it restarts workers as `dask worker` does."""
    import dask
    from distributed import LocalCluster

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with (
        dask.config.set(LOCAL),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            memory_limit=0,
        ) as cluster,
    ):
        yield cluster.scheduler_address


@pytest.fixture
def sweep(campaign_file: Callable[..., Path]) -> Path:
    return campaign_file(**SWEEP)


def run(file: Path, where: str, **how: Any) -> tuple[CampaignResult, Path]:
    """Run the sweep into a folder of its own."""
    artifacts = file.parent / where
    dirs = how.pop("controllers_dir", None)
    asked = Request(str(file), artifacts=artifacts, controllers_dir=dirs)
    return session.run(asked, progress=Progress(), **how), artifacts / "sweep"


def contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of a campaign's result files, by cell and file."""
    found = {}
    for record in folder.glob("*/attempt-1/run.json"):
        cell = json.loads(record.read_text())["parameters"]
        for name in SAME:
            file = f"{cell['controller']} on {cell['osds']}: {name}"
            found[file] = (record.parent / name).read_bytes()
    return found


def test_results_are_the_same_to_the_bit_wherever_they_are_computed(sweep, address):
    found = {}
    for where, how in (
        ("process", {"in_process": True}),
        ("local", {"workers": Workers(count=1)}),
        ("cluster", {"workers": Workers(scheduler=address)}),
    ):
        result, folder = run(sweep, where, **how)
        assert result.ok, result.sentence
        found[where] = contents(folder)
        records = [json.loads(path.read_text()) for path in folder.glob("*/attempt-1/run.json")]
        assert {record["osd_count"] for record in records} == {8, 20}
        assert all(record["provenance"]["site"] == "simulated" for record in records)
        assert not list(folder.glob("*/.attempt-*"))
    assert len(found["process"]) == 4 * len(SAME)
    for file, content in found["process"].items():
        assert content == found["local"][file], file
        assert content == found["cluster"][file], file


def test_a_controller_of_one_s_own_needs_not_be_on_the_workers(campaign_file, tmp_path, address):
    new_controller("mine", tmp_path / "own")
    grid = ONE[0] | {"vary": {"osds": [8], "controller": ["mine"]}}
    file = campaign_file(**SWEEP | {"grids": [grid]})
    how: dict[str, Any] = {"controllers_dir": tmp_path / "own"}
    here_result, here_folder = run(file, "here", in_process=True, **how)
    there, folder = run(file, "there", workers=Workers(scheduler=address), **how)
    assert here_result.ok and there.ok, there.sentence
    assert contents(folder) == contents(here_folder)


def deadly(
    file: Path, address: str, folder: Path, **ground: str
) -> tuple[Engine, DaskExecutor, RunStore, Any]:
    """Return an engine with workers on deadly or slow cells, and the objects that close it."""
    prepared = session.prepare(Request(str(file), artifacts=folder))
    assert prepared.facts is not None
    made = DeadlyGround(load_spec(prepared.spec_file), **ground)  # type: ignore[arg-type]
    prepared.store.prepare()
    cluster = open_cluster(Workers(scheduler=address), SIMULATIONS)
    client = cluster.__enter__()
    ledger = Ledger(prepared.store.folder / "ledger.jsonl")
    attempts = AttemptRecords(prepared, ledger, provenance(prepared.facts))
    executor = DaskExecutor(attempts, Recipe(partial(make_cell, made), SIMULATIONS), client)
    engine = Engine(prepared.plan, prepared.store, executor, Progress())
    return engine, executor, prepared.store, cluster


def test_the_cell_of_a_worker_that_dies_is_made_by_another(campaign_file, tmp_path, address):
    file, lives = campaign_file(**SWEEP | {"grids": ONE}), tmp_path / "lives"
    lives.write_text("once\n")
    engine, _, store, cluster = deadly(file, address, tmp_path / "a", lives=str(lives))
    try:
        result = engine.run()
    finally:
        cluster.__exit__(None, None, None)
    assert lives.read_text() == ""
    assert not list(Path(tempfile.gettempdir()).glob("hotbed-cell-*"))
    assert result.ok, result.sentence
    assert (result.ran, result.failed_attempts) == (2, 0)
    assert {run.attempt for run in store.runs()} == {1}


def test_ctrl_c_marks_what_runs_and_the_same_command_goes_on(campaign_file, tmp_path, address):
    file, slow = campaign_file(**SWEEP | {"grids": ONE}), tmp_path / "slow"
    slow.touch()
    engine, _, store, cluster = deadly(file, address, tmp_path / "a", slow=str(slow))

    ended = threading.Event()

    def stop() -> None:
        while not slow.with_suffix(".reached").exists() and not ended.wait(0.05):
            pass
        engine.stop()

    stopper = threading.Thread(target=stop)
    try:
        stopper.start()
        result = engine.run()
    finally:
        ended.set()
        stopper.join()
        slow.unlink()
        cluster.__exit__(None, None, None)
    assert result.interrupted
    assert {(run.status, run.reason) for run in store.runs()} == {("interrupted", "interrupted")}
    asked = Request(str(file), artifacts=tmp_path / "a")
    again = session.run(asked, progress=Progress(), workers=Workers(scheduler=address))
    assert (again.ok, again.ran) == (True, 2)


def test_a_terminal_s_ctrl_c_is_reported_in_one_sentence(campaign_file, tmp_path):
    """It reaches every process of the command."""
    vary = {"osds": [1000], "controller": ["default", "dlr"]}
    parameters = SWEEP["parameters"] | {"duration_s": 600, "interval_s": 20}
    grids = [SWEEP["grids"][0] | {"vary": vary, "repetitions": 3}]
    file = campaign_file(**SWEEP | {"parameters": parameters, "grids": grids})
    log = tmp_path / "log"
    command = "import sys; from hotbed.cli import main; sys.exit(main())"
    arguments = ["run", str(file), "--workers", "2", "--artifacts", str(tmp_path / "a")]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", command, *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while not list((tmp_path / "a").glob("sweep/*/.attempt-*")):  # no cell is running yet
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGINT)
            code = process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    text = log.read_text()
    assert "Traceback" not in text, text
    assert "same command again" in text
    assert code != 0
    with pytest.raises(ProcessLookupError):  # no process of the group is left
        for _ in range(200):
            os.killpg(process.pid, 0)
            time.sleep(0.05)


def test_a_scheduler_that_is_not_there_is_one_sentence(sweep, monkeypatch):
    monkeypatch.setattr("campaigns.engine.dask.CONNECT_S", 1.0)
    with pytest.raises(UserError) as raised:
        run(sweep, "nowhere", workers=Workers(scheduler="tcp://127.0.0.1:1"))
    assert "\n" not in str(raised.value)
    assert not list((sweep.parent / "nowhere").glob("*/*/attempt-*"))


def test_a_scheduler_without_workers_is_one_sentence(sweep, monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setattr("campaigns.engine.dask.WORKERS_S", 0.5)
    with (
        LocalCluster(
            n_workers=0,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        pytest.raises(UserError),
    ):
        run(sweep, "idle", workers=Workers(scheduler=cluster.scheduler_address))


def test_a_late_worker_with_other_code_ends_the_sweep(
    campaign_file, tmp_path, address, monkeypatch
):
    file = campaign_file(**SWEEP | {"grids": ONE})
    engine, _, store, cluster = deadly(file, address, tmp_path / "a")
    monkeypatch.setattr(Sameness, "digest", lambda _: "other")
    try:
        result = engine.run()
    finally:
        cluster.__exit__(None, None, None)
    assert result.gave_up is not None
    assert result.gave_up.startswith("this worker has other code")
    assert {run.status for run in store.runs()} == {"failed"}


def test_our_own_workers_listen_to_this_machine_alone():
    before = listening()
    with open_cluster(Workers(count=1), SIMULATIONS) as client:
        assert client.scheduler is not None
        assert client.scheduler.address.startswith("tls://127.0.0.1:")
        opened = listening() - before
        assert opened
        assert {host for host, _ in opened} == {"127.0.0.1"}, opened
    assert not listening() - before


def listening() -> set[tuple[str, int]]:
    """Return the addresses on which this process and its children listen."""
    import psutil

    processes = [psutil.Process(os.getpid()), *psutil.Process().children(recursive=True)]
    return {
        (connection.laddr.ip, connection.laddr.port)
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
