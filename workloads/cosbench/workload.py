"""Workloads A to D of the MOS paper (Table 1), typed, and their COSBench XML."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal
from xml.sax.saxutils import quoteattr

from pydantic import (
    BaseModel,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from schemas.errors import UserError
from schemas.mistakes import checked
from schemas.model import Model

STAGES = ("init", "prepare", "main", "cleanup", "dispose")
UNITS = ("B", "KB", "MB", "GB")
"""COSBench's units, which are decimal."""

LARGEST = 2**31 - 1
"""Largest number of COSBench: Java's int."""

Bound = Annotated[int, Field(ge=1, le=LARGEST)]
Address = Annotated[str, Field(pattern=r"^https?://[^\s;]+$")]


class CosbenchSizes(Model):
    """Object sizes: whole numbers of a unit, drawn evenly from `low` to `high`."""

    low: Bound
    high: Bound
    unit: Literal["B", "KB", "MB", "GB"] = "KB"

    @model_validator(mode="after")
    def _ordered(self) -> CosbenchSizes:
        if self.high < self.low:
            raise ValueError(f"high ({self.high}) is below low ({self.low})")
        return self

    def __str__(self) -> str:
        numbers = f"c({self.low})" if self.low == self.high else f"u({self.low},{self.high})"
        return f"{numbers}{self.unit}"


_SIZES = re.compile(r"^\s*(\d{1,10})\s*(?:-\s*(\d{1,10}))?\s*([KMG]?B)\s*$")


def parse_sizes(text: str) -> CosbenchSizes:
    """Read sizes from ``64KB`` (all the same) or ``1-128KB`` (drawn evenly).

    Raises:
        UserError: the text is neither.
    """
    if match := _SIZES.match(text):
        low, high, unit = match.groups()
        try:
            return CosbenchSizes.model_validate({"low": low, "high": high or low, "unit": unit})
        except ValidationError:
            pass
    raise UserError(
        f"{text!r} is no object size",
        do=(
            "write 64KB, or 1-128KB for whole KB drawn evenly; units are "
            f"{', '.join(UNITS)} (of 1000), numbers go from 1 to {LARGEST}"
        ),
    )


class _Access(Model):
    """Auth or storage element. Fields are COSBench's keys; a field of None is left out."""

    type: str

    @field_validator("*")
    @classmethod
    def _fits(cls, value: object) -> object:
        """Require a value that fits a config string (k=v;k=v), which has no way to quote."""
        plain = value.get_secret_value() if isinstance(value, SecretStr) else value
        if isinstance(plain, str) and (";" in plain or not plain.isprintable()):
            raise ValueError("has a ';' or a character that cannot be printed")
        return value

    def config(self) -> str:
        """Return ``key=value;key=value``, with secrets in plain."""
        pairs = []
        for key, value in self:
            if key == "type" or value is None:
                continue
            plain = value.get_secret_value() if isinstance(value, SecretStr) else value
            pairs.append(f"{key}={str(plain).lower() if isinstance(plain, bool) else plain}")
        return ";".join(pairs)


class NoAccess(_Access):
    """No login, or a storage with operations that do nothing."""

    type: Literal["none"] = "none"


class MockStorage(_Access):
    """Store without a server.

    Reads have `size` bytes, operations take `delay` milliseconds, and a share `errors` of them
    fails.
    """

    type: Literal["mock"] = "mock"
    size: int | None = Field(default=None, ge=0)
    delay: int | None = Field(default=None, ge=0)
    errors: float | None = Field(default=None, ge=0, le=1)


class SwiftStorage(_Access):
    """OpenStack Swift. `timeout` is in milliseconds.

    `proxies_file` is only for cosdrive: a JSON file on the driver's node that lists the proxies
    (``proxies``) which take turns, while they are listed.
    """

    type: Literal["swift"] = "swift"
    timeout: int = Field(default=30_000, ge=1)
    token: SecretStr | None = None
    storage_url: Address | None = None
    proxies_file: str | None = Field(default=None, pattern=r"^/[^\s;]+$")


class S3Storage(_Access):
    """S3 service, such as Swift's s3api or Ceph's object gateway."""

    type: Literal["s3"] = "s3"
    accesskey: SecretStr | None = None
    secretkey: SecretStr | None = None
    endpoint: Address | None = None
    path_style_access: bool = True
    timeout: int = Field(default=30_000, ge=1)


class MockAuth(_Access):
    """Login that always succeeds."""

    type: Literal["mock"] = "mock"


class SwAuth(_Access):
    """Swift's own login (tempauth, swauth): version 1.0 of the authentication."""

    type: Literal["swauth"] = "swauth"
    username: str | None = None
    password: SecretStr | None = None
    auth_url: Address | None = None


class Keystone(_Access):
    """OpenStack Keystone; `service` is the name of the store in its catalogue."""

    type: Literal["keystone"] = "keystone"
    username: str | None = None
    password: SecretStr | None = None
    tenant_name: str | None = None
    auth_url: Address | None = None
    service: str | None = None


StorageAccess = Annotated[
    NoAccess | MockStorage | SwiftStorage | S3Storage, Field(discriminator="type")
]
AuthAccess = Annotated[NoAccess | MockAuth | SwAuth | Keystone, Field(discriminator="type")]
STORAGES: Mapping[str, type[_Access]] = {
    **{"none": NoAccess, "mock": MockStorage, "swift": SwiftStorage, "s3": S3Storage}
}
AUTHS: Mapping[str, type[_Access]] = {
    **{"none": NoAccess, "mock": MockAuth, "swauth": SwAuth, "keystone": Keystone}
}


def access_of(
    storage: str, auth: str | None, auth_url: str | None, endpoint: str | None
) -> dict[str, BaseModel]:
    """Return the fields `storage` and `auth` of a workload, without credentials.

    Raises:
        UserError: a type is unknown, or an address is invalid or not used.
    """
    login = auth or ("swauth" if storage == "swift" else "none")
    made: dict[str, BaseModel] = {}
    for element, kinds, kind, key, value in (
        ("storage", STORAGES, storage, "endpoint", endpoint),
        ("auth", AUTHS, login, "auth_url", auth_url),
    ):
        option = f"--{key.replace('_', '-')}"
        if kind not in kinds:
            raise UserError(f"--{element} {kind}", allowed=", ".join(kinds))
        if value is not None and key not in kinds[kind].model_fields:
            raise UserError(f"{option} has no place in type {kind}")
        try:
            made[element] = kinds[kind].model_validate({} if value is None else {key: value})
        except ValidationError as error:
            raise UserError(
                f"{option} {value}",
                do="write an address such as http://192.0.2.10:8080/auth/v1.0, without ';'",
            ) from error
    return made


class CosbenchWorkload(Model):
    """Load of one tenant.

    Percentages of operations sum to 100. There are `containers` containers. Reads draw evenly from
    `objects` objects of each, which `prepare` writes. Writes and deletes draw from a separate
    range, the next `objects` numbers: a read never misses, and deletes meet written objects. (A
    delete of a missing object counts as success, in COSBench as in Swift's clients.)

    `workers` operations are in flight (closed loop) for `runtime_s` seconds after `rampup_s`, or
    until there were `total_ops`; with both, whichever comes first. `interval_s` is the interval of
    the series.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    letter: Literal["A", "B", "C", "D"] | None = None
    sizes: CosbenchSizes
    read: int = Field(ge=0, le=100)
    write: int = Field(ge=0, le=100)
    delete: int = Field(ge=0, le=100)
    workers: int = Field(default=32, ge=1, le=100_000)
    containers: int = Field(default=4, ge=1, le=1_000_000)
    objects: int = Field(default=50, ge=1, le=100_000_000)
    runtime_s: int | None = Field(default=900, ge=1, le=10_000_000)
    rampup_s: int = Field(default=0, ge=0, le=1_000_000)
    total_ops: int | None = Field(default=None, ge=1)
    interval_s: int = Field(default=5, ge=1, le=3600)
    prepare_workers: int = Field(default=4, ge=1, le=10_000)
    prefix: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")
    storage: StorageAccess = Field(default_factory=MockStorage)
    auth: AuthAccess = Field(default_factory=NoAccess)

    @model_validator(mode="after")
    def _sound(self) -> CosbenchWorkload:
        if self.read + self.write + self.delete != 100:
            mix = f"{self.read} + {self.write} + {self.delete}"
            raise ValueError(f"read, write and delete must sum to 100, not {mix}")
        if self.runtime_s is None and self.total_ops is None:
            raise ValueError("give runtime_s or total_ops: one of them ends the main stage")
        # COSBench divides them among the workers in whole numbers, and 0 means no limit.
        if self.total_ops is not None and self.total_ops < self.workers:
            raise ValueError(
                f"total_ops ({self.total_ops}) cannot be divided among {self.workers} workers: "
                "make it as many at least"
            )
        return self

    def with_(self, **changes: Any) -> CosbenchWorkload:
        """Return a copy with other values, checked like a new one.

        Raises:
            UserError: the values make no workload; one sentence gives the reason.
        """
        return checked(CosbenchWorkload, dict(self) | changes, f"workload {self.name}")

    @property
    def container_prefix(self) -> str:
        """Name of containers before their number: `prefix`, or derived from the name.

        With the number it has three characters or more, as S3 requires.
        """
        if self.prefix is not None:
            return self.prefix
        made = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return made[:40] if len(made) > 1 else f"load-{made}-"


def _table_1() -> Mapping[str, CosbenchWorkload]:
    mixes = {"A": ("KB", 90, 5), "B": ("KB", 5, 90), "C": ("MB", 90, 5), "D": ("MB", 5, 90)}
    made = {}
    for letter, (unit, read, write) in mixes.items():
        made[letter] = CosbenchWorkload.model_validate(
            {"name": f"workload{letter}", "letter": letter, "read": read, "write": write}
            | {"delete": 5, "sizes": {"low": 1, "high": 128, "unit": unit}}
        )
    return MappingProxyType(made)


TABLE_1: Mapping[str, CosbenchWorkload] = _table_1()
"""Table 1: A web hosting, B online game hosting, C online video sharing, D enterprise backup.
Sizes, mix and 15 minutes (section 1) are the paper's; it does not give workers, containers and
objects."""


def table_workload(
    letter: str,
    *,
    name: str | None,
    scale: float,
    sizes: str | None,
    runtime: float,
    rampup: float,
    **changes: Any,
) -> CosbenchWorkload:
    """Return a workload of Table 1 with changes from a command line.

    Raises:
        UserError: there is no such workload, or a value does not fit.
    """
    if letter.upper() not in TABLE_1:
        raise UserError(f"{letter!r} is no workload of Table 1", allowed=", ".join(TABLE_1))
    if not 0 < scale <= 1024:
        raise UserError(
            "a number above 0 and up to 1024 is needed, 0.125 for 1-16 MB",
            where=f"--scale {scale:g}",
        )
    if sizes is not None:
        changes["sizes"] = parse_sizes(sizes)
    if name is not None:
        changes["name"] = name
    for option, seconds in (("runtime", runtime), ("rampup", rampup)):
        if seconds != round(seconds):
            raise UserError(f"--{option} {seconds:g}: COSBench counts whole seconds")
        changes[f"{option}_s"] = round(seconds)
    if changes.get("total_ops") is not None and not runtime:
        changes["runtime_s"] = None
    made = TABLE_1[letter.upper()].with_(**changes)
    return scaled(made, scale) if scale != 1 else made


def scaled(workload: CosbenchWorkload, factor: float) -> CosbenchWorkload:
    """Return the workload with its largest objects times `factor`.

    `scaled(TABLE_1["C"], 1 / 8)` has 1-16 MB, which a machine with two cores can carry.

    Raises:
        UserError: the bound would be no whole number of its unit, or below the lower one.
    """
    sizes = workload.sizes
    low = 1 if sizes.low == sizes.high else sizes.low
    high = round(sizes.high * factor)
    if not math.isclose(high, sizes.high * factor) or not low <= high <= LARGEST:
        raise UserError(
            f"{sizes} scaled by {factor:g} ends at {sizes.high * factor:g} {sizes.unit}",
            do=f"choose a factor that gives a whole number from {low} to {LARGEST}",
        )
    low = high if sizes.low == sizes.high else low
    return workload.with_(sizes=CosbenchSizes(low=low, high=high, unit=sizes.unit))


def to_xml(workload: CosbenchWorkload, stages: Sequence[str] = STAGES) -> str:
    """Return COSBench's XML, with secrets in plain.

    Args:
        workload: the workload.
        stages: stages among init, prepare, main, cleanup and dispose; written in this order.

    Raises:
        UserError: a stage is unknown, or there is none.
    """
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown or not stages:
        raise UserError(f"stages {', '.join(unknown) or 'are missing'}", allowed=", ".join(STAGES))
    mix = f"{workload.read}% read, {workload.write}% write, {workload.delete}% delete"
    table = f" (MOS, Table 1, {workload.letter})" if workload.letter else ""
    named = {"name": workload.name, "description": f"{workload.sizes}, {mix}{table}"}
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<workload{_written(named)}>"]
    for tag, access in (("auth", workload.auth), ("storage", workload.storage)):
        config = access.config()
        written = {"type": access.type} | ({"config": config} if config else {})
        lines.append(f"  <{tag}{_written(written)}/>")
    lines.append("  <workflow>")
    for stage in STAGES:
        if stage in stages:
            works = _main(workload) if stage == "main" else [_special(workload, stage)]
            lines += [f"    <workstage{_written({'name': stage})}>", *works, "    </workstage>"]
    lines += ["  </workflow>", "</workload>", ""]
    return "\n".join(lines)


def _written(attributes: Mapping[str, object]) -> str:
    return "".join(f" {name}={quoteattr(str(value))}" for name, value in attributes.items())


def _special(workload: CosbenchWorkload, stage: str) -> str:
    parts = [f"cprefix={workload.container_prefix}", f"containers=r(1,{workload.containers})"]
    if stage == "prepare":
        parts += [f"objects=r(1,{workload.objects})", f"sizes={workload.sizes}"]
    elif stage == "cleanup":
        parts += [f"objects=r(1,{2 * workload.objects})"]
    workers = workload.prepare_workers if stage in ("prepare", "cleanup") else 1
    work = {"type": stage, "workers": workers, "config": ";".join(parts)}
    return f"      <work{_written(work)}/>"


def _main(workload: CosbenchWorkload) -> list[str]:
    work: dict[str, object] = {"name": "main", "workers": workload.workers}
    work["interval"] = workload.interval_s
    if workload.runtime_s is not None:
        work["runtime"] = workload.runtime_s
    work |= {"rampup": workload.rampup_s, "rampdown": 0}
    if workload.total_ops is not None:
        work["totalOps"] = workload.total_ops
    drawn = f"cprefix={workload.container_prefix};containers=u(1,{workload.containers})"
    read = f"{drawn};objects=u(1,{workload.objects})"
    other = f"{drawn};objects=u({workload.objects + 1},{2 * workload.objects})"
    lines = [f"      <work{_written(work)}>"]
    for kind, ratio, config in (
        ("read", workload.read, read),
        ("write", workload.write, f"{other};sizes={workload.sizes}"),
        ("delete", workload.delete, other),
    ):
        if ratio:
            attributes = {"type": kind, "ratio": ratio, "config": config}
            lines.append(f"        <operation{_written(attributes)}/>")
    return [*lines, "      </work>"]
