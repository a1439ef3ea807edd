"""Adjust a cluster by another deployer to Hotbed's needs.

Run on the admin node as ``python3 - PARAMETERS``, with the role ceph's cluster.py on standard
input, for its functions. PARAMETERS is a JSON object: `osds` (count by node), `racks` (by node),
`settings` (section -> name -> value, for the configuration database), `modules`, `pools`,
`failure_domain`, `timeout_s`, `agent_config`. Prints {"changed": [what], "osds": {node: [number]},
"agent_config": with the numbers that the deployer assigned}.
"""

from __future__ import annotations

import json
import sys
from types import ModuleType

MCLOCK_OVERRIDE = "osd_mclock_override_recovery_settings"


def module_of(text: str) -> ModuleType:
    """Return cluster.py as a module."""
    made = ModuleType("cluster")
    made.__dict__["__file__"] = "cluster.py"
    exec(compile(text, "cluster.py", "exec"), made.__dict__)
    return made


def numbers_by_host(metadata: list) -> dict:
    """Return OSD numbers by host name, from `osd metadata`; OSDs that never started are missing."""
    found: dict = {}
    for row in metadata:
        if row.get("hostname"):
            found.setdefault(row["hostname"].split(".")[0], []).append(int(row["id"]))
    return {host: sorted(numbers) for host, numbers in found.items()}


def judge(found: dict, wanted: dict) -> str | None:
    """Return a sentence if a node's OSDs are fewer or more than its devices; None if all match."""
    for node, count in wanted.items():
        have = len(found.get(node, ()))
        if have != count:
            return (
                f"node {node} has {have} of {count} OSDs: the deployer took no more of its "
                "devices; look at `ceph-volume lvm list` there"
            )
    strange = sorted(set(found) - set(wanted))
    if strange:
        return f"there are OSDs on {', '.join(strange)}, which the spec does not know"
    return None


def section_of(row: dict) -> str:
    """Return the section of a `config dump` row in `config set`'s form: osd, or osd/host:NAME."""
    return f"{row['section']}/{row['mask']}" if row.get("mask") else row["section"]


def configure(cluster: object, settings: dict) -> list:
    """Write settings to the monitors' configuration database; return the changes."""
    have = {(section_of(row), row["name"]): row["value"] for row in cluster.ask("config dump")}
    changed = []
    for section, values in settings.items():
        # OSDs reset recovery settings that come before this one.
        for name, value in sorted(values.items(), key=lambda item: item[0] != MCLOCK_OVERRIDE):
            if have.get((section, name)) == value:
                continue
            # By force: a later release may not know an option, which then has no effect.
            cluster.call("config set", who=section, name=name, value=value, force=True)
            changed.append(f"{section}: {name} = {value}")
    return changed


def numbered(config: dict, found: dict) -> dict:
    """Return the agent's configuration with the OSDs' numbers."""
    nodes = [{**node, "osds": found.get(node["name"], [])} for node in config["nodes"]]
    return {**config, "nodes": nodes}


def adopt(tools: ModuleType, cluster: object, parameters: dict) -> dict:
    """Do all steps and return the output; see the module."""
    wanted = parameters["osds"]
    tools.wait_for_osds(cluster, sum(wanted.values()), parameters["timeout_s"])
    found = numbers_by_host(cluster.ask("osd metadata"))
    sentence = judge(found, wanted)
    if sentence is not None:
        raise tools.Refused(sentence)
    changed = configure(cluster, parameters["settings"])
    changed += tools.move_hosts(cluster, parameters["racks"])
    changed += tools.set_modules(cluster, parameters["modules"])
    changed += tools.require_clients(cluster)
    pools = {**parameters, "osd_count": sum(wanted.values())}
    changed += tools.pools(cluster, pools)["changed"]
    config = numbered(parameters["agent_config"], found)
    return {"changed": changed, "osds": found, "agent_config": config}


def main() -> None:
    """Run the script; see the module."""
    tools = module_of(sys.stdin.read())
    try:
        json.dump(adopt(tools, tools.connect(), json.loads(sys.argv[1])), sys.stdout)
    except tools.Refused as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
