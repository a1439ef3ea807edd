"""Command-line options that several verbs share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hotbed import completion
from schemas.errors import UserError
from schemas.numbers import number
from schemas.yaml_file import read

if TYPE_CHECKING:
    from campaigns.engine.dask import Workers

Number = TypeVar("Number", int, float)


def option(what: str, default: Any = ..., **more: Any) -> Any:
    """Return an option with this help; no default in ``Annotated``, nor if it is required."""
    return typer.Option(default, help=what, **more)


def argument(what: str, default: Any = ..., **more: Any) -> Any:
    """Return an argument with this help; no default in ``Annotated``, nor if it is required."""
    return typer.Argument(default, help=what, **more)


def named(name: str, what: str, default: Any = ..., **more: Any) -> Any:
    """Return an option or flag of this name, such as ``--dry-run``; see `option`."""
    # In ``Annotated``, an option's name comes first.
    first = (name,) if default is ... else (default, name)
    return typer.Option(*first, help=what, **more)


DryRunOption = Annotated[
    bool, named("--dry-run", "Show the cells, their state and the estimated time; run none.")
]
ControllersDirOption = Annotated[Path | None, option("Folder of additional controllers.")]
ModelOption = Annotated[
    Path | None, option("A YAML file of constants for the ground sim (docs/simulation.md).")
]
ExtendLeaseOption = Annotated[
    bool | None,
    named(
        "--extend-lease/--no-extend-lease",
        "Extend the testbed's lease if the campaign needs more time; by "
        "default as in the campaign's file (lease: {extend: true}).",
    ),
]
OtherTestbedOption = Annotated[
    str | None,
    option("Name of the testbed; by default the spec's name.", autocompletion=completion.testbeds),
]
MostGibOption = Annotated[float, option("Maximum size of the unpacked bundle.", min=0.001)]
WorkersOption = Annotated[
    int | None,
    option("Number of processes of this machine that run simulated cells in parallel."),
]
SchedulerOption = Annotated[
    str | None,
    option(
        "Run simulated cells on a Dask cluster: the address of its scheduler, "
        "such as tcp://10.0.0.1:8786."
    ),
]


def quantity(option: str, kind: str, what: str, default: Any = ..., **more: Any) -> Any:
    """Return an option for a number with or without a unit: ``bytes``, ``bits_per_s`` or
    ``seconds`` of `testbed.spec.quantities`."""

    def parse(text: str) -> float:
        from testbed.spec import quantities

        try:
            found: float = getattr(quantities, f"parse_{kind}")(text)
        except ValueError as error:
            raise UserError(error, where=option) from None
        return found

    return named(option, what, default, parser=parse, metavar=kind.upper(), **more)


def workers_of(count: int | None, scheduler: str | None) -> Workers:
    """Return the workers from `WorkersOption` and `SchedulerOption`; by default this machine's
    processors. UserError: both are given, or one makes no sense."""
    from campaigns.engine.dask import Workers

    return Workers(scheduler, count)


def workers_asked(count: int | None, scheduler: str | None) -> Workers | None:
    """Return `workers_of`, or None if neither is given: cells run one after another. UserError:
    both are given, or one makes no sense."""
    return None if count is None and scheduler is None else workers_of(count, scheduler)


def name_values(given: Iterable[str], example: str) -> dict[str, object]:
    """Return repeated ``--parameter NAME=VALUE`` as a mapping, with numbers, true and false
    converted. UserError: one does not have that form; shows `example`."""
    parameters: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"write NAME=VALUE, such as {example}", where=f"--parameter {text!r}")
        try:
            found = number(value)
        except ValueError as error:
            raise UserError(error, where=f"--parameter {text!r}") from None
        found = {"true": True, "false": False}.get(value, found)
        parameters[name] = value if found is None else found
    return parameters


def from_file(path: Path | None) -> dict[str, object]:
    """Return the mapping of names to values in a YAML file; empty without a file. UserError: it
    cannot be read, or holds something else."""
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
    UserError: one is no number of that kind."""
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
