"""Update a cluster's maps to match the inventory: OSDs, keys, CRUSH places, pools.

Run on a monitor as ``python3 - PARAMETERS``. PARAMETERS is a JSON
object with `step`: register (before daemons start) or pools (when they run). It talks to the
monitors through librados, since one call of the command `ceph` costs half a second of CPU time.
Prints {"changed": [what, ...], "keys": {host: {entity: key}}}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

TIMEOUT_S = 30
KEEP_TRYING_S = 60
IN_PARALLEL = 8  # parallel commands: the monitors put them into one map epoch
OSD_CAPS = ["mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *"]
MGR_CAPS = ["mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"]
RGW_CAPS = ["mon", "allow rw", "osd", "allow rwx"]


class Refused(Exception):
    """The monitors refused a command; the message is a sentence."""


class Cluster:
    """Monitor commands as functions, over any object with librados' `mon_command`."""

    def __init__(self, rados: object) -> None:
        self._rados = rados

    def close(self) -> None:
        """Disconnect. librados' threads may crash a process that ends while they run."""
        self._rados.shutdown()

    def call(self, prefix: str, data: str = "", **arguments: object) -> str:
        """Run one monitor command and return its output; `data` is its input."""
        command = json.dumps({"prefix": prefix, **arguments})
        code, output, message = self._rados.mon_command(command, data.encode(), timeout=TIMEOUT_S)
        if code != 0:
            reason = message.strip() or os.strerror(abs(code))
            raise Refused(f"the monitors refused `ceph {prefix}`: {reason}")
        return output.decode()

    def ask(self, prefix: str, **arguments: object) -> object:
        """Run one monitor command and return its JSON answer."""
        return json.loads(self.call(prefix, format="json", **arguments))


def together(function: object, items: list) -> list:
    """Call `function` on every item, `IN_PARALLEL` at a time; return the results in order."""
    with ThreadPoolExecutor(IN_PARALLEL) as pool:
        return list(pool.map(function, items))


# --- register ----------------------------------------------------------------------------------


def osd_key(cluster: Cluster, host: str, osd: dict, existing: dict) -> tuple[str, str | None]:
    """Return the OSD's key and the change; make the key and the OSD itself if they are missing."""
    number, uuid = osd["id"], osd["uuid"]
    if existing.get(number, uuid) != uuid:
        raise Refused(
            f"osd.{number} exists with another UUID ({existing[number]}) than node {host}'s "
            f"({uuid}): remove it with `ceph osd purge {number}`"
        )
    if number not in existing:
        cluster.call("osd new", uuid=uuid, id=number)
    # The monitors draw the key, because releases differ in the kinds of keys that they accept.
    key = cluster.call("auth get-or-create-key", entity=f"osd.{number}", caps=OSD_CAPS).strip()
    return key, None if number in existing else f"osd.{number} registered"


def place(cluster: Cluster, where: tuple, number: int, size: int, placed: set) -> str | None:
    """Put OSD `number` of `size` bytes under its host and rack ("": none) in the CRUSH map."""
    host, rack = where
    if (host, number) in placed:
        return None
    weight = max(round(size / 2**40, 5), 1e-5)  # TiB, as everywhere in Ceph
    buckets = [f"host={host}", *([f"rack={rack}"] if rack else []), "root=default"]
    cluster.call("osd crush add", id=number, weight=weight, args=buckets)
    return f"osd.{number} placed on {host}"


def places(tree: dict) -> set:
    """Return the (host, OSD) pairs of an `osd tree`."""
    return {
        (node["name"], child)
        for node in tree["nodes"]
        if node["type"] == "host"
        for child in node["children"]
    }


def rack_by_host(tree: dict) -> dict:
    """Return the rack of every host of an `osd tree`; "" for a host in no rack."""
    names = {node["id"]: node["name"] for node in tree["nodes"] if node["type"] == "host"}
    racks = {
        names[child]: node["name"]
        for node in tree["nodes"]
        if node["type"] == "rack"
        for child in node["children"]
        if child in names
    }
    return {host: racks.get(host, "") for host in names.values()}


def move_hosts(cluster: Cluster, wanted: dict) -> list:
    """Move every existing host to its rack; `wanted` is rack ("": none) by host."""
    tree = cluster.ask("osd tree")
    have = {node["name"] for node in tree["nodes"] if node["type"] == "rack"}
    for rack in sorted(set(wanted.values()) - have - {""}):
        cluster.call("osd crush add-bucket", name=rack, type="rack", args=["root=default"])
    changed = []
    for host, rack in rack_by_host(tree).items():
        if host in wanted and wanted[host] != rack:
            buckets = [*([f"rack={wanted[host]}"] if wanted[host] else []), "root=default"]
            cluster.call("osd crush move", name=host, args=buckets)
            changed.append(f"{host} moved to {wanted[host] or 'no rack'}")
    return changed


def daemon_keys(cluster: Cluster, parameters: dict, known: set) -> tuple[dict, list]:
    """Return the keys of managers and gateways by host and entity, and the changes."""
    keys: dict = {}
    changed = []
    for kind, caps in (("mgr", MGR_CAPS), ("client.rgw", RGW_CAPS)):
        for host in parameters[kind]:
            entity = f"{kind}.{host}"
            key = cluster.call("auth get-or-create-key", entity=entity, caps=caps).strip()
            keys.setdefault(host, {})[entity] = key
            if entity not in known:
                changed.append(f"key of {entity} made")
    return keys, changed


def set_modules(cluster: Cluster, settings: dict) -> list:
    """Write manager modules' settings to the monitors' configuration database."""
    rows = cluster.ask("config dump")
    have = {row["name"]: row["value"] for row in rows if row["section"] == "mgr"}
    wrong = {name: value for name, value in settings.items() if have.get(name) != value}
    for name, value in wrong.items():
        # By force: the monitors do not know modules' options until a first manager runs.
        cluster.call("config set", who="mgr", name=name, value=value, force=True)
    return [f"{name} = {value}" for name, value in wrong.items()]


def register(cluster: Cluster, parameters: dict) -> dict:
    """Register OSDs, keys and CRUSH places, before any of the daemons runs."""
    osds = [
        (host, number, osd)
        for host, found in parameters["osds"].items()
        for number, osd in enumerate(found)
    ]
    existing = {row["osd"]: row["uuid"] for row in cluster.ask("osd dump")["osds"]}
    known = {row["entity"] for row in cluster.ask("auth ls")["auth_dump"]}
    made = together(lambda one: osd_key(cluster, one[0], one[2], existing), osds)
    racks = parameters["racks"]
    rehoused = move_hosts(cluster, racks)
    placed = places(cluster.ask("osd tree"))
    sizes = parameters["bytes"]
    moved = together(
        lambda one: place(
            cluster, (one[0], racks[one[0]]), one[2]["id"], sizes[one[0]][one[1]], placed
        ),
        osds,
    )
    keys, changed = daemon_keys(cluster, parameters, known)
    for (host, _, osd), (key, _) in zip(osds, made, strict=True):
        keys.setdefault(host, {})[f"osd.{osd['id']}"] = key
    changed += rehoused
    changed += [what for _, what in made if what] + [what for what in moved if what]
    changed += set_modules(cluster, parameters["modules"])
    changed += require_clients(cluster)
    return {"changed": changed, "keys": keys}


def require_clients(cluster: Cluster) -> list:
    """Require clients that know pg-upmap and, if the monitors know it, pg-upmap-primary."""
    known = cluster.call("get_command_descriptions")
    wanted = "reef" if "pg-upmap-primary" in known else "luminous"
    if cluster.ask("osd dump")["require_min_compat_client"] == wanted:
        return []
    cluster.call("osd set-require-min-compat-client", version=wanted)
    return [f"clients must be {wanted} or newer"]


# --- pools -------------------------------------------------------------------------------------


def pool_command(cluster: Cluster, prefix: str, **arguments: object) -> None:
    """Run a pool command; some, such as a size of one replica, require a confirmation."""
    cluster.call(prefix, yes_i_really_mean_it=True, **arguments)


def placing_rule(cluster: Cluster, failure_domain: str) -> tuple[str, int] | None:
    """Return name and number of the rule that spreads replicas over racks, made if missing; None
    for hosts, because Ceph's own rule spreads over hosts."""
    if failure_domain == "host":
        return None
    name = f"hotbed-{failure_domain}"
    # Safe to repeat: Ceph accepts the same rule again.
    cluster.call("osd crush rule create-replicated", name=name, root="default", type=failure_domain)
    rules = cluster.ask("osd crush rule dump")
    return name, next(rule["rule_id"] for rule in rules if rule["rule_name"] == name)


def make_pool(
    cluster: Cluster, wanted: dict, existing: dict, rule: tuple[str, int] | None = None
) -> list:
    """Make a pool, or change an existing one to the wanted numbers."""
    name = wanted["name"]
    changed = []
    have = existing.get(name)
    if have is None:
        number = wanted["pg_num"]
        cluster.call(
            "osd pool create", pool=name, pg_num=number, pgp_num=number, pool_type="replicated"
        )
        changed.append(f"pool {name} made")
        have = {"pg_num": number, "pg_autoscale_mode": ""}
    if rule is not None and have.get("crush_rule") != rule[1]:
        cluster.call("osd pool set", pool=name, var="crush_rule", val=rule[0])
        changed.append(f"pool {name}: placed by {rule[0]}")
    numbers = {key: wanted[key] for key in ("pg_num", "size", "min_size")}
    for variable, value in {**numbers, "pg_autoscale_mode": "off"}.items():
        if have.get(variable) == value:
            continue
        arguments = {"pool": name, "var": variable, "val": str(value)}
        if variable == "size" and value == 1:
            pool_command(cluster, "osd pool set", **arguments)
        else:
            cluster.call("osd pool set", **arguments)
        if name in existing:
            changed.append(f"pool {name}: {variable} = {value}")
    if "rados" not in have.get("application_metadata", {}):
        cluster.call("osd pool application enable", pool=name, app="rados")
        if name in existing:
            changed.append(f"pool {name}: application rados")
    return changed


def wait_for_osds(cluster: Cluster, count: int, timeout_s: float) -> None:
    """Wait until `count` OSDs are up and in; Refused names those that are down."""
    deadline = time.monotonic() + timeout_s
    while True:
        osds = cluster.ask("osd dump")["osds"]
        if sum(1 for osd in osds if osd["up"] and osd["in"]) >= count:
            return
        if time.monotonic() > deadline:
            down = ", ".join(f"osd.{osd['osd']}" for osd in osds if not osd["up"]) or "some"
            raise Refused(f"after {timeout_s:.0f} s these OSDs are still down: {down}")
        time.sleep(0.1)


def pools(cluster: Cluster, parameters: dict) -> dict:
    """Make the pools once the OSDs are up (so each PG is made once, at its place)."""
    wait_for_osds(cluster, parameters["osd_count"], parameters["timeout_s"])
    existing = {row["pool_name"]: row for row in cluster.ask("osd pool ls", detail="detail")}
    rule = placing_rule(cluster, parameters["failure_domain"])
    changed = []
    for wanted in parameters["pools"]:
        changed += make_pool(cluster, wanted, existing, rule)
    return {"changed": changed, "keys": {}}


# --- connection --------------------------------------------------------------------------------


def connect() -> Cluster:
    """Connect as client.admin, after the monitors have a quorum."""
    import rados  # exists only on the nodes

    options = {"rados_mon_op_timeout": str(TIMEOUT_S), "client_mount_timeout": str(KEEP_TRYING_S)}
    handle = rados.Rados(conffile="/etc/ceph/ceph.conf", name="client.admin", conf=options)
    try:
        handle.connect()
    except rados.Error as error:
        raise Refused(f"no quorum of monitors within {KEEP_TRYING_S} s ({error})") from error
    return Cluster(handle)


def main() -> None:
    """Run the script; see the module."""
    parameters = json.loads(sys.argv[1])
    step = {"register": register, "pools": pools}[parameters["step"]]
    try:
        cluster = connect()
        try:
            json.dump(step(cluster, parameters), sys.stdout)
        finally:
            cluster.close()
    except Refused as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
