"""Stand-in for systemctl in `controllers.control`, based on plain processes.

It keeps a file with the process id per unit in $FAKE_UNITS. `start` waits for READY=1 as
Type=notify does. `stop` sends SIGTERM, and ExecStopPost runs when the process has ended, as in the
unit file."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

UNITS = Path(os.environ["FAKE_UNITS"])
CONFIGS = Path(os.environ["FAKE_CONFIGS"])
MAIN = [sys.executable, str(Path(__file__).with_name("service_main.py"))]


def config(unit: str) -> str:
    return str(CONFIGS / (unit.split("@")[1].removesuffix(".service") + ".json"))


def alive(unit: str) -> bool:
    try:
        pid = int((UNITS / unit).read_text())
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, ValueError):
        return False
    return state != "Z"


def post(unit: str) -> None:
    subprocess.run([*MAIN, "--restore", config(unit)], check=False)


def start(unit: str) -> int:
    address = UNITS / "notify"
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(address))
        notify.settimeout(0.05)
        environment = dict(os.environ, NOTIFY_SOCKET=str(address))
        log = (UNITS / "log").open("a")
        process = subprocess.Popen(
            [*MAIN, config(unit)],
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        (UNITS / unit).write_text(str(process.pid))
        while process.poll() is None:
            try:
                if b"READY=1" in notify.recv(4096):
                    return 0
            except TimeoutError:
                continue
    post(unit)
    print(f"Job for {unit} failed", file=sys.stderr)
    return 1


def stop(unit: str) -> int:
    os.kill(int((UNITS / unit).read_text()), signal.SIGTERM)
    while alive(unit):
        time.sleep(0.02)
    post(unit)
    return 0


def main() -> int:
    verb, unit = sys.argv[1], sys.argv[-1]
    if verb == "list-units":
        for path in UNITS.glob("*.service"):
            if alive(path.name):
                print(f"{path.name} loaded active running Hotbed")
        return 0
    if verb == "reset-failed":
        return 0
    if "--no-block" in sys.argv:
        os.kill(int((UNITS / unit).read_text()), signal.SIGTERM)
        return 0
    return {"start": start, "stop": stop}[verb](unit)


if __name__ == "__main__":
    sys.exit(main())
