"""Passes of Swift's replicators and updaters on a storage node: each ends in a given time, and what
they are for is judged by what the node still holds, not by their ends.

A pass of the object replicator asks after every partition of its node, and what it sends is taken
in by object servers within their microstore's share, beside the tenants' requests: on a small share
under load it takes minutes. One that is cut off has done what it has done: a partition leaves its
node as soon as all nodes that should have it do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from schemas.errors import RemoteError, StoreError
from testbed.ssh import Shell
from testbed.stores.swift.confs import DEVICES, ETC, USER, VENV

MOVED_BY: Mapping[str, str] = MappingProxyType(
    {
        "objects": "object-replicator",
        "containers": "container-replicator",
        "accounts": "account-replicator",
        "async_pending": "object-updater",
    }
)
"""Folders of a disk, and who brings what is in them elsewhere."""
ALL = (*MOVED_BY.values(), "container-updater")
_LOGS = "/run/hotbed-swift"
_COUNT_S = 60.0  # to look through a node's disks: for one that hangs, not measured
_SPARE_S = 20.0  # beyond the daemons' own limits: for ssh, and 5 s to end of those that are killed
_COUNT = f"""
for disk in "$@"; do
    mountpoint -q {DEVICES}/$disk || {{ echo "disk $disk is not mounted" >&2; exit 1; }}
done
for kind in {" ".join(MOVED_BY)}; do
    for disk in "$@"; do
        for folder in {DEVICES}/$disk/$kind {DEVICES}/$disk/$kind-[0-9]*; do
            [ ! -d "$folder" ] || find "$folder" -type f \\( -name '*.data' -o -name '*.ts' \\
                -o -name '*.meta' -o -name '*.db' -o -path '*/async_pending*' \\) 2> /dev/null
        done
    done | echo $kind $(wc -l)
done
"""
_RUN = f"""
limit=$1; store=$2; shift 2
mkdir -p {_LOGS} && chown {USER}: {_LOGS}
export EVENTLET_NO_GREENDNS=yes
failed=
for daemon in "$@"; do
    log={_LOGS}/$daemon.log
    timeout -k 5 "$limit" {VENV}/bin/python -s {VENV}/bin/swift-$daemon \\
        {ETC}/${{daemon%-*}}-$store.conf once -v > $log 2>&1
    case $? in
        0) ;;
        124|137) failed="$failed, $daemon did not end within $limit s" ;;
        *) failed="$failed, $daemon failed ($(tail -n 1 $log))" ;;
    esac
done
[ -z "$failed" ] || {{ echo "${{failed#, }}; see {_LOGS}" >&2; exit 1; }}
"""


class Passes:
    """Passes on nodes that `shell_to` reaches by their names."""

    def __init__(self, shell_to: Callable[[str], Shell]) -> None:
        self._shell = shell_to

    def held(self, node: str, disks: Sequence[str]) -> dict[str, int]:
        """Files of objects, databases and waiting updates on some disks of a node, by folder.

        Raises:
            StoreError: a disk is not mounted, so that nobody can tell.
        """
        argv = ["sh", "-c", _COUNT, "held", *disks]
        try:
            text = self._shell(node).run(argv, timeout_s=_COUNT_S).text
            return {kind: int(count) for kind, count in map(str.split, text.splitlines())}
        except RemoteError as error:
            raise StoreError(f"what node {node} holds cannot be told: {error}") from error

    def run(
        self, node: str, microstore: str, daemons: Sequence[str] = ALL, *, limit_s: float
    ) -> None:
        """A pass of each of some daemons, by the configuration of a microstore's servers.

        Args:
            limit_s: seconds that each of them may take.

        Raises:
            RemoteError: one failed, or was ended after that time; what it had done stays done.
        """
        argv = ["sh", "-c", _RUN, "run", f"{limit_s:g}", microstore, *daemons]
        self._shell(node).run(argv, timeout_s=len(daemons) * (limit_s + 5) + _SPARE_S)
