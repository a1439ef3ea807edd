"""What people give on a command line: a workload's letter and changes, files, folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from schemas.durable import make_folder, write_file
from schemas.errors import UserError
from workloads.cosbench.access import AUTHS, STORAGES
from workloads.cosbench.sizes import parse_sizes
from workloads.cosbench.workload import TABLE_1, Workload, scaled

LARGEST = 16 * 2**20
_USUAL_AUTH = {"swift": "swauth"}


def table_workload(
    letter: str,
    *,
    name: str | None,
    scale: float,
    sizes: str | None,
    runtime: float,
    rampup: float,
    **changes: Any,
) -> Workload:
    """A workload of Table 1 with what a person wants otherwise.

    Raises:
        UserError: there is no such workload, or a value does not fit.
    """
    if letter.upper() not in TABLE_1:
        raise UserError(f"{letter!r} is no workload of Table 1: choose from {', '.join(TABLE_1)}.")
    if not 0 < scale <= 1024:
        raise UserError(
            f"--scale {scale:g}: a number above 0 and up to 1024 is needed, 0.125 for 1-16 MB."
        )
    made = TABLE_1[letter.upper()]
    if sizes is not None:
        changes["sizes"] = parse_sizes(sizes)
    if name is not None:
        changes["name"] = name
    changes["runtime_s"] = _whole_seconds("--runtime", runtime)
    changes["rampup_s"] = _whole_seconds("--rampup", rampup)
    if changes.get("total_ops") is not None and not runtime:
        changes["runtime_s"] = None
    made = made.with_(**changes)
    return scaled(made, scale) if scale != 1 else made


def _whole_seconds(option: str, seconds: float) -> int:
    if seconds != round(seconds):
        raise UserError(f"{option} {seconds:g}: COSBench counts whole seconds.")
    return round(seconds)


def access_of(
    storage: str, auth: str | None, auth_url: str | None, endpoint: str | None
) -> dict[str, BaseModel]:
    """The two access elements, without credentials.

    Raises:
        UserError: a type is unknown, or an address is none or has no place.
    """
    login = auth or _USUAL_AUTH.get(storage, "none")
    if storage not in STORAGES:
        raise UserError(f"--storage {storage}: choose from {', '.join(STORAGES)}.")
    if login not in AUTHS:
        raise UserError(f"--auth {login}: choose from {', '.join(AUTHS)}.")
    return {
        "storage": _made("--endpoint", STORAGES[storage], "endpoint", endpoint),
        "auth": _made("--auth-url", AUTHS[login], "auth_url", auth_url),
    }


def _made(option: str, kind: type[BaseModel], key: str, value: str | None) -> BaseModel:
    if value is not None and key not in kind.model_fields:
        raise UserError(f"{option} has no place in type {kind.model_fields['type'].default}.")
    try:
        return kind.model_validate({} if value is None else {key: value})
    except ValidationError as error:
        raise UserError(
            f"{option} {value}: write an address such as http://192.0.2.10:8080/auth/v1.0, "
            "without ';'."
        ) from error


def read_xml(path: Path) -> str:
    """A workload's XML as text.

    Raises:
        UserError: it cannot be read.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise UserError(f"{path} has more than {LARGEST >> 20} MiB: it is no workload.")
        return path.read_text(encoding="utf-8-sig")  # some editors write a byte-order mark
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text in UTF-8.") from error


def write_new(path: Path, text: str) -> None:
    """Write a file that was not there, readable by its owner alone.

    Raises:
        UserError: it is there.
    """
    try:
        write_file(path, text, 0o600, exclusive=True)
    except FileExistsError as error:
        raise UserError(f"{path} is there already: name another file.") from error


def new_folder(path: Path) -> Path:
    """A folder for results that is not there yet; its parents are made.

    Raises:
        UserError: it is there.
    """
    if path.exists():
        raise UserError(f"{path} is there already: results are never overwritten.")
    make_folder(path.parent)
    return path
