"""Progress messages to systemd from a service of type ``notify``."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(message: str) -> None:
    """Send systemd a message such as ``READY=1`` (sd_notify); do nothing without systemd."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    # systemd may be absent for a moment (it re-executes itself on updates): not an error.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(message.encode(), address)
