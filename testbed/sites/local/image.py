"""Root file systems of nodes, one for each Debian suite: debootstrap plus the stores' packages,
cached.

They contain nothing of the host's distribution. A root is built in its own namespace (a killed
build takes its processes and mounts with it), in a temporary folder that is renamed when complete.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from schemas.errors import UserError
from testbed.sites.contract import Progress, SiteError, silent
from testbed.sites.local.process import ENVIRONMENT, run, tied
from testbed.sites.records import locked

SUITES: Mapping[str, int] = {"bookworm": 16, "trixie": 18, "sid": 20}
"""Major version of the packaged Ceph by suite, from before a root is built; deployments look."""
DEFAULT_SUITE = "trixie"
BASE = "systemd systemd-sysv dbus openssh-server python3 iproute2 ca-certificates"
PACKAGES = """
ceph-mon ceph-mgr ceph-osd ceph-common radosgw python3-rados python3-apt python3-numpy
python3-scipy fio gdisk fdisk parted e2fsprogs xfsprogs procps iputils-ping memcached
netcat-openbsd netbase nfs-ganesha nfs-ganesha-vfs nftables openssh-client rpcbind rsync
gcc libc6-dev
"""
# Units that nodes of any suite do not need (/tmp is not memory). The stores' own units stay as
# packaged; roles start them.
MASKED = """
apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer
e2scrub_reap.service fstrim.timer getty@.service getty.target console-getty.service
systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service
systemd-resolved.service systemd-timesyncd.service systemd-udevd.service
systemd-logind.service memcached.service nvmf-autoconnect.service nfs-client.target
nfs-ganesha.service nfs-ganesha-config.service nfs-ganesha-lock.service nftables.service
rpc-statd.service rpc-statd-notify.service rpcbind.service rpcbind.socket rsync.service
run-rpc_pipefs.mount nfs-blkmap.service xfs_scrub_all.timer tmp.mount
"""

# Installs packages in $ROOT: no service starts, and the host's network and names are borrowed.
_INSTALL = r"""printf '#!/bin/sh\nexit 101\n' > "$ROOT/usr/sbin/policy-rc.d"
chmod 755 "$ROOT/usr/sbin/policy-rc.d"
rm -f "$ROOT/etc/resolv.conf"
cat /etc/resolv.conf > "$ROOT/etc/resolv.conf" 2>/dev/null || true
cat /etc/hosts > "$ROOT/etc/hosts" 2>/dev/null || true
mount -t proc proc "$ROOT/proc"
chroot "$ROOT" apt-get -q $APT_OPTIONS update
chroot "$ROOT" apt-get -q -y --no-install-recommends install $PACKAGES
chroot "$ROOT" apt-get clean
umount "$ROOT/proc"
rm -rf "$ROOT"/var/lib/apt/lists/* "$ROOT"/etc/ssh/ssh_host_* "$ROOT/usr/sbin/policy-rc.d"
""".rstrip()
_RECIPE = rf"""
set -eu
debootstrap --variant=minbase --include="$INCLUDE" "$SUITE" "$ROOT" ${{MIRROR:+"$MIRROR"}}
echo force-unsafe-io > "$ROOT/etc/dpkg/dpkg.cfg.d/hotbed-build"
{_INSTALL}
rm -f "$ROOT/etc/dpkg/dpkg.cfg.d/hotbed-build" "$ROOT/etc/resolv.conf" "$ROOT/etc/hostname"
: > "$ROOT/etc/resolv.conf"
: > "$ROOT/etc/apt/sources.list" # nodes reach no mirror, and with a source apt would fail
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
# OpenSSH 9.8 and later refuse a client for a while after connections that broke off.
if grep -aqi persourcepenalties "$ROOT/usr/sbin/sshd"; then
    echo PerSourcePenalties no >> "$ROOT/etc/ssh/sshd_config.d/hotbed.conf"
fi
"""

METRICS = "prometheus prometheus-node-exporter python3-prometheus-client"
"""Packages of the layer for testbeds with metrics."""
# On memory, because not every file system can carry an overlay's upper folder.
_LAYER_RECIPE = rf"""
set -eu
SPACE=$ROOT.space LAYER=$ROOT
mkdir "$SPACE"
mount -t tmpfs tmpfs "$SPACE"
mkdir "$SPACE/upper" "$SPACE/work" "$SPACE/all"
mount -t overlay overlay -o "lowerdir=$IMAGE,upperdir=$SPACE/upper,workdir=$SPACE/work" "$SPACE/all"
ROOT=$SPACE/all
echo "deb ${{MIRROR:-http://deb.debian.org/debian}} $SUITE main" > "$ROOT/etc/apt/sources.list"
{_INSTALL}
rm -f "$ROOT"/etc/systemd/system/*.wants/prometheus*
for file in resolv.conf apt/sources.list; do : > "$ROOT/etc/$file"; done
umount "$ROOT"
cp -a "$SPACE/upper" "$LAYER"
"""

_LINES = 1100
"""Approximate number of lines that a build prints, only for the progress share."""


def suite_of(options: Mapping[str, object]) -> str:
    """Return the suite that the site's options of a spec name, or else the default. UserError:
    there is no such suite."""
    suite = str(options.get("suite", DEFAULT_SUITE))
    if suite not in SUITES:
        allowed = ", ".join(SUITES)
        raise UserError(f"there is no suite {suite!r}", where="site.options.suite", allowed=allowed)
    return suite


def digest(suite: str) -> str:
    """Return the name of a suite's image: suite, architecture and a hash of the recipe."""
    packages = (*BASE.split(), "+", *PACKAGES.split(), "+", *MASKED.split())
    parts = (suite, platform.machine(), *packages, _RECIPE)
    return f"{suite}-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:12]}"


def folder(cache: Path, suite: str) -> Path:
    """Return the (future) folder of a suite's image."""
    return cache / "roots" / digest(suite) / "root"


def metrics_layer(cache: Path, suite: str) -> Path:
    """Return the (future) folder of the layer over a suite's image with the packages of metrics."""
    recipe = hashlib.sha256(f"{METRICS}{_LAYER_RECIPE}".encode()).hexdigest()[:12]
    return folder(cache, suite).with_name(f"metrics-{recipe}") / "root"


def ready(cache: Path, suite: str) -> bool:
    """Return True if the image is built."""
    return folder(cache, suite).is_dir()


def ensure(cache: Path, suite: str, progress: Progress = silent) -> Path:
    """Return the root folder of a suite's image; build it first if it is not cached (about two
    minutes). SiteError: the build failed; the message ends with the reason from its last lines."""
    more = {"INCLUDE": BASE.replace(" ", ","), "MASKED": " ".join(MASKED.split())}
    root, log = folder(cache, suite), cache / "roots" / "build.log"
    return _built(root, log, _RECIPE, _environment(suite, PACKAGES) | more, progress)


def ensure_metrics(cache: Path, suite: str, progress: Progress = silent) -> Path:
    """Return the layer of `metrics_layer`; build it first if it is not cached, on a cached image;
    see `ensure`."""
    more = {"IMAGE": str(folder(cache, suite))}
    layer, log = metrics_layer(cache, suite), cache / "roots" / "build-metrics.log"
    return _built(layer, log, _LAYER_RECIPE, _environment(suite, METRICS) | more, progress)


def _environment(suite: str, packages: str) -> dict[str, str]:
    """Return the variables of every recipe."""
    return {
        **ENVIRONMENT,
        **_proxy(),
        "DEBIAN_FRONTEND": "noninteractive",
        "SUITE": suite,
        # The index of a suite that changes daily is out of date on a slow mirror.
        "APT_OPTIONS": "-o Acquire::Check-Valid-Until=false" if suite == "sid" else "",
        "MIRROR": os.environ.get("HOTBED_DEBIAN_MIRROR", ""),
        "PACKAGES": " ".join(packages.split()),
    }


def _built(
    root: Path, log: Path, recipe: str, environment: Mapping[str, str], progress: Progress
) -> Path:
    """Return `root`, made by `recipe` unless it is cached. See `ensure`."""
    if root.is_dir():
        return root
    roots = log.parent
    progress("root image", 0.0)
    busy = "another command builds the root image for too long"
    with locked(roots / ".lock", timeout_s=900, busy=busy):
        if not root.is_dir():
            for leftover in roots.glob(".building-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            temporary = roots / f".building-{os.getpid()}"
            temporary.mkdir(parents=True)
            temporary.chmod(0o755)
            try:
                given = {**environment, "ROOT": str(temporary / "root")}
                _run_recipe(recipe, given, log, progress)
            except SiteError:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            temporary.replace(root.parent)
            progress("root image", 1.0)
    return root


def _run_recipe(
    recipe: str, environment: Mapping[str, str], log_file: Path, progress: Progress
) -> None:
    """Run a recipe. SiteError: it failed; the message ends with the reason from its last lines."""
    # The kernel ends the build if we die, and the build's first process takes all others and the
    # mounts with it. Unmounts reach the build, else it would keep the disks of nodes that go.
    build = ["unshare", "--mount", "--propagation=slave", "--pid", "--fork", "--kill-child=KILL"]
    build += ["sh", "-c", recipe]
    last: deque[str] = deque(maxlen=5)
    with log_file.open("w") as log:
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
        raise SiteError(
            f"the root image could not be built ({' | '.join(last)}); see {log_file}",
            retry_after_s=60.0,
        )


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
