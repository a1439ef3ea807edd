"""Real runs of the agent's shell scripts, with a stand-in for systemd and another state folder.

`systemd-run` starts the unit's script in its own session, and `systemctl` knows the unit by the
process id. The scripts themselves are the real ones. Pauses between two looks at a unit are
shortened, both for waits and for rate measurements.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.agent.contract import STATE
from testbed.ssh import Completed, LocalShell

# A unit that has ended does not run, although init may take seconds to reap it.
_SYSTEMCTL = r"""#!/bin/sh
alive() { [ -s "$FAKE/$1" ] && pgrep --pgroup "$(cat "$FAKE/$1")" --runstates DRSTt > /dev/null; }
verb=$1; shift
case $verb in
is-active) alive "$2" ;;
show)
    state=inactive
    [ -e "$FAKE/ending/$2" ] && state=deactivating
    alive "$2" && state=active
    echo "ActiveState=$state" ;;
stop)
    rm -f "$FAKE/ending/$1"
    main=$(cat "$FAKE/$1")
    if [ -e "$FAKE/$1.mixed" ]; then
        kill -TERM "$main" 2>/dev/null
        while pgrep --pidfile "$FAKE/$1" --runstates DRSTt > /dev/null; do sleep 0.02; done
        kill -KILL "-$main" 2>/dev/null
    else
        kill -TERM "-$main" 2>/dev/null
    fi
    while alive "$1"; do sleep 0.02; done ;;
reset-failed) exit 1 ;;
list-units)
    for file in "$FAKE"/hotbed-load-*; do
        [ -e "$file" ] && alive "${file##*/}" && echo "${file##*/} loaded active running Hotbed"
    done
    exit 0 ;;
esac
"""
_SYSTEMD_RUN = r"""#!/bin/sh
for word in "$@"; do
    case $word in
    --unit=*) unit=${word#--unit=} ;;
    --property=RuntimeMaxSec=*) max=${word#--property=RuntimeMaxSec=} ;;
    --property=KillMode=mixed) : > "$FAKE/$unit.mixed" ;;
    --*) ;;
    *) break ;;
    esac
    shift
done
if [ -e "$FAKE/ending/$unit" ]; then
    echo "Unit $unit was already loaded or has a fragment file." >&2
    exit 1
fi
setsid "$@" > /dev/null 2>&1 < /dev/null &
pid=$!
echo $pid > "$FAKE/$unit"
( sleep "$max"; kill -TERM -$pid ) > /dev/null 2>&1 < /dev/null &
echo $! >> "$FAKE/timers"
"""
_SLEEP = r"""#!/bin/sh
case $1 in
0.25) set -- 0.02 ;;
1) set -- 0.05 ;;
esac
exec /bin/sleep "$@"
"""


class FakeSystemdShell(LocalShell):
    """Shell on this machine; as a context manager it ends the processes left running."""

    def __init__(self, folder: Path) -> None:
        super().__init__("osd0")
        self.state = folder / "state"
        self._fake = folder / "systemd"
        programs = self.programs = folder / "bin"
        for path in (self.state, self._fake / "ending", programs):
            path.mkdir(parents=True, exist_ok=True)
        scripts = {"systemctl": _SYSTEMCTL, "systemd-run": _SYSTEMD_RUN, "sleep": _SLEEP}
        for name, text in scripts.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.env = {"FAKE": str(self._fake), "PATH": f"{programs}:{os.environ['PATH']}"}

    def __enter__(self) -> FakeSystemdShell:
        return self

    def __exit__(self, *_: object) -> None:
        for path in (path for path in self._fake.iterdir() if path.is_file()):
            for pid in path.read_text().split():
                for target in (f"-{pid}", pid):
                    subprocess.run(
                        ["kill", "-KILL", "--", target], capture_output=True, check=False
                    )

    def kill(self, name: str) -> None:
        """Kill the unit's processes as kill -9 does."""
        pid = (self._fake / f"hotbed-{name}.service").read_text().strip()
        subprocess.run(["kill", "-KILL", "--", f"-{pid}"], check=True)

    def ending(self, name: str) -> Path:
        """Make systemd report a unit as ending; the file disappears once a caller has waited."""
        file = self._fake / "ending" / f"hotbed-{name}.service"
        file.touch()
        return file

    def run(self, argv: Sequence[str], *, input: bytes | None = None, **how: Any) -> Completed:
        text = (input or b"").replace(STATE.encode(), str(self.state).encode())
        return super().run(argv, input=text, **how)

    def put(self, data: bytes, path: str, *, mode: int = 0o644) -> None:
        super().put(data, path.replace(STATE, str(self.state)), mode=mode)

    def _command(self, argv: Sequence[str], *, multiplex: bool = True) -> list[str]:
        set_ = [f"{name}={value}" for name, value in self.env.items()]
        return ["env", *set_, *(word.replace(STATE, str(self.state)) for word in argv)]
