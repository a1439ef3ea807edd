"""Real run of a command in processes that tests kill: `incarnation.py STATE`.

It reads ``up``, ``down`` or ``down later`` (when no answer can arrive any more) from standard
input. It forks a process that runs the command, and prints its id, then its exit status. The slow
import of the cloud's libraries happens once.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import chi  # noqa: F401
import openstack  # noqa: F401
from blazarclient import client  # noqa: F401
from chi import clients  # noqa: F401

from testbed.sites.chameleon import lease as leases
from testbed.sites.chameleon import site as sites
from tests.openstack.users_site import a_site, a_spec


def main(state: Path) -> None:
    """See the module."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os._exit(_do(line.strip(), state))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _do(what: str, state: Path) -> int:
    sys.stdout.flush()
    os.dup2(2, 1)
    site = a_site(state)
    sites.WATCH_S = 3.0
    if what == "down later":
        leases.LATE_S = 1.0
    try:
        if what == "up":
            site.provision(a_spec(osds=2))
        else:
            site.release("it")
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
