"""The ground `fake`: an in-memory testbed; its steps take no time and leave tiny real files.

Loaded by file name through HOTBED_FAKE_GROUND, also in a notebook's kernel. HOTBED_FAKE_FAULT, a
JSON object, requests faults: {"step": name, "how": "raise"|"hang"|"kill"|"full", "once": file},
{"step": name, "how": "write", "file": path, "text": its new end}, {"load": {...}}. Every step is
appended to the file named by HOTBED_FAKE_TRACE. HOTBED_FAKE_CONTROLLERS
gives controllers an effect, a JSON object: {name: {"gain": 1.2, "fails": "sentence", "inert":
true}}; with it every run varies a little. HOTBED_FAKE_LACKS lists what the store does not offer,
separated by commas. HOTBED_FAKE_LEASE: a JSON file {"ends_at_s": seconds since the epoch, "state":
"ready"}. Without it the testbed stays.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from campaigns.engine.judge import MachineLoad
from campaigns.engine.provenance import Facts
from campaigns.papers.dlr.cell import CellSetting, in_order
from schemas.errors import HotbedError
from schemas.run import OpSummary, Summary
from testbed.sites.contract import State, Status
from testbed.stores.contract import Needs
from tests.testbed.fake_store import EVERYTHING


def open_ground(testbed: str) -> FakeGround:
    return FakeGround(testbed)


class FakeGround:
    def __init__(self, name: str) -> None:
        self.name = name

    def facts(self) -> Facts:
        return Facts(
            site="fake",
            versions={"ceph": "16.2.15", "fio": "3.33", "kernel": "6.1"},
            hosts={"admin": {"cpus": 2}},
            signal="io_pressure",
            osd_count=8,
        )

    def offers(self) -> Needs:
        lacks = set(filter(None, os.environ.get("HOTBED_FAKE_LACKS", "").split(",")))
        return Needs(EVERYTHING.senses - lacks, EVERYTHING.acts - lacks)

    def services(self, setting: CellSetting) -> FakeServices:
        return FakeServices(setting)

    def lock_path(self) -> Path:
        folder = os.environ.get("HOTBED_FAKE_LOCKS", tempfile.gettempdir())
        return Path(folder) / f"hotbed-fake-{self.name}.lock"

    @property
    def site(self) -> FileSite | None:
        file = os.environ.get("HOTBED_FAKE_LEASE")
        return None if file is None else FileSite(Path(file))


class FileSite:
    """Site of one testbed with a lease in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def status(self, _name: str) -> Status:
        known = json.loads(self.file.read_text())
        state = State(known.get("state", "ready"))
        return Status(state, f"as the file says: {state}", ends_at_s=known["ends_at_s"])


class FakeServices:
    def __init__(self, setting: CellSetting) -> None:
        self._setting = setting
        self._fault: dict[str, Any] = json.loads(os.environ.get("HOTBED_FAKE_FAULT", "{}"))
        effects = json.loads(os.environ.get("HOTBED_FAKE_CONTROLLERS", "{}"))
        self._varied = bool(effects)
        self._effect: dict[str, Any] = effects.get(setting.parameters.controller, {})

    def at_once(self, *calls: Callable[[], Any]) -> list[Any]:
        return in_order(*calls)

    def signal(self) -> str | None:
        return "io_pressure"

    def clean(self) -> None:
        self._step("clean")

    def restore(self) -> bool:
        self._step("restore")
        return True

    def prefill(self) -> None:
        self._step("prefill")

    def drop_caches(self) -> None:
        self._step("drop_caches")

    def disturbance(self) -> AbstractContextManager[None]:
        return self._scope("disturbance")

    def recorder(self) -> AbstractContextManager[None]:
        return self._scope("recorder")

    @contextmanager
    def controller(self) -> Iterator[None]:
        with self._scope("controller"):
            yield
        if "fails" in self._effect:
            name = self._setting.parameters.controller
            raise HotbedError(f"the controller {name} failed: {self._effect['fails']}")

    def steady(self) -> None:
        self._step("steady")

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def usage(self) -> AbstractContextManager[None]:
        return self._scope("usage")

    def workload(self) -> None:
        self._step("workload")
        time.sleep(self._setting.duration_s)

    def load(self) -> MachineLoad:
        values = self._fault.get("load")
        if values is not None and self._once():
            return MachineLoad(**values)
        return MachineLoad(0.05, 0.0, 0.2)

    def not_restored(self) -> list[str]:
        return []

    def collect(self) -> Summary:
        self._step("collect")
        (self._setting.folder / "samples.txt").write_text("t_s node metric value\n")
        speed = self._speed()
        operation = OpSummary(
            op=self._setting.parameters.op,
            seconds=self._setting.duration_s,
            operations=10,
            bytes=10 * self._setting.parameters.object_size,
            throughput_mb_s=100.0 * speed,
            iops=25.0 * speed,
            latency_mean_s=0.6 / speed,
        )
        inert = self._effect.get("inert")
        return Summary(
            whole=[operation], steady=[operation], pressure_mean={"osd0": 50.0}, inert=inert
        )

    def _speed(self) -> float:
        """Return the speed factor, 1 without an effect; blocks vary much, runs little."""
        if not self._varied:
            return 1.0
        shared = random.Random(self._setting.seed).gauss(1, 0.1)
        # If drawn, one in twenty true values would be outside its 95 % interval. So controllers
        # differ by 1 to 2 %, in one direction in even blocks and in the opposite one in odd blocks.
        name = self._setting.parameters.controller
        size = 0.01 + 0.01 * random.Random(name).random()
        own = 1 + (size if self._setting.block % 2 else -size)
        return float(self._effect.get("gain", 1.0)) * shared * own

    @contextmanager
    def _scope(self, name: str) -> Iterator[None]:
        self._trace(f"{name} start")
        try:
            self._step(name)
            yield
        finally:
            self._trace(f"{name} stop")

    def _step(self, name: str) -> None:
        self._trace(name)
        if self._fault.get("step") != name or not self._once():
            return
        how = self._fault["how"]
        if how == "raise":
            raise HotbedError(f"the fake step {name} failed as asked.")
        while how == "hang":
            time.sleep(0.1)  # a signal that comes just before a long sleep would wait for its end
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "write":
            path = self._setting.folder / self._fault["file"]
            with path.open("a") as stream:
                stream.write(self._fault["text"])
        if how == "full":
            (self._setting.folder / "filler").write_bytes(b"\0" * 2**26)

    def _once(self) -> bool:
        """Return True if the fault still applies; with a file "once", only the first time."""
        marker = self._fault.get("once")
        if marker is None:
            return True
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _trace(self, text: str) -> None:
        file = os.environ.get("HOTBED_FAKE_TRACE")
        if file:
            with Path(file).open("a") as stream:
                stream.write(text + "\n")
