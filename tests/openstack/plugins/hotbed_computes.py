"""Several nova-computes for the start-up time of one.

Usage: `hotbed_computes.py HOST.conf... -- NOVA.conf...`

Each host needs its own process, because nova keeps one host per process. Forking shares the
imports, which are nearly all of their start-up and memory."""

import contextlib
import ctypes
import os
import signal
import sys

from nova.cmd import compute
from nova.compute import manager, rpcapi  # noqa: F401
from nova.virt import fake, node

_PR_SET_PDEATHSIG = 1
_resources = fake.FakeDriver.get_available_resource


def _lasting_resources(self, nodename):
    return {**_resources(self, nodename), "uuid": node.get_local_node_uuid()}


def _lasting_names(self, refresh=False):
    return {node.get_local_node_uuid(): self.get_available_nodes()[0]}


# A fake node has a new identity after each start, which nova takes for a lost machine. Like a real
# node, it keeps its identity in its state folder.
fake.FakeDriver.get_available_resource = _lasting_resources
fake.FakeDriver.get_nodenames_by_uuid = _lasting_names


def main(arguments: list[str]) -> None:
    cut = arguments.index("--")
    hosts, shared = arguments[:cut], arguments[cut + 1 :]
    files = [option for path in shared for option in ("--config-file", path)]
    children = []

    def stop(number, frame):
        # Nova's own end takes up to a minute, and nothing here has to be saved.
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    parent = os.getpid()
    for path in hosts:
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # the parent ended before this check
                os._exit(1)
            sys.argv = ["nova-compute", *files, "--config-file", path]
            compute.main()
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
