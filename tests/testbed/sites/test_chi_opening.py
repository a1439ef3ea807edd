"""Opening of a cloud: credentials, the trusts that Blazar needs, and the sites' addresses."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from requests_mock import Mocker

from schemas.errors import HotbedError, UserError
from testbed.sites.chameleon.cloud import open_cloud
from testbed.sites.contract import SiteError
from tests.errors import raises
from tests.testbed.sites.chi_services import KEYSTONE, REGION, environ, http, let_in

__all__ = ["environ", "http"]

pytestmark = pytest.mark.slow  # python-chi alone takes two seconds to import

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
@pytest.mark.parametrize("versioned", [True, False])  # python-chi's library adds the version
def test_an_application_credential_without_trusts_is_refused_at_once(
    *,
    http: Mocker,
    by_application_credential: None,
    monkeypatch: pytest.MonkeyPatch,
    trusts: dict[str, Any],
    words: str,
    versioned: bool,
) -> None:
    if not versioned:
        monkeypatch.setenv("OS_AUTH_URL", KEYSTONE.removesuffix("v3"))
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
    http: Mocker, by_application_credential: None, trusts: dict[str, Any]
) -> None:
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
    *,
    http: Mocker,
    environ: None,
    monkeypatch: pytest.MonkeyPatch,
    project: str | None,
    env: dict[str, str],
    scope: dict[str, Any],
) -> None:
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
    http: Mocker,
    by_application_credential: None,
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, Any] | None,
    kind: type[HotbedError],
) -> None:
    if answer is None:
        monkeypatch.delenv("OS_APPLICATION_CREDENTIAL_SECRET")
    let_in(http)
    http.post(f"{KEYSTONE}/auth/tokens", **(answer or {}))
    with raises(kind, REGION) as error:
        open_cloud(REGION, None)
    assert "very-secret" not in str(error.value)


def test_the_sites_address_is_looked_up_where_the_environment_has_none(
    http: Mocker, environ: None, monkeypatch: pytest.MonkeyPatch
) -> None:
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
