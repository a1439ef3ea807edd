"""MariaDB on a socket in a private folder: no port, no password, no host service."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.openstack.parts import Parts
from tests.openstack.processes import NotHealthy, Processes

_NAME = "mariadb"
_TABLES = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
)
_MOST_PATH = 100  # of a socket's name, which the kernel truncates at 107 bytes


class Database:
    """Server with its data in `folder`. `folder`: short enough for a socket's name."""

    def __init__(self, parts: Parts, processes: Processes, folder: Path) -> None:
        self._parts, self._processes = parts, processes
        self.folder = folder
        self.data, self.socket = folder / "data", folder / "db.sock"
        if len(str(self.socket)) > _MOST_PATH:
            raise ValueError(f"{self.socket}: too long for a socket; set TMPDIR to a shorter one")

    def start(self) -> None:
        """Start the server; create an empty database if none exists."""
        if not self.data.is_dir():
            self._initialise()
        self.socket.unlink(missing_ok=True)
        self._serve(_NAME, f"--socket={self.socket}", "--skip-networking")
        self._processes.wait(_NAME, self.socket.exists)

    def stop(self) -> None:
        """Stop the server so that `data` is complete."""
        self._processes.stop(_NAME, timeout_s=60.0)

    def execute(self, sql: str) -> None:
        """Run statements; raise NotHealthy with the server's message if one fails.

        The server must be stopped, because its own bootstrap runs the statements.
        """
        script = self.folder / "script.sql"
        script.write_text(sql)
        self._serve("mariadb-bootstrap", "--bootstrap", stdin=script)
        self._processes.finish("mariadb-bootstrap")
        if "ERROR" in (said := self._processes.tail("mariadb-bootstrap")):
            raise NotHealthy(said)

    def url(self, schema: str) -> str:
        """Return SQLAlchemy's URL for a schema."""
        return f"mysql+pymysql://root@localhost/{schema}?unix_socket={self.socket}&charset=utf8mb3"

    def _initialise(self) -> None:
        share = self._parts.find("usr/share/mysql")
        self.data.mkdir(parents=True)
        statements = [line for name in _TABLES for line in (share / name).read_text().splitlines()]
        try:
            self.execute("\n".join(["create database mysql;", "use mysql;", *statements]) + "\n")
        except NotHealthy:
            shutil.rmtree(self.data)
            raise

    def _serve(self, name: str, *options: str, stdin: Path | None = None) -> None:
        share = self._parts.find("usr/share/mysql")
        command = [str(self._parts.find("usr/sbin/mariadbd")), "--no-defaults", "--user=root"]
        command += [f"--datadir={self.data}", f"--lc-messages-dir={share}"]
        command += [f"--character-sets-dir={share}/charsets", f"--pid-file={self.folder}/db.pid"]
        command += [f"--tmpdir={self.folder}", f"--secure-file-priv={self.folder}"]
        command += ["--skip-grant-tables", "--max-connections=400", "--skip-name-resolve"]
        # The data need not outlive the machine, so a commit need not reach the disk.
        command += ["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"]
        command += ["--innodb-flush-method=nosync", "--innodb-log-file-size=64M", "--sync-binlog=0"]
        command += ["--innodb-buffer-pool-size=256M", "--innodb-fast-shutdown=1", *options]
        environment = {"LD_LIBRARY_PATH": self._parts.libraries()}
        self._processes.start(name, command, environment=environment, stdin=stdin)
