"""Simulators that answer one JSON request, ``PROGRAM run``, and end."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schemas.errors import BUILD, StoreError, UserError

LIMIT_S = 3600.0
"""Real seconds that a simulation may take."""


def answer_of(
    program: Path,
    request: object,
    *options: str,
    limit_s: float = LIMIT_S,
    progress: Callable[[float], None] = lambda _share: None,
) -> dict[str, Any]:
    """Return a simulator's answer; `progress` is called with the share that is done, if the program
    reports it.

    Raises:
        UserError: the simulator refuses the request.
        StoreError: the simulator is missing, failed, or took more than `limit_s` real seconds.
    """
    late = threading.Event()
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as out:
        json.dump(request, given, allow_nan=False)
        given.seek(0)
        command = [str(program), "run", *options]
        try:
            process = subprocess.Popen(
                command, stdin=given, stdout=out, stderr=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise StoreError(
                f"the simulator {program} cannot be started ({error.strerror}): {BUILD}."
            ) from error

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit_s, stop)
        timer.start()
        with process:
            try:
                complaint = _listen(process, f"{program.name}: ", progress)
                process.wait()
            finally:
                timer.cancel()
                process.kill()  # after an interrupt it would compute in vain
        out.seek(0)
        printed = out.read()
    if late.is_set():
        raise StoreError(f"the simulation did not end within {limit_s:g} s of real time.")
    # A crashed Go program has the same exit code.
    if process.returncode == 2 and complaint.startswith(f"{program.name}: "):
        raise UserError(complaint.removeprefix(f"{program.name}: "))
    try:
        answer: dict[str, Any] = json.loads(printed)
    except ValueError as error:
        why = f": {complaint[:200]}" if complaint else ""
        raise StoreError(
            f"the simulator ended with exit code {process.returncode}{why}."
        ) from error
    return answer


def _listen(process: subprocess.Popen[str], name: str, progress: Callable[[float], None]) -> str:
    """Report the simulator's progress, and return its error line."""
    assert process.stderr
    complaint = ""
    for line in process.stderr:
        if line.startswith("progress "):
            progress(float(line.split()[1]))
        elif not complaint or line.startswith(name):
            complaint = line.strip()
    return complaint
