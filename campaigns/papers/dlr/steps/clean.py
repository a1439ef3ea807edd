"""Cleaning of a testbed: no load of Hotbed's or of other users may run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from controllers import remote
from schemas.errors import HotbedError
from testbed.agent.contract import Agent

CLEAN_S = 240.0
CACHES_S = 120.0


def at_once(*calls: Callable[[], object]) -> None:
    """Make independent calls in parallel, because each needs an ssh session and an interpreter.

    Raises:
        HotbedError: the first failed call, raised after all have ended.
    """
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
    for future in futures:
        future.result()


def stop_everything(agent: Agent) -> None:
    """Stop the remains of a killed cell: controller, disturbance, recorder, load units."""
    at_once(
        lambda: remote.stop(agent),
        lambda: agent.call("disturb-stop", {}, timeout_s=CACHES_S),
        lambda: agent.call("recorder-stop", {}),
    )
    for node, units in agent.units().items():
        for unit in units:
            agent.unit_stop(node, unit)


def refuse_strays(agent: Agent) -> None:
    """Raise if load that is not Hotbed's runs, because it would affect the measurements.

    Raises:
        HotbedError: the node and the process.
    """
    strays = agent.strays()
    for node, processes in strays.items():
        if processes:
            pid = processes[0].split()[0]
            more = sum(len(found) for found in strays.values()) - 1
            others = f" ({more} more)" if more > 0 else ""
            raise HotbedError(
                f"node {node} runs load that is not Hotbed's: process {processes[0]!r}{others}; "
                f"end it first: hotbed exec {node} -- kill {pid}"
            )


def put_right(agent: Agent) -> list[str]:
    """Reset affinities, weights, upmaps and balancer, and return the differences as text.

    The function returns when every placement group is active+clean and all deletions have finished.
    """
    answer = agent.call("clean", {"caches": False, "timeout_s": CLEAN_S}, timeout_s=CLEAN_S + 60)
    return [str(words) for words in answer["put_right"]]


def drop_caches(agent: Agent) -> None:
    """Empty the nodes' page caches and the OSDs' own caches.

    Raises:
        HotbedError: an OSD kept its cache.
    """
    answer = agent.call("caches", {}, timeout_s=CACHES_S)
    for osd, why in answer["failed"].items():
        raise HotbedError(f"the cache of {osd} could not be emptied: {why}")
