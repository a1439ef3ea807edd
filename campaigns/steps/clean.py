"""A testbed on which nothing of ours runs, and nothing of anybody else's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from controllers import remote
from schemas.errors import HotbedError
from testbed.agent.contract import Agent

CLEAN_S = 240.0
CACHES_S = 120.0


def at_once(*calls: Callable[[], object]) -> None:
    """Make independent calls side by side: each costs an ssh session and an interpreter.

    Raises:
        HotbedError: the first that failed, once all have ended.
    """
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
    for future in futures:
        future.result()


def stop_everything(agent: Agent) -> None:
    """Stop what a killed cell may have left: controller, disturbance, recorder, load units."""
    at_once(
        lambda: remote.stop(agent),
        lambda: agent.call("disturb-stop", {}, timeout_s=CACHES_S),
        lambda: agent.call("recorder-stop", {}),
    )
    for node, units in agent.units().items():
        for unit in units:
            agent.unit_stop(node, unit)


def refuse_strays(agent: Agent) -> None:
    """Load that is not ours would be measured with ours.

    Raises:
        HotbedError: names node and process.
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
    """Affinities, weights, upmaps and balancer as at the start; what differed, in words.

    Returns when every placement group is active+clean and every deletion has finished.
    """
    answer = agent.call("clean", {"caches": False, "timeout_s": CLEAN_S}, timeout_s=CLEAN_S + 60)
    return [str(words) for words in answer["put_right"]]


def drop_caches(agent: Agent) -> None:
    """Empty the nodes' page caches and the OSDs' own.

    Raises:
        HotbedError: an OSD kept its cache.
    """
    answer = agent.call("caches", {}, timeout_s=CACHES_S)
    for osd, why in answer["failed"].items():
        raise HotbedError(f"the cache of {osd} could not be emptied: {why}")
