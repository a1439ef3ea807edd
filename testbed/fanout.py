"""One command on many nodes in parallel, with its output passed on line by line."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from testbed import reach
from testbed.sites.contract import Node, Testbed
from testbed.ssh import attended

OnLine = Callable[[str, str, bool], None]
"""Called with a node's name, a line without its newline, and True if it came on standard error."""


def run_on(
    testbed: Testbed, nodes: Sequence[Node], argv: Sequence[str], on_line: OnLine
) -> dict[str, int]:
    """Run `argv` (a single word is a shell command line) on every node in parallel.

    If interrupted, end the command on every node.

    Returns:
        node -> exit code; 255 if the node could not be reached.
    """
    line = threading.Lock()
    processes = {
        node.name: subprocess.Popen(
            _command(testbed, node, argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for node in nodes
    }

    def pump(name: str, stream: IO[bytes] | None, is_error: bool) -> None:
        assert stream is not None
        for raw in stream:
            with line:
                on_line(name, raw.decode(errors="replace").rstrip("\r\n"), is_error)

    try:
        with ThreadPoolExecutor(2 * len(processes)) as pool:
            for name, process in processes.items():
                pool.submit(pump, name, process.stdout, False)
                pool.submit(pump, name, process.stderr, True)
        return {name: process.wait() for name, process in processes.items()}
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.terminate()


def _command(testbed: Testbed, node: Node, argv: Sequence[str]) -> list[str]:
    words = ["sh", "-c", argv[0]] if len(argv) == 1 else list(argv)
    return reach.target_of(testbed, node).command(attended(words))
