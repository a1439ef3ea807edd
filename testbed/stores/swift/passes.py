"""Passes of Swift's replicators and updaters on a storage node. Each pass has a time limit. Success
is judged by what the node still holds, not by how the passes end.

A pass of the object replicator asks for every partition of its node. Object servers receive the
data within their microstore's share, in parallel with the tenants' requests. On a small share under
load, a pass takes minutes. An interrupted pass keeps its progress: a partition leaves its node as
soon as all nodes that should have it do.
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
"""Folders of a disk, and the daemon that moves the files of each folder."""
ALL = (*MOVED_BY.values(), "container-updater")
_LOGS = "/run/hotbed-swift"
_COUNT_S = 60.0  # limit for counting on a node's disks, against a hang; not measured
_SPARE_S = 20.0  # beyond the daemons' limits: for ssh, and 5 s to end killed daemons
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
    """Passes on nodes; `shell_to` reaches a node by its name."""

    def __init__(self, shell_to: Callable[[str], Shell]) -> None:
        self._shell = shell_to

    def held(self, node: str, disks: Sequence[str]) -> dict[str, int]:
        """Count files of objects, databases and waiting updates on `disks` of a node, by folder.

        Raises:
            StoreError: a disk is not mounted, so the count is unknown.
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
        """Run a pass of each daemon with the configuration of a microstore's servers.

        Args:
            limit_s: time limit of each daemon, in seconds.

        Raises:
            RemoteError: a daemon failed or exceeded its limit; its progress stays.
        """
        argv = ["sh", "-c", _RUN, "run", f"{limit_s:g}", microstore, *daemons]
        self._shell(node).run(argv, timeout_s=len(daemons) * (limit_s + 5) + _SPARE_S)
