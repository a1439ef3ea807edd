"""Command lines of cephadm and of `ceph orch`, as argument lists.

Source: cephadm(8) and Ceph's documentation, "Deploying a new Ceph cluster" and "Purging a cluster"
(docs.ceph.com/en/latest/cephadm).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.deployer_spec import CephadmDeployer

PROGRAM = "/usr/local/sbin/cephadm"
RELEASE = f"{PROGRAM}.release"
"""Beside a program that we brought: which release's it is."""
CONFIG = "/root/hotbed-cephadm.conf"
"""Settings for the bootstrap, on the first monitor's node."""
SSH_CONFIG = "/root/hotbed-cephadm.ssh"
"""How the manager reaches machines whose sshd listens at another port, beside it."""
ARCHIVE = "https://download.ceph.com"


@dataclass(frozen=True)
class Cephadm:
    """cephadm for one cluster: container image (None: the one that the program itself names, its
    release's), engine and fsid."""

    fsid: str
    image: str | None = None
    engine: str = "podman"

    def command(self, *arguments: str) -> list[str]:
        """cephadm itself."""
        docker = ["--docker"] if self.engine == "docker" else []
        image = ["--image", self.image] if self.image else []
        return [PROGRAM, *docker, *image, *arguments]

    def bootstrap(
        self, mon_ip: str, mon_id: str, config: str, ssh_config: str | None = None
    ) -> list[str]:
        """Make the cluster's first monitor and manager on this host.

        No dashboard, no monitoring and no daemon that the spec does not name: they would disturb
        what is measured. What fails half-way is taken away by the next deployment.

        Args:
            mon_ip: where the monitor listens.
            mon_id: its name, the host's.
            config: path of a ceph.conf with settings, on the host.
            ssh_config: path of an ssh_config in place of cephadm's own, there too.
        """
        return self.command(
            *("bootstrap", "--fsid", self.fsid),
            *("--mon-ip", mon_ip, "--mon-id", mon_id),
            *("--config", config),
            *("--ssh-user", "root"),
            *(("--ssh-config", ssh_config) if ssh_config else ()),
            "--skip-dashboard",
            "--skip-monitoring-stack",
            "--skip-firewalld",
            "--orphan-initial-daemons",
            "--allow-overwrite",
        )

    def ceph(self, *arguments: str) -> list[str]:
        """The command `ceph` in a container, with the administrator's key."""
        return self.command("shell", "--fsid", self.fsid, "--", "ceph", *arguments)

    def ask(self, *arguments: str) -> list[str]:
        """As `ceph`, answering in JSON."""
        return self.ceph(*arguments, "--format", "json")

    def apply(self) -> list[str]:
        """Apply the specifications on standard input."""
        return self.ceph("orch", "apply", "-i", "-")

    def pause(self) -> list[str]:
        """Keep the orchestrator from making anything again while the cluster is removed."""
        return self.ceph("mgr", "module", "disable", "cephadm")

    def remove(self) -> list[str]:
        """Remove this host's daemons, data and OSDs of the cluster."""
        return self.command("rm-cluster", "--force", "--zap-osds", "--fsid", self.fsid)


def bootstrapped(fsid: str) -> str:
    """The mark, on the first monitor's node, of a bootstrap that came to its end. It lies in the
    cluster's own folder, with which it is removed."""
    return f"/var/lib/ceph/{fsid}/hotbed-bootstrapped"


def cephadm_of(deployer: CephadmDeployer, fsid: str) -> Cephadm:
    """cephadm as the spec asks for it."""
    return Cephadm(fsid, deployer.image, deployer.engine)


def fetch_program(release: str) -> list[str]:
    """Put the release's cephadm, which is one file, where `PROGRAM` is; left alone if it is there.

    cephadm of another release than the image's refuses to bootstrap it, and without an image it
    names its own release's.
    """
    address = f"{ARCHIVE}/rpm-{release}/el9/noarch/cephadm"
    script = (
        'test -x "$1" && test "$(cat "$1.release" 2>/dev/null)" = "$3" && exit 0; '
        'curl --fail --silent --show-error --location --output "$1.new" "$2" && '
        'chmod 755 "$1.new" && mv -f "$1.new" "$1" && echo "$3" > "$1.release"'
    )
    return ["sh", "-c", script, "sh", PROGRAM, address, release]


def authorize() -> list[str]:
    """Let the key on standard input in as root, once."""
    script = (
        "umask 077; key=$(cat); file=/root/.ssh/authorized_keys; mkdir -p /root/.ssh; "
        'touch "$file"; grep -qxF "$key" "$file" || printf "%s\\n" "$key" >> "$file"'
    )
    return ["sh", "-c", script]


def forget(fsid: str) -> list[str]:
    """Take the cluster's key out of root's authorized ones, and program and settings away."""
    script = (
        "file=/root/.ssh/authorized_keys; "
        'test ! -e "$file" || sed -i --follow-symlinks "/ ceph-$1\\$/d" "$file"; '
        'rm -f "$2" "$2.release" "$2.new" "$3" "$4"'
    )
    return ["sh", "-c", script, "sh", fsid, PROGRAM, CONFIG, SSH_CONFIG]


def as_root(user: str, argv: Sequence[str]) -> list[str]:
    """A command for a machine that is reached as `user`."""
    return list(argv) if user == "root" else ["sudo", "-n", *argv]
