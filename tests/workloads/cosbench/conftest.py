"""Node that is this machine, and a driver that replaces cosdrive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed.ssh import LocalShell


class NodeHere(LocalShell):
    """Shell that runs commands here, with the paths of a node below a folder."""

    def __init__(self, root: Path) -> None:
        super().__init__("client")
        self.root = root
        self.ran: list[list[str]] = []
        self.modes: dict[str, int] = {}

    def here(self, word: str) -> str:
        for path in ("/var/lib/hotbed", "/usr/local/bin", "/etc/hotbed"):
            word = word.replace(path, f"{self.root}{path}")
        return word

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        super().put(data, self.here(path), mode=mode)
        self.modes[path] = mode

    def _command(self, argv: Sequence[str], *, multiplex: bool = True) -> list[str]:
        self.ran.append(list(argv))
        return [self.here(word) for word in argv]


@pytest.fixture
def local_shell(tmp_path: Path) -> NodeHere:
    root = tmp_path / "node"
    for folder in ("var/lib/hotbed", "usr/local/bin", "etc/hotbed/swift"):
        (root / folder).mkdir(parents=True)
    return NodeHere(root)


STAND_IN = """#!/bin/sh
# What cosdrive does, without a store: reads the XML, prints events, leaves a recorded archive.
set -eu
verb=$1 xml=$2
stopped=
trap 'stopped=1' INT TERM
cat "$xml" > "{folder}/seen.xml"
echo "$@" >> "{folder}/commands"
turn=0
if grep -q broken "$xml"; then
    # With a file `second` it fails only after another one has begun.
    while [ -e "{folder}/second" ] && [ $turn -lt 600 ]; do
        [ "$(wc -l < "{folder}/commands")" -lt 2 ] || break
        sleep 0.05; turn=$((turn + 1))
    done
    echo "cosdrive: $xml: line 3, work \\"main\\": there is nothing to do" >&2
    exit 2
fi
if [ "$verb" = check ]; then echo '{{"name": "web", "stages": []}}'; exit; fi
echo "cosdrive: $xml: afr has no effect" >&2
echo '{{"event":"stage","stage":"s3-main","state":"running","t_s":1,"ops":0,"eta_s":3}}'
echo '{{"event":"snapshot","stage":"s3-main","t_s":2,"ops":50,"errors":1,"eta_s":2}}'
if grep -q patient "$xml"; then
    while [ -z "$stopped" ] && [ $turn -lt 600 ]; do sleep 0.05; turn=$((turn + 1)); done
fi
mkdir -p "$4"
cp -r "{recorded}" "$4/"
echo '{{"event":"done","t_s":4,"ops":100,"errors":1,"mean_s":null,"p95_s":null,"eta_s":0}}'
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """Return a program with cosdrive's command line that saves its input in its folder."""
    recorded = Path(__file__).parents[2] / "data" / "cosbench" / "real" / "w1-mos-A"
    folder = tmp_path / "program"
    folder.mkdir()
    path = folder / "cosdrive"
    path.write_text(STAND_IN.format(folder=folder, recorded=recorded))
    path.chmod(0o755)
    return path
