"""Controller service on the admin node: ``python3 -m controllers.service CONFIG.json``.

systemd starts it as ``hotbed-controller@NAME`` (controllers/unit/). ``--restore`` puts back what a
killed controller changed; the unit's ExecStopPost runs it. Exit codes: see controllers/loop.py.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controllers.decide import PolicyError
from controllers.decider import ChildDecider
from controllers.journal import JournalWriter, effect_to_json, end_journal
from controllers.loop import (
    EXIT_DIED,
    EXIT_FAILED,
    EXIT_NOT_RESTORED,
    EXIT_POLICY,
    EXIT_STOPPED,
    EXIT_USER,
    Loop,
    LoopEnd,
    LoopPlan,
    RealClock,
)
from controllers.registry import code_hash, find, refuse_unoffered
from controllers.saved import Saved
from schemas.durable import make_folder, write_file
from schemas.errors import HotbedError, UserError, not_allowed, sentence_of
from testbed.agent.notify import notify
from testbed.stores.contract import PRESSURE, Effect, Store

if TYPE_CHECKING:
    from testbed.stores.ceph.store import CephStore

FOLDERS = Path("/var/lib/hotbed/controllers")  # one per controller: journal, saved state, outcome
CONFIGS = Path("/etc/hotbed/controllers")
JOURNAL = "journal.jsonl"
SAVED = "saved.json"
OUTCOME = "outcome.json"
ANSWER_S = 2.0  # a slower store counts as not answering
CODE = "code"  # holds an outside controller's folder
SIGNALS = ("node", "osd", "op_r_latency")
DECIDE_LIMIT_S = 10.0
_HANG_S = 90.0  # a store call this much longer than the interval will not return

OpenStore = Callable[["ServiceSettings", bool], AbstractContextManager[Store]]
"""Opens the store; the flag is True to sense pressure, which restoring does not need."""


@dataclass(frozen=True)
class ServiceSettings:
    """Settings in `/etc/hotbed/controllers/NAME.json`."""

    name: str
    parameters: Mapping[str, Any]
    seed: int
    interval_s: float
    signal: str
    folder: str  # for journal, saved state and outcome
    controllers_dirs: tuple[str, ...] = ()
    decide_limit_s: float = DECIDE_LIMIT_S


def check_settings(data: Mapping[str, Any]) -> ServiceSettings:
    """Return settings from JSON; raise UserError with the field and the allowed values."""
    known = ServiceSettings.__dataclass_fields__
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise UserError(f"controller settings: unknown field {unknown[0]!r}")
    missing = [name for name in ("name", "seed", "interval_s", "signal") if name not in data]
    if missing:
        raise UserError(f"controller settings: {missing[0]!r} is missing")
    name, seed, signal_name = data["name"], data["seed"], data["signal"]
    where = f"controller {name}"
    if not isinstance(name, str) or not name:
        raise UserError("controller settings: 'name' must be a controller's name")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise UserError(f"the seed is {seed!r}", where=where, allowed="a whole number")
    if signal_name not in SIGNALS:
        raise UserError(f"the signal is {signal_name!r}", where=where, allowed=", ".join(SIGNALS))
    if not isinstance(data.get("parameters", {}), Mapping):
        raise UserError("the parameters must be a mapping of names to values", where=where)
    return ServiceSettings(
        name=name,
        parameters=dict(data.get("parameters", {})),
        seed=seed,
        interval_s=_seconds(where, "interval_s", data["interval_s"], 0.1, 86_400),
        signal=signal_name,
        folder=str(data.get("folder", FOLDERS / name)),
        controllers_dirs=tuple(str(path) for path in data.get("controllers_dirs", ())),
        decide_limit_s=_seconds(
            where, "decide_limit_s", data.get("decide_limit_s", DECIDE_LIMIT_S), 0.01, 3600
        ),
    )


def _seconds(where: str, field: str, value: object, low: float, high: float) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:  # type: ignore[arg-type,operator]
        raise not_allowed(f"{where}: {field}", value, f"{low:g} to {high:g} seconds")
    return float(value)  # type: ignore[arg-type]


def run(
    settings: ServiceSettings,
    open_store: OpenStore,
    clock: RealClock,
    alive: Callable[[], object] = lambda: None,
) -> LoopEnd:
    """Heal what a killed controller left, then run this one until it is stopped or fails.

    Raises:
        UserError: no such controller, bad parameters, or needs that the store does not offer.
        HotbedError: the store cannot be reached, or earlier changes cannot be put back.
    """
    folder = Path(settings.folder)
    make_folder(folder)
    restore(settings, open_store)
    (folder / OUTCOME).unlink(missing_ok=True)
    dirs = [Path(directory) for directory in settings.controllers_dirs]
    controller = find(settings.name, dirs)
    decider = ChildDecider(
        settings.name, settings.parameters, settings.seed, dirs, limit_s=settings.decide_limit_s
    )
    try:
        # A policy that does not ask for pressure must not fail if a sensor is missing.
        with open_store(settings, PRESSURE in decider.needs.senses) as store:
            refuse_unoffered(controller.name, decider.needs, store.offers(), _kind_of(store))
            plan = LoopPlan(
                policy=controller.name,
                needs=decider.needs,
                parameters=decider.parameters,
                seed=settings.seed,
                interval_s=settings.interval_s,
                signal=settings.signal,
                code_hash=code_hash(controller),
            )
            set_aside(folder / JOURNAL)
            with JournalWriter(folder / JOURNAL) as journal:
                loop = Loop(
                    plan,
                    decider=decider,
                    store=store,
                    journal=journal,
                    saved=Saved(folder / SAVED),
                    clock=clock,
                    alive=alive,
                )
                return loop.run()
    finally:
        decider.close()


def restore(settings: ServiceSettings, open_store: OpenStore) -> list[Effect]:
    """Put back what a killed controller changed, and write its missing footer and outcome.

    Does nothing (and opens nothing) if there is nothing to put back and the end is written.

    Raises:
        HotbedError: the changes could not be put back. OSError: the end cannot be written.
    """
    folder = Path(settings.folder)
    saved = Saved(folder / SAVED)
    effects: list[Effect] = []
    left = "the store is as it was found"
    try:
        if saved.exists():
            with open_store(settings, False) as store:
                effects = saved.put_back(store, time.sleep)
    except HotbedError as error:
        left = str(error)
        raise
    finally:
        if (folder / JOURNAL).exists() and not (folder / OUTCOME).exists():
            _write_end(folder, left, effects)
    return effects


def _write_end(folder: Path, left: str, effects: Sequence[Effect]) -> None:
    """Write footer and outcome of a controller that died; `left` is the state of its store."""
    # systemd gives the cause to ExecStopPost.
    code, status = (os.environ.get(name, "") for name in ("EXIT_CODE", "EXIT_STATUS"))
    reason = f"died ({code} {status}); {left}" if code else f"died; {left}"
    try:
        steps = end_journal(folder / JOURNAL, reason, effects)
    except UserError as error:
        steps, reason = 0, f"{reason}; {error}"
    if steps is not None:
        write_outcome(folder, LoopEnd(EXIT_DIED, reason, steps, effects))


def set_aside(journal: Path) -> None:
    """Rename an earlier journal to journal.1.jsonl, journal.2.jsonl ..., oldest first."""
    if not journal.exists():
        return
    number = 1
    while (aside := journal.with_name(f"{journal.stem}.{number}{journal.suffix}")).exists():
        number += 1
    journal.rename(aside)


def write_outcome(folder: Path, outcome: LoopEnd) -> None:
    """Write how the controller ended, for `control-status` and `control-stop`."""
    data = asdict(outcome) | {"ended_at": time.time()}
    data["restored"] = [effect_to_json(effect) for effect in outcome.restored]
    write_file(folder / OUTCOME, json.dumps(data))


def _kind_of(store: Store) -> str:
    """Return the store's name for messages."""
    return str(getattr(store, "kind", "Ceph"))


@contextmanager
def open_ceph(settings: ServiceSettings, sensing: bool) -> Iterator[Store]:
    """Open the testbed's store on its admin node: Ceph, or Swift microstores."""
    from testbed.agent.contract import CONTROL_DIR, load_config
    from testbed.agent.reach import use_control_dir
    from testbed.agent.sense import open_store
    from testbed.stores.swift.store import SwiftStore, store_of

    # Own connections: systemd kills all processes of a unit, and would kill a shared ssh master
    # that carries everybody else's commands.
    if sensing:
        use_control_dir(CONTROL_DIR / "controller")
    config = load_config()
    store: CephStore | SwiftStore
    if config.store == "swift":
        store = store_of(config)
    else:
        store = open_store(config, settings.signal if sensing else None)
    try:
        yield store
    finally:
        store.close()


def store_answers() -> None:
    """Raise StoreError if the testbed's Ceph does not answer within `ANSWER_S`."""
    from testbed.agent.contract import load_config
    from testbed.stores.ceph.connection import connect

    if load_config().store == "ceph":
        connect(timeout_s=ANSWER_S).close()


def _serve(settings: ServiceSettings, open_store: OpenStore) -> int:
    folder = Path(settings.folder)
    clock = RealClock()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: clock.stop())
    # systemd kills a service that stays silent this long; ExecStopPost then heals.
    limit_us = round((settings.interval_s + settings.decide_limit_s + _HANG_S) * 1e6)
    ready = f"READY=1\nWATCHDOG=1\nWATCHDOG_USEC={limit_us}"
    try:
        outcome = run(settings, open_store, clock, lambda: notify(ready))
    except UserError as error:
        outcome = LoopEnd(EXIT_USER, str(error), 0)
    except PolicyError as error:
        outcome = LoopEnd(EXIT_POLICY, f"controller {settings.name}: {error}", 0)
    except (HotbedError, OSError) as error:
        code = EXIT_NOT_RESTORED if (folder / SAVED).exists() else EXIT_FAILED
        reason = sentence_of(error) if isinstance(error, OSError) else str(error)
        outcome = LoopEnd(code, reason, 0)
    try:
        write_outcome(folder, outcome)
    except OSError as error:  # `control stop` then finds no outcome, which is a failure too
        outcome = replace(outcome, code=outcome.code or EXIT_FAILED)
        print(f"hotbed controller {settings.name}: {sentence_of(error)}", file=sys.stderr)
    if outcome.code != EXIT_STOPPED:
        print(f"hotbed controller {settings.name}: {outcome.reason}", file=sys.stderr)
    return outcome.code


def main(arguments: list[str], open_store: OpenStore = open_ceph) -> int:
    """Run the controller of ``CONFIG.json``; ``--restore CONFIG.json`` puts back its changes."""
    restoring = arguments[:1] == ["--restore"]
    paths = arguments[1:] if restoring else arguments
    if len(paths) != 1:
        print("usage: python3 -m controllers.service [--restore] CONFIG.json", file=sys.stderr)
        return EXIT_USER
    try:
        settings = check_settings(json.loads(Path(paths[0]).read_text()))
    except (OSError, ValueError) as error:
        print(f"controller settings {paths[0]} cannot be read: {error}", file=sys.stderr)
        return EXIT_USER
    except UserError as error:
        print(error, file=sys.stderr)
        return EXIT_USER
    if not restoring:
        return _serve(settings, open_store)
    try:
        restore(settings, open_store)
    except (HotbedError, OSError) as error:
        print(sentence_of(error) if isinstance(error, OSError) else error, file=sys.stderr)
        return EXIT_NOT_RESTORED
    return EXIT_STOPPED


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread that hangs in librados must not keep this process
