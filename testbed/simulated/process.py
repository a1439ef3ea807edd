"""The simulator's process: requests and answers over its pipes (dataplane/sim/ceph)."""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from schemas.errors import BUILD, StoreError

PROGRAM = Path(__file__).resolve().parents[2] / "dataplane" / "bin" / "hotbedsim"
PROTOCOL = 1
LIMIT_S = 900.0
"""Real seconds allowed for one answer: an hour of a large cluster takes minutes."""

_MOST_HEADER = 256 * 2**20
_TYPES = {"f64": "d", "i64": "q", "i32": "i", "u8": "B"}


@dataclass(frozen=True)
class SimulatorAnswer:
    """An answer of the simulator: its result, and its arrays by name."""

    result: Any
    blocks: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def rows_of(flat: Sequence[Any], width: int) -> list[Sequence[Any]]:
    """Return a flat array as rows."""
    return [flat[at : at + width] for at in range(0, len(flat), width)]


class SimulatorProcess:
    """One ``hotbedsim`` and its pipes; not thread-safe.

    Every failure is a StoreError with one sentence; the process is closed afterwards.

    Args:
        model: the model to simulate, ``ceph``.
        program: the program; by default the one that `make setup` builds.
        limit_s: real seconds allowed for an answer.
    """

    def __init__(
        self, model: str, *, program: Path | None = None, limit_s: float = LIMIT_S
    ) -> None:
        self._program = program or PROGRAM
        self._limit_s = limit_s
        self._unread = bytearray()
        self._messages: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        try:
            self._process = subprocess.Popen(
                [str(self._program), model],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._messages,
            )
        except OSError as error:
            self._messages.close()
            raise StoreError(
                f"the simulator {self._program} cannot be started ({error.strerror}): {BUILD}."
            ) from error

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def ask(self, op: str, **fields: Any) -> SimulatorAnswer:
        """Send a request and wait for its answer. StoreError: the simulator refused, died, hung or
        answered nonsense."""
        if self._process.stdin is None or self._process.stdin.closed:
            raise StoreError(f"the simulator is closed: {op} cannot be asked of it.")
        deadline = time.monotonic() + self._limit_s
        try:
            header = json.dumps({"op": op, **fields}, allow_nan=False).encode()
        except (ValueError, TypeError) as error:
            raise StoreError(f"the simulator cannot be asked to {op}: {error}.") from error
        try:
            self._send(struct.pack("<I", len(header)) + header, op, deadline)
            reply = self._header(op, deadline)
            blocks = {
                block["name"]: self._block(block["type"], block["count"], op, deadline)
                for block in reply.get("blocks") or ()
            }
        except StoreError:
            self.close()
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self.close()
            raise StoreError(f"the simulator answered nonsense to {op}: {error!r}.") from error
        if reply.get("ok") is not True:
            raise StoreError(f"the simulator refused {op}: {reply.get('message') or 'no reason'}.")
        return SimulatorAnswer(reply.get("result"), blocks)

    def close(self) -> None:
        """End the process; safe to repeat."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._messages.close()

    def _send(self, data: bytes, op: str, deadline: float) -> None:
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        os.set_blocking(pipe, False)
        left = memoryview(data)
        while left:
            ready = select.select([], [pipe], [], max(0.0, deadline - time.monotonic()))[1]
            if not ready:
                raise self._hung(op)
            try:
                left = left[os.write(pipe, left) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._died(op) from error

    def _header(self, op: str, deadline: float) -> dict[str, Any]:
        (size,) = struct.unpack("<I", self._read(4, op, deadline))
        if size > _MOST_HEADER:
            raise ValueError(f"a header of {size} bytes")
        header = json.loads(bytes(self._read(size, op, deadline)))
        if not isinstance(header, dict):
            raise ValueError("its header is no mapping")
        return header

    def _block(self, kind: str, count: int, op: str, deadline: float) -> Sequence[Any]:
        values = array.array(_TYPES[kind])
        data = self._read(values.itemsize * count, op, deadline)
        if kind == "u8":
            return bytes(data)
        values.frombytes(data)
        if sys.byteorder == "big":
            values.byteswap()
        return values

    def _read(self, size: int, op: str, deadline: float) -> bytearray:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        # Read all available bytes: an answer's many small parts arrive in one piece.
        while len(self._unread) < size:
            ready = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready:
                raise self._hung(op)
            piece = os.read(pipe, 2**20)
            if not piece:
                raise self._died(op)
            self._unread += piece
        data = self._unread[:size]
        del self._unread[:size]
        return data

    def _hung(self, op: str) -> StoreError:
        self._process.kill()
        return StoreError(f"the simulator did not answer {op} within {self._limit_s:g} s.")

    def _died(self, op: str) -> StoreError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5.0)
        self._messages.seek(0)
        said = self._messages.read().decode(errors="replace").strip().splitlines()
        why = f": {said[0][:200]}" if said else ""
        code = self._process.returncode
        return StoreError(f"the simulator ended during {op} (exit code {code}){why}.")
