"""In-memory monitors, manager and OSDs of a cluster, started from recorded answers.

It keeps an OSD map and a PG map with the relevant rules. Upmaps set the up set. Primary affinity 0
to 1 turns the primary over (by the highest value, not by Ceph's hash). Every change is an epoch. As
on Ceph 16, bad values are accepted silently.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[3] / "data" / "ceph" / "16.2.15"
Answer = tuple[int, bytes, str]


def recorded(name: str) -> Any:
    return json.loads((DATA / name).read_text())


class FakeRados:
    def __init__(self, pgs: int = 128) -> None:
        self.dump = recorded("osd_dump.json")
        for osd in self.dump["osds"]:
            osd["weight"] = osd["primary_affinity"] = 1
        self.dump["pg_upmap"] = []
        self.dump["pg_upmap_items"] = []
        self.tree = recorded("osd_tree.json")
        self.maps = {item["pgid"]: item["up"] for item in recorded("pg_maps.json")[:pgs]}
        self.dump["pools"][-1]["pg_num"] = pgs
        self.balancer = {"mode": "upmap", "active": True}
        self.versions = recorded("versions.json")
        self.features = recorded("features.json")
        self.reweight: Any = recorded("test_reweight.json")
        self.perf = {osd: recorded(f"perf_dump_osd.{osd}.json") for osd in range(3)}
        self.sizes = dict.fromkeys(self.maps, 4 << 20)
        self.states: dict[str, str] = {}
        self.reads: dict[str, int] = {}
        self.writes: dict[str, int] = {}
        self.reported: dict[str, list[int]] = {}  # up sets as last reported, if they are late
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.in_flight = self.most_in_flight = 0
        self.before: Callable[[str], None] = lambda prefix: None
        self.closed = False
        self.filestores: set[int] = set()
        self.config: dict[tuple[str, str], str] = {}
        self.overrides: dict[str, str] = {}  # an OSD's ceph.conf wins over the monitors
        self.queue = "wpq"
        self.modes = "none|crush-compat|upmap"
        self.known_options: set[str] = {"osd_mclock_profile", "crush_location"}
        self._lock = threading.Lock()

    # Calls of librados.

    def mon_command(self, cmd: str, inbuf: bytes) -> Answer:
        return self._answer("mon", cmd)

    def mgr_command(self, cmd: str, inbuf: bytes) -> Answer:
        return self._answer("mgr", cmd)

    def osd_command(self, osdid: int, cmd: str, inbuf: bytes) -> Answer:
        return self._answer("osd", cmd, osdid)

    def pg_command(self, pgid: str, cmd: str, inbuf: bytes) -> Answer:
        return self._answer("pg", cmd, pgid)

    def shutdown(self) -> None:
        self.closed = True

    # State of the cluster.

    def upgrade(self, release: str) -> None:
        """Become a cluster of Reef or of Tentacle that demands clients of Reef."""
        version = {"reef": "18.2.7", "tentacle": "20.2.4"}[release]
        self.versions = {"overall": {f"ceph version {version} (abc) {release} (stable)": 5}}
        self.features = {"client": [{"release": "reef", "num": 1}]}
        self.dump["require_min_compat_client"] = "reef"
        self.queue = "mclock_scheduler"
        for pool in self.dump["pools"]:
            pool["read_balance"] = {"score_acting": 1.31}
        if release == "tentacle":
            self.modes += "|read|upmap-read"
            self.known_options.add("rados_replica_read_policy")

    def osd(self, number: int) -> dict[str, Any]:
        return next(osd for osd in self.dump["osds"] if osd["osd"] == number)

    def up(self, pgid: str) -> list[int]:
        found = list(self.maps[pgid])
        for item in self.dump["pg_upmap"]:
            if item["pgid"] == pgid:
                found = list(item["osds"])
        for item in self.dump["pg_upmap_items"]:
            if item["pgid"] == pgid:
                for pair in item["mappings"]:
                    found = [pair["to"] if osd == pair["from"] else osd for osd in found]
        found.sort(key=lambda osd: -min(1, self.osd(osd)["primary_affinity"]))
        for item in self.dump.get("pg_upmap_primaries", ()):
            if item["pgid"] == pgid and item["primary_osd"] in found:
                found.sort(key=lambda osd: osd != item["primary_osd"])
        return found

    def sent(self, prefix: str) -> list[dict[str, Any]]:
        return [arguments for name, arguments in self.calls if name == prefix]

    def _answer(self, target: str, cmd: str, whom: Any = None) -> Answer:
        arguments = json.loads(cmd)
        prefix = arguments.pop("prefix")
        assert arguments.pop("format") == "json"
        with self._lock:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self.calls.append((prefix, arguments))
        try:
            self.before(prefix)
            with self._lock:
                handler = getattr(self, f"{target}_{prefix.replace(' ', '_').replace('-', '_')}")
                data = handler(whom, **arguments) if whom is not None else handler(**arguments)
                body = b"" if isinstance(data, str) else json.dumps(data).encode()
                if prefix == "config show":
                    return 0, data.encode(), ""
        except Refused as error:
            return error.code, b"", str(error)
        finally:
            with self._lock:
                self.in_flight -= 1
        return 0, body, data if isinstance(data, str) else ""

    def _changed(self, message: str) -> str:
        self.dump["epoch"] += 1
        return message

    def mon_health(self) -> Any:
        return {"status": "HEALTH_OK", "checks": {}}

    def mon_quorum_status(self) -> Any:
        return {"quorum_names": ["admin"], "monmap": {"mons": [{"name": "admin"}]}}

    def mgr_osd_df(self) -> Any:
        return {"nodes": [{"id": osd["osd"], "utilization": 25.0} for osd in self.dump["osds"]]}

    def mon_osd_dump(self) -> Any:
        return self.dump

    def mon_osd_tree(self) -> Any:
        return self.tree

    def mon_versions(self) -> Any:
        return self.versions

    def mon_features(self) -> Any:
        return self.features

    def mon_osd_primary_affinity(self, id: int, weight: float) -> str:
        self._known(id)["primary_affinity"] = weight
        return self._changed(f"set osd.{id} primary-affinity to {weight}")

    def mon_osd_reweight(self, id: int, weight: float) -> str:
        self._known(id)["weight"] = weight
        return self._changed(f"reweighted osd.{id} to {weight}")

    def mon_osd_pg_upmap(self, pgid: str, id: list[int]) -> str:
        self._drop("pg_upmap", pgid)
        self.dump["pg_upmap"].append({"pgid": pgid, "osds": list(id)})
        return self._changed(f"set {pgid} pg_upmap mapping to {id}")

    def mon_osd_pg_upmap_items(self, pgid: str, id: list[int]) -> str:
        self._drop("pg_upmap_items", pgid)
        pairs = [{"from": a, "to": b} for a, b in zip(id[::2], id[1::2], strict=True)]
        self.dump["pg_upmap_items"].append({"pgid": pgid, "mappings": pairs})
        return self._changed(f"set {pgid} pg_upmap_items mapping")

    def mon_osd_pg_upmap_primary(self, pgid: str, id: int) -> str:
        if "reef" not in json.dumps(self.versions):
            raise Refused(-22, "command not known")
        self._drop("pg_upmap_primaries", pgid)
        self.dump["pg_upmap_primaries"].append({"pgid": pgid, "primary_osd": id})
        return self._changed("primary set")

    def mon_osd_rm_pg_upmap(self, pgid: str) -> str:
        self._drop("pg_upmap", pgid)
        return self._changed(f"clear {pgid} pg_upmap mapping")

    def mon_osd_rm_pg_upmap_items(self, pgid: str) -> str:
        self._drop("pg_upmap_items", pgid)
        return self._changed(f"clear {pgid} pg_upmap_items mapping")

    def mon_osd_rm_pg_upmap_primary(self, pgid: str) -> str:
        self._drop("pg_upmap_primaries", pgid)
        return self._changed("primary cleared")

    def mon_osd_getmap(self) -> Any:
        return {"epoch": self.dump["epoch"]}

    def mon_config_dump(self) -> Any:
        return [
            {"section": who, "name": name, "value": value, "level": "advanced", "mask": ""}
            for (who, name), value in self.config.items()
        ]

    def mon_config_set(self, who: str, name: str, value: str) -> str:
        self.config[who, name] = value
        return ""

    def mon_config_rm(self, who: str, name: str) -> str:
        self.config.pop((who, name), None)
        return ""

    def mon_config_help(self, key: str) -> Any:
        if key not in self.known_options:
            raise Refused(-2, "configuration option not recognized")
        return {"name": key}

    def mgr_config_show(self, who: str, key: str) -> Any:
        return self.queue

    def mgr_get_command_descriptions(self) -> Any:
        mode = {"name": "mode", "type": "CephChoices", "strings": self.modes}
        return {
            "cmd000": {"sig": ["balancer", "status"], "module": "mgr"},
            "cmd001": {"sig": ["balancer", "mode", mode], "module": "mgr"},
        }

    def osd_config_get(self, osd: int, var: str) -> Any:
        value = self.config.get(("osd", var), "balanced")
        return {var: self.overrides.get(var, value)}

    def mon_pg_map(self, pgid: str) -> Any:
        if pgid not in self.maps:
            raise Refused(-2, f"pg {pgid} does not exist")
        up = self.up(pgid)
        return {"epoch": self.dump["epoch"], "pgid": pgid, "up": up, "acting": up}

    def pg_query(self, target: str, pgid: str) -> Any:
        assert target == pgid
        up = self.up(pgid)
        return {"state": self.states.get(pgid, "active+clean"), "up": up, "acting": up}

    def mgr_pg_dump(self, dumpcontents: list[str]) -> Any:
        stats = [
            {
                "pgid": p,
                "state": self.states.get(p, "active+clean"),
                "up": self.reported.get(p, self.up(p)),
                "acting": self.reported.get(p, self.up(p)),
                "acting_primary": self.reported.get(p, self.up(p))[0],
                "stat_sum": {
                    "num_bytes": size,
                    "num_read": self.reads.get(p, 0),
                    "num_write": self.writes.get(p, 0),
                },
            }
            for p, size in self.sizes.items()
        ]
        return {"pg_ready": True, "pg_stats": stats}

    def mgr_balancer_status(self) -> Any:
        return self.balancer | {"plans": []}

    def mgr_balancer_mode(self, mode: str) -> str:
        self.balancer["mode"] = mode
        return ""

    def mgr_balancer_on(self) -> str:
        self.balancer["active"] = True
        return ""

    def mgr_balancer_off(self) -> str:
        self.balancer["active"] = False
        return ""

    def mgr_osd_reweight_by_utilization(self, oload: int, max_change: float, max_osds: int) -> Any:
        for change in self.reweight["reweights"]:
            self.osd(change["osd"])["weight"] = change["new_weight"]
            self._changed("")
        return self.reweight

    def osd_perf_dump(self, osd: int, logger: str) -> Any:
        if osd not in self.perf:
            raise Refused(-2, "osd dne")
        return self.perf[osd]

    def mon_osd_metadata(self) -> Any:
        return [
            {
                "id": osd["osd"],
                "osd_objectstore": "filestore" if osd["osd"] in self.filestores else "bluestore",
            }
            for osd in self.dump["osds"]
        ]

    def osd_cache_drop(self, osd: int) -> str:
        if osd in self.filestores:
            raise Refused(-1, "Error flushing objectstore cache")
        return ""

    def _known(self, number: int) -> dict[str, Any]:
        if not any(osd["osd"] == number for osd in self.dump["osds"]):
            raise Refused(-2, f"osd.{number} does not exist")
        return self.osd(number)

    def _drop(self, key: str, pgid: str) -> None:
        self.dump[key] = [item for item in self.dump.get(key, []) if item["pgid"] != pgid]


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
