"""The command `hotbed`: finds the verbs, and turns errors into one sentence and an exit code.

Exit codes: 0 done; 1 failed; 2 user error; 75 a lease ended a campaign before its last cell; 130
Ctrl-C; 143 terminated.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
import sys
from functools import cache
from types import FrameType
from typing import Any

import typer

import hotbed.verbs
from hotbed.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_USER
from schemas.errors import HotbedError, UserError, sentence_of
from testbed.closure import ROOT
from testbed.terminal import cleaned


@cache
def build() -> typer.Typer:
    """Return the application with every verb of `hotbed.verbs`, in alphabetical order."""
    app = typer.Typer(
        name="hotbed",
        help="Evaluate storage controllers on real testbeds.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def hotbed_command() -> None:
        """Evaluate storage controllers on real testbeds."""

    for name in sorted(module.name for module in pkgutil.iter_modules(hotbed.verbs.__path__)):
        module = importlib.import_module(f"hotbed.verbs.{name}")
        if hasattr(module, "group"):
            app.add_typer(module.group, name=name)
        else:
            app.command(name, context_settings=getattr(module, "CONTEXT", None))(module.verb)
    return app


@cache
def command(app: typer.Typer) -> Any:
    """Return the application as Click runs it; cached, because it inspects all options."""
    return typer.main.get_command(app)


_CHAMELEON = {"blazarclient", "chi", "keystoneauth1", "openstack", "zunclient"}
_CLONE = (
    "This Hotbed was installed from its wheel, which holds no Go programs: clone Hotbed, run `make "
    "setup` there, and use the clone's .venv/bin/hotbed."
)


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
    except UserError as error:
        _say(error)
        raise SystemExit(EXIT_USER) from None
    except HotbedError as error:
        _say(error)
        raise SystemExit(EXIT_FAILED) from None
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in _CHAMELEON:
            raise
        lacking = f"the package {error.name} is missing, which the site chameleon needs"
        _say(UserError(lacking, do="run pip install 'hotbed[chameleon]'"))
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
    print(f"hotbed: {_with_hint(error)}", file=sys.stderr)


def _with_hint(error: HotbedError) -> str:
    """Return the message, with the time of a retry if a site suggests one (`SiteError`), or with
    the place of programs that an installed Hotbed lacks."""
    wait_s = getattr(error, "retry_after_s", None)
    if wait_s is None:
        missing = "make setup" in str(error) and not (ROOT / "Makefile").is_file()
        return f"{error} {_CLONE}" if missing else str(error)
    again = f"Try again in {wait_s:.0f} s." if wait_s > 0 else "Try again."
    return f"{str(error).rstrip('.')}. {again}"


if __name__ == "__main__":
    main()
