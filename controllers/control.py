"""Agent verbs for controllers: start, stop, status and log, on the admin node.

A controller runs as the systemd unit ``hotbed-controller@NAME``. Only one runs at a time, since two
would undo each other's work. Changes that a killed controller left are put back before any start.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

from controllers.journal import effect_to_json, read_journal
from controllers.loop import EXIT_USER
from controllers.service import (
    CODE,
    CONFIGS,
    FOLDERS,
    JOURNAL,
    OUTCOME,
    SAVED,
    OpenStore,
    ServiceSettings,
    check_settings,
    open_ceph,
    restore,
    store_answers,
)
from schemas.durable import make_folder, write_file
from schemas.errors import HotbedError, StoreError, UserError, not_allowed, unknown
from schemas.locks import held
from schemas.names import unpack_tar
from testbed.agent.contract import AgentConfig
from testbed.stores.contract import Effect

UNIT = "hotbed-controller@"
MAX_CODE_BYTES = 16 << 20
MAX_LOG_BYTES = 4 << 20
FOLLOW_S = 1.0
HEARTBEAT_S = 10.0
_TAIL_BYTES = 1 << 20
_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


class Control:
    """Verbs on one admin node; a test can replace folders, systemctl and store."""

    def __init__(
        self,
        open_store: OpenStore = open_ceph,
        folders: Path = FOLDERS,
        configs: Path = CONFIGS,
        systemctl: Sequence[str] = ("systemctl",),
        store_answers: Callable[[], None] = store_answers,
    ) -> None:
        self._open_store = open_store
        self._store_answers = store_answers
        self._folders = folders
        self._configs = configs
        self._systemctl = tuple(systemctl)

    def start(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """{name, seed, interval_s, signal, parameters?, code?} -> {name, journal, healed}.

        Raises:
            UserError: bad settings, or a controller is already running.
            StoreError: the controller could not be started; the message gives the reason.
        """
        code = payload.get("code")
        name = _checked_name(payload.get("name"))
        folder = self._folders / name
        data = {key: value for key, value in payload.items() if key != "code"}
        dirs = [str(folder / CODE)] if code is not None else []
        settings = check_settings(data | {"folder": str(folder), "controllers_dirs": dirs})
        with self._lock():
            running = self._running()
            if running is not None:
                raise UserError(
                    f"controller {running} is running on this testbed",
                    do="stop it first (hotbed control stop)",
                )
            healed = self._heal()
            folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(folder / CODE, ignore_errors=True)
            if code is not None:
                unpack(code, folder / CODE)
            make_folder(self._configs)
            write_file(self._configs / f"{name}.json", json.dumps(asdict(settings)))
            (folder / OUTCOME).unlink(missing_ok=True)
            self._call("reset-failed", f"{UNIT}{name}.service")
            started = self._call("start", f"{UNIT}{name}.service")
            if started.returncode != 0:
                self._explain(settings, started.stderr)
        return {"name": name, "journal": str(folder / JOURNAL), "healed": healed}

    def _explain(self, settings: ServiceSettings, message: str) -> None:
        """Raise the error that the service reported for its failed start."""
        outcome = _json(Path(settings.folder) / OUTCOME)
        if outcome is None:
            said = " ".join(message.split())
            raise StoreError(f"controller {settings.name} did not start: {said}")
        if outcome["code"] == EXIT_USER:
            raise UserError(outcome["reason"])
        raise StoreError(outcome["reason"])

    def stop(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """{name?} -> {name, was_running, code, reason, steps, restored, healed}.

        Without a name, the running controller is stopped. Nothing running is no error. Leftovers of
        a killed controller are put back; `healed` lists these changes.

        Raises:
            StoreError: the store does not answer. The controller is stopped all the same. The
                message lists the changes still in force.
        """
        wanted = payload.get("name")
        if wanted is not None:
            wanted = _checked_name(wanted)
        with self._lock():
            running = self._running()
            if running is not None and wanted not in (None, running):
                raise UserError(f"controller {wanted} is not running, but {running} is")
            self._require_store(running)
            if running is not None:
                self._call("stop", f"{UNIT}{running}.service")
            healed = self._heal()
        name = running or wanted
        outcome = _json(self._folders / name / OUTCOME) if name else None
        if outcome is None:
            reason = "killed" if running else "not running"
            outcome = {"code": None, "reason": reason, "steps": None, "restored": []}
        return {"name": name, "was_running": running is not None, "healed": healed, **outcome}

    def _require_store(self, running: str | None) -> None:
        """Raise StoreError if changes are still in force and the store does not answer."""
        steered = self._steered()
        if not steered:
            return
        try:
            self._store_answers()
        except StoreError as error:
            ended = "no controller runs"
            if running is not None:
                self._call("stop", "--no-block", f"{UNIT}{running}.service")
                ended = f"controller {running} ends without it"
            what = "; ".join(
                f"{name}: {', '.join(words) or 'nothing'}" for name, words in steered.items()
            )
            raise StoreError(
                f"{str(error).rstrip('.')}; {ended}; still steered by {what}. `hotbed control "
                "stop` puts it back when the store answers again."
            ) from error

    def _steered(self) -> dict[str, list[str]]:
        """Return the changes still in force, by controller."""
        return {
            path.parent.name: steered(path.with_name(JOURNAL))
            for path in sorted(self._folders.glob(f"*/{SAVED}"))
        }

    def status(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """{} -> {running, controllers: [{name, running, settings, last, outcome, leftover,
        steered}]}."""
        running, steered = self._running(), self._steered()
        controllers = [
            {
                "name": folder.name,
                "running": folder.name == running,
                "settings": _json(self._configs / f"{folder.name}.json"),
                "last": _last_step(folder / JOURNAL),
                "outcome": _json(folder / OUTCOME),
                "leftover": folder.name in steered and folder.name != running,
                "steered": steered.get(folder.name, []),
            }
            for folder in sorted(self._folders.glob("*/"))
        ]
        return {"running": running, "controllers": controllers}

    def log(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """{name, offset?} -> {text, offset, size}: the journal from `offset` on, in pieces."""
        name = _checked_name(payload.get("name"))
        offset = payload.get("offset", 0)
        if not isinstance(offset, int) or offset < 0:
            raise not_allowed("control-log: offset", offset, "0 or more")
        path = self._folders / name / JOURNAL
        try:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(MAX_LOG_BYTES)
        except FileNotFoundError:
            known = [file.parent.name for file in sorted(self._folders.glob(f"*/{JOURNAL}"))]
            raise unknown("journal of controller", name, known) from None
        # Journals are ASCII, so a piece may end anywhere.
        return {
            "text": data.decode("ascii", "replace"),
            "offset": offset + len(data),
            "size": path.stat().st_size,
        }

    def follow(self, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """{name, offset?} -> pieces as of `log`, as they come, until the controller has ended.
        Empty pieces in between end the stream of a caller that is gone."""
        name, offset, ended = _checked_name(payload.get("name")), payload.get("offset", 0), False
        said = time.monotonic()
        while True:
            piece = self.log({"name": name, "offset": offset})
            if piece["text"] or time.monotonic() > said + HEARTBEAT_S:
                said, offset = time.monotonic(), piece["offset"]
                yield piece
            if piece["text"]:
                continue
            if ended:
                return
            # Once more after the end: the last lines may have come in between.
            ended = self._running() != name
            time.sleep(0 if ended else FOLLOW_S)

    def _running(self) -> str | None:
        done = self._call(
            *("list-units", "--plain", "--no-legend", "--type=service"),
            *("--state=active,activating,deactivating,reloading", f"{UNIT}*"),
        )
        for line in done.stdout.splitlines():
            unit = line.split()[0] if line.split() else ""
            if unit.startswith(UNIT):
                return unit[len(UNIT) :].removesuffix(".service")
        return None

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [*self._systemctl, *arguments],
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HotbedError(f"systemctl {arguments[0]} failed: {error}") from error

    def _heal(self) -> list[dict[str, Any]]:
        """Put back the changes that killed controllers left; return the effects."""
        effects: list[Effect] = []
        for path in sorted(self._folders.glob(f"*/{SAVED}")):
            settings = ServiceSettings(path.parent.name, {}, 0, 1.0, "node", str(path.parent))
            effects += restore(settings, self._open_store)
        return [effect_to_json(effect) for effect in effects]

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Allow one start or stop at a time."""
        with held(self._folders / ".lock"):
            yield


def unpack(code: object, directory: Path) -> None:
    """Unpack a base64 tar that holds one folder of plain files into `directory`.

    Raises:
        UserError: no such archive, too large, or a name that leads out of `directory`.
    """
    try:
        raw = base64.b64decode(str(code), validate=True)
    except ValueError as error:
        raise UserError(f"the controller's code is no base64 tar archive: {error}") from None
    unpack_tar(raw, directory, "the controller's code", MAX_CODE_BYTES)


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name or not set(name) <= _NAME or name[0] in "-_":
        raise UserError(f"{name!r} is no controller's name: small letters, digits, - and _")
    return name.replace("_", "-")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _last_step(journal: Path) -> dict[str, Any] | None:
    """Return a summary of the last whole step of a journal."""
    try:
        with journal.open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return None
    for line in reversed(lines):
        try:
            data = json.loads(line)
        except ValueError:
            return None
        if "step" in data:
            keys = ("step", "t_s", "wall", "sense_s", "decide_s", "act_s", "error")
            pressure = (data["observation"] or {}).get("pressure", {})
            return {key: data[key] for key in keys} | {
                "actions": len(data["actions"]),
                "pressure": pressure,
            }
    return None


def steered(path: Path) -> list[str]:
    """Return the changes in a controller's journal as text: affinities that differ from the first
    observed ones, and the number of all other changes."""
    try:
        steps = [step for step in read_journal(path).steps if step["observation"]]
    except UserError:
        return []
    found: dict[int, float] = {}
    now: dict[int, float] = {}
    changes: Counter[str] = Counter()
    for step in steps:
        now = {osd["id"]: osd["primary_affinity"] for osd in step["observation"]["osds"]}
        found = found or dict(now)
        for action, effect in zip_longest(step["actions"], step["effects"]):
            if effect is not None and not effect["ok"]:
                continue  # an action without effect may have been carried out
            if action["action"] == "SetPrimaryAffinity":
                now[action["osd"]] = action["value"]
            else:
                changes[action["action"]] += 1
    words = [f"osd.{osd}={now[osd]:.2f}" for osd in now if now[osd] != found.get(osd)]
    return words + [f"{count} {action}" for action, count in changes.items()]


def start(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Run the verb ``control-start``."""
    return Control().start(payload)


def stop(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Run the verb ``control-stop``."""
    return Control().stop(payload)


def status(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Run the verb ``control-status``."""
    return Control().status(payload)


def log(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Run the verb ``control-log``."""
    return Control().log(payload)


def follow(config: AgentConfig, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Run the verb ``control-follow``."""
    return Control().follow(payload)
