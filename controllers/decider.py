"""A policy in its own process, so that a policy that hangs, dies or exits harms no other process.

`ChildDecider` is the loop's side. The child (``python3 -m controllers.decider``) reads one JSON
line with the controller's name, parameters and seed, then one line per decision, and answers each
with one line. The policy's prints go to standard error.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, BinaryIO

from controllers.confine import ROOT, enter, environment
from controllers.contract import LoopPolicy
from controllers.decide import Decider, Decision, InProcessDecider, PolicyError, decide, initial
from controllers.journal import canonical, needs_from_json, needs_to_json
from controllers.registry import Controller, create, describe, find
from schemas.errors import UserError
from schemas.shown import clean
from testbed.stores.contract import Needs

START_LIMIT_S = 30.0
_CHUNK = 1 << 16
_MOST_ANSWER = 1 << 28  # bytes: more than the largest store's plan takes
_PR_SET_PDEATHSIG = 1


class ChildDecider:
    """Parent side of the child process; one decision may take `limit_s` seconds.

    Only the child runs the policy's code. Foreign code is confined there (controllers/confine.py).
    """

    def __init__(
        self,
        name: str,
        parameters: Mapping[str, object],
        seed: int,
        controllers_dirs: Sequence[Path] = (),
        *,
        limit_s: float = 10.0,
    ) -> None:
        """Raise UserError for unknown names and parameters, PolicyError if the policy does not
        start within `START_LIMIT_S`."""
        self._limit_s = limit_s
        self._received = b""
        controller = find(name, controllers_dirs)
        foreign = controller.foreign
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "controllers.decider"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if foreign else None,
            env=environment() if foreign else dict(os.environ, PYTHONPATH=path),
            cwd=ROOT if foreign else None,
            bufsize=0,
            start_new_session=True,  # the loop handles a Ctrl-C at the terminal
        )
        if self._process.stderr is not None:
            threading.Thread(target=_tell, args=[self._process.stderr], daemon=True).start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self._process.stdout.fileno(), False)
        request = {
            "name": name,
            "parameters": dict(parameters),
            "seed": seed,
            "controllers_dirs": [str(directory) for directory in controllers_dirs],
            "confined": foreign,
        }
        if foreign:
            request["controllers_dirs"] = [str(controller.folder)]
        try:
            answer = self._ask(request, START_LIMIT_S, "the policy's start")
            self._initial: Mapping[str, Any] = dict(answer["state"])
            self.needs = needs_from_json(answer["needs"])
            self.parameters: dict[str, Any] = dict(answer["parameters"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            self.close()
            raise PolicyError(f"the policy's start: its process gave no answer: {error}") from None
        except BaseException:
            self.close()
            raise

    def initial(self) -> Mapping[str, Any]:
        """Return the policy's first state."""
        return self._initial

    def decide(self, state: Mapping[str, Any], observation: Mapping[str, Any]) -> Decision:
        """Make one decision. Raises PolicyError; a child that hung has been killed."""
        answer = self._ask({"state": state, "observation": observation}, self._limit_s, "decide()")
        if not {"state", "actions"} <= answer.keys():
            raise PolicyError("decide(): the policy's process gave no answer")
        return Decision(answer["state"], answer["actions"])

    def close(self) -> None:
        """End the child."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _ask(self, request: Mapping[str, Any], limit_s: float, what: str) -> dict[str, Any]:
        line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
        try:
            answer = dict(json.loads(self._exchange(line, time.monotonic() + limit_s)))
        except (ValueError, TypeError, RecursionError) as error:
            raise PolicyError(f"{what}: the policy's process gave no answer: {error}") from None
        except TimeoutError:
            self._process.kill()
            raise PolicyError(f"{what} took more than {limit_s:g} s") from None
        except (BrokenPipeError, EOFError):
            code = self._process.wait()
            raise PolicyError(f"{what}: the policy's process ended with code {code}") from None
        if "error" in answer:
            kind = UserError if answer.get("user") else PolicyError
            raise kind(str(answer["error"]))
        return answer

    def _exchange(self, line: bytes, deadline: float) -> bytes:
        """Write `line` and read one line, without blocking beyond `deadline`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        chunks, size = [self._received], 0
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(stdin, selectors.EVENT_WRITE)
            rest = memoryview(line)
            while True:
                ready = selector.select(deadline - time.monotonic())
                if not ready:
                    if time.monotonic() >= deadline:
                        raise TimeoutError
                    continue
                for key, _ in ready:
                    if key.fileobj is stdin:
                        rest = rest[os.write(stdin.fileno(), rest[:_CHUNK]) :]
                        if not rest:
                            selector.unregister(stdin)
                        continue
                    chunk = os.read(stdout.fileno(), _CHUNK)
                    if not chunk:
                        raise EOFError
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > _MOST_ANSWER:
                        raise ValueError(f"more than {_MOST_ANSWER >> 20} MiB")
                    if b"\n" in chunk:
                        answer, self._received = b"".join(chunks).split(b"\n", 1)
                        return answer


def open_decider(
    controller: Controller, parameters: Mapping[str, object], seed: int, *, limit_s: float = 10.0
) -> Decider:
    """Open a controller's policy: Hotbed's own in this process, which saves 0.1 s, any other in its
    own process, as it may hang or exit.

    Raises:
        UserError: the policy does not load, or refuses the parameters.
        PolicyError: the policy does not start.
    """
    if not controller.outside:
        return InProcessDecider(create(controller, parameters, seed))
    folder = [controller.folder]
    return ChildDecider(controller.name, parameters, seed, folder, limit_s=limit_s)


def declared(
    controller: Controller, parameters: Mapping[str, object], seed: int = 0
) -> tuple[Needs, dict[str, Any]]:
    """Return the needs and the parameters, defaults included, that a controller declares.

    Raises:
        UserError: the policy cannot be created with these parameters.
    """
    try:
        with closing(open_decider(controller, parameters, seed)) as decider:
            return decider.needs, decider.parameters
    except PolicyError as error:
        raise UserError(error, where=f"controller {controller.name}") from error


def _tell(said: IO[bytes]) -> None:
    """Pass on the prints of a foreign policy, without terminal control sequences."""
    with said:
        while text := said.readline(_CHUNK):
            print(clean(text.decode(errors="replace")), end="", file=sys.stderr)


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Run the child: create the policy, then decide until the parent is gone."""

    def answer(data: Mapping[str, Any]) -> None:
        answers.write(json.dumps(data, separators=(",", ":")).encode() + b"\n")
        answers.flush()

    start = json.loads(requests.readline())
    try:
        dirs = [Path(directory) for directory in start["controllers_dirs"]]
        if start["confined"]:
            enter(dirs)
            _end_with_parent()  # the kernel drops this setting when the user changes
        policy = create(find(start["name"], dirs), start["parameters"], start["seed"])
        answer(_introduction(policy))
    except (UserError, PolicyError) as error:
        answer({"error": str(error), "user": isinstance(error, UserError)})
        return
    for line in requests:
        request = json.loads(line)
        try:
            decision = decide(policy, request["state"], request["observation"])
        except PolicyError as error:
            answer({"error": str(error)})
            continue
        answer({"state": decision.state, "actions": decision.actions})


def _introduction(policy: LoopPolicy) -> dict[str, Any]:
    try:
        parameters = canonical(dict(policy.parameters()))
    except Exception as error:
        raise PolicyError(f"parameters() raised {describe(error)}") from error
    needs = needs_to_json(policy.needs)
    return {"state": initial(policy), "needs": needs, "parameters": parameters}


def _end_with_parent() -> None:
    """Make the kernel kill this process when its parent ends, however the parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _main() -> None:
    _end_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    _main()
