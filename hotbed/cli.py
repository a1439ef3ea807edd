"""The command `hotbed`: finds the verbs, and turns errors into one sentence and an exit code (see
`hotbed.exit_codes`)."""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
import sys
from functools import cache
from types import FrameType
from typing import Annotated, Any

import typer

import hotbed.verbs
from hotbed import logs
from hotbed.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_USER
from hotbed.output import Verbs
from schemas.errors import HotbedError, UserError, sentence_of
from testbed.closure import ROOT
from testbed.terminal import cleaned

PANELS = {
    "Start a testbed": "doctor up deploy extend down snapshot store new",
    "Run experiments": "try reproduce run compare scale control fault load calibrate bench",
    "Look at testbeds and results": "list status top ui logs ssh exec report validate variation",
    "Share results": "bundle verify rerun reference",
    "Papers": "cosbench mos pm swift twochoice ursa",
}
"""Verbs of `hotbed --help` by what a person wants to do; a new verb is added here."""


@cache
def build() -> typer.Typer:
    """Return the application with every verb of `hotbed.verbs`, in the order of `PANELS`."""
    app = Verbs(
        name="hotbed",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Exit codes: docs/exit-codes.md.",
    )
    app.callback()(_hotbed)
    panels = {verb: panel for panel, verbs in PANELS.items() for verb in verbs.split()}
    found = {module.name for module in pkgutil.iter_modules(hotbed.verbs.__path__)}
    for name in [*panels, *sorted(found - set(panels))]:
        module = importlib.import_module(f"hotbed.verbs.{name}")
        panel = panels.get(name)
        if hasattr(module, "group"):
            app.add_typer(module.group, name=name, rich_help_panel=panel)
        else:
            settings = getattr(module, "CONTEXT", None)
            app.command(name, context_settings=settings, rich_help_panel=panel)(module.verb)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"hotbed {version('hotbed')}")
        raise typer.Exit


def _hotbed(
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            metavar="",
            show_default=False,
            help="Show the programs that are started, and tracebacks; -vv: all that libraries log.",
        ),
    ] = 0,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show results and errors, no progress.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Evaluate storage controllers on real testbeds."""
    if quiet and verbose:
        raise UserError("-q and -v contradict each other", do="give one of them")
    logs.configure(verbose, quiet=quiet)


@cache
def command(app: typer.Typer) -> Any:
    """Return the application as Click runs it; cached, because it inspects all options."""
    return typer.main.get_command(app)


_EXTRAS = {
    **dict.fromkeys(
        ("blazarclient", "chi", "keystoneauth1", "openstack", "zunclient"), "chameleon"
    ),
    **dict.fromkeys(("bokeh", "panel", "tornado"), "ui"),
}
"""Extra of Hotbed that has a package."""


def _terminated(_signum: int, _frame: FrameType | None) -> None:
    # An exception, so that the command cleans up on the way out.
    raise SystemExit(EXIT_TERMINATED)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; always end by SystemExit."""
    signal.signal(signal.SIGTERM, _terminated)
    # A shell starts background commands with SIGINT ignored, but `kill -INT` must end us.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with cleaned():
        _run(arguments)


def _run(arguments: list[str] | None) -> None:
    try:
        try:
            command(build())(args=arguments, prog_name="hotbed")
        finally:
            _flush()
    except HotbedError as error:
        _say(error)
        raise SystemExit(EXIT_USER if isinstance(error, UserError) else EXIT_FAILED) from None
    except ModuleNotFoundError as error:
        name, lacking = str(error.name).partition(".")[0], f"the package {error.name} is missing"
        if name in _EXTRAS:
            extra = _EXTRAS[name]
            lacking, do = f"{lacking}, of the extra {extra}", f"run pip install 'hotbed[{extra}]'"
        elif (ROOT / "Makefile").is_file() and not (ROOT / name).exists():
            do = "run `make setup`, or `tools/setup.sh notebook` without root"
        else:
            raise
        _say(UserError(lacking, do=do))
        raise SystemExit(EXIT_USER) from None
    except OSError as error:
        _say(HotbedError(sentence_of(error)))
        raise SystemExit(EXIT_FAILED) from None
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


def _flush() -> None:
    """Flush the output; its reader may be gone (`hotbed status | head`). OSError: it cannot be
    written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python flushes once more at exit and needs an open descriptor.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            error.filename = "standard output"
            raise


def _say(error: HotbedError) -> None:
    """Print the message, with the time of a retry if a site suggests one (`SiteError`)."""
    logs.LOG.info("traceback of the error", exc_info=error)
    said, wait_s = str(error), getattr(error, "retry_after_s", None)
    if wait_s is not None:
        again = f"Try again in {wait_s:.0f} s." if wait_s > 0 else "Try again."
        said = f"{said.rstrip('.')}. {again}"
    print(f"hotbed: {said}", file=sys.stderr)


if __name__ == "__main__":
    main()
