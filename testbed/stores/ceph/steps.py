"""Actions on a cluster: alike actions are sent together, so that they share one map epoch.

Everything that a monitor would accept silently is checked first: Ceph 16 accepts a primary affinity
of 1.5 and a pg-upmap with a repeated OSD.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from schemas.errors import StoreError
from testbed.stores.ceph.connection import Connection, Reply
from testbed.stores.ceph.pgs import OsdMap, PgReader, bytes_moved, changed_primaries, wait_active
from testbed.stores.contract import (
    BALANCER_MODES,
    CRUSH_LOCATION,
    MCLOCK_PROFILE,
    OPTIONS,
    READ_MODES,
    READ_POLICY,
    Action,
    ClearUpmap,
    ClearUpmapPrimary,
    Effect,
    MoveReplica,
    Pg,
    ReweightByUtilization,
    RunSizeBalancer,
    SetBalancer,
    SetOption,
    SetPrimaryAffinity,
    SetUpmapPrimary,
    SwapPrimary,
)

STALL_TIMEOUT_S = 15.0
OPTION_TIMEOUT_S = 5.0
OSDMAPTOOL = "osdmaptool"
SIZE_BALANCER_PROGRAM = "placementoptimizer.py"
_PROGRAM_S = 60.0
_POLL_S = 0.05
_COMMAND = re.compile(r"ceph osd (rm-)?pg-upmap-primary (\S+)(?: (\d+))?")
_ITEMS = re.compile(r"ceph osd ((?:rm-)?pg-upmap-items) (\S+)((?: \d+)*)")

UpmapAction: TypeAlias = (
    SwapPrimary | ClearUpmap | MoveReplica | SetUpmapPrimary | ClearUpmapPrimary
)


@dataclass(frozen=True)
class Command:
    """A command ready to send, or the reason why there is none."""

    prefix: str = ""
    arguments: Mapping[str, Any] | None = None
    refused: str = ""
    already: str = ""  # the setting already has the wanted value: nothing to send
    pg: str = ""
    primary: int | None = None  # OSD that must lead `pg` afterwards, if known
    bytes: int = 0
    moves: bool = False  # data moves: until then the old members serve


class Steps:
    """Bulk changes on one cluster."""

    def __init__(self, connection: Connection, reader: PgReader, *, upmap_primary: bool) -> None:
        self._connection = connection
        self._reader = reader
        self._upmap_primary = upmap_primary
        self._stall: float | None = None  # of an affinity step, measured in the background
        self._watcher: threading.Thread | None = None

    def affinities(self, actions: Sequence[SetPrimaryAffinity]) -> list[Effect]:
        """Set primary affinities, all at once.

        The call does not wait for the PGs. The stall is measured in the background; the first
        effect of the next step reports it as ``previous_stall_s``.
        """
        osd_map = self._reader.osd_map()
        before = self._reader.pgs(osd_map)
        detail = self._previous_stall()
        start = time.monotonic()
        effects = self._send([affinity_command(action, osd_map) for action in actions])
        self._watch(before, start)
        return _with_detail(effects, detail)

    def upmaps(self, actions: Sequence[UpmapAction]) -> list[Effect]:
        """Make swaps, moves and clears, all at once; wait until the swapped PGs are active.

        The first effect's detail holds the step's ``stall_s``, ``epochs`` and ``late``. ``stall_s``
        runs from the first command until every PG of the step is active under its new primary.
        """
        osd_map = self._reader.osd_map()
        moves = any(isinstance(action, MoveReplica) for action in actions)
        pgs = {pg.id: pg for pg in self._reader.pgs(osd_map, with_bytes=moves)}
        commands = [
            upmap_command(action, osd_map, pgs.get(action.pg), self._upmap_primary)
            for action in actions
        ]
        detail = self._previous_stall()
        start = time.monotonic()
        effects = self._send(commands)
        after = self._reader.osd_map()
        done = [c for c, e in zip(commands, effects, strict=True) if e.ok and not c.already]
        # A PG that moves data is served by its old members until the move is done.
        touched = {command.pg for command in done if not command.moves}
        mapped = {pg.id: pg for pg in self._reader.pgs(after) if pg.id in touched}
        wanted = changed_primaries(pgs.values(), mapped.values())
        if wanted:
            stall_s, late = wait_active(
                self._connection, wanted, start=start, timeout_s=STALL_TIMEOUT_S
            )
            detail |= {"stall_s": stall_s, "late": float(late)}
        effects = [
            _led(command, effect, mapped.get(command.pg))
            for command, effect in zip(commands, effects, strict=True)
        ]
        detail["epochs"] = float(after.epoch - osd_map.epoch)
        return _with_detail(effects, detail)

    def reweight(self, action: ReweightByUtilization) -> Effect:
        """Run Ceph's reweight-by-utilization; report the changed weights and the bytes to move."""
        before = self._reader.pgs(self._reader.osd_map(), with_bytes=True)
        reply = self._connection.mgr(
            "osd reweight-by-utilization",
            oload=action.oload,
            max_change=action.max_change,
            max_osds=action.max_osds,
        )
        if not reply.ok:
            return Effect(False, reply.message or f"error {reply.code}", reply.seconds)
        changes = reweights(reply)
        if not changes:
            none = {"weights_changed": 0.0, "bytes_moved": 0.0}
            return Effect(True, "no change", reply.seconds, none)
        after = self._reader.pgs(self._reader.osd_map())
        moved = bytes_moved(before, after, {pg.id: pg.bytes for pg in before})
        words = ", ".join(f"osd.{osd} {old:.4f} to {new:.4f}" for osd, old, new in changes)
        detail = {"weights_changed": float(len(changes)), "bytes_moved": float(moved)}
        return Effect(True, words, reply.seconds, detail)

    def balancer(self, action: SetBalancer) -> Effect:
        """Switch the balancer module to a mode, or off."""
        if action.mode not in BALANCER_MODES:
            modes = ", ".join(BALANCER_MODES[:-1])
            return Effect(False, f"balancer mode {action.mode!r} is not {modes} or none")
        # A manager does not check the modes of a command that comes from the library.
        if action.mode in READ_MODES and action.mode not in balancer_modes(self._connection):
            return Effect(False, f"this Ceph's balancer has no mode {action.mode!r}")
        return set_balancer(self._connection, action.mode, active=action.mode != "none")

    def read_balancer(self) -> Effect:
        """Let the manager's balancer even out the primaries, or osdmaptool if it has no such mode.

        The detail of osdmaptool's effect holds the number of ``primaries_changed``.
        """
        if balancer_modes(self._connection) >= READ_MODES:
            return set_balancer(self._connection, "read", active=True)
        start = time.monotonic()
        encoded, osd_map = self._connection.osd_map(), self._reader.osd_map()
        actions = [
            action
            for pool in self._reader.pools(osd_map)
            if pool.replicated
            for action in even_primaries(encoded, pool.name)
        ]
        effects = self.upmaps(actions)
        detail = {"primaries_changed": float(len(actions))}
        detail |= effects[0].detail if effects else {}
        failed = next((effect for effect in effects if not effect.ok), None)
        words = failed.message if failed else f"{len(actions)} primaries changed"
        return Effect(failed is None, words, time.monotonic() - start, detail)

    def size_balancer(self, action: RunSizeBalancer) -> Effect:
        """Run the size balancer for the pools in use; its effect holds the ``pgs_moved``."""
        start = time.monotonic()
        osd_map = self._reader.osd_map()
        pools = ",".join(pool.name for pool in self._reader.pools(osd_map))
        argv = [SIZE_BALANCER_PROGRAM, "balance", "--only-pool", pools, "--output", "out"]
        commands = parse_items(proposed([*argv, "--max-pg-moves", str(action.moves)]))
        effects = self._send(commands)
        failed = next((effect for effect in effects if not effect.ok), None)
        words = failed.message if failed else f"{len(effects)} placement groups moved"
        detail = {"pgs_moved": float(len(effects))}
        return Effect(failed is None, words, time.monotonic() - start, detail)

    def option(self, action: SetOption) -> Effect:
        """Set an option of `OPTIONS`; check that the OSDs take it."""
        section = OPTIONS[action.option].section
        if not re.fullmatch(OPTIONS[action.option].pattern, action.value):
            return Effect(False, f"{action.option} cannot be {action.value!r}")
        name, value = action.option, action.value
        reply = self._connection.mon("config set", who=section, name=name, value=value)
        if not reply.ok:
            return Effect(False, reply.message or f"error {reply.code}", reply.seconds)
        start = time.monotonic()
        other = self._without(name, value) if section == "osd" else []
        seconds = reply.seconds + time.monotonic() - start
        if other:
            return Effect(False, f"{_show(other)} did not take {name} {value}", seconds)
        return Effect(True, f"{name} is {value}", seconds)

    def _without(self, name: str, value: str) -> list[int]:
        """Return the OSDs that have not taken a value in time. An OSD that does not answer in time
        is busy, and takes the value later."""
        left = [osd.id for osd in self._reader.osd_map().osds.values() if osd.up]
        deadline = time.monotonic() + OPTION_TIMEOUT_S
        while True:
            asked = [partial(self._connection.osd, osd, "config get", var=name) for osd in left]
            replies = zip(left, self._connection.together(asked), strict=True)
            left = [osd for osd, reply in replies if reply.ok and reply.data.get(name) != value]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(_POLL_S)

    def finish(self) -> float | None:
        """Wait for a stall under measurement; return its seconds, None if there is none."""
        return self._previous_stall().get("previous_stall_s")

    def _send(self, commands: Sequence[Command]) -> list[Effect]:
        """Send all commands that may be sent at once; return one effect each, in order."""
        due = [command for command in commands if not command.refused and not command.already]
        replies = iter(
            self._connection.together(
                [
                    partial(self._connection.mon, command.prefix, **(command.arguments or {}))
                    for command in due
                ]
            )
        )
        effects: list[Effect] = []
        for command in commands:
            if command.refused or command.already:
                effects.append(Effect(not command.refused, command.refused or command.already))
                continue
            reply = next(replies)
            detail = {"bytes_moved": float(command.bytes)} if command.bytes else {}
            message = reply.message or ("" if reply.ok else f"error {reply.code}")
            effects.append(Effect(reply.ok, message, reply.seconds, detail))
        return effects

    def _watch(self, before: Sequence[Pg], start: float) -> None:
        def measure() -> None:
            try:
                after = self._reader.pgs(self._reader.osd_map())
                wanted = changed_primaries(before, after)
                if wanted:
                    self._stall, _ = wait_active(
                        self._connection, wanted, start=start, timeout_s=STALL_TIMEOUT_S
                    )
            except StoreError:
                self._stall = None  # a cluster that cannot be asked shows in the next sense

        self._watcher = threading.Thread(target=measure, daemon=True)
        self._watcher.start()

    def _previous_stall(self) -> dict[str, float]:
        if self._watcher is not None:
            self._watcher.join(STALL_TIMEOUT_S)
            self._watcher = None
        stall, self._stall = self._stall, None
        return {} if stall is None else {"previous_stall_s": stall}


def affinity_command(action: SetPrimaryAffinity, osd_map: OsdMap) -> Command:
    """Return the command for a primary affinity, 0 to 1, of an OSD that exists."""
    osd = osd_map.osds.get(action.osd)
    if osd is None:
        return Command(refused=f"there is no osd.{action.osd}")
    if not 0.0 <= action.value <= 1.0:
        return Command(refused=f"primary affinity {action.value:g} of osd.{osd.id} is not 0 to 1")
    if abs(osd.primary_affinity - action.value) < 1e-4:
        return Command(already=f"primary affinity of osd.{osd.id} is {action.value:g} already")
    return Command("osd primary-affinity", {"id": action.osd, "weight": float(action.value)})


def upmap_command(
    action: UpmapAction,
    osd_map: OsdMap,
    pg: Pg | None,
    upmap_primary: bool,
) -> Command:
    """Return the command for one upmap; `pg` is None if the pools in use have no such PG."""
    if pg is None:
        return Command(refused=f"there is no placement group {action.pg}")
    if isinstance(action, ClearUpmap):
        return _clear(osd_map, pg)
    if isinstance(action, ClearUpmapPrimary):
        if pg.id not in osd_map.pg_upmap_primary:
            return Command(already=f"{pg.id} has no upmap of its primary")
        return Command("osd rm-pg-upmap-primary", {"pgid": pg.id}, pg=pg.id)
    pool = next(pool for pool in osd_map.pools.values() if pool.id == int(pg.id.split(".")[0]))
    if not pool.replicated:
        return Command(refused=f"{pg.id} is of an erasure-coded pool: its order means its shards")
    if isinstance(action, MoveReplica):
        return _move(action, osd_map, pg)
    by_primary = upmap_primary or isinstance(action, SetUpmapPrimary)
    return _swap(action.osd, osd_map, pg, by_primary)


def _swap(osd: int, osd_map: OsdMap, pg: Pg, upmap_primary: bool) -> Command:
    if osd not in pg.up:
        return Command(refused=f"osd.{osd} holds no replica of {pg.id} ({_show(pg.up)})")
    if not osd_map.osds[osd].up:
        return Command(refused=f"osd.{osd} is down: it cannot lead {pg.id}")
    if pg.primary == osd:
        return Command(already=f"osd.{osd} leads {pg.id} already")
    if upmap_primary:
        arguments: dict[str, Any] = {"pgid": pg.id, "id": osd}
        return Command("osd pg-upmap-primary", arguments, pg=pg.id, primary=osd)
    order = [osd, *(other for other in pg.up if other != osd)]
    return Command("osd pg-upmap", {"pgid": pg.id, "id": order}, pg=pg.id, primary=osd)


def _move(action: MoveReplica, osd_map: OsdMap, pg: Pg) -> Command:
    target = osd_map.osds.get(action.target)
    if target is None or not (target.up and target.in_):
        return Command(refused=f"osd.{action.target} is not up and in: it can take no replica")
    if action.source not in pg.up:
        return Command(refused=f"osd.{action.source} holds no replica of {pg.id} ({_show(pg.up)})")
    if action.target in pg.up:
        return Command(refused=f"osd.{action.target} holds a replica of {pg.id} already")
    others = [osd for osd in pg.up if osd != action.source]
    if target.node in {osd_map.osds[osd].node for osd in others}:
        return Command(refused=f"node {target.node} holds another replica of {pg.id}")
    if pg.id in osd_map.pg_upmap:
        # The whole vector is given: items would apply on top of the vector and outlive it.
        prefix = "osd pg-upmap"
        flat = [action.target if osd == action.source else osd for osd in pg.up]
    else:
        pairs = moved_pairs(osd_map.pg_upmap_items.get(pg.id, ()), action.source, action.target)
        prefix = "osd pg-upmap-items" if pairs else "osd rm-pg-upmap-items"
        flat = [osd for pair in pairs for osd in pair]
    arguments: dict[str, Any] = {"pgid": pg.id} | ({"id": flat} if flat else {})
    return Command(prefix, arguments, pg=pg.id, bytes=pg.bytes, moves=True)


def moved_pairs(
    pairs: Sequence[tuple[int, int]], source: int, target: int
) -> list[tuple[int, int]]:
    """Return the pairs of pg-upmap-items after a further move.

    Pairs start from CRUSH's set: (a, b) followed by a move b to c gives (a, c). A move back to a
    removes the pair.
    """
    moved = [(first, target if last == source else last) for first, last in pairs]
    if source not in [last for _, last in pairs]:
        moved.append((source, target))
    return [(first, last) for first, last in moved if first != last]


def _clear(osd_map: OsdMap, pg: Pg) -> Command:
    if pg.id in osd_map.pg_upmap:
        return Command("osd rm-pg-upmap", {"pgid": pg.id}, pg=pg.id)
    if pg.id in osd_map.pg_upmap_primary:
        return Command("osd rm-pg-upmap-primary", {"pgid": pg.id}, pg=pg.id)
    if pg.id in osd_map.pg_upmap_items:
        return Command("osd rm-pg-upmap-items", {"pgid": pg.id}, pg=pg.id)
    return Command(already=f"{pg.id} has no upmap")


def reweights(reply: Reply) -> list[tuple[int, float, float]]:
    """Return (osd, old weight, new weight) from the answer of reweight-by-utilization."""
    items = reply.data.get("reweights", ()) if isinstance(reply.data, dict) else ()
    return [
        (int(item["osd"]), float(item["weight"]), float(item["new_weight"]))
        for item in items
        if float(item["weight"]) != float(item["new_weight"])
    ]


def set_balancer(connection: Connection, mode: str, *, active: bool) -> Effect:
    """Set the balancer module to `mode`, on or off."""
    replies = [
        connection.mgr("balancer mode", mode=mode),
        connection.mgr("balancer on" if active else "balancer off"),
    ]
    seconds = sum(reply.seconds for reply in replies)
    failed = next((reply for reply in replies if not reply.ok), None)
    if failed is not None:
        return Effect(False, failed.message or f"error {failed.code}", seconds)
    return Effect(True, f"balancer {mode}, {'on' if active else 'off'}", seconds)


def balancer_modes(connection: Connection) -> frozenset[str]:
    """Return the modes of the manager's balancer, from its commands' descriptions. StoreError: the
    manager cannot be asked."""
    described = connection.mgr("get_command_descriptions").checked("get_command_descriptions")
    for command in described.values():
        words, arguments = command["sig"][:2], command["sig"][2:]
        if words == ["balancer", "mode"]:
            return frozenset(str(arguments[0].get("strings", "")).split("|"))
    return frozenset()


def has_osdmaptool() -> bool:
    """Return True if this machine has an osdmaptool with the read balancer (from Reef on)."""
    if shutil.which(OSDMAPTOOL) is None:
        return False
    done = subprocess.run([OSDMAPTOOL, "--help"], capture_output=True, text=True, check=False)
    return "--read-pool" in done.stdout + done.stderr


def has_size_balancer() -> bool:
    """Return True if somebody has put the program of `RunSizeBalancer` into this machine's path."""
    return shutil.which(SIZE_BALANCER_PROGRAM) is not None


def even_primaries(osd_map: bytes, pool: str) -> list[SetUpmapPrimary | ClearUpmapPrimary]:
    """Return the changes that `osdmaptool --read` proposes for a pool. `osd_map`: the map in Ceph's
    encoding. StoreError: the tool fails."""
    return parse_read(proposed([OSDMAPTOOL, "map", "--read", "out", "--read-pool", pool], osd_map))


def proposed(argv: Sequence[str], osd_map: bytes = b"") -> str:
    """Return the text that a program writes to the file ``out`` of its folder, with `osd_map` in
    the file ``map``. StoreError: the program fails."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "map").write_bytes(osd_map)
        try:
            done = subprocess.run(
                argv, cwd=folder, capture_output=True, text=True, timeout=_PROGRAM_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StoreError(f"{argv[0]} did not end well: {error}.") from error
        if done.returncode != 0:
            said = " ".join((done.stderr or done.stdout).split())
            raise StoreError(f"{' '.join(argv)} failed: {said[-300:]}.")
        out = Path(folder) / "out"
        return out.read_text() if out.exists() else ""


def parse_read(text: str) -> list[SetUpmapPrimary | ClearUpmapPrimary]:
    """Return the actions in the commands that `osdmaptool --read` writes."""
    return [
        ClearUpmapPrimary(found[2]) if found[1] else SetUpmapPrimary(found[2], int(found[3]))
        for found in map(_COMMAND.fullmatch, text.splitlines())
        if found is not None
    ]


def parse_items(text: str) -> list[Command]:
    """Return the commands for pg-upmap-items among the lines of `text`."""
    commands = []
    for found in map(_ITEMS.fullmatch, map(str.strip, text.splitlines())):
        if found is not None:
            osds = [int(osd) for osd in found[3].split()]
            arguments = {"pgid": found[2]} | ({"id": osds} if osds else {})
            commands.append(Command(f"osd {found[1]}", arguments, pg=found[2], moves=True))
    return commands


def offered_options(connection: Connection, osd_map: OsdMap) -> frozenset[str]:
    """Return the options of `OPTIONS` that have an effect on this cluster: those of mClock if the
    OSDs queue by it, those of replica reads if the release knows them."""
    found = set()
    up = next((osd.id for osd in osd_map.osds.values() if osd.up), None)
    queue = connection.mgr("config show", who=f"osd.{up}", key="osd_op_queue")
    if queue.ok and str(queue.data).strip() == "mclock_scheduler":
        found.add(MCLOCK_PROFILE)
    if connection.mon("config help", key=READ_POLICY).ok:
        found |= {READ_POLICY, CRUSH_LOCATION}
    return frozenset(found)


def _led(command: Command, effect: Effect, pg: Pg | None) -> Effect:
    """Return a failed effect if the monitors accepted the swap but the primary did not change."""
    if pg is None or command.primary is None or pg.primary == command.primary:
        return effect
    why = f"osd.{pg.primary} still leads {pg.id}: osd.{command.primary}'s primary affinity is low"
    return Effect(False, why, effect.seconds, effect.detail)


def _with_detail(effects: list[Effect], detail: Mapping[str, float]) -> list[Effect]:
    """Add the step's own numbers to its first effect."""
    if not effects or not detail:
        return effects
    first = effects[0]
    return [
        Effect(first.ok, first.message, first.seconds, dict(first.detail) | dict(detail)),
        *effects[1:],
    ]


def _show(osds: Sequence[int]) -> str:
    return ", ".join(f"osd.{osd}" for osd in osds)


def grouped(actions: Sequence[Action]) -> list[list[int]]:
    """Return positions of `actions`, grouping consecutive ones of one kind."""
    groups: list[list[int]] = []
    for position, action in enumerate(actions):
        if groups and actions[groups[-1][0]].kind == action.kind:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


# ----------------------------------------------------------------------------------------------
# Saved state: everything that a controller may change on a cluster, and its restoration.

SAVED_VERSION = 2
_TOLERANCE = 1e-3  # Ceph keeps weights in 16 bits


@dataclass(frozen=True)
class RestoreCommand:
    """A command that restores one setting, and its description in words."""

    words: str
    prefix: str
    arguments: Mapping[str, Any]


def save(connection: Connection, osd_map: OsdMap) -> dict[str, Any]:
    """Return the settings in force now, JSON-able, for `restore`. Raises StoreError."""
    status = connection.mgr("balancer status").checked("balancer status")
    return {
        "version": SAVED_VERSION,
        "primary_affinity": {str(osd.id): osd.primary_affinity for osd in osd_map.osds.values()},
        "reweight": {str(osd.id): osd.reweight for osd in osd_map.osds.values()},
        "pg_upmap": {pgid: list(osds) for pgid, osds in osd_map.pg_upmap.items()},
        "pg_upmap_items": {
            pgid: [list(pair) for pair in pairs] for pgid, pairs in osd_map.pg_upmap_items.items()
        },
        "pg_upmap_primary": dict(osd_map.pg_upmap_primary),
        "balancer": {"mode": str(status["mode"]), "active": bool(status["active"])},
        "options": options_in_force(connection),
    }


def options_in_force(connection: Connection) -> dict[str, str]:
    """Return the options of `OPTIONS` that the configuration database has for a whole section."""
    rows = connection.mon("config dump").checked("config dump")
    return {
        str(row["name"]): str(row["value"])
        for row in rows
        if row["name"] in OPTIONS
        and row["section"] == OPTIONS[row["name"]].section
        and not row.get("mask")
    }


def pristine(osd_map: OsdMap) -> dict[str, Any]:
    """Return the initial state of every run: weights and affinities 1, no upmaps, balancer off,
    options as in ceph.conf."""
    return {
        "version": SAVED_VERSION,
        "primary_affinity": {str(osd): 1.0 for osd in osd_map.osds},
        "reweight": {str(osd): 1.0 for osd in osd_map.osds},
        "pg_upmap": {},
        "pg_upmap_items": {},
        "pg_upmap_primary": {},
        "balancer": {"mode": "none", "active": False},
        "options": {},
    }


def restore(connection: Connection, reader: PgReader, saved: Mapping[str, Any]) -> list[Effect]:
    """Restore the settings of `saved`, all at once; settings that do not differ are not touched.

    The balancer is first, so that it does not undo the rest. OSDs and PGs that no longer exist are
    left out. One effect per restored setting. An effect is not ok if Ceph accepted the change but
    the setting still differs. StoreError: the cluster cannot be asked, or `saved` is not from
    `save`."""
    if saved.get("version") != SAVED_VERSION:
        raise StoreError(
            "the saved settings are of another version of Hotbed: deploy the testbed again"
        )
    effects = _restore_balancer(connection, saved["balancer"])
    changes = differences(connection, reader.osd_map(), saved)
    if not changes:
        return effects
    replies = connection.together(
        [partial(connection.mon, change.prefix, **change.arguments) for change in changes]
    )
    left = differences(connection, reader.osd_map(), saved)
    remaining = {change.words for change in left}
    return effects + [
        _effect(change, reply, change.words in remaining)
        for change, reply in zip(changes, replies, strict=True)
    ]


def _effect(change: RestoreCommand, reply: Reply, still: bool) -> Effect:
    if not reply.ok:
        why = reply.message or f"error {reply.code}"
        return Effect(False, f"{change.words}: {why}", reply.seconds)
    if still:
        return Effect(False, f"{change.words}: accepted, but it still differs", reply.seconds)
    return Effect(True, change.words, reply.seconds)


def balancer_differs(connection: Connection, wanted: Mapping[str, Any]) -> bool:
    """Return True if the balancer's mode or activity is not the `wanted` one. Raises StoreError."""
    status = connection.mgr("balancer status").checked("balancer status")
    found = str(status["mode"]), bool(status["active"])
    return found != (str(wanted["mode"]), bool(wanted["active"]))


def _restore_balancer(connection: Connection, wanted: Mapping[str, Any]) -> list[Effect]:
    if not balancer_differs(connection, wanted):
        return []
    return [set_balancer(connection, str(wanted["mode"]), active=bool(wanted["active"]))]


def differences(
    connection: Connection, osd_map: OsdMap, saved: Mapping[str, Any]
) -> list[RestoreCommand]:
    """Return the commands that turn `osd_map` and the options into the saved state (without the
    balancer). Raises StoreError."""
    return [
        *_options(options_in_force(connection), saved["options"]),
        *_weights(osd_map, saved["primary_affinity"], saved["reweight"]),
        *_upmaps(osd_map, saved),
    ]


def _options(there: Mapping[str, str], wanted: Mapping[str, str]) -> list[RestoreCommand]:
    changes = []
    for name, option in OPTIONS.items():
        if there.get(name) == wanted.get(name):
            continue
        arguments = {"who": option.section, "name": name}
        if name in wanted:
            arguments["value"] = wanted[name]
            words = f"{name} to {wanted[name]}"
            changes.append(RestoreCommand(words, "config set", arguments))
        else:
            changes.append(RestoreCommand(f"{name} removed", "config rm", arguments))
    return changes


def _weights(
    osd_map: OsdMap, affinities: Mapping[str, float], weights: Mapping[str, float]
) -> list[RestoreCommand]:
    changes: list[RestoreCommand] = []
    for osd in osd_map.osds.values():
        affinity = affinities.get(str(osd.id), osd.primary_affinity)
        if abs(affinity - osd.primary_affinity) > _TOLERANCE:
            words = f"primary affinity of osd.{osd.id} to {affinity:g}"
            arguments = {"id": osd.id, "weight": float(affinity)}
            changes.append(RestoreCommand(words, "osd primary-affinity", arguments))
        weight = weights.get(str(osd.id), osd.reweight)
        if abs(weight - osd.reweight) > _TOLERANCE:
            words = f"reweight of osd.{osd.id} to {weight:g}"
            changes.append(
                RestoreCommand(words, "osd reweight", {"id": osd.id, "weight": float(weight)})
            )
    return changes


def _upmaps(osd_map: OsdMap, saved: Mapping[str, Any]) -> list[RestoreCommand]:
    """Return the commands for upmaps of every kind."""
    changes: list[RestoreCommand] = []
    for key, words, command in (
        ("pg_upmap", "upmap", "pg-upmap"),
        ("pg_upmap_items", "upmap items", "pg-upmap-items"),
        ("pg_upmap_primary", "upmap primary", "pg-upmap-primary"),
    ):
        there, wanted = getattr(osd_map, key), saved[key]
        changes += [
            RestoreCommand(f"{words} of {pgid} removed", f"osd rm-{command}", {"pgid": pgid})
            for pgid in there
            if pgid not in wanted
        ]
        for pgid, value in wanted.items():
            osds = _flat(value)
            if _flat(there.get(pgid, ())) != osds and _exists(osd_map, pgid, osds):
                one = isinstance(value, int)
                arguments = {"pgid": pgid, "id": value if one else osds}
                shown = f"osd.{value}" if one else value
                changes.append(
                    RestoreCommand(f"{words} of {pgid} to {shown}", f"osd {command}", arguments)
                )
    return changes


def _flat(value: Any) -> list[int]:
    """Return the OSDs of an upmap: of osd, [osd, ...] or [[from, to], ...]."""
    if isinstance(value, int):
        return [value]
    return [osd for one in value for osd in _flat(one)]


def _exists(osd_map: OsdMap, pgid: str, osds: list[int]) -> bool:
    pool, _, number = pgid.partition(".")
    there = {p.id: p.pg_num for p in osd_map.pools.values()}
    return int(number, 16) < there.get(int(pool), 0) and set(osds) <= set(osd_map.osds)
