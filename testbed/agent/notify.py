"""Tells systemd how far a service of type ``notify`` is."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(message: str) -> None:
    """Tell systemd (sd_notify's protocol) such as ``READY=1``; nothing where it is not about."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    # systemd may be away for a moment (it re-executes itself on updates): no reason to end.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(message.encode(), address)
