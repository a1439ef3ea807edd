"""Commands that the kernel ends when their starting process ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Sequence

# setpriv asks the kernel only once it runs. If the starter is dead by then, the signal never comes.
# The shell started after the request sees this by its parent, and does not begin.
_STILL_MINE = '[ "$PPID" = "$0" ] || exit 1; exec "$@"'


def tied(command: Sequence[str], signal: str = "TERM") -> list[str]:
    """Return `command` as a command that gets `signal` (a name without SIG) when this process ends.

    Only this process may start it, as its child: started by another process it exits at once with
    1. The kernel watches the starting thread, which must live as long as the command may.
    """
    watched = ["setpriv", "--pdeathsig", signal]
    return [*watched, "sh", "-c", _STILL_MINE, str(os.getpid()), *command]
