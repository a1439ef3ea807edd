"""Pools that lie on one OSD each, on a cluster in memory; the CRUSH map by the real crushtool."""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

import pytest
from fake_rados import FakeRados, Refused

from schemas.errors import StoreError, UserError
from testbed.stores.ceph import Connection, pinned
from testbed.stores.ceph.health_mute import CODE

CRUSH = """# begin crush map

# devices
device 0 osd.0
device 1 osd.1
device 2 osd.2

# types
type 0 osd
type 1 host
type 2 root

# buckets
host a {
\tid -2
\talg straw2
\thash 0
\titem osd.0 weight 1.000
\titem osd.1 weight 1.000
\titem osd.2 weight 1.000
}
root default {
\tid -1
\talg straw2
\thash 0
\titem a weight 3.000
}

# rules
rule replicated_rule {
\tid 0
\ttype replicated
\tmin_size 1
\tmax_size 10
\tstep take default
\tstep chooseleaf firstn 0 type host
\tstep emit
}

# end crush map
"""


class PinnableRados(FakeRados):
    """Pools, rules and users come and go; the CRUSH map is its text."""

    def __init__(self) -> None:
        super().__init__()
        self.crush, self.version = CRUSH, 7
        self.users: dict[str, list[str]] = {"client.admin": []}
        self.muted: set[str] = set()
        self.warns = True
        self.others = 0  # changes of the CRUSH map that come before ours
        for pool in self.dump["pools"]:
            pool.setdefault("application_metadata", {"rados": {}})

    def state(self) -> str:
        dump = {key: value for key, value in self.dump.items() if key != "epoch"}
        return json.dumps([dump, self.rules(), sorted(self.users), sorted(self.muted)])

    def rules(self) -> dict[str, int]:
        found = re.findall(r"(?m)^rule (\S+) \{\s*id (\d+)", self.crush)
        return {name: int(number) for name, number in found}

    def mon_command(self, cmd: str, inbuf: bytes) -> tuple[int, bytes, str]:
        arguments = json.loads(cmd)
        if arguments["prefix"] == "osd getcrushmap":
            return 0, self.crush.encode(), str(self.version)
        if arguments["prefix"] == "osd setcrushmap":
            if self.others:
                self.others -= 1
                self.version += 1
            if arguments["prior_version"] != self.version:
                return -1, b"", "prior_version does not match"
            self.crush, self.version = inbuf.decode(), self.version + 1
            return 0, b"", str(self.version)
        return super().mon_command(cmd, inbuf)

    def pool(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(p for p in self.dump["pools"] if p["pool_name"] == name)
        return found

    def mon_osd_crush_rule_dump(self) -> Any:
        return [{"rule_name": n, "rule_id": number} for n, number in self.rules().items()]

    def mon_osd_crush_rule_rm(self, name: str) -> str:
        number = self.rules()[name]
        if any(pool["crush_rule"] == number for pool in self.dump["pools"]):
            raise Refused(-16, f"crush rule {name} is in use")
        self.crush = re.sub(rf"(?ms)^rule {re.escape(name)} \{{.*?^\}}\n", "", self.crush)
        return self._changed("")

    def mon_osd_pool_create(self, pool: str, pg_num: int, rule: str, **rest: Any) -> str:
        number = max(p["pool"] for p in self.dump["pools"]) + 1
        made = {
            "pool": number,
            "pool_name": pool,
            "pg_num": pg_num,
            "size": rest["size"],
            "min_size": 1,
            "crush_rule": self.rules()[rule],
            "application_metadata": {},
        }
        self.dump["pools"].append(made)
        taken = re.search(rf"(?ms)^rule {re.escape(rule)} \{{.*?take osd\.(\d+)", self.crush)
        assert taken is not None
        for place in range(pg_num):
            self.maps[f"{number}.{place:x}"] = [int(taken[1])]
        return self._changed(f"pool '{pool}' created")

    def mon_osd_pool_set(self, pool: str, var: str, val: str, **_: Any) -> str:
        self.pool(pool)[var] = int(val)
        return self._changed("")

    def mon_osd_pool_application_enable(self, pool: str, app: str, **_: Any) -> str:
        self.pool(pool)["application_metadata"][app] = {}
        return self._changed("")

    def mon_osd_pool_delete(self, pool: str, **_: Any) -> str:
        gone = self.pool(pool)
        self.dump["pools"].remove(gone)
        for pgid in [pgid for pgid in self.maps if pgid.startswith(f"{gone['pool']}.")]:
            del self.maps[pgid]
        return self._changed("")

    def mon_auth_ls(self) -> Any:
        return {"auth_dump": [{"entity": user} for user in self.users]}

    def mon_auth_get_or_create_key(self, entity: str, caps: list[str]) -> Any:
        self.users.setdefault(entity, caps)
        return {"key": f"secret-{entity}"}

    def mon_auth_rm(self, entity: str) -> str:
        del self.users[entity]
        return ""

    def mon_health(self, detail: str) -> Any:
        small = [p["pool_name"] for p in self.dump["pools"] if p["size"] == 1]
        if not small or not self.warns:
            return {"status": "HEALTH_OK", "checks": {}}
        lines = [{"message": f"pool '{name}' has no replicas configured"} for name in small]
        return {"checks": {CODE: {"detail": lines, "muted": CODE in self.muted}}}

    def mon_health_mute(self, code: str) -> str:
        self.muted.add(code)
        return ""

    def mon_health_unmute(self, code: str) -> str:
        self.muted.discard(code)
        return ""


@pytest.fixture
def raw(monkeypatch: pytest.MonkeyPatch) -> PinnableRados:
    monkeypatch.setattr(pinned, "decompiled", bytes.decode)
    monkeypatch.setattr(pinned, "compiled", str.encode)
    return PinnableRados()


@pytest.fixture
def connection(raw: PinnableRados) -> Connection:
    return Connection(raw, timeout_s=2.0)


def test_each_osd_gets_a_pool_a_rule_and_a_user_and_all_goes_again(
    raw: PinnableRados, connection: Connection
) -> None:
    before = raw.state()
    done = pinned.pin(connection, "twochoice.", [0, 2])
    assert sum("made" in words for words in done) == 6
    for osd in (0, 2):
        pool = raw.pool(f"twochoice.{osd}")
        assert (pool["size"], pool["min_size"], pool["pg_num"]) == (1, 1, pinned.PG_NUM)
        assert f"step take osd.{osd}\n\tstep emit" in raw.crush
        mon, may, osds, cap = raw.users[f"client.twochoice.{osd}"]
        assert (mon, may, osds) == ("mon", "profile rbd", "osd")
        assert cap == f"allow rwx pool=twochoice.{osd}"
    assert CODE in raw.muted
    assert pinned.pin(connection, "twochoice.", [0, 2]) == []
    keys = pinned.keyrings(connection, "twochoice.", [0, 2])
    assert keys["2"] == "[client.twochoice.2]\n\tkey = secret-client.twochoice.2\n"
    removed = pinned.unpin(connection, "twochoice.")
    assert len(removed) == 6
    assert raw.state() == before
    assert pinned.unpin(connection, "twochoice.") == []


def test_what_was_cut_off_is_finished_or_removed(
    raw: PinnableRados, connection: Connection
) -> None:
    before = raw.state()

    def dies(prefix: str) -> None:
        if prefix == "osd pool application enable":
            raise Refused(-110, "cut off")

    raw.before = dies
    with pytest.raises(StoreError, match="cut off"):
        pinned.pin(connection, "twochoice.", [0, 1])
    raw.before = lambda prefix: None
    pinned.unpin(connection, "twochoice.")
    assert raw.state() == before
    raw.before = dies
    with pytest.raises(StoreError, match="cut off"):
        pinned.pin(connection, "twochoice.", [0, 1])
    raw.before = lambda prefix: None
    pinned.pin(connection, "twochoice.", [0, 1])
    assert "twochoice" in raw.pool("twochoice.1")["application_metadata"]
    pinned.unpin(connection, "twochoice.")
    assert raw.state() == before


def test_nobody_elses_change_of_the_crush_map_is_lost(
    raw: PinnableRados, connection: Connection
) -> None:
    raw.others = 2
    pinned.pin(connection, "twochoice.", [1])
    assert raw.rules() == {"replicated_rule": 0, "twochoice.1": 1}
    raw.others = 99
    with pytest.raises(StoreError, match="changed by others all the time"):
        pinned.pin(connection, "twochoice.", [0])


def test_others_pools_rules_and_warnings_are_left_alone(
    raw: PinnableRados, connection: Connection
) -> None:
    pinned.pin(connection, "twochoice.", [0])
    raw.muted.clear()
    raw.dump["pools"][0]["size"] = 1  # somebody's who may not know
    raw.dump["pools"].append(raw.pool("twochoice.0") | {"pool": 99, "pool_name": "twochoice.x"})
    pinned.pin(connection, "twochoice.", [1])
    assert CODE not in raw.muted
    pinned.unpin(connection, "twochoice.")
    assert raw.pool("twochoice.x")
    # The other pool uses the rule: it stays.
    assert set(raw.rules()) == {"replicated_rule", "twochoice.0"}


def test_a_pool_that_is_not_pinned_is_not_taken(raw: PinnableRados, connection: Connection) -> None:
    pinned.pin(connection, "twochoice.", [0])
    raw.pool("twochoice.0")["crush_rule"] = 0
    with pytest.raises(UserError, match=r"twochoice\.0 exists and is not pinned to osd\.0"):
        pinned.pin(connection, "twochoice.", [0])


@pytest.mark.parametrize(
    ("prefix", "osds", "said"),
    [
        ("twochoice", [0], "prefix is 'twochoice'"),
        ("a*.", [0], "prefix is"),
        ("twochoice.", [0, 77], r"there is no osd\.77; the cluster has 0, 1, 2"),
    ],
)
def test_bad_input_is_a_sentence(
    connection: Connection, prefix: str, osds: list[int], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        pinned.pin(connection, prefix, osds)


def test_rules_take_free_numbers_and_the_form_of_their_neighbours() -> None:
    text = pinned.with_rules(CRUSH, {"t.0": 0, "t.1": 1, "replicated_rule": 2})
    assert re.findall(r"rule (\S+) \{\n\tid (\d+)", text) == [
        ("replicated_rule", "0"),
        ("t.0", "1"),
        ("t.1", "2"),
    ]
    assert text.endswith("# end crush map\n")
    later = re.sub(r"\tm(in|ax)_size \d+\n", "", CRUSH)
    assert "min_size" not in pinned.with_rules(later, {"t.0": 0})


@pytest.mark.skipif(shutil.which("crushtool") is None, reason="no crushtool on this machine")
def test_crushtool_takes_the_rules() -> None:
    text = pinned.decompiled(pinned.compiled(pinned.with_rules(CRUSH, {"t.0": 0, "t.2": 2})))
    assert "step take osd.2\n\tstep emit" in text
    with pytest.raises(StoreError, match="crushtool refused"):
        pinned.compiled("nonsense {")
