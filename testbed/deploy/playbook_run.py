"""One playbook run on a testbed's nodes: in a private folder, with progress, ended cleanly.

ansible-runner runs Ansible and writes only below the testbed's directory. Ansible's full output is
kept there in ``deploy.log``.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.errors import HotbedError, UserError
from schemas.locks import take
from testbed import reach
from testbed.deploy import ansible_processes
from testbed.deploy.playbook_events import Event, Failure, Tracker, explain, playbook_tasks
from testbed.sites.contract import Progress, Testbed
from testbed.ssh import end_connections

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
FORKS = 10
STOP_S = 15.0  # time for an interrupted Ansible to end what it began
LOG = "deploy.log"


class DeployError(HotbedError):
    """A task failed; the message names node, task and reason in a sentence or two."""

    def __init__(self, message: str, failures: tuple[Failure, ...] = ()) -> None:
        super().__init__(message)
        self.failures = failures


class RefusedError(DeployError, UserError):
    """A role that only checks (`Ansible.refusing`) found that a deployment could not succeed."""


@dataclass(frozen=True)
class Ansible:
    """The Ansible to run; `program` (ansible-playbook) None is the one next to this Python.

    `root` is the folder that playbooks run in, `config` its ansible.cfg, `environment` adds to the
    common settings, and `extra` are variables that win over all others. `refusing` names roles that
    fail only if a deployment could not succeed, before anything is changed.
    """

    root: Path
    config: Path
    program: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)
    refusing: tuple[str, ...] = ("validate",)


@contextmanager
def private_data(testbed: Testbed) -> Iterator[Path]:
    """Hold the testbed's Ansible folder for this command alone.

    Raises:
        UserError: another command deploys this testbed.
    """
    folder = ansible_processes.ansible_folder(testbed.directory)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock = take(folder / "lock", 0.0)
    except BlockingIOError as error:
        raise UserError(
            f"testbed {testbed.name} is being deployed by another command: wait for it."
        ) from error
    try:
        # Processes that a killed command left running would interfere.
        ansible_processes.end(testbed.directory)
        yield folder
    finally:
        os.close(lock)


def _environment(ansible: Ansible, folder: Path, sockets: Path) -> dict[str, str]:
    """Return Ansible's settings, independent of the user's home and /etc/ansible."""
    programs = (ansible.program or Path(sys.executable)).parent
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "ANSIBLE_CONFIG": str(ansible.config),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "home" / "tmp"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
        "ANSIBLE_FORKS": str(FORKS),
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_FORCE_COLOR": "False",
        "ANSIBLE_NOCOLOR": "True",
        # Each worker (task and node) would compile its plugins anew, a third of the time. With the
        # cache here, root leaves no compiled files in the user's clone.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(folder / "home" / "bytecode"),
        **ansible.environment,
    }


def play(
    testbed: Testbed,
    folder: Path,
    playbook: str,
    inventory: Mapping[str, Any],
    progress: Progress,
    *,
    ansible: Ansible,
    tasks: Sequence[str] | None = None,
) -> dict[str, int]:
    """Run `playbook` of the folder `ansible.root` on the nodes of `inventory`.

    Args:
        folder: the testbed's private Ansible folder (`ansible_processes.ansible_folder`).
        progress: gets role and task, with the finished share of the expected time.
        tasks: names of the playbook's tasks in order, if they cannot be read from its roles.

    Returns:
        Changed tasks by node.

    Raises:
        RefusedError: a role of `ansible.refusing` says why the rest could not succeed.
        DeployError: a task failed.
    """
    path = ansible.root / playbook
    tracker = Tracker(playbook_tasks(path) if tasks is None else tasks)
    progress(tracker.phase, 0.0)
    # Next to the testbed's other connections: leftovers of a kill end with the testbed.
    sockets = reach.make_control_dir(testbed) / "ansible"
    sockets.mkdir(mode=0o700, exist_ok=True)
    try:
        run = _Run(folder, path, inventory, _environment(ansible, folder, sockets), ansible)
        status = run.finish(tracker, progress)
    finally:
        ansible_processes.end(testbed.directory)
        _hang_up(sockets)
        _keep_log(folder, testbed.directory / LOG)
        # ansible-runner leaves them for the next run, which may use another playbook.
        (folder / "env" / "extravars").unlink(missing_ok=True)
    log = testbed.directory / LOG
    if tracker.failures:
        refused = all(failure.role in ansible.refusing for failure in tracker.failures)
        unreachable = any(failure.unreachable for failure in tracker.failures)
        kind = RefusedError if refused and not unreachable else DeployError
        message = explain(tracker.failures)
        if kind is RefusedError:
            message = " ".join(dict.fromkeys(f.message for f in tracker.failures))
        else:
            message = f"{message} Full log: {log}"
        raise kind(message, tuple(tracker.failures))
    if status != "successful":
        raise DeployError(f"Ansible ended {status}: {_last_error(log)} Full log: {log}")
    progress("done", 1.0)
    return dict.fromkeys((node.name for node in testbed.nodes), 0) | tracker.changed


class _Run:
    """One ansible-playbook in a thread of ansible-runner; an interruption ends it cleanly."""

    def __init__(
        self,
        folder: Path,
        playbook: Path,
        inventory: Mapping[str, Any],
        environment: dict[str, str],
        ansible: Ansible,
    ) -> None:
        import ansible_runner

        self._events: list[Event] = []
        self._pid: int | None = None
        self._kill = threading.Event()
        shutil.rmtree(folder / "artifacts", ignore_errors=True)
        self._thread, self._runner = ansible_runner.run_async(
            private_data_dir=str(folder),
            project_dir=str(ansible.root),
            playbook=str(playbook),
            inventory=dict(inventory),
            envvars=environment,
            ident="last",
            quiet=True,
            settings={"suppress_env_files": True, "pexpect_use_poll": True},
            event_handler=self._on_event,
            cancel_callback=self._kill.is_set,
            **({"extravars": dict(ansible.extra)} if ansible.extra else {}),
        )

    def _on_event(self, event: Event) -> bool:
        self._pid = event.get("pid") or self._pid
        self._events.append(event)
        return True  # keep it among the artifacts

    def finish(self, tracker: Tracker, progress: Progress) -> str:
        """Follow the run to its end and return ansible-runner's status."""
        seen = 0
        try:
            while True:
                alive = self._thread.is_alive()
                for event in self._events[seen:]:
                    seen += 1
                    if tracker.follow(event):
                        progress(tracker.phase, tracker.share)
                if not alive:
                    return str(self._runner.status)
                self._thread.join(0.2)
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        """Interrupt Ansible like Ctrl-C in a terminal: it ends its workers and connections."""
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGINT)
            end = time.monotonic() + STOP_S
            while self._thread.is_alive() and time.monotonic() < end:
                self._thread.join(0.2)
        self._kill.set()  # ansible-runner then kills the remaining processes
        self._thread.join(STOP_S)


def _hang_up(sockets: Path) -> None:
    """End the shared ssh connections, which would otherwise outlive the run."""
    end_connections(sockets)
    shutil.rmtree(sockets, ignore_errors=True)


def _keep_log(folder: Path, log: Path) -> None:
    output = folder / "artifacts" / "last" / "stdout"
    if output.exists():
        log.touch(mode=0o600)  # before anything is in it
        log.chmod(0o600)
        shutil.copyfile(output, log)


def _last_error(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    telling = [line for line in lines if "ERROR" in line] or [line for line in lines if line]
    return f"{telling[-1].strip()[:300]}." if telling else "it printed nothing."
