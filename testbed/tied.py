"""Commands that the kernel ends when the process that started them ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Sequence

# setpriv asks the kernel only once it runs: who started it may be dead by then, and the signal
# would never come. What is started after the asking sees that by its parent and does not begin.
_STILL_MINE = '[ "$PPID" = "$0" ] || exit 1; exec "$@"'


def tied(command: Sequence[str], signal: str = "TERM") -> list[str]:
    """`command` as one that gets `signal` (a name without SIG) when this process ends.

    To be started by this very process, as its child: by another's it ends at once with 1. The
    kernel watches the thread that starts it; it has to live as long as the command may.
    """
    watched = ["setpriv", "--pdeathsig", signal]
    return [*watched, "sh", "-c", _STILL_MINE, str(os.getpid()), *command]
