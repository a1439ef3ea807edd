"""Command-line options that several verbs share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from schemas.errors import UserError
from schemas.numbers import number
from schemas.yaml_file import read

if TYPE_CHECKING:
    from campaigns.engine.dask import Workers

Number = TypeVar("Number", int, float)

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the cells, the time and what is done; run none.")
]
ControllersDirOption = Annotated[
    Path | None, typer.Option(help="A folder of further controllers, such as your own.")
]
ModelOption = Annotated[
    Path | None,
    typer.Option(help="A YAML file of constants for the ground sim (docs/simulation.md)."),
]
ExtendLeaseOption = Annotated[
    bool | None,
    typer.Option(
        "--extend-lease/--no-extend-lease",
        help="Ask for more time when the campaign does not fit what is left of the testbed's "
        "lease; by default as the campaign's file says (lease: {extend: true}).",
    ),
]
OtherTestbedOption = Annotated[
    str | None, typer.Option("--testbed", help="Another testbed than the spec's name.")
]

MostGibOption = Annotated[
    float,
    typer.Option("--most-gib", min=0.001, help="How large a bundle may be when it is unpacked."),
]

WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Simulated cells beside each other, in so many processes of this machine.",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        help="Simulated cells on the workers of a Dask cluster: its scheduler's address, such as "
        "tcp://10.0.0.1:8786.",
    ),
]


def flag(name: str, what: str) -> Any:
    """Return a flag that is off by default."""
    return typer.Option(name, help=what)


def quantity(option: str, kind: str, what: str, **more: Any) -> Any:
    """Return an option for a number with or without a unit: ``bytes``, ``bits_per_s`` or
    ``seconds`` of `testbed.spec.quantities`."""

    def parse(text: str) -> float:
        from testbed.spec import quantities

        try:
            found: float = getattr(quantities, f"parse_{kind}")(text)
        except ValueError as error:
            raise UserError(error, where=option) from None
        return found

    return typer.Option(option, parser=parse, metavar=kind.upper(), help=what, **more)


def workers_of(count: int | None, scheduler: str | None) -> Workers:
    """Return the workers from `WorkersOption` and `SchedulerOption`; by default this machine's
    processors.

    Raises:
        UserError: both are given, or one makes no sense.
    """
    from campaigns.engine.dask import Workers

    return Workers(scheduler, count)


def workers_asked(count: int | None, scheduler: str | None) -> Workers | None:
    """Return `workers_of`, or None if neither is given: cells run one after another.

    Raises:
        UserError: both are given, or one makes no sense.
    """
    return None if count is None and scheduler is None else workers_of(count, scheduler)


def name_values(given: Iterable[str], example: str) -> dict[str, object]:
    """Return repeated ``--parameter NAME=VALUE`` as a mapping, with numbers converted.

    Raises:
        UserError: one does not have that form; shows `example`.
    """
    parameters: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"write NAME=VALUE, such as {example}", where=f"--parameter {text!r}")
        try:
            found = number(value)
        except ValueError as error:
            raise UserError(error, where=f"--parameter {text!r}") from None
        parameters[name] = value if found is None else found
    return parameters


def from_file(path: Path | None) -> dict[str, object]:
    """Return the mapping of names to values in a YAML file; empty without a file.

    Raises:
        UserError: it cannot be read, or holds something else.
    """
    if path is None:
        return {}
    data = read(path, f"--parameters {path}")
    if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
        raise UserError("it must be a mapping of names to values", where=f"--parameters {path}")
    return data


def names(given: Iterable[str]) -> tuple[str, ...]:
    """Return names separated by commas, from options that may be repeated."""
    return tuple(name.strip() for text in given for name in text.split(",") if name.strip())


def numbers(
    option: str, given: Iterable[str] | None, kind: type[Number]
) -> Sequence[Number] | None:
    """Return numbers separated by commas, from an option that may be repeated; None if not given.

    Raises:
        UserError: one is no number of that kind.
    """
    if given is None:
        return None
    found: list[Number] = []
    for text in names(given):
        try:
            value = number(text)
        except ValueError as error:
            raise UserError(error, where=option) from None
        if value is None or not isinstance(value, (kind, int)):
            what = "whole number" if kind is int else "number"
            raise UserError(f"{text!r} is no {what}", where=option)
        found.append(kind(value))
    return found
