"""Node's disk: a queue disk served through FUSE, a loop device on it, two partitions.

Partition 1 is for files (``scratch``), partition 2 raw for the store (``osd``). Without scratch the
only partition is the store's. All users of either share the disk's single queue.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.sites.contract import SiteError
from testbed.sites.local.process import alive, detach, mounts_under, read_pid, run, stop, wait_until
from testbed.spec import DiskSpec

QUEUEDISK = Path(__file__).resolve().parents[3] / "dataplane" / "bin" / "queuedisk"
MOST_QUEUE_DEPTH = 128
"""Length of the loop driver's own queue: nr_requests must not exceed it."""
_MAX_SECTORS_KB = 512
_ALIGNMENT = 2**20


def folder_name(number: int) -> str:
    """Return the folder name of a node's disk 0, 1, ..., in the node's folder and in layers."""
    return "disk" if number == 0 else f"disk{number}"


def folders(node: Path) -> list[Path]:
    """Return the folders of all disks in a node's folder, even if it is half-made."""
    return sorted(path for path in node.glob("disk*") if path.is_dir())


def uses(spec: DiskSpec, number: int) -> dict[str, str]:
    """Return the devices of disk `number` on its node: use -> path on the node."""
    names = ("disk", "scratch", "osd") if spec.scratch else ("disk", "osd")
    suffix = "" if number == 0 else str(number)
    return {f"{name}{suffix}": f"/dev/hotbed/{name}{suffix}" for name in names}


@dataclass(frozen=True)
class LocalDisk:
    """Files of one node's disk. `folder` holds the mount, the control socket and the log."""

    folder: Path
    spec: DiskSpec

    @property
    def mount(self) -> Path:
        return self.folder / "mnt"

    @property
    def control(self) -> Path:
        return self.folder / "control"

    @property
    def pid_file(self) -> Path:
        return self.folder / "pid"

    @property
    def image(self) -> Path:
        """File that the queue disk serves."""
        return self.mount / "disk"

    def start(self, layers: Sequence[Path], procs: Sequence[Path]) -> str:
        """Serve `layers` (bottom to top), attach a loop device and return it (``/dev/loop3``).

        A disk without partitions is partitioned now.
        """
        self.mount.mkdir(parents=True, exist_ok=True)
        self._serve(layers, procs)
        device = run("losetup", "-f", "--show", "--direct-io=on", str(self.image)).strip()
        self._tune(device)
        if not self._partitioned(device):
            self._partition(device)
        run("partx", "-a", device)
        last = self._parts(device)[-1]
        if not wait_until(lambda: Path(last).is_block_device(), 5.0):
            raise SiteError(f"the partitions of {device} did not appear", retry_after_s=1.0)
        return device

    def binds(self, device: str, number: int) -> dict[str, str]:
        """Return where the loop device and its partitions are bound: host path -> node path."""
        return dict(
            zip([device, *self._parts(device)], uses(self.spec, number).values(), strict=True)
        )

    def _parts(self, device: str) -> list[str]:
        return [f"{device}p{part}" for part in range(1, 3 if self.spec.scratch else 2)]

    def _serve(self, layers: Sequence[Path], procs: Sequence[Path]) -> None:
        self.control.unlink(missing_ok=True)
        self.pid_file.unlink(missing_ok=True)
        command = [str(QUEUEDISK)]
        for layer in layers:
            command += ["--layer", str(layer)]
        command += ["--size", str(self.spec.size), "--bandwidth", f"{self.spec.bandwidth:.0f}B/s"]
        command += ["--positioning", f"{self.spec.positioning * 1e6:.3f}us"]
        command += ["--mount", str(self.mount), "--control", str(self.control)]
        command += ["--pid-file", str(self.pid_file)]
        log, starter = self.folder / "queuedisk.log", self.folder / "starter.pid"
        detach(command, procs=procs, pid_file=starter, log=log)

        def served_or_dead() -> bool:
            pid = read_pid(starter)
            return read_pid(self.pid_file) is not None or (pid is not None and not alive(pid))

        if not wait_until(served_or_dead, 10.0) or read_pid(self.pid_file) is None:
            lines = log.read_text().splitlines()[-1:] or ["no message"]
            raise SiteError(f"the queue disk did not start: {lines[0]} (log: {log})")

    def _tune(self, device: str) -> None:
        queue = Path("/sys/block") / Path(device).name / "queue"
        for key, value in (
            ("scheduler", "none"),
            ("rotational", "1"),
            ("max_sectors_kb", str(_MAX_SECTORS_KB)),
            ("nr_requests", str(self.spec.queue_depth)),
        ):
            try:
                (queue / key).write_text(value)
            except OSError as error:
                raise SiteError(f"{queue / key} does not take {value}: {error.strerror}") from error

    @staticmethod
    def _partitioned(device: str) -> bool:
        with Path(device).open("rb") as disk:
            disk.seek(512)
            return disk.read(8) == b"EFI PART"

    def _partition(self, device: str) -> None:
        first = self.spec.scratch // _ALIGNMENT
        table = "label: gpt\nunit: sectors\n"
        if first:
            table += f"start=1MiB, size={first}MiB, name=scratch\n"
        table += f"name=osd, start={first + 1}MiB\n"
        run("sfdisk", "--quiet", "--no-reread", "--no-tell-kernel", device, text=table)

    def command(self, request: Mapping[str, object], timeout_s: float = 5.0) -> dict[str, object]:
        """Send one request to the queue disk's control socket and return its answer."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(timeout_s)
                connection.connect(str(self.control))
                connection.sendall(json.dumps(request).encode() + b"\n")
                answer = json.loads(connection.makefile().readline())
        except (OSError, ValueError) as error:
            raise SiteError(f"the queue disk {self.folder} does not answer: {error}") from error
        if not isinstance(answer, dict) or answer.get("ok") is False:
            raise SiteError(f"the queue disk refused {request}: {answer}")
        return answer

    def settings(
        self, positioning: float, bandwidth: float
    ) -> list[tuple[str, float | str, float | str, str]]:
        """Return the name in the spec, value in force, wanted value and unit of each setting; the
        wanted mean positioning time (s) and bandwidth (bytes/s) may differ from the spec's. `slow`,
        `errors` and `shaping` are the settings of faults and of filling. SiteError: the queue disk
        does not answer, or has no loop device."""
        stats, spec, onoff = self.command({"op": "stats"}), self.spec, ("off", "on")
        try:
            (device,) = loops_on(self.folder)
            depth = int(Path("/sys/block", Path(device).name, "queue/nr_requests").read_text())
        except (OSError, ValueError) as error:
            raise SiteError(f"the queue disk {self.folder} has no loop device") from error

        def read(name: str) -> float:
            return float(str(stats[name]))

        return [
            ("positioning", 1e-6 * read("positioning_us"), positioning, "s"),
            ("bandwidth", read("bandwidth_bytes"), bandwidth, "bytes/s"),
            ("size", read("size_bytes"), spec.size, "bytes"),
            ("queue_depth", depth, spec.queue_depth, ""),
            ("slow", read("slow"), 1.0, ""),
            ("errors", onoff[bool(stats["error"])], "off", ""),
            ("shaping", onoff[bool(stats["shape"])], "on", ""),
        ]

    def set(self, positioning: float, bandwidth: float) -> None:
        """Set the mean positioning time (s) and bandwidth (bytes/s) until the disk restarts."""
        self.command(
            {"op": "set", "positioning_us": 1e6 * positioning, "bandwidth_bytes": bandwidth}
        )

    def set_back(self) -> None:
        """Apply the spec's settings and end faults."""
        self.set(self.spec.positioning, self.spec.bandwidth)
        self.command({"op": "fault", "slow": 1.0, "error": False})
        self.command({"op": "shape", "on": True})
        for device in loops_on(self.folder):
            self._tune(device)

    def running(self) -> bool:
        """Return True if the queue disk serves and has a loop device."""
        return self._pid() is not None and bool(loops_on(self.folder))

    def _pid(self) -> int | None:
        """Return the queue disk's process, None if it does not run. After a reboot the file may
        name an unrelated process."""
        pid = read_pid(self.pid_file)
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return None
        return pid if str(self.mount).encode() in line else None

    def stop(self) -> None:
        """Detach the loop device and end the queue disk; safe to repeat in any state."""
        with contextlib.suppress(SiteError):
            self.command({"op": "shape", "on": False}, timeout_s=1.0)
        for device in loops_on(self.folder):
            detach_loop(device)
        pid = self._pid()
        if pid is not None and not stop(pid, timeout_s=3.0):
            stop(pid, timeout_s=1.0, number=signal.SIGKILL)
        unmount(self.folder)


def loops_on(folder: Path) -> list[str]:
    """Return the loop devices with a backing file below `folder`."""
    found = []
    for block in Path("/sys/block").glob("loop*"):
        try:
            file = (block / "loop" / "backing_file").read_text().strip()
        except OSError:
            continue
        if file.startswith(f"{folder}/"):
            found.append(f"/dev/{block.name}")
    return found


def detach_loop(device: str, timeout_s: float = 3.0) -> bool:
    """Remove a loop device with its partitions; return False if it is still in use."""
    attached = Path("/sys/block") / Path(device).name / "loop"
    end = time.monotonic() + timeout_s
    while attached.exists():
        run("partx", "-d", device, check=False)
        run("losetup", "-d", device, check=False)
        if time.monotonic() > end:
            return False
        if attached.exists():
            time.sleep(0.05)
    return True


def unmount(folder: Path) -> None:
    """Unmount everything below `folder`, by force if needed."""
    for point in mounts_under(folder):
        run("umount", point, check=False, timeout_s=5.0)
    for point in mounts_under(folder):
        run("umount", "-f", "-l", point, check=False, timeout_s=5.0)
