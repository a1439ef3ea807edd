"""Root file system of every node: debootstrap plus the stores' packages, cached.

It contains nothing of the host's distribution. It is built in its own namespace (a killed build
takes its processes and mounts with it), in a temporary folder that is renamed when complete.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections import deque
from pathlib import Path

from testbed.sites.contract import Progress, SiteError, silent
from testbed.sites.local.process import ENVIRONMENT, run, tied
from testbed.sites.records import locked

SUITE = "bookworm"
BASE = "systemd systemd-sysv dbus openssh-server python3 iproute2 ca-certificates"
PACKAGES = """
ceph-mon ceph-mgr ceph-osd ceph-common radosgw python3-rados python3-apt python3-numpy
python3-scipy fio gdisk fdisk parted e2fsprogs xfsprogs procps iputils-ping memcached
netcat-openbsd netbase nfs-ganesha nfs-ganesha-vfs nftables rpcbind rsync
"""
# Units that nodes do not need. The stores' own units stay as packaged; roles start them.
MASKED = """
apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer
e2scrub_reap.service fstrim.timer getty@.service getty.target console-getty.service
systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service
systemd-resolved.service systemd-timesyncd.service systemd-udevd.service
systemd-logind.service memcached.service nvmf-autoconnect.service nfs-client.target
nfs-ganesha.service nfs-ganesha-config.service nfs-ganesha-lock.service nftables.service
rpc-statd.service rpc-statd-notify.service rpcbind.service rpcbind.socket rsync.service
run-rpc_pipefs.mount
"""

_RECIPE = r"""
set -eu
mount --make-rprivate /
debootstrap --variant=minbase --include="$INCLUDE" "$SUITE" "$ROOT" ${MIRROR:+"$MIRROR"}
echo force-unsafe-io > "$ROOT/etc/dpkg/dpkg.cfg.d/hotbed-build"
printf '#!/bin/sh\nexit 101\n' > "$ROOT/usr/sbin/policy-rc.d"
chmod 755 "$ROOT/usr/sbin/policy-rc.d"
rm -f "$ROOT/etc/resolv.conf"
cat /etc/resolv.conf > "$ROOT/etc/resolv.conf" 2>/dev/null || true
cat /etc/hosts > "$ROOT/etc/hosts" 2>/dev/null || true
mount -t proc proc "$ROOT/proc"
chroot "$ROOT" apt-get -q update
chroot "$ROOT" apt-get -q -y --no-install-recommends install $PACKAGES
chroot "$ROOT" apt-get clean
umount "$ROOT/proc"
rm -rf "$ROOT"/var/lib/apt/lists/* "$ROOT"/etc/ssh/ssh_host_* "$ROOT/usr/sbin/policy-rc.d"
rm -f "$ROOT/etc/dpkg/dpkg.cfg.d/hotbed-build" "$ROOT/etc/resolv.conf" "$ROOT/etc/hostname"
: > "$ROOT/etc/resolv.conf"
: > "$ROOT/etc/fstab"
: > "$ROOT/etc/machine-id"
ln -sf /usr/share/zoneinfo/Etc/UTC "$ROOT/etc/localtime"
echo Etc/UTC > "$ROOT/etc/timezone"
for unit in $MASKED; do ln -sf /dev/null "$ROOT/etc/systemd/system/$unit"; done
for target in ceph.target ceph-mon.target ceph-mgr.target ceph-osd.target ceph-radosgw.target \
    ceph-crash.service; do
    find "$ROOT/etc/systemd/system" -path '*.wants/*' -name "$target" -delete
done
ln -sf /lib/systemd/system/multi-user.target "$ROOT/etc/systemd/system/default.target"
cat > "$ROOT/etc/ssh/sshd_config.d/hotbed.conf" <<'SSHD'
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
HostKey /etc/ssh/ssh_host_ed25519_key
UseDNS no
MaxSessions 200
MaxStartups 200
SSHD
"""

_LINES = 1100
"""Approximate number of lines that a build prints, only for the progress share."""


def digest() -> str:
    """Return the name of this recipe's image: suite, architecture and a hash of the recipe."""
    packages = (*BASE.split(), "+", *PACKAGES.split(), "+", *MASKED.split())
    parts = (SUITE, platform.machine(), *packages, _RECIPE)
    return f"{SUITE}-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:12]}"


def folder(cache: Path) -> Path:
    """Return the (future) folder of the image."""
    return cache / "roots" / digest() / "root"


def ready(cache: Path) -> bool:
    """Return True if the image is built."""
    return folder(cache).is_dir()


def ensure(cache: Path, progress: Progress = silent) -> Path:
    """Return the image's root folder; build it first if it is not cached (about two minutes).
    SiteError: the build failed; the message ends with the reason from its last lines."""
    if ready(cache):
        return folder(cache)
    roots = cache / "roots"
    progress("root image", 0.0)
    with locked(
        roots / ".lock", timeout_s=900, busy="another command builds the root image for too long"
    ):
        if not ready(cache):
            _build(roots, progress)
    return folder(cache)


def _build(roots: Path, progress: Progress) -> None:
    for leftover in roots.glob(".building-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = roots / f".building-{os.getpid()}"
    temporary.mkdir(parents=True)
    temporary.chmod(0o755)
    environment = {
        **ENVIRONMENT,
        **_proxy(),
        "DEBIAN_FRONTEND": "noninteractive",
        "ROOT": str(temporary / "root"),
        "SUITE": SUITE,
        "MIRROR": os.environ.get("HOTBED_DEBIAN_MIRROR", ""),
        "INCLUDE": BASE.replace(" ", ","),
        "PACKAGES": " ".join(PACKAGES.split()),
        "MASKED": " ".join(MASKED.split()),
    }
    # The kernel ends the build if we die, and the build's first process takes all others and the
    # mounts with it.
    build = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "sh", "-c", _RECIPE]
    last: deque[str] = deque(maxlen=5)
    with (roots / "build.log").open("w") as log:
        process = subprocess.Popen(
            tied(build, "KILL"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            for number, line in enumerate(process.stdout):
                log.write(line)
                last.append(line.strip())
                progress("root image", min(number / _LINES, 0.99))
            code = process.wait()
        finally:
            process.kill()
            process.wait()
    if code != 0:
        shutil.rmtree(temporary, ignore_errors=True)
        raise SiteError(
            f"the root image could not be built ({' | '.join(last)}); see {roots / 'build.log'}",
            retry_after_s=60.0,
        )
    temporary.replace(roots / digest())
    progress("root image", 1.0)


def _proxy() -> dict[str, str]:
    """Return the proxies of the host's apt, as environment variables of the build's tools."""
    found = {}
    for scheme in ("http", "https"):
        if f"{scheme}_proxy" in os.environ or shutil.which("apt-config") is None:
            continue
        dump = run("apt-config", "dump", f"Acquire::{scheme}::Proxy", check=False)
        value = dump.partition('"')[2].partition('"')[0]
        if value and value != "DIRECT":
            found[f"{scheme}_proxy"] = value
    return found
