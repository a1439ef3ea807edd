"""A testbed's agents with OSDs, and a replicated pool without agents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from campaigns.papers.dlr.steps import clean
from campaigns.papers.twochoice.live.plans import STRAGGLER_FILE
from campaigns.papers.twochoice.live.servers import CLUSTER_FILE, SERVES_S, Servers
from controllers import remote
from schemas.errors import HotbedError
from testbed.deploy import twochoice_variables
from testbed.deploy.inventory import SCRATCH_PATH
from testbed.spec import CephSpec

PURGE_S = 300.0
# A file of fio would remain next to the OSD, but exist only from the first cell with fio on.
STOP = "systemctl stop 'hotbed-twochoice@*.service' && rm -f {file}"
START = "systemctl start {units}"


class RadosServers(Servers):
    """See `Servers`. In a clean state, pools are empty and Ceph is as at the start of a run."""

    @property
    def pool(self) -> str | None:
        """See `Servers.pool`."""
        store = self.reached.store
        assert isinstance(store, CephSpec)
        return store.pools[0].name if store.pools else None

    def _quiet(self) -> None:
        clean.stop_everything(self.reached.agent)
        clean.refuse_strays(self.reached.agent)

    def _begin(self, document: bytes) -> None:
        agent = self.reached.agent
        stop = STOP.format(file=f"{SCRATCH_PATH}/{STRAGGLER_FILE}")
        self.everywhere(lambda node: self._sh(node, stop))
        osds = [server.number for server in self.reached.servers]
        payload = {"prefix": twochoice_variables.POOL_PREFIX, "osds": osds}
        agent.call("pinned-empty", payload, timeout_s=2 * SERVES_S)
        if self.pool is not None:
            argv = ["rados", "purge", self.pool, "--yes-i-really-really-mean-it"]
            shell = self.reached.shell_to(self.reached.client.name)
            # Purged, not recreated: with another pool id its groups would be placed elsewhere.
            shell.run(argv, timeout_s=PURGE_S)
        clean.put_right(agent)
        self.everywhere(lambda node: self._serve(node, document))

    def _serve(self, node: str, document: bytes) -> None:
        self.reached.shell_to(node).put(document, CLUSTER_FILE)
        here = [server.number for server in self.reached.servers if server.node == node]
        units = " ".join(f"hotbed-twochoice@{number}.service" for number in here)
        self._sh(node, START.format(units=units))

    def _sh(self, node: str, script: str) -> None:
        self.reached.shell_to(node).run(["sh", "-c", script], timeout_s=SERVES_S)

    @contextmanager
    def controlled(self, name: str, interval_s: float, journal: Path) -> Iterator[None]:
        """Run a controller around the block, and write its journal into `journal`.

        Raises:
            HotbedError: the controller does not start, or failed.
        """
        agent = self.reached.agent
        try:
            remote.start(agent, name, interval_s=interval_s)
            yield
        except BaseException:
            remote.stop(agent)
            raise
        ended = remote.stop(agent, name)
        remote.fetch_journal(agent, name, journal)
        if not ended["was_running"] or ended["code"] != 0:
            raise HotbedError(f"the controller {name} failed: {ended['reason']}")
