"""Check of a foreign bundle in a process with limits, so that it cannot exhaust this machine."""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.errors import HotbedError, UserError

if TYPE_CHECKING:
    from analysis.bundle.verify import Difference, Verification

Progress = Callable[[str, float], None]

MIB = 2**20
MEMORY_MIB, MEMORY_FACTOR = 440, 40
"""Memory that any bundle may take, and additional memory per byte of a bundle."""
READING_S, READING_S_PER_MIB = 7.0, 2.0
"""Processor time before anything is computed: unpacking and inspecting every file."""
DERIVING_S, DERIVING_S_PER_MIB = 120.0, 30.0
"""Processor time after that: figures and claims from readable runs."""
_MOST_DIFFERENCES, _LONGEST = 10_000, 500
_PR_SET_PDEATHSIG = 1
# Libraries must not reserve address space ahead of need: it counts as memory here.
_FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
_FRUGAL |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def verify(
    path: Path,
    *,
    most_gib: float = 16,
    limited: bool = True,
    progress: Progress = lambda phase, share: None,
) -> Verification:
    """Check a bundle in a separate process (see `analysis.bundle.verify`). UserError: it is no
    bundle, or unsafe to open; or it takes more memory or time than a bundle of its size should."""
    from analysis.bundle.verify import Check, Difference, Verification
    from schemas.bundle import Manifest

    asked = {"path": str(path), "most_gib": most_gib, "limited": limited, "whole": True}
    made = _ask(path, asked, progress)
    return Verification(
        path,
        made["sha256"],
        Manifest.model_validate(made["manifest"]),
        [Check(**check) for check in made["checks"]],
        [Difference(**one) for one in made["differences"]],
    )


def look(path: Path, *, most_gib: float, progress: Progress) -> None:
    """Unpack a bundle and inspect every file in a separate process, like `verify`'s first step.
    UserError: see `verify`."""
    asked = {"path": str(path), "most_gib": most_gib, "limited": True, "whole": False}
    _ask(path, asked, progress)


def _ask(path: Path, asked: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
    """Run `main` in a process; report its progress and return its answer."""
    from analysis.core.aside import libraries

    answer: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="hotbed-verify-") as place,
        tempfile.TemporaryFile() as errors,
    ):
        process = subprocess.Popen(
            # -P: files in the current folder must not be imported, whatever their names.
            [sys.executable, "-P", "-c", "from hotbed.contained import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | _FRUGAL | {"PYTHONPATH": libraries(), "TMPDIR": place},
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with process.stdin as stdin, process.stdout as stdout:
                json.dump(asked, stdin)
                stdin.close()
                for line in stdout:
                    answer = json.loads(line)
                    if "phase" in answer:
                        progress(answer["phase"], answer["share"])
            process.wait()
        finally:
            process.kill()
            code = process.wait()
        if "phase" in answer or not answer:
            errors.seek(0)
            raise _unexplained(path, code, errors.read().decode(errors="replace"))
    if "exhausted" in answer:
        raise _exhausted(path, "memory")
    if "error" in answer:
        raise (UserError if answer["user"] else HotbedError)(answer["error"])
    return answer


def _unexplained(path: Path, code: int, said: str) -> HotbedError:
    """Return the error for a process that ended without an answer."""
    if code == -signal.SIGXCPU:
        return _exhausted(path, "processor time")
    if code in (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT):
        return _exhausted(path, "memory or processor time")
    last = said.strip().splitlines()[-1:] or [f"exit code {code}"]
    return HotbedError(f"{path}: could not be checked ({last[0]}).")


def _exhausted(path: Path, what: str) -> UserError:
    return UserError(
        f"takes more {what} than a bundle of its size should",
        where=path,
        do="do not trust it (hotbed verify checks a bundle of your own with --no-limits)",
    )


def main() -> None:
    """Run the process: read the request from standard input, answer in lines of JSON."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    asked = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**said: Any) -> None:
        print(json.dumps(said), file=answers, flush=True)

    try:
        answer(**_check(asked, answer))
    except (UserError, HotbedError) as error:
        answer(error=str(error), user=isinstance(error, UserError))
    except MemoryError:
        answer(exhausted=True)


def _check(asked: Mapping[str, Any], answer: Callable[..., None]) -> dict[str, Any]:
    from analysis.bundle import verify as bundles  # imported before the bundle's time starts

    path, most_bytes = Path(asked["path"]), int(asked["most_gib"] * 2**30)
    mib = path.stat().st_size / MIB
    deriving = False
    if asked["limited"]:
        _limit(resource.RLIMIT_DATA, round((MEMORY_MIB + MEMORY_FACTOR * mib) * MIB))
        _limit(resource.RLIMIT_CORE, 0)
        _allow(READING_S + READING_S_PER_MIB * mib)

    def report(phase: str, share: float) -> None:
        nonlocal deriving
        if asked["limited"] and phase != "unpacking" and not deriving:
            deriving = True  # only inspected files are used from here on
            _allow(DERIVING_S + DERIVING_S_PER_MIB * mib)
        answer(phase=phase, share=share)

    if not asked["whole"]:
        with bundles.opened(path, most_bytes=most_bytes, progress=report) as bundle:
            bundle.look()
        return {"looked": True}
    made = bundles.verify(path, most_bytes=most_bytes, otherwise=otherwise, progress=report)
    return {
        "sha256": made.sha256,
        "manifest": made.manifest.model_dump(mode="json"),
        "checks": [asdict(check) for check in made.checks],
        "differences": [
            {name: text[:_LONGEST] for name, text in asdict(one).items()}
            for one in made.differences[:_MOST_DIFFERENCES]
        ],
    }


def _allow(seconds: float) -> None:
    _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + seconds))


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def otherwise(folder: Path, campaigns: Iterable[str]) -> Iterator[Difference]:
    """Yield differences between the campaigns' files of an unpacked bundle, which are run again,
    and its runs, and missing files that they name."""
    from analysis.bundle.verify import Difference, differences
    from campaigns.bundled import missing, stated

    for name in campaigns:
        file = f"campaigns/{name}.yaml"
        if not (folder / file).is_file():
            yield Difference(file, "file", "missing", "what was run")
            continue
        try:
            said, ran = stated(folder, name)
        except UserError:
            yield Difference(file, "file", "cannot be read", "what was run")
            continue
        yield from differences(file, said, ran)
        for gone in missing(folder, name):
            yield Difference(gone, "file", "missing", f"named in {file}")
