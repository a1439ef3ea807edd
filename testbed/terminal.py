r"""Only path of text to a terminal.

Names of nodes, files, controllers and campaigns, keys and reasons come from outside. A control
character in them must not act on the terminal: it is shown as an escape (``\x1b``, ``\u202e``).
Square brackets are text, never markup: a coloured cell is a `rich.text.Text`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO, cast

from schemas.shown import clean

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 200  # columns if the output is no terminal: no text is cut off for grep


class _Cleaned:
    """A text stream that cleans the text written to it. Consoles of rich write to the stream itself
    (`rich_proxied_file`), because their own control sequences must pass."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        return self.rich_proxied_file.write(clean(text))

    def writelines(self, lines: Any) -> None:
        for each in lines:
            self.write(each)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def cleaned() -> Iterator[None]:
    """Clean everything that the block prints to standard output and standard error."""
    out, err = (cast(TextIO, _Cleaned(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


def is_quiet() -> bool:
    """Return True if only results and errors are wanted (``hotbed -q``)."""
    return logging.getLogger("hotbed").level > logging.WARNING


def console(*, stderr: bool = False, **options: Any) -> Console:
    """Return a console of rich that cleans what it prints; wide and without colours if its stream
    is no terminal. `options` are those of `rich.console.Console`."""
    if not (sys.stderr if stderr else sys.stdout).isatty():
        options.setdefault("width", _PIPE_WIDTH)
    made: Console = _console_type()(
        stderr=stderr, highlight=False, markup=False, emoji=False, **options
    )
    return made


@cache
def _console_type() -> Any:
    from rich.console import Console
    from rich.segment import Segment

    class Cleaning(Console):
        def render_str(self, text: str, **named: Any) -> Any:
            return super().render_str(clean(text), **named)

        def render(self, *arguments: Any, **named: Any) -> Iterator[Segment]:
            for part in super().render(*arguments, **named):
                yield part if part.control else part._replace(text=clean(part.text))

    return Cleaning
