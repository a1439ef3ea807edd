"""Several nova-computes for the start-up of one: `hotbed_computes.py HOST.conf... -- NOVA.conf...`

Each host needs a process of its own, for nova keeps one host a process; what they import, which is
nearly all of their start-up and memory, is shared by forking.
"""

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


# A fake node is another one after each start, which nova takes for a lost machine: as a real one
# it keeps its identity in its state folder.
fake.FakeDriver.get_available_resource = _lasting_resources
fake.FakeDriver.get_nodenames_by_uuid = _lasting_names


def main(arguments: list[str]) -> None:
    cut = arguments.index("--")
    hosts, shared = arguments[:cut], arguments[cut + 1 :]
    files = [option for path in shared for option in ("--config-file", path)]
    children = []

    def stop(number, frame):
        # Nova would end in its own time, up to a minute; there is nothing here to save.
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
            if os.getppid() != parent:  # it ended before we asked
                os._exit(1)
            sys.argv = ["nova-compute", *files, "--config-file", path]
            compute.main()
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
