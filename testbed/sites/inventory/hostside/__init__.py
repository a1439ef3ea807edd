"""What is done on a machine itself: look at it, hold it for a testbed, wipe a device, let it go.

`program` makes one text of this package, which runs there as root as ``python3 - REQUEST`` with the
text on standard input. REQUEST is a JSON object with ``do`` (a key of `ACTIONS`), the answer a JSON
object on standard output: ``{"ok": true, "result": ...}`` or ``{"ok": false, "error": ...}``, the
end of a sentence that begins with the machine. Standard library only, Python 3.10 or newer.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.sites.inventory.hostside.base import Machine, Refused
from testbed.sites.inventory.hostside.holding import hold, let_go, mark, wipe
from testbed.sites.inventory.hostside.load import usage
from testbed.sites.inventory.hostside.seeing import connect, survey

ACTIONS: dict[str, Callable[[Machine, dict[str, Any]], Any]] = {
    "survey": survey,
    "connect": connect,
    "usage": usage,
    "mark": mark,
    "hold": hold,
    "let_go": let_go,
    "wipe": wipe,
}
PARTS = ("base", "devices", "kernel", "load", "seeing", "holding")
"""Modules of this package, each after those that it needs."""

_LOADER = """
import sys, types
def load(name, text):
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, name, "exec"), module.__dict__)
    return module
"""


def answer(request: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """The answer to a request."""
    try:
        return {"ok": True, "result": ACTIONS[request["do"]](machine, request)}
    except Refused as error:
        return {"ok": False, "error": str(error)}
    except OSError as error:
        return {"ok": False, "error": f"cannot do that: {error}"}


def main() -> None:
    """Answer the request on the command line."""
    json.dump(answer(json.loads(sys.argv[1]), Machine()), sys.stdout)


@functools.cache
def program() -> bytes:
    """The whole package as one program."""
    folder = Path(__file__).parent
    lines = [_LOADER]
    for part in PARTS:
        lines.append(f"load({f'{__name__}.{part}'!r}, {(folder / f'{part}.py').read_text()!r})")
    lines.append(f"load({__name__!r}, {Path(__file__).read_text()!r}).main()")
    return "\n".join(lines).encode()
