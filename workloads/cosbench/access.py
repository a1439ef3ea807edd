"""The object store of a workload and how its driver logs in, as COSBench's config strings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

MASK = "***"
"""Stands for a secret wherever it is shown or kept."""

SECRET_KEYS = frozenset({"password", "secretkey", "token", "usertoken", "accesskey"})
"""Keys of a config string whose values are never shown."""

Address = Annotated[str, Field(pattern=r"^https?://[^\s;]+$")]


class _Access(BaseModel):
    """Fields are COSBench's keys; those that are None are left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str

    @field_validator("*")
    @classmethod
    def _fits(cls, value: object) -> object:
        """A config string is k=v;k=v, without any way to quote."""
        plain = value.get_secret_value() if isinstance(value, SecretStr) else value
        if isinstance(plain, str) and (";" in plain or not plain.isprintable()):
            raise ValueError("has a ';' or a character that cannot be printed")
        return value

    def config(self, *, masked: bool = False) -> str:
        """``key=value;key=value``; secrets in plain, or as ``***``."""
        pairs = []
        for key in type(self).model_fields:
            value = getattr(self, key)
            if key == "type" or value is None:
                continue
            if isinstance(value, SecretStr):
                value = MASK if masked else value.get_secret_value()
            elif isinstance(value, bool):
                value = str(value).lower()
            pairs.append(f"{key}={value}")
        return ";".join(pairs)


class NoStorage(_Access):
    """Operations that do nothing."""

    type: Literal["none"] = "none"


class MockStorage(_Access):
    """A store without a server: reads have `size` bytes, operations take `delay` milliseconds, and
    a share `errors` of them fails."""

    type: Literal["mock"] = "mock"
    size: int | None = Field(default=None, ge=0)
    delay: int | None = Field(default=None, ge=0)
    errors: float | None = Field(default=None, ge=0, le=1)


class _Web(_Access):
    """`proxies` (``host:port,host:port``), `proxies_file` and `tls_verify` are cosdrive's alone:
    requests go round between the proxies, those that a JSON file on the driver's node names (list
    ``proxies``) as long as it names them; certificates that nobody vouches for are taken unless
    `tls_verify` is true."""

    proxies: str | None = Field(default=None, pattern=r"^[^\s,;]+:\d+(,[^\s,;]+:\d+)*$")
    proxies_file: str | None = Field(default=None, pattern=r"^/[^\s;]+$")
    tls_verify: bool | None = None


class SwiftStorage(_Web):
    """OpenStack Swift; times in milliseconds. `token` and `storage_url` bypass the login."""

    type: Literal["swift"] = "swift"
    timeout: int = Field(default=30_000, ge=1)
    token: SecretStr | None = None
    storage_url: Address | None = None
    policy: str | None = None


class S3Storage(_Web):
    """An S3 service, such as Swift's s3api or Ceph's object gateway. `region` is cosdrive's."""

    type: Literal["s3"] = "s3"
    accesskey: SecretStr | None = None
    secretkey: SecretStr | None = None
    endpoint: Address | None = None
    path_style_access: bool = True
    region: str | None = None
    timeout: int = Field(default=30_000, ge=1)


class NoAuth(_Access):
    """No login."""

    type: Literal["none"] = "none"


class MockAuth(_Access):
    """A login that always succeeds."""

    type: Literal["mock"] = "mock"


class SwAuth(_Access):
    """Swift's own (tempauth, swauth): version 1.0 of the authentication."""

    type: Literal["swauth"] = "swauth"
    username: str | None = None
    password: SecretStr | None = None
    auth_url: Address | None = None
    timeout: int | None = Field(default=None, ge=1)


class Keystone(_Access):
    """OpenStack Keystone; `service` is the name of the store in its catalogue."""

    type: Literal["keystone"] = "keystone"
    username: str | None = None
    password: SecretStr | None = None
    tenant_name: str | None = None
    auth_url: Address | None = None
    service: str | None = None
    timeout: int | None = Field(default=None, ge=1)


StorageAccess = Annotated[
    NoStorage | MockStorage | SwiftStorage | S3Storage,
    Field(discriminator="type"),
]
AuthAccess = Annotated[NoAuth | MockAuth | SwAuth | Keystone, Field(discriminator="type")]

STORAGES: dict[str, type[BaseModel]] = {
    "none": NoStorage,
    "mock": MockStorage,
    "swift": SwiftStorage,
    "s3": S3Storage,
}
AUTHS: dict[str, type[BaseModel]] = {
    "none": NoAuth,
    "mock": MockAuth,
    "swauth": SwAuth,
    "keystone": Keystone,
}
