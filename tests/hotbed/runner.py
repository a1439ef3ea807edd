"""Runs command lines in this process, as `typer.testing` does, on an application made once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
from typer import testing
from typer.testing import CliRunner, Result

from hotbed import cli


class Runner(CliRunner):
    """`typer.testing.CliRunner` on `hotbed`, whose options are looked at once a process."""

    def run(self, words: Sequence[str], **more: Any) -> Result:
        """Run ``hotbed WORDS``."""
        with mock.patch.object(testing, "_get_command", cli.command):
            return self.invoke(cli.build(), words, **more)


def hotbed(*arguments: object) -> int:
    """The exit code of ``hotbed ARGUMENTS`` in this process, mistakes told as they are to users."""
    with pytest.raises(SystemExit) as end:
        cli.main([str(argument) for argument in arguments])
    code = end.value.code
    return code if isinstance(code, int) else 0
