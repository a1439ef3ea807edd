"""OpenStack's services over HTTP, with answers written from their documentation: a catalog, a
lease, and fixtures that open such a cloud."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from requests_mock import Mocker

from testbed.sites.chameleon import cloud as clouds
from testbed.sites.chameleon.cloud import Cloud, open_cloud

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
        {
            "id": "reservation-2",
            "resource_type": "flavor:instance",
            "resource_properties": '{"id": "3", "name": "m1.medium"}',
            "flavor_id": "reservation-2",
            "amount": 2,
            "status": "pending",
        },
    ],
    "events": [],
}
START_S = 1796112000.0  # 2026-12-01 08:00 UTC


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
