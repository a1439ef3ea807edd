"""Configuration files of the control plane's services, with as few options as possible."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REGION = "CHI@UC"
"""Region, which python-chi calls the site; services find each other in it."""
REGIONS = (REGION, "KVM@TACC")
"""Both are the same services, so that a site of virtual machines is available by its name."""
SECRET = "secret"
"""Password of every account: only this user reaches the loopback address while it exists."""

Sections = Mapping[str, Mapping[str, object]]

PORTED = ("identity", "placement", "image", "network", "compute", "reservation")
"""Services with an API, by their type in the catalogue."""


@dataclass(frozen=True)
class Place:
    """Place of a control plane.

    `ports` holds the port of every service of `PORTED` itself; users get another port (`proxy`).
    """

    folder: Path
    venv: Path
    address: str
    ports: Mapping[str, int]
    broker: str

    def url(self, service: str) -> str:
        """Return a service's own address, past all proxies."""
        return f"http://{self.address}:{self.ports[service]}"

    @property
    def auth_url(self) -> str:
        """Return Keystone's own address."""
        return f"{self.url('identity')}/v3"

    def database(self, schema: str) -> Mapping[str, object]:
        """Return the options of a service's database."""
        socket = self.folder / "db" / "db.sock"
        url = f"mysql+pymysql://root@localhost/{schema}?unix_socket={socket}&charset=utf8mb3"
        return {"connection": url, "max_pool_size": 5, "max_overflow": 30}

    def account(self, user: str, **more: object) -> Mapping[str, object]:
        """Return the options that identify one service to the others."""
        return {
            "auth_url": self.auth_url,
            "auth_type": "password",
            "project_domain_name": "Default",
            "user_domain_name": "Default",
            "project_name": "service",
            "username": user,
            "password": SECRET,
            "region_name": REGION,
            **more,
        }

    def token(self, user: str) -> Mapping[str, object]:
        """Return the options with which a service checks its callers."""
        return self.account(
            user,
            www_authenticate_uri=self.auth_url,
            service_token_roles="service",
            # A revoked token is refused at once.
            token_cache_time=-1,
        )


@dataclass(frozen=True)
class Host:
    """One machine of the cloud: a nova-compute with nova's fake driver.

    `virtual`: for virtual machines, several per host.
    """

    name: str
    node_type: str
    driver: str = "fake.SmallFakeDriver"
    virtual: bool = False


# Chameleon lets all users see existing machines and their reservations.
_OPEN = ("get", "get_allocations", "get_resource_properties")


def write(place: Place) -> None:
    """Write every service's file into `place.folder/etc`."""
    etc = place.folder / "etc"
    etc.mkdir(exist_ok=True)
    policy = {f"blazar:oshosts:{name}": "@" for name in _OPEN}
    (etc / "blazar-policy.json").write_text(json.dumps(policy))
    for name, sections in _services(place).items():
        (etc / name).write_text(_text(sections))


def write_host(place: Place, host: Host) -> Path:
    """Write a host's own file and create its folder."""
    state = place.folder / "state" / host.name
    state.mkdir(parents=True, exist_ok=True)
    path = place.folder / "etc" / f"{host.name}.conf"
    own = {"host": host.name, "state_path": state, "compute_driver": host.driver}
    path.write_text(_text({"DEFAULT": own}))
    return path


def _text(sections: Sections) -> str:
    lines = []
    for section, options in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {value}" for key, value in options.items()]
    return "\n".join(lines) + "\n"


def _services(place: Place) -> dict[str, Sections]:
    return {
        "keystone.conf": _keystone(place),
        "placement.conf": _placement(place),
        "glance-api.conf": _glance(place),
        "neutron.conf": _neutron(place),
        "nova.conf": _nova(place),
        "nova-compute.conf": _without_databases(_nova(place)),
        "blazar.conf": _blazar(place),
    }


def _keystone(place: Place) -> Sections:
    keys = place.folder / "state" / "keystone"
    return {
        "DEFAULT": {"use_stderr": True},
        "database": place.database("keystone"),
        "fernet_tokens": {"key_repository": keys / "tokens"},
        "credential": {"key_repository": keys / "credentials"},
        "token": {"provider": "fernet", "expiration": 7200},
        # The services check hundreds of passwords per minute, and these secrets need no rounds.
        "identity": {"password_hash_rounds": 4},
        # Otherwise no application credential can have a lease: Chameleon also sets it
        # (ChameleonCloud/chi-in-a-box, pull request 407).
        "security_compliance": {"allow_insecure_application_credential_trust_escalation": True},
        "cache": {"enabled": True, "backend": "dogpile.cache.memory"},
    }


def _placement(place: Place) -> Sections:
    return {
        "DEFAULT": {"use_stderr": True},
        "api": {"auth_strategy": "keystone"},
        "placement_database": place.database("placement"),
        "keystone_authtoken": place.token("placement"),
    }


def _glance(place: Place) -> Sections:
    images = place.folder / "state" / "images"
    return {
        "DEFAULT": {
            "use_stderr": True,
            "enabled_backends": "fs:file",
            "worker_self_reference_url": place.url("image"),
        },
        "database": place.database("glance"),
        "glance_store": {"default_backend": "fs"},
        "fs": {"filesystem_store_datadir": images},
        "os_glance_staging_store": {"filesystem_store_datadir": images / "staging"},
        "os_glance_tasks_store": {"filesystem_store_datadir": images / "tasks"},
        "keystone_authtoken": place.token("glance"),
        "paste_deploy": {
            "flavor": "keystone",
            "config_file": place.venv / "etc/glance/glance-api-paste.ini",
        },
    }


def _neutron(place: Place) -> Sections:
    return {
        "DEFAULT": {
            "use_stderr": True,
            "core_plugin": "ml2",
            "service_plugins": "router",
            "auth_strategy": "keystone",
            "transport_url": place.broker,
            "state_path": place.folder / "state" / "neutron",
            "api_paste_config": place.venv / "etc/neutron/api-paste.ini",
            # Nova's answers contain a server's floating address only if neutron reports it.
            "notify_nova_on_port_status_changes": True,
            "notify_nova_on_port_data_changes": True,
            "send_events_interval": 1,
            "router_distributed": False,
            "dhcp_agent_notification": False,
        },
        "database": place.database("neutron"),
        "oslo_concurrency": {"lock_path": place.folder / "state" / "locks"},
        "keystone_authtoken": place.token("neutron"),
        "nova": place.account("nova"),
        "ml2": {
            "type_drivers": "local,flat",
            "tenant_network_types": "local",
            "mechanism_drivers": "hotbed",
        },
        "ml2_type_flat": {"flat_networks": "*"},
    }


def _nova(place: Place) -> Sections:
    return {
        "DEFAULT": {
            "use_stderr": True,
            "transport_url": place.broker,
            "state_path": place.folder / "state" / "nova",
            "my_ip": place.address,
            "enabled_apis": "osapi_compute",
            "initial_cpu_allocation_ratio": 1.0,
            # No virtual interface exists to be plugged.
            "vif_plugging_is_fatal": False,
            "vif_plugging_timeout": 0,
            "update_resources_interval": 3600,
        },
        "api": {"auth_strategy": "keystone"},
        "wsgi": {"api_paste_config": place.venv / "etc/nova/api-paste.ini"},
        "api_database": place.database("nova_api"),
        "database": place.database("nova"),
        "oslo_concurrency": {"lock_path": place.folder / "state" / "locks"},
        "keystone_authtoken": place.token("nova"),
        "service_user": place.account("nova", send_service_user_token=True),
        "placement": place.account("placement"),
        "glance": {"api_servers": place.url("image")},
        "neutron": place.account("neutron"),
        "filter_scheduler": {
            "available_filters": "nova.scheduler.filters.all_filters\n"
            "available_filters = blazarnova.scheduler.filters.blazar_filter.BlazarFilter",
            "enabled_filters": "ComputeFilter,BlazarFilter",
        },
        "blazar:physical:host": {"aggregate_freepool_name": "freepool"},
        "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": -1},
        "conductor": {"workers": 1},
    }


def _without_databases(sections: Sections) -> Sections:
    """Return the sections without databases, which a nova-compute may not use."""
    return {name: options for name, options in sections.items() if not name.endswith("database")}


def _blazar(place: Place) -> Sections:
    return {
        "DEFAULT": {
            "use_stderr": True,
            "host": place.address,
            "port": place.ports["reservation"],
            "transport_url": place.broker,
            "os_auth_host": place.address,
            "os_auth_port": place.ports["identity"],
            "os_auth_protocol": "http",
            # It joins prefix and version with a slash, and this place has no prefix.
            "os_auth_prefix": ".",
            "os_admin_username": "blazar",
            "os_admin_password": SECRET,
            "os_admin_project_name": "service",
            "os_region_name": REGION,
            "identity_service": "identity",
        },
        "manager": {
            "plugins": "physical.host.plugin,flavor.instance.plugin,virtual.floatingip.plugin",
            "minutes_before_end_lease": 0,
        },
        "database": place.database("blazar"),
        "keystone_authtoken": place.token("blazar"),
        "nova": {"aggregate_freepool_name": "freepool"},
        "oslo_policy": {"policy_file": place.folder / "etc" / "blazar-policy.json"},
    }
