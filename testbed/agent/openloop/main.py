"""The program: ``python3 program.pyz PLAN.json`` on a client node.

Prints JSON lines: ``{"event": "start", "wall", "pool", "pg_num", "objects", "prefill_s"}`` when the
load starts, an event ``second`` each second, and an event ``end`` with the summary. An error is one
sentence on standard error, with exit code 2 for the plan and 1 for the store.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from schemas.errors import StoreError, UserError
from testbed.agent.openloop.plan import WritePlan, arrivals, plan_from_json
from testbed.agent.openloop.writer import Sender, Writer
from testbed.stores.ceph.pool_objects import open_pool


class RealTime:
    """A `Waiter` on the machine's clock."""

    def __init__(self) -> None:
        self._awake = threading.Event()

    def now(self) -> float:
        """See `Waiter.now`."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """See `Waiter.wait`."""
        if seconds > 0:
            self._awake.wait(seconds)
        self._awake.clear()

    def wake(self) -> None:
        """See `Waiter.wake`."""
        self._awake.set()


def emit(event: str, row: dict[str, Any]) -> None:
    """Print an event at once, so that a kill does not lose it."""
    print(json.dumps({"event": event, **row}, allow_nan=False), flush=True)


def load(plan: WritePlan, sender: Sender) -> dict[str, Any]:
    """Carry out the load of a plan; return the summary."""
    writer = Writer(
        arrivals(plan.rates, plan.duration_s, plan.seed, plan.arrivals, plan.objects_per_pg),
        sender,
        RealTime(),
        duration_s=plan.duration_s,
        drain_s=plan.drain_s,
        max_in_flight=plan.max_in_flight,
        emit=lambda row: emit("second", row),
        keep=plan.keep_requests,
    )
    gc.collect()
    gc.freeze()  # exempt existing objects: later collections are short
    return writer.run() | {"cpu_s": time.process_time()}


def run(plan: WritePlan) -> None:
    """Connect, prefill, and carry out the load."""
    objects, pool, pg_num = open_pool(plan)
    began = time.monotonic()
    if plan.prefill:
        objects.fill()
    start = {
        "pool": pool,
        "pg_num": pg_num,
        "objects": len(plan.rates) * plan.objects_per_pg,
        "prefill_s": time.monotonic() - began,
    }
    emit("start", {"wall": time.time(), **start})
    emit("end", load(plan, objects))


def read_plan(path: str) -> WritePlan:
    """Return the plan in a file; raise UserError if there is no valid plan."""
    try:
        return plan_from_json(json.loads(Path(path).read_text()))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no plan: {error}", where="open-loop") from error


def main() -> None:
    """Run the program. Leaves by os._exit: librados would wait for writes in flight."""
    code = 0
    try:
        if len(sys.argv) != 2:
            raise UserError("usage: program.pyz PLAN.json")
        run(read_plan(sys.argv[1]))
    except UserError as error:
        print(error, file=sys.stderr, flush=True)
        code = 2
    except StoreError as error:
        print(error, file=sys.stderr, flush=True)
        code = 1
    os._exit(code)


if __name__ == "__main__":
    main()
