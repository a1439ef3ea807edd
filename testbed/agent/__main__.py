"""`hotbed-agent VERB` on the admin node: a JSON payload on stdin, an answer line on stdout.

Answers ``{"ok": true, "result": ...}`` or ``{"ok": false, "error": "<one sentence>", "kind":
"user"|"store"|"remote", "retry": bool}``; exit code 0 or 1 accordingly (2: no such verb).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

from schemas.errors import HotbedError, RemoteError, StoreError, UserError, sentence_of
from testbed.agent.config import load_config
from testbed.agent.contract import AgentConfig
from testbed.agent.verbs import VERBS

Verb = Callable[[AgentConfig, Mapping[str, Any]], Any]


def find(name: str) -> Verb:
    """The verb called `name`; UserError names those there are."""
    try:
        module, function = VERBS[name].split(":")
    except KeyError as error:
        raise UserError(
            f"hotbed-agent has no verb {name!r}: it has {', '.join(sorted(VERBS))}."
        ) from error
    verb: Verb = getattr(importlib.import_module(module), function)
    return verb


def failure(error: BaseException) -> dict[str, Any]:
    """The answer that tells `error` to the engine."""
    kind = "user" if isinstance(error, UserError) else "remote"
    if isinstance(error, StoreError):
        kind = "store"
    message = str(error) if isinstance(error, HotbedError) else f"{type(error).__name__}: {error}"
    if isinstance(error, OSError):
        message = sentence_of(error)
    retry = isinstance(error, RemoteError) and error.retry
    return {"ok": False, "error": " ".join(message.split()), "kind": kind, "retry": retry}


def serve(name: str, stdin: TextIO, stdout: TextIO) -> int:
    """Run one verb; returns the exit code."""
    try:
        text = stdin.readline()
        payload = json.loads(text) if text.strip() else {}
        if not isinstance(payload, dict):
            raise UserError("hotbed-agent: the payload on standard input must be a JSON object.")
        result = find(name)(load_config(), payload)
        items = result if isinstance(result, Iterator) else iter([result])
        for item in items:
            _answer(stdout, {"ok": True, "result": item})
    except BrokenPipeError:
        return 1  # the caller of a stream went away
    except json.JSONDecodeError as error:
        _answer(stdout, failure(UserError(f"hotbed-agent: the payload is not JSON ({error}).")))
        return 1
    except Exception as error:
        if not isinstance(error, (HotbedError, OSError)):
            traceback.print_exc(file=sys.stderr)  # a defect of ours: for the log, not the answer
        _answer(stdout, failure(error))
        return 1
    return 0


def _answer(stdout: TextIO, answer: Mapping[str, Any]) -> None:
    stdout.write(json.dumps(answer, allow_nan=False) + "\n")
    stdout.flush()


def main() -> None:
    """Entry point. Leaves by os._exit: a thread that hangs in librados must not keep us."""
    if len(sys.argv) != 2:
        print("usage: hotbed-agent VERB < payload.json", file=sys.stderr)
        os._exit(2)
    code = serve(sys.argv[1], sys.stdin, sys.stdout)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
