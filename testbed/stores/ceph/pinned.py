"""Pools that lie on one OSD each: what the two-choice scheduler's agents keep their bytes in.

A pool of size 1 whose CRUSH rule takes one OSD and nothing else: where every object of it is, is
known (section VI of Dai et al.: an object server is one disk), and each is one agent's. Made
safely: the CRUSH map is changed by its version, so that nobody else's change is lost, and what is
there already is left alone. Taken away without a trace; other pools, rules and users are not
touched.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from schemas.errors import StoreError, UserError
from testbed.stores.ceph.connection import Connection
from testbed.stores.ceph.health_mute import mute, unmute
from testbed.stores.ceph.pgs import CLEAN, pg_states
from testbed.stores.ceph.pools import removing, wait_for

APPLICATION = "twochoice"
PG_NUM = 4  # few: a PG costs memory on its OSD; more than one, for it writes its log alone
_PREFIX = re.compile(r"^[a-z][a-z0-9_-]{0,39}\.$")
_TRIES = 5  # of a change of the CRUSH map that somebody else's came before
_STALE = (-1, -116)  # EPERM, ESTALE: the map is not the one that was changed


def pin(
    connection: Connection,
    prefix: str,
    osds: Sequence[int],
    *,
    pg_num: int = PG_NUM,
    timeout_s: float = 120.0,
) -> list[str]:
    """Make pool, rule and user `prefix`N for each OSD N; returns what was made, in words.

    The pools have `pg_num` PGs, for good: no autoscaler changes that. Returns when their PGs are
    active+clean, each on its OSD alone. Safe to repeat.

    Raises:
        UserError: `prefix` is no prefix, an OSD is not one of the cluster's, or a pool of such a
            name is there and is not pinned to its OSD.
        StoreError: Ceph refuses something, or the PGs are not clean within `timeout_s`.
    """
    _check(connection, prefix, osds)
    done = _make_rules(connection, prefix, osds)
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
    """The keyring of each agent's user, by the OSD's number: secret. Raises StoreError."""
    found = {}
    for osd in osds:
        user = f"client.{prefix}{osd}"
        found[str(osd)] = f"[{user}]\n\tkey = {_key(connection, user, f'{prefix}{osd}')}\n"
    return found


def unpin(connection: Connection, prefix: str, *, timeout_s: float = 120.0) -> list[str]:
    """Remove every pool, rule and user of `prefix`; returns what was removed, in words.

    Returns when the OSDs have removed the data. Also after a `pin` that was cut off.

    Raises:
        UserError: `prefix` is no prefix.
        StoreError: Ceph refuses something (`mon_allow_pool_delete` must be on), or it takes longer.
    """
    _check_prefix(prefix)
    ours = re.compile(re.escape(prefix) + r"\d+$")
    done = []
    rules = _rule_ids(connection)
    pools = [
        name
        for name, pool in _pools(connection).items()
        if ours.match(name)
        # By its rule where its making was cut off.
        and (APPLICATION in pool["application_metadata"] or pool["crush_rule"] == rules.get(name))
    ]
    unmute(connection, leaving=pools)
    for name in sorted(pools):
        connection.mon(
            "osd pool delete", pool=name, pool2=name, yes_i_really_really_mean_it=True
        ).checked(f"osd pool delete {name}")
        done.append(f"pool {name} removed")
    if pools:
        wait_for(
            lambda: removing(connection) == 0,
            timeout_s,
            f"the OSDs were still deleting the pools {prefix}*",
        )
    used = {int(pool["crush_rule"]) for pool in _pools(connection).values()}
    for name, number in sorted(_rule_ids(connection).items()):
        if ours.match(name) and number not in used:
            connection.mon("osd crush rule rm", name=name).checked(f"osd crush rule rm {name}")
            done.append(f"rule {name} removed")
    for row in connection.mon("auth ls").checked("auth ls")["auth_dump"]:
        user = str(row["entity"])
        if user.startswith("client.") and ours.match(user.removeprefix("client.")):
            connection.mon("auth rm", entity=user).checked(f"auth rm {user}")
            done.append(f"user {user} removed")
    return done


# --- rules -------------------------------------------------------------------------------------


def rule_text(name: str, number: int, osd: int, *, sizes: bool) -> str:
    """A rule that takes one OSD, as crushtool reads it; `sizes` where it wants min_size."""
    lines = [f"rule {name} {{", f"\tid {number}", "\ttype replicated"]
    if sizes:  # up to Ceph 16
        lines += ["\tmin_size 1", "\tmax_size 10"]
    return "\n".join([*lines, f"\tstep take osd.{osd}", "\tstep emit", "}", ""])


def with_rules(text: str, wanted: Mapping[str, int]) -> str:
    """The CRUSH map `text` with rules by name, each taking the OSD that is its value; rules of a
    name that is there are left alone."""
    there = re.findall(r"(?m)^rule (\S+) \{", text)
    numbers = {
        int(number) for number in re.findall(r"(?m)^rule [^{]*\{\s*(?:id|ruleset) (\d+)", text)
    }
    sizes = re.search(r"(?m)^\tmin_size ", text) is not None
    new = []
    for name, osd in wanted.items():
        if name in there:
            continue
        number = next(n for n in range(len(numbers) + 1) if n not in numbers)
        numbers.add(number)
        new.append(rule_text(name, number, osd, sizes=sizes))
    mark = "\n# end crush map"
    head, found, tail = text.partition(mark)
    return head.rstrip("\n") + "\n" + "".join(new) + found + tail


def _make_rules(connection: Connection, prefix: str, osds: Sequence[int]) -> list[str]:
    wanted = {f"{prefix}{osd}": osd for osd in osds}
    for _ in range(_TRIES):
        missing = [name for name in wanted if name not in _rule_ids(connection)]
        if not missing:
            return []
        code, binary, message = connection.mon_bytes("osd getcrushmap")
        if code != 0 or not message.strip().isdigit():
            raise StoreError(f"Ceph does not give its CRUSH map: {message or code}")
        changed = compiled(with_rules(decompiled(binary), wanted))
        code, _, said = connection.mon_bytes(
            "osd setcrushmap", changed, prior_version=int(message.strip())
        )
        if code == 0:
            return [f"rule {name} made" for name in missing]
        if code not in _STALE:
            raise StoreError(f"Ceph refused the CRUSH map with the agents' rules: {said} ({code})")
    raise StoreError("the CRUSH map is changed by others all the time: try again.")


def decompiled(binary: bytes) -> str:
    """A CRUSH map as text. Raises StoreError."""
    return _crushtool("-d", binary).decode()


def compiled(text: str) -> bytes:
    """A CRUSH map from its text. Raises StoreError."""
    return _crushtool("-c", text.encode())


def _crushtool(flag: str, data: bytes) -> bytes:
    with tempfile.TemporaryDirectory(prefix="hotbed-crush-") as folder:
        before, after = Path(folder, "in"), Path(folder, "out")
        before.write_bytes(data)
        argv = ["crushtool", flag, str(before), "-o", str(after)]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
        except FileNotFoundError as error:
            raise StoreError("crushtool is missing on this node (package ceph-base).") from error
        except subprocess.TimeoutExpired as error:
            raise StoreError("crushtool did not end within 30 s.") from error
        if done.returncode != 0 or not after.exists():
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it said nothing"]
            raise StoreError(f"crushtool refused the CRUSH map: {said[0]}")
        return after.read_bytes()


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
    # Also where a creation was cut off; all of it is accepted again.
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
    """The user's key, made when there is none: for its pool alone, and to fence off its predecessor
    (profile rbd: the monitors' blocklist)."""
    caps = ["mon", "profile rbd", "osd", f"allow rwx pool={pool}"]
    reply = connection.mon("auth get-or-create-key", entity=user, caps=caps)
    if not reply.ok:  # its output is a key when it is
        raise StoreError(f"Ceph refused the user {user}: {reply.message} ({reply.code})")
    found = reply.data
    return str(found["key"] if isinstance(found, dict) else found).strip()


# --- looking -------------------------------------------------------------------------------------


def _check_prefix(prefix: str) -> None:
    if not _PREFIX.match(prefix):
        raise UserError(
            f"prefix is {prefix!r}; write lower-case letters, digits, - or _ and a dot, such as "
            "'twochoice.'."
        )


def _check(connection: Connection, prefix: str, osds: Sequence[int]) -> None:
    _check_prefix(prefix)
    known = {int(row["osd"]) for row in connection.mon("osd dump").checked("osd dump")["osds"]}
    for osd in osds:
        if osd not in known:
            there = ", ".join(str(one) for one in sorted(known))
            raise UserError(f"there is no osd.{osd}; the cluster has {there}.")


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
            raise UserError(f"pool {name} exists and is not pinned to osd.{osd}: remove it first.")


def _clean_and_alone(connection: Connection, prefix: str, osds: Sequence[int]) -> bool:
    pools = _pools(connection)
    for osd in osds:
        pool = pools.get(f"{prefix}{osd}")
        if pool is None:
            return False
        pgids = [f"{pool['pool']}.{number:x}" for number in range(int(pool["pg_num"]))]
        if set(pg_states(connection, pgids)) != {CLEAN}:
            return False
        for pgid in pgids:
            found = connection.mon("pg map", pgid=pgid).checked(f"pg map {pgid}")
            if list(found["acting"]) != [osd]:
                raise StoreError(
                    f"PG {pgid} of pool {prefix}{osd} is on OSDs {json.dumps(found['acting'])}, "
                    f"and not on osd.{osd} alone: is an upmap in force?"
                )
    return True
