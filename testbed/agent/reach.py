"""Shells from the admin node to every node: to itself without ssh, to the others over ssh."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from schemas.errors import RemoteError
from schemas.locks import own_folder
from testbed.agent.contract import CONTROL_DIR, KEY, KNOWN_HOSTS, AgentConfig, node_of
from testbed.ssh import LocalShell, Shell, SshShell, SshTarget

T = TypeVar("T")
_AT_ONCE = 64  # ssh sessions in flight; a testbed of thousands must not fork thousands at once


_control_dir: list[Path | None] = []


def use_control_dir(folder: Path | None) -> None:
    """Share this process's ssh connections in `folder` from now on, not in the common folder.

    None: each command has its own connection. A unit that is stopped while a caller waits needs
    None. A shared connection stays in the unit's control group, and systemd in a container (cgroup
    v1) does not notice its end and waits a minute for it.
    """
    if folder is not None:
        own_folder(folder)
    _control_dir[:] = [folder]


def reach(config: AgentConfig, name: str) -> Shell:
    """Return a shell on node `name`; raise UserError with the known names if there is none."""
    node = node_of(config, name)
    if "admin" in node.roles:
        return LocalShell(name)
    return SshShell(
        SshTarget(
            node=node.name,
            address=node.address,
            key=Path(KEY),
            known_hosts=Path(KNOWN_HOSTS),
            user=node.ssh_user,
            port=node.ssh_port,
            control_dir=_control_dir[0] if _control_dir else own_folder(CONTROL_DIR),
        )
    )


def on_each(names: Iterable[str], call: Callable[[str], T]) -> Mapping[str, T | RemoteError]:
    """Call `call` for every name in parallel; a node that fails yields its RemoteError."""
    names = tuple(names)

    def guarded(name: str) -> T | RemoteError:
        try:
            return call(name)
        except RemoteError as error:
            return error

    if not names:
        return {}
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(names))) as pool:
        return dict(zip(names, pool.map(guarded, names), strict=True))


def every(names: Iterable[str], call: Callable[[str], T]) -> Mapping[str, T]:
    """Do as `on_each`, but raise the first RemoteError after every node has been tried."""
    answers = on_each(names, call)
    for answer in answers.values():
        if isinstance(answer, RemoteError):
            raise answer
    return {name: answer for name, answer in answers.items() if not isinstance(answer, RemoteError)}
