"""Configuration of a node's servers: files and units as text, from the servers it must run.

Secrets are already on the node (`SECRETS`) and are inserted into the files only there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ETC = "/etc/hotbed/swift"
SECRETS = f"{ETC}/secrets.json"
DEVICES = "/srv/hotbed-swift"
USER = "hotbed-swift"
_OWN_USER = f"/usr/bin/setpriv --reuid {USER} --regid {USER} --init-groups "
"""Prefix for a server without workers, which keeps the user that starts it. As root, it would write
files that the replicators, which become their own user, could neither lock nor remove."""
VENV = "/usr/local/lib/hotbed-swift"
RUN = "/usr/local/bin/hotbed-swift-run"
LOG_PORT = 8127
MEMCACHE_PORT = 11211
RSYNC_PORT = 873
MARK = "hbswift"
TEMPLATE = (
    f"{MARK} {{method}} {{account}} {{status_int}} {{bytes_recvd}} {{bytes_sent}} {{request_time}} "
    "{ttfb} {source} {object}"
)
"""Line of the access log: the fields that the workload monitor needs, no token and no address."""
KINDS = ("account", "container", "object")
_OFFSET = {"object": 0, "container": 1, "account": 2}
_HEAD = "# Written by Hotbed.\n"


Wanted = Mapping[str, Any]
"""Servers that a node must run, as JSON; a part that the node does not run is absent. ``proxy`` is
{microstore, address, port, workers, memcaches, tenants, s3}, ``storage`` a list of {microstore,
address, port} (servers from that port upwards), ``memcached`` and ``rsync`` are addresses, and
``rsync_peers`` are addresses of nodes that rsync admits."""


def groups_of(wanted: Wanted) -> list[str]:
    """Return the node's groups of shares: ``proxy``, and one per microstore with servers here."""
    own = ["proxy"] if wanted.get("proxy") else []
    return own + [one["microstore"] for one in wanted.get("storage", ())]


def rings_folder(microstore: str) -> str:
    """Return the folder of a microstore's rings and swift.conf."""
    return f"{ETC}/{microstore}"


def files_of(wanted: Wanted, secrets: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files that the node's servers read, by path (mode 0600: they may hold keys), and
    their units by name, in the order of starting."""
    files: dict[str, str] = {}
    units: dict[str, str] = {}
    proxy, storage = wanted.get("proxy"), wanted.get("storage", ())
    stores = {one["microstore"] for one in storage}
    if proxy:
        stores.add(proxy["microstore"])
    for store in sorted(stores):
        files[f"{rings_folder(store)}/swift.conf"] = _swift_conf(secrets)
    if wanted.get("memcached"):
        units["hotbed-swift-memcached.service"] = _plain_unit(
            "Tokens and what proxies remember",
            f"/usr/bin/memcached -u nobody -l {wanted['memcached']} -p {MEMCACHE_PORT} -U 0 -m 32",
        )
    if wanted.get("rsync"):
        files[f"{ETC}/rsyncd.conf"] = _rsyncd(wanted["rsync"], wanted.get("rsync_peers", ()))
        units["hotbed-swift-rsync.service"] = _plain_unit(
            "Copies of Swift's databases between storage nodes",
            f"/usr/bin/rsync --daemon --no-detach --config={ETC}/rsyncd.conf",
        )
    if storage:
        # Read through the link /etc/swift, the only place where the object replicator looks.
        files[f"{ETC}/swift.conf"] = _swift_conf(secrets)
    for one in storage:
        for kind in KINDS:
            name = f"{kind}-{one['microstore']}"
            files[f"{ETC}/{name}.conf"] = storage_conf(one, kind)
            units[f"hotbed-swift-{name}.service"] = _server_unit(
                f"swift-{kind}-server", f"{ETC}/{name}.conf", one["microstore"], _OWN_USER
            )
    if proxy:
        files[f"{ETC}/proxy.conf"] = proxy_conf(proxy, secrets)
        units["hotbed-swift-proxy.service"] = _server_unit(
            "swift-proxy-server", f"{ETC}/proxy.conf", "proxy"
        )
    return files, units


def proxy_conf(proxy: Mapping[str, Any], secrets: Mapping[str, Any]) -> str:
    """Return the proxy's configuration, with the tenants' keys."""
    # Swift's own place for listing_formats is behind proxy-logging. There, s3api's listings would
    # pass through it too and become text.
    pipeline = "catch_errors gatekeeper healthcheck cache listing_formats"
    pipeline += " s3api tempauth" if proxy["s3"] else " tempauth"
    users = "\n".join(
        f"user_{tenant}_{tenant} = {secrets['keys'][tenant]} .admin" for tenant in proxy["tenants"]
    )
    s3 = "[filter:s3api]\nuse = egg:swift#s3api\ns3_acl = false\nlocation = us-east-1\n"
    return f"""{_HEAD}[DEFAULT]
bind_ip = {proxy["address"]}
bind_port = {proxy["port"]}
workers = {proxy["workers"]}
user = {USER}
swift_dir = {rings_folder(proxy["microstore"])}
log_level = WARNING
log_name = swift-proxy
max_clients = 1024
client_timeout = 60
[pipeline:main]
pipeline = {pipeline} proxy-logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
node_timeout = 20
conn_timeout = 1
recoverable_node_timeout = 5
error_suppression_interval = 10
error_suppression_limit = 5
[filter:tempauth]
use = egg:swift#tempauth
token_life = 604800
{users}
{s3 if proxy["s3"] else ""}[filter:cache]
use = egg:swift#memcache
memcache_servers = {",".join(proxy["memcaches"])}
memcache_max_connections = 8
[filter:proxy-logging]
use = egg:swift#proxy_logging
access_log_name = {MARK}
access_log_udp_host = 127.0.0.1
access_log_udp_port = {LOG_PORT}
access_log_level = INFO
log_msg_template = {TEMPLATE}
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:listing_formats]
use = egg:swift#listing_formats
"""


def storage_conf(one: Mapping[str, Any], kind: str) -> str:
    """Return the configuration of an account, container or object server and its replicator."""
    updater = {
        "object": "[object-updater]\nconcurrency = 1\n",
        "container": "[container-updater]\n",
    }
    sync = "sync_method = ssync\n" if kind == "object" else ""
    # With the default of 1, waiting replications check only every 0.15 s for their turn.
    waiting = "replication_concurrency_per_device = 4\n" if kind == "object" else ""
    return f"""{_HEAD}[DEFAULT]
bind_ip = {one["address"]}
bind_port = {one["port"] + _OFFSET[kind]}
workers = 0
user = {USER}
swift_dir = {rings_folder(one["microstore"])}
devices = {DEVICES}
mount_check = true
log_level = WARNING
log_name = swift-{kind}-{one["microstore"]}
disable_fallocate = true
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
log_requests = false
{waiting}[{kind}-replicator]
concurrency = 2
node_timeout = 30
conn_timeout = 2
{sync}rsync_module = {{replication_ip}}::{kind}
recon_cache_path = /run/hotbed-swift
handoffs_first = true
{updater.get(kind, "")}"""


def _swift_conf(secrets: Mapping[str, Any]) -> str:
    return (
        f"{_HEAD}[swift-hash]\n"
        f"swift_hash_path_prefix = {secrets['prefix']}\n"
        f"swift_hash_path_suffix = {secrets['suffix']}\n"
    )


def _rsyncd(address: str, peers: Sequence[str]) -> str:
    modules = "\n".join(
        f"[{kind}]\nmax connections = 8\npath = {DEVICES}/\nread only = false\n"
        f"lock file = /run/hotbed-swift/{kind}.lock"
        for kind in KINDS
    )
    return (
        f"{_HEAD}uid = {USER}\ngid = {USER}\naddress = {address}\nport = {RSYNC_PORT}\n"
        f"use chroot = false\nreverse lookup = no\nhosts allow = {' '.join(peers)}\n{modules}\n"
    )


def _server_unit(program: str, conf: str, group: str, before: str = "") -> str:
    nested = group.replace("-", "_")
    return f"""{_HEAD}[Unit]
Description=Swift: {program} of {group}
After=network.target hotbed-swift-disks.service hotbed-swift-memcached.service
PartOf=hotbed-swift.target

[Service]
Type=notify
NotifyAccess=all
Slice=hotbed-swift-{nested}.slice
RuntimeDirectory=hotbed-swift
RuntimeDirectoryPreserve=yes
Environment=PYTHONDONTWRITEBYTECODE=1 EVENTLET_NO_GREENDNS=yes
ExecStart={RUN} {group} {before}{VENV}/bin/python -s {VENV}/bin/{program} {conf}
Restart=on-failure
RestartSec=1
TimeoutStartSec=60
TimeoutStopSec=10
KillMode=mixed
LimitNOFILE=65536

[Install]
WantedBy=hotbed-swift.target
"""


def _plain_unit(what: str, command: str) -> str:
    return f"""{_HEAD}[Unit]
Description={what}
After=network.target
PartOf=hotbed-swift.target

[Service]
ExecStart={command}
RuntimeDirectory=hotbed-swift
RuntimeDirectoryPreserve=yes
Restart=on-failure
RestartSec=1

[Install]
WantedBy=hotbed-swift.target
"""


TARGET = f"""{_HEAD}[Unit]
Description=Swift on this node

[Install]
WantedBy=multi-user.target
"""
