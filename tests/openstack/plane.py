"""Whole OpenStack control plane on its own loopback address, for one test session.

`python -m tests.openstack.plane` starts one until Ctrl-C, for manual inspection.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.openstack import config, seed, services
from tests.openstack.broker import Broker
from tests.openstack.config import PORTED, Host, Place
from tests.openstack.database import Database
from tests.openstack.parts import CACHE, LOCK, Parts, locked, parts
from tests.openstack.processes import Processes
from tests.openstack.proxy import Proxy
from tests.openstack.rest import Refused, Rest

HOSTS = (
    *(Host(f"skylake-{number}", "compute_skylake") for number in range(1, 6)),
    *(Host(f"cascade-{number}", "compute_cascadelake") for number in range(1, 3)),
    # Every server on this host ends in ERROR.
    Host("broken-1", "compute_broken", "fake.FakeBuildAbortDriver"),
    Host("kvm-1", "kvm", "fake.FakeDriver", virtual=True),
)
# A service loads its plugins and finds its manager at the first request. Neutron lists ports only
# after another read: ports' attribute for port forwarding is created by SQLAlchemy at the first
# query.
_FIRST_CALLS = (
    ("network", "/v2.0/networks"),
    ("network", "/v2.0/ports"),
    ("image", "/v2/images"),
    ("reservation", "/leases"),
)
_UNWRITTEN_S = 1.5
"""InnoDB writes its log within a second after a commit."""


class ControlPlane:
    """Control plane from `start` to `stop`; a migrated and seeded copy is kept between sessions.

    Users use `proxy`; `admin` bypasses it. Files are in `folder`, logs in ``folder/logs``.
    """

    def __init__(self, hosts: Sequence[Host] = HOSTS) -> None:
        self.hosts = tuple(hosts)
        self.folder = Path(tempfile.mkdtemp(prefix="hotbed-os-"))
        for name in ("logs", "etc", "state", "state/locks", "state/images"):
            (self.folder / name).mkdir()
        self.processes = Processes(self.folder / "logs")
        self.times: dict[str, float] = {}
        self._parts: Parts = parts()
        self._listeners = {name: _listener(_ADDRESS) for name in PORTED}
        ports = {name: each.getsockname()[1] for name, each in self._listeners.items()}
        self._database = Database(self._parts, self.processes, self.folder / "db")
        spare = _spare_ports()
        folder = self.folder / "mq"
        self._broker = Broker(self._parts, self.processes, folder, _ADDRESS, spare)
        self.place = Place(self.folder, self._parts.venv, _ADDRESS, ports, self._broker.url)
        targets = {name: (_ADDRESS, port) for name, port in ports.items()}
        # python-chi has keystone's port hard-coded.
        self.proxy = Proxy(_ADDRESS, targets, {"identity": 5000})
        self.admin: Rest

    # -- for users ------------------------------------------------------------------------------

    def credentials(self, user: str = seed.USER, project: str = seed.PROJECT) -> dict[str, str]:
        """Return the OS_* variables of a user."""
        return {
            "OS_AUTH_TYPE": "v3password",
            "OS_AUTH_URL": f"{self.proxy.url('identity')}/v3",
            "OS_IDENTITY_API_VERSION": "3",
            "OS_INTERFACE": "public",
            "OS_PASSWORD": config.SECRET,
            "OS_PROJECT_DOMAIN_NAME": seed.DOMAIN,
            "OS_PROJECT_NAME": project,
            "OS_REGION_NAME": config.REGION,
            "OS_USERNAME": user,
            "OS_USER_DOMAIN_NAME": seed.DOMAIN,
        }

    def user(self, name: str = seed.USER, project: str = seed.PROJECT) -> Rest:
        """Return calls as a user, past the proxy."""
        return Rest(self.place.auth_url, name, project, domain=seed.DOMAIN)

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything; call `stop` afterwards even if this fails."""
        with locked(CACHE / ".seeded-lock"):
            kept = CACHE / f"seeded-{self._digest()}"
            if not kept.is_dir():
                self._timed("migrated", self._prepare)
                self._timed("up", self._bring_up)
                self._timed("kept", lambda: self._keep(kept))
                return
            for name in ("db", "state"):
                _copy(kept / name, self.folder / name)
        self._timed("up", self._bring_up)

    def stop(self) -> None:
        """End every process and remove every file; HOTBED_OPENSTACK_KEEP=1 keeps the files."""
        self.proxy.stop()
        self.processes.stop()
        for listener in self._listeners.values():
            listener.close()
        if not os.environ.get("HOTBED_OPENSTACK_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- inside ---------------------------------------------------------------------------------

    def _timed(self, phase: str, step: object) -> None:
        assert callable(step)
        began = time.monotonic()
        step()
        self.times[phase] = time.monotonic() - began
        print(f"openstack: {phase} in {self.times[phase]:.1f} s", flush=True)

    def _digest(self) -> str:
        """Return a digest of all inputs of the migrated and seeded state."""
        here = Path(__file__).parent
        sources = [here / f"{name}.py" for name in ("config", "database", "seed", "services")]
        sources += [LOCK, *sorted((here / "plugins").glob("*.py"))]
        text = b"".join(path.read_bytes() for path in sources)
        text += repr((self.hosts, sys.version)).encode()
        return hashlib.sha256(text).hexdigest()[:12]

    def _prepare(self) -> None:
        """Create empty schemas, then their tables; the broker starts in parallel."""
        self._broker.start()
        config.write(self.place)
        self._database.start()
        self._database.stop()
        schemas = "".join(f"create database {name};\n" for name in services.SCHEMAS)
        self._database.execute(schemas)
        self._database.start()
        services.migrate(self.place, self.processes)
        self._database.stop()

    def _bring_up(self) -> None:
        first = "migrated" in self.times
        began = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
        config.write(self.place)
        for host in self.hosts:
            config.write_host(self.place, host)
        if not first:
            self._broker.start()
        self._database.execute(services.moved(self._urls()))
        self._database.start()
        for name in PORTED:
            services.start_api(self.place, self.processes, name, self._listeners[name])
        self.proxy.start()
        self._answering("identity")
        self.admin = Rest(self.place.auth_url)
        if first:
            seed.identities(self.admin, self._urls())
        self._broker.wait()
        services.start_workers(self.place, self.processes, self.hosts)
        for name in PORTED:
            self._answering(name)
        if first:
            seed.resources(self.admin)
        self.processes.wait("nova-computes", partial(self._awake, began))
        for name, path in _FIRST_CALLS:
            self.processes.wait(name, partial(self._serves, name, path))
        if first:
            services.discover(self.place, self.processes)
            seed.leasable(self.admin, self.hosts)

    def _answering(self, service: str) -> None:
        self.processes.wait(service, lambda: services.answers(self.place, service))

    def _awake(self, since: str) -> bool:
        self.processes.check()
        wanted = {"nova-conductor", "nova-scheduler", *(host.name for host in self.hosts)}
        return wanted <= seed.awake(self.admin, since)

    def _serves(self, service: str, path: str) -> bool:
        try:
            self.admin.get(service, path)
        except Refused:
            return False
        return True

    def _urls(self) -> dict[str, dict[str, str]]:
        inside = {name: self.place.url(name) + seed.PATHS.get(name, "") for name in PORTED}
        public = {name: self.proxy.url(name) + seed.PATHS.get(name, "") for name in PORTED}
        return {"internal": inside, "admin": inside, "public": public}

    def _keep(self, kept: Path) -> None:
        """Copy the state for later sessions without stopping anything. The copy equals the state
        after a crash at this moment, from which the database can start.
        """
        for old in CACHE.glob("seeded-*"):
            shutil.rmtree(old)
        time.sleep(_UNWRITTEN_S)
        pid = self.processes.pid("mariadb")
        temporary = CACHE / f".seeding-{os.getpid()}"
        temporary.mkdir()
        os.kill(pid, signal.SIGSTOP)
        try:
            for name in ("db", "state"):
                _copy(self.folder / name, temporary / name)
        finally:
            os.kill(pid, signal.SIGCONT)
        temporary.replace(kept)


def _copy(source: Path, target: Path) -> None:
    """Copy a folder with its modes, sharing blocks if the file system can."""
    target.mkdir(exist_ok=True)
    subprocess.run(
        ["cp", "--archive", "--reflink=auto", "--sparse=always", f"{source}/.", str(target)],
        check=True,
    )


def _own_address() -> str:
    """Return an unused loopback address."""
    return f"127.{secrets.choice(range(64, 255))}.{secrets.randbelow(256)}.1"


_ADDRESS = _own_address()


def _listener(address: str) -> socket.socket:
    listener = socket.socket()
    listener.bind((address, 0))
    listener.listen(256)
    return listener


def _spare_ports() -> tuple[int, int, int]:
    """Return ports that no system gives out: one of those may be taken, on all addresses, between
    the choice and the broker's start."""
    first, second, third = random.sample(range(20_000, 30_000), 3)
    return first, second, third


def main() -> None:
    """Start a control plane, print how to use it, and wait."""
    plane = ControlPlane()
    try:
        plane.start()
        for name, value in plane.credentials().items():
            print(f"export {name}={value}")
        print(f"logs: {plane.folder}/logs; Ctrl-C ends it", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print("ending")
    finally:
        plane.stop()


if __name__ == "__main__":
    main()
