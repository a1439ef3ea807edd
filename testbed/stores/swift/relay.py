"""Relay of lines from standard input to the node's daemon, and of answers back. The admin node runs
it over ssh on every node, once, and keeps it open. Sent as text; standard library only."""

from __future__ import annotations

import socket
import sys

SOCKET = "/run/hotbed/swift-node.sock"


def main() -> None:
    """Relay until standard input ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.connect(SOCKET)
        answers = daemon.makefile("rb")
        while line := sys.stdin.buffer.readline():
            daemon.sendall(line)
            answer = answers.readline()
            if not answer:
                sys.exit("the node's daemon ended")
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
