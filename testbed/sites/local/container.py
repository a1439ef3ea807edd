"""Node as an overlay of the root image, booted by systemd-nspawn in the node's namespaces."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.durable import write_file
from testbed.sites.contract import SiteError
from testbed.sites.local.process import alive, detach, mounts_under, read_pid, run

# ----------------------------------------------------------------------------------------------
# Access from the host to files in a node's root, without leaving this root.
#
# Root on the node made the tree, possibly with links that lead elsewhere. Every link is resolved as
# the node would, with the node's root as the top.

_MOST_BYTES = 2**20
_MOST_LINKS = 40  # as the kernel


@dataclass(frozen=True)
class Inside:
    """The root of `node`, at `root` on the host; the node must not run. Names are relative.

    Every method raises SiteError if the node's own files prevent the access.
    """

    root: Path
    node: str

    def read(self, name: str) -> str:
        """Return the text of a plain file, empty if missing; invalid bytes are kept."""
        with self._failing(name):
            path = self._place(name)
            if not path.exists():
                return ""
            if not path.is_file():  # opening a pipe waits, and opening a device can have effects
                raise OSError(errno.EINVAL, "no plain file")
            if path.stat().st_size > _MOST_BYTES:
                raise OSError(errno.EFBIG, f"larger than {_MOST_BYTES >> 20} MiB")
            return path.read_text(errors="surrogateescape")

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        """Replace a file atomically; a link of this name is replaced, not followed."""
        folder, _, last = name.rpartition("/")
        with self._failing(name):
            write_file(self._place(folder) / last, text.encode(errors="surrogateescape"), mode)

    def folder(self, name: str, mode: int) -> None:
        """Make a folder unless it exists, and set its mode."""
        with self._failing(name):
            path = self._place(name)
            path.mkdir(exist_ok=True)
            path.chmod(mode)

    def _place(self, name: str) -> Path:
        """Return the place on the host of a file or folder, which may be missing."""
        here, links, rest = self.root, 0, name.split("/")[::-1]
        while rest:
            part = rest.pop()
            step = here / part
            if part == "..":
                here = here if here == self.root else here.parent
            elif step.is_symlink():
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                target = str(step.readlink())
                here = self.root if target.startswith("/") else here
                rest += target.split("/")[::-1]
            else:
                here = step
        return here

    @contextlib.contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SiteError(
                f"node {self.node}: /{name} in its file system cannot be used ({error.strerror}): "
                "the node has changed its own files; restore a snapshot, or take the testbed down."
            ) from error


PRESSURE_FOLDER = "/opt/hotbed-site/cgroup"
"""Path of the node's own control group inside the node."""

SHARES_FOLDER = "/opt/hotbed-site"
"""Path inside the node of its group of each cgroup v1 controller: ``cpu`` and ``cpuacct``, which it
may divide, and ``memory``."""

_DEPLOYED_HOSTS = re.compile(r"# BEGIN hotbed\n.*?# END hotbed\n", re.DOTALL)
"""Lines that playbooks/roles/base adds to /etc/hosts."""


@dataclass(frozen=True)
class Container:
    """Files of one node's root. `folder` is the node's own folder."""

    folder: Path
    hostname: str
    machine: str

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def pid_file(self) -> Path:
        return self.folder / "nspawn.pid"

    @property
    def files(self) -> Path:
        """File system of limited size with all that the node writes outside its disks, and a folder
        for each layer."""
        return self.folder / "files"

    @property
    def log(self) -> Path:
        return self.folder / "console.log"

    def mount(self, images: Sequence[Path], chain: Sequence[int], size: int) -> None:
        """Mount the root: the layers of `chain` (bottom to top, only the last is written) over
        `images` (bottom to top). All layers together take at most `size` bytes."""
        self._mount_files(size)
        *lower, layer = [self.files / str(number) for number in chain]
        upper, work = layer / "upper", layer / "work"
        for folder in (self.root, upper, work):
            folder.mkdir(parents=True, exist_ok=True)
        upper.chmod(0o755)
        # A snapshot freezes layers and stacks them again: no layer may refer to inodes.
        options = [f"{option}=off" for option in ("index", "metacopy") if _has(option)]
        below = [*images, *(each / "upper" for each in lower)]
        options.append(f"lowerdir={':'.join(str(folder) for folder in reversed(below))}")
        options += [f"upperdir={upper}", f"workdir={work}"]
        run("mount", "-t", "overlay", "overlay", "-o", ",".join(options), str(self.root))

    def _mount_files(self, size: int) -> None:
        """Mount `files`, from an image that takes host space only for written data."""
        image, new = self.folder / "files.img", self.folder / "files.new"
        if not image.exists():
            with new.open("wb") as made:
                made.truncate(size)
            # No zeroing in the background either (noinit_itable): holes are zeros.
            lazy = "nodiscard,lazy_itable_init=1,lazy_journal_init=1"
            run("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-E", lazy, str(new))
            new.replace(image)
        self.files.mkdir(exist_ok=True)
        # Without direct I/O the host would cache every page a second time.
        device = run("losetup", "-f", "--show", "--direct-io=on", str(image)).strip()
        run("mount", "-t", "ext4", "-o", "noatime,noinit_itable", device, str(self.files))
        run("losetup", "-d", device)  # takes effect when it is unmounted

    def furnish(self, hosts: str, authorized: str, host_key: Path) -> None:
        """Write the node's own files into the root: name, keys, and the other nodes' addresses."""
        inside = Inside(self.root, self.hostname)
        inside.write("etc/hostname", f"{self.hostname}\n")
        # The deployment's own lines stay, else the next deployment would find a changed file.
        deployed = _DEPLOYED_HOSTS.search(inside.read("etc/hosts"))
        inside.write("etc/hosts", hosts + (deployed[0] if deployed else ""))
        machine_id = uuid.uuid5(uuid.NAMESPACE_DNS, str(self.folder)).hex
        inside.write("etc/machine-id", f"{machine_id}\n")
        public_key = host_key.with_suffix(".pub").read_text()
        inside.write("etc/ssh/ssh_host_ed25519_key", host_key.read_text(), 0o600)
        inside.write("etc/ssh/ssh_host_ed25519_key.pub", public_key)
        inside.folder("root/.ssh", 0o700)
        keys = "root/.ssh/authorized_keys"
        owner = authorized.split()[-1]
        # A restarted node keeps the keys added since, above all the admin node's.
        others = [line for line in inside.read(keys).splitlines() if line.split()[-1:] != [owner]]
        inside.write(keys, "\n".join([authorized, *others]) + "\n", 0o600)

    def start(
        self,
        *,
        netns: str,
        procs: Sequence[Path],
        binds: Mapping[str, str],
        pressure: Path | None,
        shares: Mapping[str, Path] | None = None,
    ) -> None:
        """Boot the node. `procs`: cgroup.procs files of the node's groups. `binds`: device on the
        host -> path on the node. `pressure`: the node's group in the v2 tree. `shares`: the node's
        groups by v1 controller that it may divide."""
        command = ["systemd-nspawn", "--quiet", "--settings=no", "--register=no", "--keep-unit"]
        command += [f"--directory={self.root}", f"--machine={self.machine}"]
        command += [f"--hostname={self.hostname}", f"--network-namespace-path=/run/netns/{netns}"]
        command += ["--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe"]
        # Nodes queue and mark their packets, and an NFS server opens files by handle.
        command += ["--capability=CAP_NET_ADMIN", "--system-call-filter=open_by_handle_at"]
        command += [f"--bind={host}:{node}" for host, node in binds.items()]
        if pressure is not None:
            command.append(f"--bind-ro={pressure}:{PRESSURE_FOLDER}")
        for controller, path in (shares or {}).items():
            # The node's own systemd cannot divide them; its limit of memory a node only reads.
            bind = "--bind-ro" if controller == "memory" else "--bind"
            command.append(f"{bind}={path}:{SHARES_FOLDER}/{controller}")
        command.append("--boot")
        detach(
            command,
            procs=procs,
            pid_file=self.pid_file,
            log=self.log,
            # systemd 258 and later know no v1. A v2 tree without controllers suffices.
            environment={"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_NSPAWN_LOCK": "0"},
        )

    def running(self) -> bool:
        """Return True if the node's systemd-nspawn is alive."""
        return alive(read_pid(self.pid_file))

    def reason(self) -> str:
        """Return the last line of the console's output."""
        try:
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line]
        except OSError:
            lines = []
        return lines[-1].strip() if lines else "its console said nothing"

    def unmount(self) -> None:
        """Unmount the root and the file system of its layers; the node must have ended."""
        for folder in (self.root, self.files):
            for point in mounts_under(folder):
                run("umount", point, check=False)
            if left := mounts_under(folder):
                run("umount", "-l", left[-1], check=False)
                if mounts_under(folder):
                    raise SiteError(f"{folder} cannot be unmounted", retry_after_s=1.0)


def share_unmounts(folder: Path) -> None:
    """Make every unmount below `folder` take effect in all mount namespaces.

    systemd-nspawn starts with a copy of all mounts, including other nodes'. On hosts with private
    mounts it keeps this hidden copy, and with it the file systems.
    """
    if str(folder) not in mounts_under(folder):
        run("mount", "--bind", "--make-private", str(folder), str(folder))
    run("mount", "--make-shared", str(folder))


def _has(option: str) -> bool:
    return Path("/sys/module/overlay/parameters", option).exists()
