"""Pools with one OSD each: the two-choice scheduler's agents keep their bytes in them.

Each pool has size 1. Its CRUSH rule takes one OSD's host and chooses an OSD there. So the place of
every object is known (section VI of Dai et al.: an object server is one disk). On a host with
several OSDs, the pool has its own weight set, in which the other OSDs weigh nothing.

A rule that takes the OSD itself would place as well, but it crashes Ceph 16's autoscaler, which
causes HEALTH_ERR. The monitors make all changes by command: no concurrent change of the CRUSH map
is lost, and existing items stay. Removal leaves no trace; other pools, rules, weights and users are
not touched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from schemas.errors import StoreError, UserError
from testbed.stores.ceph.connection import Connection
from testbed.stores.ceph.pgs import CLEAN, pg_states
from testbed.stores.ceph.pools import remove_pool, wait_for, wait_removed

# ----------------------------------------------------------------------------------------------
# Mute of Ceph's warning about pools with one replica, for pools that are meant to have one.
#
# Ceph mutes a warning, not a pool. A mute that is not sticky ends when the warning grows: Ceph
# warns again about a further pool with one replica. So the warning is muted only while it names
# only our pools.

CODE = "POOL_NO_REDUNDANCY"


def _warning(connection: Connection, pools: Sequence[str]) -> tuple[bool, bool] | None:
    """Return (True if the warning is muted, True if it names only `pools`); None if not raised."""
    report = connection.mon("health", detail="detail").checked("health")
    check = report["checks"].get(CODE)
    if check is None:
        return None
    lines = [str(line["message"]) for line in check["detail"]]
    only = all(any(f"'{pool}'" in line for pool in pools) for line in lines)
    return bool(check.get("muted")), only


def mute(connection: Connection, pools: Sequence[str]) -> list[str]:
    """Mute the warning if it is raised and names only `pools`; return the actions taken."""
    if _warning(connection, pools) != (False, True):
        return []
    connection.mon("health mute", code=CODE).checked(f"health mute {CODE}")
    return [f"warning {CODE} muted for {len(pools)} pools"]


def unmute(connection: Connection, *, leaving: Sequence[str]) -> None:
    """End the mute if all pools with one replica are `leaving`; else leave it alone."""
    if _warning(connection, leaving) == (True, True):
        connection.mon("health unmute", code=CODE).checked(f"health unmute {CODE}")


APPLICATION = "twochoice"
PG_NUM = 4  # few: a PG costs memory on its OSD; more than one: a PG writes its log serially
_PREFIX = re.compile(r"[a-z][a-z0-9_-]{0,39}\.")
_THERE = (-17, -114)  # EEXIST, EALREADY


def pin(
    connection: Connection,
    prefix: str,
    osds: Sequence[int],
    *,
    pg_num: int = PG_NUM,
    timeout_s: float = 120.0,
) -> list[str]:
    """Make pool, rule and user `prefix`N for each OSD N; return in words what was made.

    The pools have `pg_num` PGs for good: no autoscaler changes the number. Returns when the PGs are
    active+clean, each on its OSD alone. Safe to repeat. UserError: `prefix` is no prefix, the
    cluster lacks an OSD, or a pool of such a name exists without being pinned to its OSD.
    StoreError: Ceph refuses something, or the PGs are not clean within `timeout_s`."""
    _check(connection, prefix, osds)
    hosts = _hosts(connection)
    done = _make_rules(connection, prefix, {osd: _host_of(osd, hosts) for osd in osds})
    rules = _rule_ids(connection)
    there = _pools(connection)
    _refuse_others(there, rules, prefix, osds)
    made = connection.together(
        [
            partial(_make_pool, connection, f"{prefix}{osd}", pg_num, there.get(f"{prefix}{osd}"))
            for osd in osds
        ]
    )
    done += [word for words in made for word in words]
    for osd in osds:
        others = [one for one in hosts[_host_of(osd, hosts)] if one != osd]
        if others and not _alone(connection, _pools(connection)[f"{prefix}{osd}"], osd):
            _weigh_nothing(connection, f"{prefix}{osd}", others)
    known = {row["entity"] for row in connection.mon("auth ls").checked("auth ls")["auth_dump"]}
    users = [f"client.{prefix}{osd}" for osd in osds]
    for user, osd in zip(users, osds, strict=True):
        _ = _key(connection, user, f"{prefix}{osd}")
        if user not in known:
            done.append(f"user {user} made")
    wait_for(
        lambda: _clean_and_alone(connection, prefix, osds),
        timeout_s,
        f"the PGs of the pools {prefix}* were not active+clean, each on its own OSD",
    )
    done += mute(connection, [f"{prefix}{osd}" for osd in osds])
    return done


def keyrings(connection: Connection, prefix: str, osds: Sequence[int]) -> dict[str, str]:
    """Return the keyring of each agent's user, by OSD number: secret. Raises StoreError."""
    found = {}
    for osd in osds:
        user = f"client.{prefix}{osd}"
        found[str(osd)] = f"[{user}]\n\tkey = {_key(connection, user, f'{prefix}{osd}')}\n"
    return found


def unpin(connection: Connection, prefix: str, *, timeout_s: float = 120.0) -> list[str]:
    """Remove every pool, rule and user of `prefix`; return in words what was removed.

    Returns when the OSDs have removed the data. Also works after an interrupted `pin`. UserError:
    `prefix` is no prefix. StoreError: Ceph refuses something (`mon_allow_pool_delete` must be on),
    or on time-out."""
    _check_prefix(prefix)
    ours = re.compile(re.escape(prefix) + r"\d+")
    done = []
    rules = _rule_ids(connection)
    pools = [
        name
        for name, pool in _pools(connection).items()
        if ours.fullmatch(name)
        # The rule identifies a pool that an interrupted `pin` left without the application.
        and (APPLICATION in pool["application_metadata"] or pool["crush_rule"] == rules.get(name))
    ]
    unmute(connection, leaving=pools)
    for name in sorted(pools):
        remove_pool(connection, name)
        done.append(f"pool {name} removed")
    if pools:
        wait_removed(connection, f"{prefix}*", timeout_s)
    used = {int(pool["crush_rule"]) for pool in _pools(connection).values()}
    for name, number in sorted(_rule_ids(connection).items()):
        if ours.fullmatch(name) and number not in used:
            connection.mon("osd crush rule rm", name=name).checked(f"osd crush rule rm {name}")
            done.append(f"rule {name} removed")
    for row in connection.mon("auth ls").checked("auth ls")["auth_dump"]:
        user = str(row["entity"])
        if user.startswith("client.") and ours.fullmatch(user.removeprefix("client.")):
            connection.mon("auth rm", entity=user).checked(f"auth rm {user}")
            done.append(f"user {user} removed")
    return done


def empty(
    connection: Connection, prefix: str, osds: Sequence[int], *, timeout_s: float = 120.0
) -> int:
    """Replace the pools of `pin` by empty ones, with as many PGs; return how many. Keys stay valid.
    UserError: there is no such pool. StoreError: see `pin`."""
    _check(connection, prefix, osds)
    pools = _pools(connection)
    names = [f"{prefix}{osd}" for osd in osds]
    for name in names:
        if name not in pools:
            raise UserError(
                f"there is no pool {name}", do="deploy the agents first (hotbed deploy)"
            )
    connection.together([partial(remove_pool, connection, name) for name in names])
    wait_removed(connection, f"{prefix}*", timeout_s)
    pg_num = max(int(pools[name]["pg_num"]) for name in names)
    pin(connection, prefix, osds, pg_num=pg_num, timeout_s=timeout_s)
    return len(names)


# --- rules -------------------------------------------------------------------------------------


def _hosts(connection: Connection) -> dict[str, list[int]]:
    """Return the OSDs under each host of the CRUSH map."""
    tree = connection.mon("osd tree").checked("osd tree")
    return {
        str(node["name"]): [int(child) for child in node["children"] if int(child) >= 0]
        for node in tree["nodes"]
        if node["type"] == "host"
    }


def _host_of(osd: int, hosts: Mapping[str, Sequence[int]]) -> str:
    for host, there in hosts.items():
        if osd in there:
            return host
    raise UserError(f"osd.{osd} is under no host of the CRUSH map: place it there first")


def _make_rules(connection: Connection, prefix: str, hosts: Mapping[int, str]) -> list[str]:
    """Make a rule for each OSD that chooses an OSD of its host."""
    there = _rule_ids(connection)
    missing = {
        f"{prefix}{osd}": host for osd, host in hosts.items() if f"{prefix}{osd}" not in there
    }
    for name, host in missing.items():
        connection.mon(
            "osd crush rule create-replicated", name=name, root=host, type="osd"
        ).checked(f"osd crush rule create-replicated {name}")
    return [f"rule {name} made" for name in missing]


def _weigh_nothing(connection: Connection, pool: str, osds: Sequence[int]) -> None:
    """Set the weight of these OSDs to 0 for a pool; the weight set is removed with the pool."""
    made = connection.mon("osd crush weight-set create", pool=pool, mode="flat")
    if made.code not in _THERE:
        made.checked(f"osd crush weight-set create {pool}")
    for osd in osds:
        connection.mon(
            "osd crush weight-set reweight", pool=pool, item=f"osd.{osd}", weight=[0.0]
        ).checked(f"osd crush weight-set reweight {pool} osd.{osd}")


# --- pools and users -----------------------------------------------------------------------------


def _make_pool(
    connection: Connection, name: str, pg_num: int, there: Mapping[str, Any] | None
) -> list[str]:
    done = []
    if there is None:
        connection.mon(
            "osd pool create",
            pool=name,
            pg_num=pg_num,
            pgp_num=pg_num,
            pool_type="replicated",
            rule=name,
            size=1,
            autoscale_mode="off",
            yes_i_really_mean_it=True,
        ).checked(f"osd pool create {name} (pools of one replica need mon_allow_pool_size_one)")
        done.append(f"pool {name} made")
    # Repeated after an interrupted creation too: Ceph accepts all of it again.
    if there is None or int(there["size"]) != 1 or int(there["min_size"]) != 1:
        for key in ("size", "min_size"):
            connection.mon(
                "osd pool set", pool=name, var=key, val="1", yes_i_really_mean_it=True
            ).checked(f"osd pool set {name} {key} 1")
    if there is None or APPLICATION not in there["application_metadata"]:
        connection.mon(
            "osd pool application enable", pool=name, app=APPLICATION, yes_i_really_mean_it=True
        ).checked(f"osd pool application enable {name}")
    return done


def _key(connection: Connection, user: str, pool: str) -> str:
    """Return the user's key, made if there is none. The user may access its pool alone and may
    fence off its predecessor (profile rbd: the monitors' blocklist)."""
    caps = ["mon", "profile rbd", "osd", f"allow rwx pool={pool}"]
    reply = connection.mon("auth get-or-create-key", entity=user, caps=caps)
    if not reply.ok:  # do not quote the output: it is the key on success
        raise StoreError(f"Ceph refused the user {user}: {reply.message} ({reply.code})")
    found = reply.data
    return str(found["key"] if isinstance(found, dict) else found).strip()


# --- looking -------------------------------------------------------------------------------------


def _check_prefix(prefix: str) -> None:
    if not _PREFIX.fullmatch(prefix):
        raise UserError(
            f"prefix is {prefix!r}",
            do="write lower-case letters, digits, - or _ and a dot, such as 'twochoice.'",
        )


def _check(connection: Connection, prefix: str, osds: Sequence[int]) -> None:
    _check_prefix(prefix)
    known = {int(row["osd"]) for row in connection.mon("osd dump").checked("osd dump")["osds"]}
    for osd in osds:
        if osd not in known:
            there = ", ".join(str(one) for one in sorted(known))
            raise UserError(f"there is no osd.{osd}; the cluster has {there}")


def _pools(connection: Connection) -> dict[str, Mapping[str, Any]]:
    dump = connection.mon("osd dump").checked("osd dump")
    return {str(pool["pool_name"]): pool for pool in dump["pools"]}


def _rule_ids(connection: Connection) -> dict[str, int]:
    rules = connection.mon("osd crush rule dump").checked("osd crush rule dump")
    return {str(rule["rule_name"]): int(rule["rule_id"]) for rule in rules}


def _refuse_others(
    pools: Mapping[str, Mapping[str, Any]],
    rules: Mapping[str, int],
    prefix: str,
    osds: Sequence[int],
) -> None:
    for osd in osds:
        name = f"{prefix}{osd}"
        if name in pools and int(pools[name]["crush_rule"]) != rules[name]:
            raise UserError(
                f"pool {name} exists and is not pinned to osd.{osd}", do="remove it first"
            )


def _pgids(pool: Mapping[str, Any]) -> list[str]:
    return [f"{pool['pool']}.{number:x}" for number in range(int(pool["pg_num"]))]


def _alone(connection: Connection, pool: Mapping[str, Any], osd: int) -> bool:
    """Return True if every PG of a pool is mapped to one OSD alone."""
    calls = [partial(connection.mon, "pg map", pgid=pgid) for pgid in _pgids(pool)]
    found = [reply.checked("pg map") for reply in connection.together(calls)]
    return all(list(one["up"]) == [osd] for one in found)


def _clean_and_alone(connection: Connection, prefix: str, osds: Sequence[int]) -> bool:
    pools = _pools(connection)
    for osd in osds:
        pool = pools.get(f"{prefix}{osd}")
        if pool is None or set(pg_states(connection, _pgids(pool))) != {CLEAN}:
            return False
        if not _alone(connection, pool, osd):
            raise StoreError(
                f"the PGs of pool {prefix}{osd} are not on osd.{osd} alone: is an upmap in force?"
            )
    return True
