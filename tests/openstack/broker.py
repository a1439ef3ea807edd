"""RabbitMQ on loopback, entirely in one folder: no host service, no cookie in the home folder."""

from __future__ import annotations

import os
from pathlib import Path

from tests.openstack.parts import Parts
from tests.openstack.processes import Processes, listens

_ERL = """#!/bin/sh
ROOTDIR={root} BINDIR={erts} EMU=beam PROGNAME=erl
export ROOTDIR BINDIR EMU PROGNAME
exec {erts}/erlexec "$@"
"""


class Broker:
    """Broker at `address`. `ports`: ports of AMQP, of Erlang's port mapper and of its distribution
    protocol."""

    def __init__(
        self,
        parts: Parts,
        processes: Processes,
        folder: Path,
        address: str,
        ports: tuple[int, int, int],
    ) -> None:
        self._parts, self._processes, self._folder = parts, processes, folder
        self._address, (self.port, self._mapper, self._distribution) = address, ports

    @property
    def url(self) -> str:
        """Return oslo.messaging's URL for the broker."""
        return f"rabbit://guest:guest@{self._address}:{self.port}/"

    def start(self) -> None:
        """Start the broker; return before it is up (see `wait`)."""
        erlang = self._parts.find("usr/lib/erlang")
        erts = self._parts.find("usr/lib/erlang/erts-*/bin")
        program = self._parts.find("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
        programs = self._folder / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        # Debian's `erl` has one fixed path, which differs from the unpacked place.
        erl = programs / "erl"
        erl.write_text(_ERL.format(root=erlang, erts=erts))
        erl.chmod(0o755)
        (self._folder / "empty").touch()
        (self._folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = {self._address}:{self.port}\n"
            "loopback_users.guest = true\n"
            "log.file = false\n"
            "log.console = true\n"
            "log.console.level = warning\n"
            "vm_memory_high_watermark.relative = 0.6\n"
            "disk_free_limit.absolute = 50MB\n"
        )
        environment = {
            "PATH": f"{programs}:{erts}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self._folder),
            "LD_LIBRARY_PATH": self._parts.libraries(),
            "ERL_EPMD_ADDRESS": self._address,
            "ERL_EPMD_PORT": str(self._mapper),
            "RABBITMQ_USE_LONGNAME": "true",
            "RABBITMQ_NODENAME": f"hotbed@{self._address}",
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"-kernel inet_dist_use_interface {{{self._address.replace('.', ',')}}}"
                " +sbwt none +sbwtdcpu none +sbwtdio none"
            ),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "empty"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_PID_FILE": str(self._folder / "rabbit.pid"),
        }
        mapper = [str(erts / "epmd"), "-address", self._address, "-port", str(self._mapper)]
        self._processes.start("epmd", mapper, environment=environment)
        self._processes.wait("epmd", listens(self._address, self._mapper))
        self._processes.start("rabbitmq", [str(program)], environment=environment)

    def wait(self) -> None:
        """Wait until the broker accepts messages."""
        self._processes.wait("rabbitmq", listens(self._address, self.port))
