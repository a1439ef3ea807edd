"""Program `hotbed-agent VERB` on the admin node: JSON payload on stdin, answer lines on stdout.

An answer is ``{"ok": true, "result": ...}`` or ``{"ok": false, "error": "<one sentence>", "kind":
"user"|"store"|"remote", "retry": bool}``; exit code 0 or 1 accordingly (2: usage error).
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
from testbed.agent.contract import AgentConfig, load_config
from testbed.agent.verbs import VERBS

Verb = Callable[[AgentConfig, Mapping[str, Any]], Any]


def find(name: str) -> Verb:
    """Return the verb called `name`; raise UserError with the known verbs if there is none."""
    try:
        module, function = VERBS[name].split(":")
    except KeyError as error:
        raise UserError(
            f"hotbed-agent has no verb {name!r}", allowed=", ".join(sorted(VERBS))
        ) from error
    verb: Verb = getattr(importlib.import_module(module), function)
    return verb


def failure(error: BaseException) -> dict[str, Any]:
    """Return the answer that reports `error` to the engine."""
    kind = "user" if isinstance(error, UserError) else "remote"
    if isinstance(error, StoreError):
        kind = "store"
    message = str(error) if isinstance(error, HotbedError) else f"{type(error).__name__}: {error}"
    if isinstance(error, OSError):
        message = sentence_of(error)
    retry = isinstance(error, RemoteError) and error.retry
    return {"ok": False, "error": " ".join(message.split()), "kind": kind, "retry": retry}


def serve(name: str, stdin: TextIO, stdout: TextIO) -> int:
    """Run one verb; return the exit code."""
    try:
        text = stdin.readline()
        payload = json.loads(text) if text.strip() else {}
        if not isinstance(payload, dict):
            raise UserError(
                "the payload on standard input must be a JSON object", where="hotbed-agent"
            )
        result = find(name)(load_config(), payload)
        items = result if isinstance(result, Iterator) else iter([result])
        for item in items:
            _answer(stdout, {"ok": True, "result": item})
    except BrokenPipeError:
        return 1  # the caller of a stream is gone
    except json.JSONDecodeError as error:
        _answer(
            stdout, failure(UserError(f"the payload is not JSON ({error})", where="hotbed-agent"))
        )
        return 1
    except Exception as error:
        if not isinstance(error, (HotbedError, OSError)):
            traceback.print_exc(file=sys.stderr)  # a defect of Hotbed: for the log, not the answer
        _answer(stdout, failure(error))
        return 1
    return 0


def _answer(stdout: TextIO, answer: Mapping[str, Any]) -> None:
    stdout.write(json.dumps(answer, allow_nan=False) + "\n")
    stdout.flush()


def main() -> None:
    """Run a verb. Leaves by os._exit: a thread that hangs in librados must not block the exit."""
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
