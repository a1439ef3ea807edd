"""The typed description of a testbed: which machines, with which disks, links and shares, and
which store on them. One YAML file serves every site; only the `site` block changes.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from schemas.errors import UserError
from testbed.quantities import BitsPerSecond, Bytes, BytesPerSecond, Seconds

_NAME = re.compile(r"^[a-z][a-z0-9-]{0,19}$")
Role = Literal["admin", "mon", "mgr", "osd", "rgw", "client"]


class Strict(BaseModel):
    """Unknown keys are refused: a misspelt option must not be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DiskSpec(Strict):
    """One disk of a node.

    `size` holds a raw part for the store and a `scratch` part for files (fio's). `positioning` is
    the mean time to a random offset and `bandwidth` the transfer rate of the local site's queue
    disk; `queue_depth` is the device's nr_requests. Real machines have their own disks: there the
    last three are ignored and `size` is a minimum.
    """

    size: Bytes = Field(default=12 * 2**30, ge=2**30)
    scratch: Bytes = Field(default=3 * 2**30, ge=2**28)
    positioning: Seconds = Field(default=0.004, ge=0, le=1)
    bandwidth: BytesPerSecond = Field(default=60e6, ge=1e6)
    queue_depth: int = Field(default=32, ge=4, le=1024)

    @model_validator(mode="after")
    def _fits(self) -> DiskSpec:
        if self.scratch > self.size - 2**29:
            raise ValueError("scratch must leave at least 512 MiB of the disk's size to the store")
        return self


class GroupSpec(Strict):
    """`count` alike nodes, named <group>0, <group>1, ... (<group> alone when count is 1)."""

    name: str
    count: int = Field(default=1, ge=1, le=10_000)
    roles: tuple[Role, ...] = Field(min_length=1)
    cpus: float = Field(default=1.0, gt=0, le=1024)
    memory: Bytes = Field(default=2**30, ge=2**27)
    network: BitsPerSecond = Field(default=1e9, ge=1e6)
    disk: DiskSpec | None = None

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not _NAME.match(name):
            raise ValueError("a name is 1 to 20 lower-case letters, digits or -, a letter first")
        return name

    @model_validator(mode="after")
    def _osd_has_disk(self) -> GroupSpec:
        if "osd" in self.roles and self.disk is None:
            raise ValueError(f"group {self.name!r} has the role osd and so needs a disk block")
        return self

    def node_names(self) -> tuple[str, ...]:
        """Names of the group's nodes in order."""
        if self.count == 1:
            return (self.name,)
        return tuple(f"{self.name}{index}" for index in range(self.count))


class SiteSpec(Strict):
    """Where the machines come from; `options` are checked by the site itself."""

    kind: str = "local"
    options: dict[str, object] = Field(default_factory=dict)


class PoolSpec(Strict):
    """A replicated pool."""

    name: str
    pg_num: int = Field(default=128, ge=1, le=65536)
    size: int = Field(default=2, ge=1, le=10)
    min_size: int = Field(default=1, ge=1, le=10)


class CephSpec(Strict):
    """A Ceph cluster: its pools, and settings beside the role's defaults (ceph.conf names).

    `objectstore` filestore keeps objects as files on the scratch file system beside fio's, where
    reweight-by-utilization sees the space that fio's files take, as in the paper.
    """

    kind: Literal["ceph"] = "ceph"
    pools: tuple[PoolSpec, ...] = (PoolSpec(name="bench"),)
    config: dict[str, dict[str, str | int | float | bool]] = Field(default_factory=dict)
    objectstore: Literal["bluestore", "filestore"] = "bluestore"


class TestbedSpec(Strict):
    """A whole testbed."""

    __test__ = False

    name: str
    site: SiteSpec = SiteSpec()
    groups: tuple[GroupSpec, ...] = Field(min_length=1)
    store: CephSpec | None = CephSpec()

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not _NAME.match(name):
            raise ValueError("a name is 1 to 20 lower-case letters, digits or -, a letter first")
        return name

    @model_validator(mode="after")
    def _roles(self) -> TestbedSpec:
        names = [name for group in self.groups for name in group.node_names()]
        if len(set(names)) != len(names):
            raise ValueError("two nodes would have the same name: give groups distinct names")
        admins = [g for g in self.groups if "admin" in g.roles]
        if len(admins) != 1 or admins[0].count != 1:
            raise ValueError("exactly one node must have the role admin")
        if self.store is not None:
            for role in ("mon", "mgr", "osd", "client"):
                if not any(role in group.roles for group in self.groups):
                    raise ValueError(f"store {self.store.kind} needs a node with the role {role}")
            hosts = sum(group.count for group in self.groups if "osd" in group.roles)
            for pool in self.store.pools:
                if pool.size > hosts:
                    raise ValueError(
                        f"pool {pool.name!r} keeps {pool.size} replicas on {hosts} nodes"
                    )
        return self

    def digest(self) -> str:
        """SHA-256 (hex) of everything in the spec but its name and site options."""
        body = self.model_dump(mode="json", exclude={"name", "site"})
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def explain(error: ValidationError, where: str) -> UserError:
    """One sentence for the first thing that pydantic found wrong in the file `where`."""
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"]) or "top level"
    message = str(first["msg"]).removeprefix("Value error, ")
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return UserError(f"{where}: {path}: {message}{more}.")


def load_spec(path: Path) -> TestbedSpec:
    """Read and validate a spec file.

    Raises:
        UserError: one sentence when the file is missing, is no YAML or does not fit the schema.
    """
    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a spec file.") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: a spec is a mapping with name, groups and store.")
    try:
        return TestbedSpec.model_validate(data)
    except ValidationError as error:
        raise explain(error, str(path)) from error


def renamed(spec: TestbedSpec, name: str) -> TestbedSpec:
    """`spec` under another name.

    Raises:
        UserError: `name` is not a name.
    """
    try:
        return TestbedSpec.model_validate({**spec.model_dump(), "name": name})
    except ValidationError as error:
        raise explain(error, "--name") from error
