"""Workers for simulated cells: a Dask cluster of this machine's own, or one that is there."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from campaigns.sameness import Code, Sameness
from campaigns.sim_ground import SIMULATIONS
from campaigns.workers import Workers
from schemas.errors import UserError

if TYPE_CHECKING:
    from distributed import Client

LOCALHOST = "127.0.0.1"
CONNECT_S = 10.0
WORKERS_S = 30.0
"""Seconds until a cluster must have a worker."""

LOCAL: Mapping[str, Any] = {
    "distributed.scheduler.http.routes": [],  # no dashboard
    "distributed.worker.http.routes": [],
    # By default a worker that is not there again 15 s after its death is given up for good, with
    # the nanny that is starting it: on a busy machine all of them, one after the other.
    "distributed.deploy.lost-worker-timeout": "1000 days",
    "distributed.worker.preload": ["campaigns.dask_interrupts"],
}
"""Dask's settings for workers of this machine."""


@contextmanager
def open_cluster(workers: Workers, same: Sameness = SIMULATIONS) -> Iterator[Client]:
    """A client of the workers; those of this machine end with it.

    Processes of this machine are one thread each, listen on 127.0.0.1 alone, have no dashboard, and
    take work only from who has the certificate that is made for them here.

    Raises:
        UserError: nobody answers at the address, no worker is there, or one of them computes with
            something else than we do.
    """
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        if workers.scheduler is None:
            client = _local(workers.processes, stack)
        else:
            client = _remote(workers.scheduler, stack)
        refuse_others(client, same.here(), same)
        yield client


def _local(processes: int, stack: ExitStack) -> Client:
    import dask
    from distributed import Client, LocalCluster
    from distributed.security import Security

    stack.enter_context(dask.config.set(LOCAL))
    scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="hotbed-dask-"))
    cluster = LocalCluster(
        n_workers=processes,
        threads_per_worker=1,
        host=LOCALHOST,
        protocol="tls://",
        security=Security.temporary(),
        dashboard_address=f"{LOCALHOST}:0",  # its pages are taken away above
        silence_logs=logging.CRITICAL,
        local_directory=scratch,
        memory_limit=0,
    )
    stack.callback(cluster.close)
    client = Client(cluster, set_as_default=False)
    stack.callback(client.close)
    return client


def _remote(address: str, stack: ExitStack) -> Client:
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        why = " ".join(str(error).split())[:160] or type(error).__name__
        raise UserError(
            f"--scheduler {address}: nobody answers there as a Dask scheduler within "
            f"{CONNECT_S:g} s ({why}): start one with `dask scheduler`, or check the address."
        ) from error
    stack.callback(client.close)
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except TimeoutError as error:
        raise UserError(
            f"--scheduler {address}: the scheduler has no worker: start some with "
            f"`dask worker {address}`."
        ) from error
    return client


def refuse_others(client: Client, ours: Code, same: Sameness = SIMULATIONS) -> None:
    """Refuse workers that compute with something else than we do.

    Raises:
        UserError: names the first of them, and what differs.
    """
    if ours.problem is not None:
        raise UserError(f"this machine {ours.problem}.")
    found = client.run(same.here, on_error="return")
    for address, theirs in sorted(found.items()):
        why = same.difference(ours, theirs) if isinstance(theirs, Code) else _no_code(theirs)
        if why is not None:
            raise UserError(f"the worker {address} {why}.")


def _no_code(error: object) -> str:
    if isinstance(error, (ImportError, AttributeError)):
        return f"has no Hotbed, or another one ({error}): install this version there and restart it"
    text = " ".join(str(error).split())[:160]
    return f"cannot tell what it computes with ({type(error).__name__}: {text})"


@contextmanager
def _quiet() -> Iterator[None]:
    """Dask tells its own story of every lost worker; ours is told by the engine."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
