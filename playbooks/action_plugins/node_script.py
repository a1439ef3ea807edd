"""Action of Ansible that runs one of a role's Python scripts on the node.

The script needs the standard library only and arrives on the interpreter's standard input: nothing
is copied to the node, and arguments, which may hold secrets, are not on a command line there. The
module `command` would start a second Python on the node, which compiles Ansible's own files first:
twice the time.

Options: `script`, a file of the role's folder `files` or a path; `argv`, its arguments; `stdin`,
its standard input. A script prints a JSON object. The task has changed something if `changed` of
the object is true or not empty.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

_INTERPRETER = "/usr/bin/python3"
_PROGRAM = """import io, json, sys
given = json.loads({given!r})
sys.argv, sys.stdin = ["-", *given["argv"]], io.StringIO(given["stdin"])
exec(compile(given["text"], given["name"], "exec"))
"""


class ActionModule(ActionBase):
    """See the module."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset({"script", "argv", "stdin"})

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Run the script; return its output and exit code as the module `command` does."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        path = Path(self._find_needle("files", self._task.args["script"]))
        given = {
            "name": path.name,
            "text": path.read_text(),
            "argv": [str(word) for word in self._task.args.get("argv", ())],
            "stdin": str(self._task.args.get("stdin", "")),
        }
        program = _PROGRAM.format(given=json.dumps(given))
        python = (task_vars or {}).get("ansible_python_interpreter", _INTERPRETER)
        result |= self._low_level_execute_command(
            f"{shlex.quote(str(python))} -", in_data=program.encode()
        )
        result["changed"] = _changed(result["stdout"])
        if result["rc"] != 0:
            result |= {"failed": True, "msg": "non-zero return code"}
        return result


def _changed(printed: str) -> bool:
    try:
        return bool(json.loads(printed)["changed"])
    except (ValueError, KeyError, TypeError):
        return False
