"""Runner of command lines in this process, as in `typer.testing`, on an application built once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest
from typer import testing
from typer.testing import CliRunner, Result

from hotbed import cli

Ask = Callable[..., Any]
"""Runs a command and returns its output: the fixture `ask`."""


class Runner(CliRunner):
    """`typer.testing.CliRunner` on `hotbed`; the options are inspected once per process."""

    def run(self, words: Sequence[str], **more: Any) -> Result:
        """Run ``hotbed WORDS``."""
        with mock.patch.object(testing, "_get_command", cli.command):
            return self.invoke(cli.build(), words, **more)


def hotbed(*arguments: object) -> int:
    """Run ``hotbed ARGUMENTS`` in this process with normal error output; return the exit code."""
    with pytest.raises(SystemExit) as end:
        cli.main([str(argument) for argument in arguments])
    code = end.value.code
    return code if isinstance(code, int) else 0


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run ``hotbed ARGUMENTS``; return exit code, standard output and standard error."""
    code = hotbed(*arguments)
    return code, *capsys.readouterr()
