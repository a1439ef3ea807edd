"""The settings that keep a cluster quiet, for deployers that are not the role `ceph`.

They stand in the role's defaults alone; what follows from the role's own way of making daemons is
left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import yaml

from testbed.playbook_run import PLAYBOOKS
from testbed.spec import CephSpec

Settings = dict[str, dict[str, str]]
"""Section -> option -> value as ceph.conf writes it."""

DEFAULTS = PLAYBOOKS / "roles" / "ceph" / "defaults" / "main.yml"
DAEMON_BYTES = 939524096  # least osd_memory_target that Ceph takes
MEMORY_SHARE = 0.5  # of a machine's memory, for its OSDs

OWN_WAY = frozenset(
    {
        # OSDs place themselves when they are made, and only then: see LATER.
        "osd_crush_update_on_start",
        # ceph-volume makes what is below an OSD.
        "bluestore_block_create",
        "osd_objectstore",
        "mon_warn_on_filestore_osds",
        # Whoever makes the cluster says who may talk to it.
        "auth_cluster_required",
        "auth_service_required",
        "auth_client_required",
    }
)

LATER: Settings = {"osd": {"osd_crush_update_on_start": "false"}}
"""For when OSDs have their places: a restart must not undo a controller's."""


def text(value: object) -> str:
    """A value as ceph.conf has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def quiet_settings(store: CephSpec, leave_out: Collection[str] = ()) -> Settings:
    """The role's defaults with what the spec says over them.

    Args:
        store: its `config` wins.
        leave_out: more defaults that are not wanted.
    """
    role = yaml.safe_load(DEFAULTS.read_text())
    defaults: Mapping[str, Mapping[str, object]] = {
        **role["ceph_default_settings"],
        # These deployers' releases all have mClock.
        "osd": {**role["ceph_mclock_settings"], **role["ceph_default_settings"]["osd"]},
    }
    settings: Settings = {
        section: {
            name: text(value)
            for name, value in values.items()
            if name not in OWN_WAY and name not in leave_out and "{{" not in str(value)
        }
        for section, values in defaults.items()
    }
    for section, values in store.config.items():
        settings.setdefault(section, {}).update(
            {name: text(value) for name, value in values.items()}
        )
    return {section: values for section, values in settings.items() if values}


def memory_target(memory_bytes: int | None, osds: int) -> int:
    """Bytes for each of `osds` OSDs of a machine, as the role gives them."""
    share = (memory_bytes or 4 * 2**30) * MEMORY_SHARE / max(osds, 1)
    return int(max(DAEMON_BYTES, share))
