"""Errors shared by every room. Standard library only: the agent side imports this file."""

from __future__ import annotations


class HotbedError(Exception):
    """Something failed while Hotbed worked; the message is one sentence fit for a person."""


class UserError(HotbedError):
    """A mistake in what the user gave.

    The message is one sentence that says what is wrong, where, what is allowed and what to do.
    The command line prints it without a traceback and exits with 2.
    """


class StoreError(HotbedError):
    """A store refused or could not carry out a command."""


class RemoteError(HotbedError):
    """A command on a node failed or the node could not be reached.

    `retry` tells whether trying again later may help (a lost node, a time-out) or not (a refusal).
    """

    def __init__(self, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.retry = retry
