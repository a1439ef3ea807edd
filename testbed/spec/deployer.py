"""The block `deployer` of a spec: the project's own role, ceph-ansible or cephadm."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

KINDS = ("own", "ceph-ansible", "cephadm")
_KEY = re.compile(r"[a-z][a-z0-9_]*")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._:/@-]*")

GENERATED = frozenset(
    (
        *("ceph_conf_overrides", "ceph_origin", "ceph_repository", "ceph_mirror"),
        *("ceph_stable_release", "cephx", "cluster", "configure_firewall"),
        *("containerized_deployment", "copy_admin_key", "dashboard_enabled", "devices", "fsid"),
        *("generate_fsid", "lvm_volumes", "osd_auto_discovery", "osd_objectstore", "pools"),
        *("public_network", "radosgw_address_block", "radosgw_frontend_port"),
        *("user_config", "yes_i_know"),
    )
)
"""Variables of ceph-ansible that follow from the spec; `variables` may not set them."""
TOLERATED = frozenset({"radosgw_frontend_port"})
"""Accepted without effect, because older testbeds' specs may have them; a deployment refuses."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OwnDeployer(_Strict):
    """The role `ceph`: the distribution's packages, raw devices, no LVM, no containers."""

    kind: Literal["own"] = "own"


class CephAnsibleDeployer(_Strict):
    """ceph-ansible's stable-9.0 at a pinned commit: Ceph 19 (Squid) from packages, OSDs on LVM.

    `packages` selects Ceph's own archive (community, `mirror` instead of download.ceph.com) or
    the distribution, which must have Squid. `variables` are further group variables.
    """

    kind: Literal["ceph-ansible"] = "ceph-ansible"
    packages: Literal["community", "distro"] = "community"
    mirror: str | None = None
    variables: dict[str, Any] = Field(default_factory=dict)

    @field_validator("variables")
    @classmethod
    def _others(cls, variables: dict[str, Any]) -> dict[str, Any]:
        for name in variables:
            if not _KEY.fullmatch(name):
                raise ValueError(f"variables: {name!r} is no name of a variable")
            if name in GENERATED - TOLERATED or name.startswith("ansible_"):
                raise ValueError(
                    f"variables: {name} follows from the rest of the spec: say it there"
                )
        return variables

    @field_validator("mirror")
    @classmethod
    def _address(cls, mirror: str | None) -> str | None:
        if mirror is not None and not mirror.startswith(("http://", "https://")):
            raise ValueError("mirror is an address such as https://download.ceph.com")
        return mirror


class CephadmDeployer(_Strict):
    """cephadm: current releases, every daemon in a container of `engine`.

    `image` defaults to the image that the release's cephadm names.
    """

    kind: Literal["cephadm"] = "cephadm"
    release: Literal["reef", "squid", "tentacle"] = "tentacle"
    engine: Literal["podman", "docker"] = "podman"
    image: str | None = None

    @field_validator("image")
    @classmethod
    def _reference(cls, image: str | None) -> str | None:
        if image is not None and not _IMAGE.fullmatch(image):
            raise ValueError("image is a reference such as example.org/ceph/ceph:v20")
        return image


def _known(deployer: Any) -> Any:
    """Accept the name alone, as in ``deployer: cephadm``, and refuse unknown names."""
    if isinstance(deployer, str):
        deployer = {"kind": deployer}
    if isinstance(deployer, dict) and deployer.get("kind") not in KINDS:
        raise ValueError(
            f"kind is {deployer.get('kind')!r}; there are own, ceph-ansible and cephadm"
        )
    return deployer


DeployerSpec = Annotated[
    OwnDeployer | CephAnsibleDeployer | CephadmDeployer,
    Field(discriminator="kind"),
    BeforeValidator(_known),
]
