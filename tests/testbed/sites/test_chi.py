"""Chameleon's services over HTTP, with the real python-chi, Blazar client and openstacksdk. Answers
are written from their documentation."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import requests
from requests_mock import Mocker

from schemas.errors import UserError
from testbed.sites import keys
from testbed.sites.chameleon import cloud as clouds
from testbed.sites.chameleon.cloud import (
    BlazarLease,
    CallFault,
    Cloud,
    CloudError,
    Reservation,
    TokenIdentity,
    open_cloud,
)
from testbed.sites.contract import SiteError
from testbed.sites.keys import make as make_key
from testbed.ssh import Completed, Shell, SshTarget
from tests.errors import raises
from tests.testbed.sites.chameleon_world import BARE, spec_of, world
from tests.testbed.sites.fake_cloud import FakeCloud
from tests.testbed.sites.fake_shells import FakeShells

__all__ = ["world"]

pytestmark = pytest.mark.slow  # python-chi alone takes two seconds to import

KEYSTONE, BLAZAR = "http://keystone.test:5000/v3", "http://blazar.test/v1"
NOVA, NEUTRON, GLANCE = "http://nova.test/v2.1", "http://neutron.test", "http://glance.test"
REGION = "CHI@UC"

LEASE = {
    "id": "lease-1",
    "name": "mine",
    "status": "PENDING",
    "start_date": "2026-12-01T08:00:00.000000",
    "end_date": "2026-12-02T08:00:00.000000",
    "user_id": "user",
    "project_id": "project",
    "reservations": [
        {
            "id": "reservation-1",
            "resource_type": "physical:host",
            "resource_properties": '["==", "$node_type", "storage"]',
            "min": 8,
            "max": 8,
            "status": "pending",
        },
    ],
    "events": [],
}


@pytest.fixture
def http() -> Iterator[Mocker]:
    with Mocker() as mock:
        yield mock


def let_in(http: Mocker, *, subject: str = "a-token", **more: Any) -> Any:
    """Register Keystone's token and catalog, and the requests of openstacksdk before first use."""
    services = {"reservation": BLAZAR, "compute": NOVA, "network": NEUTRON, "image": GLANCE}
    catalog = [
        {
            "type": kind,
            "name": kind,
            "id": kind,
            "endpoints": [{"id": kind, "interface": "public", "region": REGION, "url": url}],
        }
        for kind, url in services.items()
    ]
    token = {
        "methods": ["password"],
        "user": {"id": "user", "name": "student", "domain": {"id": "d", "name": "chameleon"}},
        "project": {"id": "project", "name": "CHI-1", "domain": {"id": "d", "name": "chameleon"}},
        "roles": [{"id": "r", "name": "member"}],
        "issued_at": "2026-12-01T08:00:00.000000Z",
        "expires_at": "2099-12-01T08:00:00.000000Z",
        "catalog": catalog,
        **more,
    }
    version = {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": KEYSTONE}]}
    http.get(KEYSTONE, json={"version": version})
    nova = {"id": "v2.1", "status": "CURRENT", "version": "2.90", "min_version": "2.1"}
    http.get(NOVA, json={"version": nova | {"links": [{"rel": "self", "href": NOVA}]}})
    http.get(f"{NOVA}/", json={"version": nova | {"links": [{"rel": "self", "href": NOVA}]}})
    link = [{"rel": "self", "href": f"{NEUTRON}/v2.0"}]
    versions = {"versions": [{"id": "v2.0", "status": "CURRENT", "links": link}]}
    http.get(NEUTRON, json=versions)
    http.get(f"{NEUTRON}/", json=versions)
    return http.post(
        f"{KEYSTONE}/auth/tokens", json={"token": token}, headers={"X-Subject-Token": subject}
    )


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    clouds._sites.cache_clear()
    for name in list(os.environ):
        if name.startswith(("OS_", "JUPYTERHUB_")):
            monkeypatch.delenv(name)
    for name, value in {
        "OS_AUTH_TYPE": "v3password",
        "OS_AUTH_URL": KEYSTONE,
        "OS_USERNAME": "student",
        "OS_PASSWORD": "very-secret",
        "OS_USER_DOMAIN_NAME": "chameleon",
        "OS_PROJECT_NAME": "CHI-1",
        "OS_PROJECT_DOMAIN_NAME": "chameleon",
        "OS_REGION_NAME": REGION,
    }.items():
        monkeypatch.setenv(name, value)
    yield
    clouds._sites.cache_clear()


@pytest.fixture
def cloud(http: Mocker, environ: None) -> Cloud:
    let_in(http)
    return open_cloud(REGION, None)


# -- requests and their answers; tests/openstack has whole leases and servers ----------------------


def said(status: int, words: str) -> dict[str, Any]:
    """Return an answer of Blazar."""
    return {"status_code": status, "json": {"error_code": status, "error_message": words}}


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (said(500, "Not enough hosts available"), CallFault.FULL),
        (said(500, "Internal Server Error"), CallFault.PASSING),
        (said(409, "The lease with name: mine already exists"), CallFault.REFUSED),
        ({"status_code": 504}, CallFault.PASSING),
        ({"status_code": 401, "json": {"error_message": "no"}}, CallFault.CREDENTIALS),
        ({"exc": requests.exceptions.ConnectTimeout}, CallFault.PASSING),
    ],
)
def test_faults_have_blazars_words(http, cloud, answer, fault):
    http.get(f"{BLAZAR}/leases", **answer)
    with pytest.raises(CloudError) as error:
        cloud.leases()
    assert error.value.fault is fault
    assert answer.get("json", {}).get("error_message", "") in str(error.value)


def test_servers_are_listed_with_one_request(http: Mocker, cloud: Cloud) -> None:
    address = {"addr": "10.1.0.2", "version": 4, "OS-EXT-IPS:type": "fixed"}
    floating = {"addr": "192.0.2.9", "version": 4, "OS-EXT-IPS:type": "floating"}
    up = {"id": "s1", "name": "hotbed-a-1-admin", "status": "ACTIVE"}
    up["OS-EXT-SRV-ATTR:hypervisor_hostname"] = "abc-1"
    down = {"id": "s2", "name": "hotbed-a-1-osd0", "status": "ERROR", "addresses": {}}
    servers = [
        {**up, "addresses": {"sharednet1": [address, floating]}},
        {**down, "fault": {"message": "No valid host was found.", "code": 500}},
        {**up, "addresses": {}, "OS-EXT-STS:task_state": "deleting"},
    ]
    asked = http.get(f"{NOVA}/servers/detail", json={"servers": json.loads(json.dumps(servers))})
    one, two, three = cloud.servers("hotbed-a-1")
    assert asked.call_count == 1
    assert (one.addresses, one.host) == (("10.1.0.2",), "abc-1")
    assert (two.status, two.fault) == ("ERROR", "No valid host was found.")
    assert three.status == "DELETING"  # Nova reports it as active until it is gone


def test_a_rule_of_a_security_group_that_exists_stays(http: Mocker, cloud: Cloud) -> None:
    conflict = {"NeutronError": {"message": "Security group rule already exists.", "type": "x"}}
    asked = http.post(f"{NEUTRON}/v2.0/security-group-rules", json=conflict, status_code=409)
    cloud.add_rule("g", protocol="tcp", port_range_min=22, port_range_max=22)
    body = asked.last_request.json()["security_group_rule"]
    assert (body["protocol"], body["port_range_min"], body["ethertype"]) == ("tcp", 22, "IPv4")
    assert (body["security_group_id"], body["direction"]) == ("g", "ingress")
    full = {"NeutronError": {"message": "Quota exceeded for resources: ['security_group_rule']."}}
    http.post(f"{NEUTRON}/v2.0/security-group-rules", json=full, status_code=409)
    with pytest.raises(CloudError) as error:
        cloud.add_rule("g", protocol="tcp")
    assert error.value.fault is CallFault.QUOTA


# -- opening a session -----------------------------------------------------------------------------
OTHER_PROJECT = {"OS_PROJECT_ID": "project-of-chi-2", "OS_PROJECT_NAME": "CHI-2"}


@pytest.fixture
def by_application_credential(environ: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("OS_AUTH_TYPE", "v3applicationcredential")
    monkeypatch.setenv("OS_APPLICATION_CREDENTIAL_ID", "id")
    monkeypatch.setenv("OS_APPLICATION_CREDENTIAL_SECRET", "very-secret")


def keystone_lets_in(http: Mocker, trusts: dict[str, Any], *, restricted: bool = False) -> Any:
    """Admit an application credential; `trusts` answers requests for the user's own trusts."""
    credential = {"id": "id", "name": "n", "restricted": restricted}
    let_in(http, methods=["application_credential"], application_credential=credential)
    return http.get(f"{KEYSTONE}/OS-TRUST/trusts", **trusts)


TRUSTS: dict[str, Any] = {"json": {"trusts": [], "links": {"next": None}}}


def forbidden(words: str) -> dict[str, Any]:
    """Return Keystone's refusal of this action."""
    message = f"You are not authorized to perform the requested action: {words}."
    error = {"code": 403, "message": message, "title": "Forbidden"}
    return {"status_code": 403, "json": {"error": error}}


@pytest.mark.parametrize(
    ("trusts", "words"),
    [
        (TRUSTS, "'unrestricted'"),
        # Keystone 30, and 27 to 29: otherwise Blazar answers 500 without a reason.
        (forbidden("Delegated tokens cannot manage trusts"), "Delegated tokens"),
        (forbidden("Using method 'application_credential' is not allowed"), "Using method"),
    ],
)
def test_an_application_credential_without_trusts_is_refused_at_once(
    http, by_application_credential, monkeypatch, trusts, words
):
    monkeypatch.setenv("OS_AUTH_URL", KEYSTONE.removesuffix("v3"))  # python-chi adds the version
    asked = keystone_lets_in(http, trusts, restricted=True)
    with raises(UserError, words) as error:
        open_cloud(REGION, None)
    assert "very-secret" not in str(error.value)
    assert asked.last_request.qs == {"trustor_user_id": ["user"]}


@pytest.mark.parametrize(
    "trusts",
    [
        TRUSTS,
        # Keystones where nobody may list trusts, or without such a list: that proves nothing.
        forbidden("identity:list_trusts_for_trustor"),
        {"status_code": 404, "json": {"error": {"message": "Not found.", "code": 404}}},
        {"status_code": 403, "text": "<html>a proxy's own page</html>"},
    ],
    ids=["allowed", "policy", "none", "no-json"],
)
def test_an_unrestricted_application_credential_serves_for_its_own_project(
    http, by_application_credential, trusts
):
    """Its openrc file names no project: only Keystone knows the project."""
    keystone_lets_in(http, trusts)
    for project in ("CHI-1", "project", None):
        assert open_cloud(REGION, project).identity().project_name == "CHI-1"
    with raises(UserError, "CHI-2"):
        open_cloud(REGION, "CHI-2")


NAMED = {"project": {"name": "CHI-1", "domain": {"name": "chameleon"}}}


@pytest.mark.parametrize(
    ("project", "env", "scope"),
    [
        # An openrc file also has the project's id, which would take precedence over a name.
        ("CHI-1", OTHER_PROJECT, NAMED),
        ("CHI-1", {"OS_PROJECT_DOMAIN_NAME": ""}, NAMED),
        (None, {"OS_PROJECT_ID": "project"}, {"project": {"id": "project"}}),
    ],
)
def test_the_specs_project_is_asked_for_else_the_environments(
    *, http, environ, monkeypatch, project, env, scope
):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    asked = let_in(http)
    assert open_cloud(REGION, project).identity().project_name == "CHI-1"
    assert asked.last_request.json()["auth"]["scope"] == scope
    with raises(UserError, "CHI-3"):  # Keystone here gives a token of CHI-1 to everybody
        open_cloud(REGION, "CHI-3")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"status_code": 401}, UserError),
        ({"exc": requests.exceptions.ConnectTimeout}, SiteError),
        (None, UserError),  # a variable is missing
    ],
)
def test_a_session_that_cannot_be_opened(
    http, by_application_credential, monkeypatch, answer, kind
):
    if answer is None:
        monkeypatch.delenv("OS_APPLICATION_CREDENTIAL_SECRET")
    let_in(http)
    http.post(f"{KEYSTONE}/auth/tokens", **(answer or {}))
    with raises(kind, REGION) as error:
        open_cloud(REGION, None)
    assert "very-secret" not in str(error.value)


def test_the_sites_address_is_looked_up_where_the_environment_has_none(http, environ, monkeypatch):
    monkeypatch.delenv("OS_AUTH_URL")
    let_in(http)
    sites = "https://api.chameleoncloud.org/sites.json"
    for answer in ({"exc": requests.exceptions.ConnectTimeout}, {"text": "under maintenance"}):
        http.get(sites, **answer)
        with raises(SiteError, REGION) as error:
            open_cloud(REGION, "CHI-1")
        assert error.value.retry_after_s is not None
    asked = http.get(sites, json={"items": [{"name": REGION, "web": "http://keystone.test"}]})
    for _ in range(2):
        assert open_cloud(REGION, "CHI-1").identity().user_id == "user"
    assert asked.call_count == 1
    assert asked.last_request.timeout is not None
    with raises(UserError, "'CHI@MOON'", "KVM@TACC"):
        open_cloud("CHI@MOON", "CHI-1")


# -- secrecy of credentials: not in the state folder, logs, messages or command lines --------------
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
    *, world, http, environ, login, tmp_path, monkeypatch, caplog, capfd
):
    for name, value in LOGINS[login].items():
        monkeypatch.setenv(name, value)
    if "OS_AUTH_TYPE" in LOGINS[login]:
        for name in ("OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(keys, "make", make_key)
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
