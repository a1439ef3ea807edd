"""Verb: answers to an operator's first questions, from the admin node, within seconds.

Every part has a time limit, so that a dead monitor or node costs its own answer and no other.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from schemas.errors import RemoteError
from testbed.agent import units
from testbed.agent.contract import UNIT_PREFIX, AgentConfig, AgentNode, osd_names
from testbed.agent.disturb import read_state
from testbed.agent.reach import on_each, reach
from testbed.stores.ceph.connection import Connection, connect
from testbed.stores.ceph.pgs import PgReader
from testbed.stores.nfs.store import store_of as nfs_of

ANSWER_S = 5.0
CEPH_UNIT = re.compile(r"ceph-(?:[0-9a-f-]{36}@)?(osd|mon|mgr|radosgw|rgw)[@.](.+)\.service")
_OTHER_UNIT = re.compile(r"hotbed-(swift-.*|nfsproxy|ganesha|rpcbind|twochoice@.*)\.service")
# Not `systemctl show`, which reads every property of every unit. `list-units` knows loaded units
# only; services of Swift and NFS are asked for by name.
_LOOK = f"""
cd /etc/systemd/system
systemctl list-units --all --plain --no-legend --no-pager \
    'ceph*@*.service' '{UNIT_PREFIX}*.service' < /dev/null
for unit in $(ls | grep -E '^{UNIT_PREFIX}(swift-.*|nfsproxy|ganesha)[.]service$'); do
    echo "$unit loaded $(systemctl is-active "$unit" < /dev/null)"
done
echo ==
df -P -k -x tmpfs -x devtmpfs -x squashfs -x efivarfs 2> /dev/null < /dev/null
echo ==
{units.STRAYS}
"""


def overview(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return {timeout_s?: 5} -> {store, health, osds_down, mons_down, disks, controllers, loads,
    swift, unanswered}.

    `health` is {status, checks: [{code, severity, summary}]} in Ceph's words for every store; null
    if the monitors do not answer. `disks` are {node, path, used_share} of file systems, and of OSDs
    as the path ``osd.N``. `controllers` are rows of ``control-status``, `swift` is the answer of
    ``swift-status``. `unanswered` maps each missing part to the reason.
    """
    from testbed.agent.__main__ import find  # by name: controllers import this package

    limit_s = min(60.0, max(1.0, float(payload.get("timeout_s", ANSWER_S))))
    names = [node.name for node in config.nodes]
    calls: dict[str, Callable[[], Any]] = {
        "nodes": lambda: on_each(names, lambda name: look(config, name, 0.9 * limit_s)),
        "controllers": lambda: find("control-status")(config, {})["controllers"],
    }
    if config.store == "ceph":
        calls["store"] = lambda: of_ceph(connect(timeout_s=limit_s / 2), config)
    elif config.store == "swift":
        calls["swift"] = lambda: find("swift-status")(config, {"interval_s": 0.5})
    elif config.store == "nfs":
        nfs = nfs_of(config)
        calls |= {f"server {name}": partial(nfs.ask, name, "status") for name in nfs.servers}
    found, missing = answers(calls, limit_s)
    nodes, lost = parted(found.get("nodes", {}))
    missing |= {f"node {name}": error for name, error in lost.items()}
    result: dict[str, Any] = {"health": None, "osds_down": [], "mons_down": [], "disks": []}
    result |= found.get("store", {})
    result |= {
        "store": config.store,
        "controllers": found.get("controllers", []),
        "loads": [row for name, seen in nodes.items() for row in _loads(name, seen)],
        "swift": found.get("swift"),
        "disks": result["disks"] + [row for seen in nodes.values() for row in seen["disks"]],
    }
    if config.store == "ceph":
        for node in (node for node in config.nodes if node.name in nodes):
            for kind, row in _down(node, nodes[node.name]["units"]):
                result[kind] += [row] if row not in result[kind] else []
    else:
        result["health"] = _health(config, nodes, missing)
    return result | {"unanswered": {what: str(why) for what, why in missing.items()}}


def answers(
    calls: Mapping[str, Callable[[], Any]], limit_s: float
) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Make `calls` in parallel; return the results and the missing ones' errors, by name. A call
    that hangs is left behind in its daemon thread."""
    late = RemoteError(f"no answer within {limit_s:g} s.", retry=True)
    results: dict[str, Any] = dict.fromkeys(calls, late)

    def make(name: str, call: Callable[[], Any]) -> None:
        try:
            results[name] = call()
        except Exception as error:
            results[name] = error

    threads = [threading.Thread(target=make, args=item, daemon=True) for item in calls.items()]
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return parted(results)


def parted(results: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Return the results, and the errors among them."""
    known = dict(results)
    failed = {name: each for name, each in known.items() if isinstance(each, Exception)}
    return {name: each for name, each in known.items() if name not in failed}, failed


def look(config: AgentConfig, name: str, limit_s: float) -> dict[str, Any]:
    """Return a node's {units: {unit: state}, disks, strays}. RemoteError: it does not answer."""
    done = reach(config, name).run(["sh", "-s"], input=_LOOK.encode(), timeout_s=limit_s)
    shown, sizes, strays = done.text.split("==\n")
    lines = (line.split(maxsplit=5) for line in sizes.splitlines()[1:])
    disks = [
        _disk(name, path, int(used) / (int(used) + int(left)))
        for _, blocks, used, left, _, path in lines
        if blocks.isdigit() and int(used) + int(left) > 0
    ]
    by_unit = {unit: state for unit, _, state, *_ in map(str.split, shown.splitlines())}
    return {"units": by_unit, "disks": disks, "strays": strays.splitlines()}


def of_ceph(connection: Connection, config: AgentConfig) -> dict[str, Any]:
    """Return the monitors' part of `overview`. StoreError: they do not answer.

    The connection stays open: its shutdown would wait for a manager that hangs."""
    report = connection.mon("health").checked("health")
    quorum = connection.mon("quorum_status").checked("quorum_status")
    osds = PgReader(connection, config.pools, osd_names(config)).osd_map().osds
    # From the manager, which may be dead: its answer is not worth more than a second.
    used, _ = answers({"osds": lambda: connection.mgr("osd df").checked("osd df")["nodes"]}, 1.0)
    lacking = {str(mon["name"]) for mon in quorum["monmap"]["mons"]} - {*quorum["quorum_names"]}
    checks = [
        _check(code, str(each["summary"]["message"]), str(each["severity"]))
        for code, each in report["checks"].items()
    ]
    return {
        "health": {"status": str(report["status"]), "checks": checks},
        "osds_down": [{"osd": osd.id, "node": osd.node} for osd in osds.values() if not osd.up],
        # Every deployer names a monitor like its node.
        "mons_down": [{"mon": name, "node": name} for name in sorted(lacking)],
        "disks": [
            _disk(osds[one["id"]].node, f"osd.{one['id']}", float(one["utilization"]) / 100)
            for one in used.get("osds", ())
            if one["id"] in osds
        ],
    }


def _disk(node: str, path: str, share: float) -> dict[str, Any]:
    return {"node": node, "path": path, "used_share": round(share, 4)}


def _down(node: AgentNode, states: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the node's OSDs and monitor without an active unit."""
    alive = {short_name(unit) for unit, state in states.items() if state in _ALIVE}
    down: list[tuple[str, dict[str, Any]]] = [
        ("osds_down", {"osd": osd, "node": node.name})
        for osd in node.osds
        if f"osd.{osd}" not in alive
    ]
    if "mon" in node.roles and not any(name.startswith("mon.") for name in alive):
        down.append(("mons_down", {"mon": node.name, "node": node.name}))
    return down


_ALIVE = {"active", "reloading"}


def short_name(unit: str) -> str:
    """Return a person's name of a unit: osd.3, mon.admin, control-dlr, disturb."""
    found = CEPH_UNIT.fullmatch(unit)
    if found:
        return f"{found[1]}.{found[2]}"
    name = unit.removesuffix(".service").removeprefix(UNIT_PREFIX)
    return name.replace("controller@", "control-")


def _check(code: str, summary: str, severity: str = "HEALTH_ERR") -> dict[str, str]:
    return {"code": code, "severity": severity, "summary": summary}


def _health(
    config: AgentConfig, nodes: Mapping[str, Any], missing: Mapping[str, Exception]
) -> dict[str, Any]:
    """Return the health of a store without health checks of its own: its daemons and nodes."""
    checks = [
        _check("DAEMON_DOWN", f"{unit.removesuffix('.service')} on node {name} is {state}")
        for name, seen in nodes.items()
        for unit, state in seen["units"].items()
        if _OTHER_UNIT.fullmatch(unit) and state not in _ALIVE
    ]
    carriers = {n.name for n in config.nodes if {"nfs", "proxy", "storage", "object"} & {*n.roles}}
    lost = {what: why for what, why in missing.items() if what.split()[-1] in carriers}
    checks += [_check("NO_ANSWER", f"{what}: {why}") for what, why in lost.items()]
    return {"status": "HEALTH_ERR" if checks else "HEALTH_OK", "checks": checks}


def _loads(node: str, seen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the node's running loads: units, and strays. `iops`: the rate that the disturbance
    plan asks for; null outside a plan or without a limit."""
    planned = {(load["node"], load["name"]): load for load in (read_state() or {}).get("loads", ())}
    alive = [unit for unit, state in seen["units"].items() if state in {*_ALIVE, "activating"}]
    names = [short_name(unit) for unit in alive if short_name(unit).startswith(units.LOAD_PREFIX)]
    return [
        {"node": node, "name": name, "iops": planned.get((node, name), {}).get("rate_iops")}
        for name in [*names, *seen["strays"]]
    ]
