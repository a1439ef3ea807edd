"""Secrecy of credentials: not in the state folder, logs, messages or command lines."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from requests_mock import Mocker

from testbed.sites.chameleon.cloud import (
    BlazarLease,
    Cloud,
    Reservation,
    TokenIdentity,
    open_cloud,
)
from testbed.sites.contract import SiteError
from testbed.ssh import Completed, Shell, SshTarget
from tests.testbed.sites.chameleon_world import BARE, World, spec_of, world
from tests.testbed.sites.chi_services import BLAZAR, KEYSTONE, LEASE, environ, http, let_in
from tests.testbed.sites.fake_cloud import FakeCloud
from tests.testbed.sites.fake_shells import FakeShells

__all__ = ["environ", "http", "world"]

pytestmark = pytest.mark.slow  # python-chi alone takes two seconds to import

SECRET, TOKEN = "the-secret-that-is-marked", "the-token-that-is-marked"
LOGINS = {
    "an application credential": {
        "OS_AUTH_TYPE": "v3applicationcredential",
        "OS_APPLICATION_CREDENTIAL_ID": "id",
        "OS_APPLICATION_CREDENTIAL_SECRET": SECRET,
    },
    "a password": {"OS_PASSWORD": SECRET},
}


class Halfway:
    """Cloud with real HTTP and credentials for identity, hosts and lease requests; the rest is in
    memory."""

    def __init__(self, real: Cloud, fake: FakeCloud) -> None:
        self._real, self._fake = real, fake

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fake, name)

    def identity(self) -> TokenIdentity:
        return self._real.identity()

    def hosts(self) -> Sequence[Any]:
        self._real.hosts()
        return self._fake.hosts()

    def create_lease(
        self, name: str, start_s: float | None, end_s: float, wanted: Sequence[Reservation]
    ) -> BlazarLease:
        self._real.create_lease(name, start_s, end_s, wanted)
        return self._fake.create_lease(name, start_s, end_s, wanted)


class Heard(FakeShells):
    """Shells that record commands and their input."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def shell(self, target: SshTarget) -> Shell:
        shell = super().shell(target)
        run = shell.run

        def heard(argv: Sequence[str], **more: Any) -> Completed:
            self.said += [" ".join(target.command(argv)), str(more.get("input"))]
            return run(argv, **more)

        shell.run = heard  # type: ignore[method-assign]
        return shell


@pytest.mark.parametrize("login", LOGINS)
def test_neither_secret_nor_token_is_written(
    *,
    world: World,
    http: Mocker,
    environ: None,
    login: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in LOGINS[login].items():
        monkeypatch.setenv(name, value)
    if "OS_AUTH_TYPE" in LOGINS[login]:
        for name in ("OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME"):
            monkeypatch.delenv(name)
    caplog.set_level(logging.DEBUG)
    commands: list[str] = []

    class Started(subprocess.Popen[Any]):
        def __init__(self, argv: Any, *rest: Any, **more: Any) -> None:
            commands.append(str(argv))
            super().__init__(argv, *rest, **more)

    monkeypatch.setattr(subprocess, "Popen", Started)
    logged_in = let_in(http, subject=TOKEN, application_credential={"restricted": False})
    http.get(f"{KEYSTONE}/OS-TRUST/trusts", json={"trusts": []})
    http.get(f"{BLAZAR}/os-hosts", json={"hosts": []})
    failed = {"error_code": 500, "error_message": "Internal Server Error"}
    asked = http.post(f"{BLAZAR}/leases", status_code=500, json=failed)
    world.cloud.me = TokenIdentity("user", "project")
    world.shells = heard = Heard()
    site = world.site()
    site._connect = lambda name, project: Halfway(open_cloud(name, project), world.cloud)  # type: ignore[assignment,return-value]

    with pytest.raises(SiteError) as fault:
        site.provision(spec_of(BARE))
    http.post(f"{BLAZAR}/leases", status_code=201, json={"lease": LEASE})
    testbed = site.provision(spec_of(BARE))
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    status = site.status("small")
    site.release("small")
    written |= {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    assert SECRET in logged_in.last_request.text
    assert asked.last_request.headers["X-Auth-Token"] == TOKEN
    names = {path.name for path in written}
    assert {"record.json", "journal.jsonl", "known_hosts", "id_ed25519"} <= names
    assert any("ssh-keygen" in command for command in commands)
    assert any("python3" in line for line in heard.said)
    assert "REQ: curl" in caplog.text
    out, err = capfd.readouterr()
    texts = {path.name: text.decode(errors="replace") for path, text in written.items()}
    texts |= {"logs": caplog.text, "out": out, "err": err, "fault": repr(fault.value)}
    texts |= {"commands": "\n".join(commands), "on nodes": "\n".join(heard.said)}
    texts |= {"testbed": repr(testbed), "status": repr(status)}
    leaks = [where for where, text in texts.items() if SECRET in text or TOKEN in text]
    assert leaks == []
