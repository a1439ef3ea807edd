"""Operations on a whole deployed store: stop, start, wait until it serves, restore a snapshot.

The engine uses them over ssh. Nodes need only systemd and the agent's bundle (Ceph: on the admin
node; NFS: on every node). Agents of the two-choice scheduler stop before the store below them and
start after it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

from schemas.errors import HotbedError, StoreError, UserError
from testbed import client
from testbed.agent.contract import AGENT_ROOT, STATE
from testbed.reach import shell_to
from testbed.sites.contract import Node, Progress, SnapshotSite, Testbed, silent
from testbed.ssh import last_line

DEPLOYED = "deployed"
"""Label of the snapshot that `hotbed deploy` takes."""

STOP_S = 60.0
HEALTH_S = 120.0
# In this order: a stopping gateway needs the OSDs for its last requests, else it waits until it is
# killed. Stopping OSDs report to the monitors, which must still run.
_KINDS = (("rgw", "radosgw"), ("osd", "osd"), ("mgr", "mgr"), ("mon", "mon"))
_AGENTS = "hotbed-twochoice.target"
_SWIFT_UNITS = "hotbed-swift-*.service"
_START_SWIFT = "cd /etc/systemd/system && systemctl start hotbed-swift-*.service"
_NFS_UNITS = ("hotbed-nfsproxy.service", "hotbed-ganesha.service", "hotbed-rpcbind.service")


def stop_store(testbed: Testbed) -> None:
    """Stop every daemon cleanly, in the order of their dependencies; for NFS and Swift the proxies
    and servers. RemoteError: a node cannot be reached, or a daemon does not stop."""
    if testbed.with_role("nfs"):
        _everywhere(testbed, "nfs", ["systemctl", "stop", *_NFS_UNITS])
        return
    if testbed.with_role("proxy") or testbed.with_role("storage"):
        for role in ("proxy", "storage"):
            _everywhere(testbed, role, ["systemctl", "stop", _SWIFT_UNITS])
        return
    _agents(testbed, "stop")
    for role, kind in _KINDS:
        _everywhere(testbed, role, ["systemctl", "stop", f"ceph-{kind}.target"])
        # A target's stop does not wait for its daemons; a stop of the daemons does.
        _everywhere(testbed, role, ["systemctl", "stop", f"ceph-{kind}@*.service"])


def start_store(testbed: Testbed) -> None:
    """Start every daemon and wait until the store serves. RemoteError: a node cannot be reached.
    StoreError: the store is not healthy in time; the message says what is missing."""
    _start_daemons(testbed)
    wait_healthy(testbed)
    _agents(testbed, "start")


def _start_daemons(testbed: Testbed) -> None:
    """Start every daemon, without the scheduler's agents."""
    if testbed.with_role("nfs"):
        _everywhere(testbed, "nfs", ["systemctl", "start", *reversed(_NFS_UNITS[:2])])
    elif testbed.with_role("proxy") or testbed.with_role("storage"):
        # By name, because a pattern starts only loaded units.
        for role in ("storage", "proxy"):
            _everywhere(testbed, role, ["sh", "-c", _START_SWIFT])
    elif not testbed.with_role("object"):
        for role, kind in reversed(_KINDS):
            _everywhere(testbed, role, ["systemctl", "start", f"ceph-{kind}.target"])


def halt_store(testbed: Testbed, only: Collection[str], progress: Progress = silent) -> None:
    """Stop the daemons on the nodes `only`, until `resume_store`. Ceph keeps their OSDs in the
    cluster (noout). UserError: a controller runs. RemoteError: as in `stop_store`."""
    _refuse_steered(testbed)
    progress("stopping the daemons", 0.1)
    if testbed.with_role("mon"):
        _noout(testbed, "set", check=False)  # stopped monitors mark nothing out
    stop_store(_part(testbed, only))


def resume_store(testbed: Testbed, only: Collection[str], progress: Progress = silent) -> list[str]:
    """Start the daemons on the nodes `only` and wait until they serve. Return Ceph's daemons on
    other nodes that are still down, for which noout stays set; without any, the whole store is
    healthy, and noout is as `halt_store` found it. UserError: a controller runs. RemoteError,
    StoreError: as in `start_store`."""
    _refuse_steered(testbed)
    part = _part(testbed, only)
    progress("starting the daemons", 0.05)
    _start_daemons(part)
    if testbed.with_role("mon"):
        left = _wait_for_daemons(testbed, only, progress)
        if left:
            return left
        _noout(testbed, "unset")
    progress("waiting for the store", 0.8)
    wait_healthy(part if part.with_role("nfs") else testbed)
    _agents(part, "start")
    return []


def _wait_for_daemons(testbed: Testbed, only: Collection[str], progress: Progress) -> list[str]:
    """Wait until Ceph's daemons on the nodes `only` are up; return the others that are down."""
    agent, end, most = client.agent_client(testbed), time.monotonic() + HEALTH_S, 1
    while True:
        seen = agent.call("overview")
        down = {f"mon.{one['mon']}": one["node"] for one in seen["mons_down"]}
        down |= {f"osd.{one['osd']}": one["node"] for one in seen["osds_down"]}
        mine = [name for name, node in down.items() if node in only]
        if not mine and seen["health"] is not None:
            return list(down)
        if time.monotonic() > end:
            what = ", ".join(mine) or seen["unanswered"].get("store", "the monitors")
            raise StoreError(f"after {HEALTH_S:g} s, the store still lacks {what}")
        most = max(most, len(mine))
        progress(f"waiting for {len(mine)} daemons", 0.1 + 0.7 * (1 - len(mine) / most))
        time.sleep(1.0)


def _part(testbed: Testbed, only: Collection[str]) -> Testbed:
    return replace(testbed, nodes=tuple(node for node in testbed.nodes if node.name in only))


def _refuse_steered(testbed: Testbed) -> None:
    running = client.agent_client(testbed).call("control-status")["running"]
    if running is not None:
        raise UserError(
            f"controller {running} runs on testbed {testbed.name}",
            do="stop it first (hotbed control stop)",
        )


# $1: set or unset; $2: file that says that noout is ours. A person's noout stays.
_NOOUT = """
if [ "$1" = set ]; then
    known=$(timeout 15 ceph osd dump) || exit 1
    case $known in *flags*noout*) exit 0 ;; esac
    touch "$2"
fi
[ ! -e "$2" ] || timeout 15 ceph osd "$1" noout || exit 1
[ "$1" = set ] || rm -f "$2"
"""


def _noout(testbed: Testbed, verb: str, *, check: bool = True) -> None:
    argv = ["sh", "-c", _NOOUT, "hotbed-store", verb, f"{STATE}/noout"]
    shell_to(testbed, testbed.admin).run(argv, check=check)


@contextmanager
def stopped_store(testbed: Testbed) -> Iterator[None]:
    """Stop the store inside this context and start it afterwards, also if the stop was incomplete
    or the block failed. RemoteError, StoreError: from `stop_store` and `start_store`."""
    try:
        stop_store(testbed)
        yield
    except BaseException:  # Ctrl-C too
        # Report the first failure, not the failure of the restart.
        with suppress(HotbedError):
            start_store(testbed)
        raise
    start_store(testbed)


def wait_healthy(testbed: Testbed, *, timeout_s: float = HEALTH_S) -> None:
    """Wait until the store serves (Ceph: HEALTH_OK, all OSDs up, all PGs active+clean; NFS: every
    server behind its proxy; object servers: every agent). StoreError: it does not serve in time;
    the message says what is missing. RemoteError: the admin node or a node of an NFS server cannot
    be reached."""
    if servers := testbed.with_role("nfs"):
        for node in servers:
            _ready(testbed, node, _python("testbed.stores.nfs.control ready"), timeout_s)
    elif testbed.with_role("object"):
        _agents(testbed, "start")
        argv = ["hotbed-twochoicebench", "status", "--cluster", "/etc/hotbed/twochoice.json"]
        argv += ["--wait", f"{timeout_s:g}s"]
        _ready(testbed, testbed.with_role("client")[0], argv, timeout_s)
    elif testbed.with_role("proxy"):
        agent, payload = client.agent_client(testbed), {"timeout_s": timeout_s}
        agent.call("swift-ready", payload, timeout_s=timeout_s + 30)
    else:
        program = f"testbed.stores.ceph_wait {testbed.osds} {timeout_s:g}"
        _ready(testbed, testbed.admin, _python(program), timeout_s)


def _python(arguments: str) -> list[str]:
    """Return the command for a program of the agent's bundle."""
    script = f"cd {AGENT_ROOT} && PYTHONDONTWRITEBYTECODE=1 exec python3 -m {arguments}"
    return ["sh", "-c", script]


def _ready(testbed: Testbed, node: Node, argv: Sequence[str], timeout_s: float) -> None:
    """Run a command that waits for the store; StoreError with its reason."""
    done = shell_to(testbed, node).run(argv, timeout_s=timeout_s + 30, check=False)
    if done.returncode != 0:
        raise StoreError(f"node {node.name}: {last_line(done.stderr)}")


def restore_snapshot(
    site: SnapshotSite, name: str, label: str = DEPLOYED, progress: Progress = silent
) -> Testbed:
    """Restore nodes and disks from a snapshot and wait until the store serves again, if the
    snapshot has one: daemons start with their nodes. StoreError: the store is not healthy
    afterwards."""
    restored = site.restore(name, label, progress)
    if has_store(restored):
        progress("waiting for the store", 0.99)
        wait_healthy(restored)
    return restored


def save_snapshot(
    site: SnapshotSite, testbed: Testbed, label: str, progress: Progress = silent
) -> None:
    """Freeze nodes and disks while the store is stopped; it serves again afterwards. UserError: the
    store is steered or loaded, so a snapshot would keep foreign state. SiteError, RemoteError,
    StoreError: the store cannot be stopped, frozen or started."""
    if not has_store(testbed):
        site.snapshot(testbed.name, label)
        return
    amiss = unrest(testbed)
    if amiss:
        raise UserError(
            f"no snapshot of testbed {testbed.name} is taken while its store is steered or "
            f"loaded: {'; '.join(amiss)}"
        )
    progress("stopping the store", 0.0)
    with stopped_store(testbed):
        progress(f"freezing as {label}", 0.2)
        site.snapshot(testbed.name, label)
        progress("waiting for the store", 0.7)


def has_store(testbed: Testbed) -> bool:
    """Return True if a deployment has brought the control plane to the testbed. RemoteError: the
    admin node cannot be reached."""
    done = shell_to(testbed, testbed.admin).run(["test", "-e", AGENT_ROOT], check=False)
    return done.returncode == 0


def unrest(testbed: Testbed) -> list[str]:
    """Return what steers or loads a deployed store, with one sentence of advice for each.
    UserError, RemoteError, StoreError: from the admin node's agent."""
    agent = client.agent_client(testbed)
    known = agent.call("control-status")
    found = [
        f"controller {one['name']} {'runs' if one['running'] else 'was killed'} (end what it did "
        "by `hotbed control stop`)"
        for one in known["controllers"]
        if one["running"] or one["leftover"]
    ]
    for loads in (agent.units(), agent.strays()):
        found += [f"{one} loads node {node}" for node, names in loads.items() for one in names]
    if found:
        return found  # further findings would only be consequences
    if agent.call("disturb-status")["running"]:
        return ["a disturbance plan runs (wait for its end)"]
    changed = agent.call("unclean", timeout_s=120)
    return [f"to be put back first: {', '.join(changed)}"] if changed else []


def _agents(testbed: Testbed, verb: str) -> None:
    """Start or stop the scheduler's agents on the nodes that have any; a start waits for them."""
    there = f"/etc/systemd/system/{_AGENTS}"
    # A target's stop does not wait for its services; a stop of the services does.
    more = "hotbed-twochoice@*.service" if verb == "stop" else ""
    script = f"[ ! -e {there} ] || systemctl {verb} {_AGENTS} {more}"
    for role in ("osd", "object"):
        _everywhere(testbed, role, ["sh", "-c", script.strip()])


def _everywhere(testbed: Testbed, role: str, argv: Sequence[str]) -> None:
    nodes = testbed.with_role(role)
    if not nodes:
        return
    with ThreadPoolExecutor(len(nodes)) as pool:
        futures = [
            pool.submit(shell_to(testbed, node).run, argv, timeout_s=STOP_S) for node in nodes
        ]
        for future in futures:
            future.result()
