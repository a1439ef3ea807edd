"""Runs of playbooks on a testbed's nodes: in a private folder, with progress, ended cleanly.

ansible-runner runs Ansible and writes only below the testbed's directory. Ansible's full output is
kept there in ``deploy.log``. An event is a mapping with ``event`` (its kind) and ``event_data``, as
ansible-runner 2.4 passes it to an event handler. ansible-playbook and its workers (each in a
session of its own) have the path of the testbed's inventory on their command lines. A worker's ssh
or local command is in the worker's process group.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from schemas.errors import HotbedError, UserError
from schemas.locks import take
from testbed import reach
from testbed.deploy.parts import cache_folder
from testbed.sites.contract import Progress, Testbed
from testbed.ssh import end_connections

Event = Mapping[str, Any]

_MESSAGE_CHARACTERS = 400


@dataclass(frozen=True)
class Failure:
    """One task that failed on one node. `role` may be empty."""

    node: str
    role: str
    task: str
    message: str
    unreachable: bool = False


def playbook_tasks(root: Path, playbook: str) -> list[str]:
    """Return the names of a playbook's tasks in order. Roles and files are followed if they are
    named plainly; tasks that a run skips are included."""
    names: list[str] = []
    for play in yaml.safe_load((root / playbook).read_text()):
        names += _expand(play.get("pre_tasks"), root, root)
        for role in play.get("roles", ()):
            names += _role(root, role if isinstance(role, str) else role["role"])
        names += _expand(play.get("tasks"), root, root) + _expand(
            play.get("post_tasks"), root, root
        )
    return names


def _expand(tasks: Iterable[Mapping[str, Any]] | None, root: Path, folder: Path) -> list[str]:
    names: list[str] = []
    for task in tasks or ():
        words = {str(key).removeprefix("ansible.builtin."): value for key, value in task.items()}
        role = words.get("import_role") or words.get("include_role")
        file = words.get("import_tasks") or words.get("include_tasks")
        if "block" in words:
            names += _expand(words["block"], root, folder)
        elif role is not None:
            names += _role(root, str(role["name"]), str(role.get("tasks_from", "main")))
        elif file is not None:
            names += _tasks(root, folder / str(file["file"] if isinstance(file, dict) else file))
        elif task.get("name"):
            names.append(str(task["name"]))
    return names


def _role(root: Path, name: str, entry: str = "main") -> list[str]:
    return _tasks(root, root / "roles" / name / "tasks" / f"{entry.removesuffix('.yml')}.yml")


def _tasks(root: Path, path: Path) -> list[str]:
    if not path.is_file():  # the run computes its name
        return []
    return _expand(yaml.safe_load(path.read_text()), root, path.parent)


class Tracker:
    """Follows a run by its events: `phase`, `share` (0 to 1 of the tasks), `failures`."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self._tasks = list(tasks)
        self._next = 0
        self.phase = "starting Ansible"
        self.share = 0.0
        self.failures: list[Failure] = []
        self.changed: dict[str, int] = {}

    def follow(self, event: Event) -> bool:
        """Process one event; return True if `phase` or `share` has changed."""
        kind = event.get("event", "")
        data = event.get("event_data", {})
        if kind in ("playbook_on_task_start", "playbook_on_handler_task_start"):
            self._start(data)
            return True
        if kind in ("runner_on_failed", "runner_on_unreachable", "runner_item_on_failed"):
            if not data.get("ignore_errors") and kind != "runner_item_on_failed":
                self.failures.append(_failure(data, unreachable=kind == "runner_on_unreachable"))
        elif kind == "playbook_on_stats":
            self.changed = dict(data.get("changed", {}))
            self.share = 1.0
            return True
        return False

    def _start(self, data: Mapping[str, Any]) -> None:
        name = _plain_name(data)
        role = data.get("role", "")
        self.phase = f"{role}: {name}" if role else name
        if name in self._tasks[self._next :]:
            self._next = self._tasks.index(name, self._next) + 1
            self.share = (self._next - 1) / len(self._tasks)


def _plain_name(data: Mapping[str, Any]) -> str:
    name = str(data.get("task") or data.get("name") or "a task")
    if name.startswith("Validating arguments against arg spec"):
        return "checking variables"
    role = str(data.get("role", ""))
    return name.removeprefix(f"{role} : ") if role else name


def _failure(data: Mapping[str, Any], *, unreachable: bool) -> Failure:
    return Failure(
        node=str(data.get("host", "?")),
        role=str(data.get("role", "")),
        task=_plain_name(data),
        message=message_of(data.get("res", {})),
        unreachable=unreachable,
    )


def message_of(result: Mapping[str, Any]) -> str:
    """Return the line of a failed task's result that gives the reason."""
    if result.get("censored"):
        return "its output may hold secrets and is hidden"
    # The loop's own message says only that an item failed.
    for item in result.get("results") or ():
        if isinstance(item, Mapping) and item.get("failed"):
            return message_of(item)
    said = str(result.get("msg") or "").strip()
    for_people = said and not said.startswith(("non-zero return code", "MODULE FAILURE"))
    if not for_people:
        for stream in ("stderr", "module_stderr", "stdout", "module_stdout"):
            lines = [line for line in str(result.get(stream) or "").splitlines() if line.strip()]
            if lines:
                said = lines[-1]
                break
    said = " ".join(said.split()) or "it gave no reason"
    if len(said) > _MESSAGE_CHARACTERS:
        said = said[: _MESSAGE_CHARACTERS - 3] + "..."
    return said


def explain(failures: Sequence[Failure]) -> str:
    """Return one or two sentences: where, what task, why; other nodes' failures are counted."""
    # Nodes fail in any order, but the sentence must be the same every time.
    here = sorted((f for f in failures if f.task == failures[0].task), key=lambda f: f.node)
    first = here[0]
    nodes = list(dict.fromkeys(f.node for f in here))
    where = f"node {nodes[0]}" + (f" and {len(nodes) - 1} more" if len(nodes) > 1 else "")
    if first.unreachable:
        return f"{where} cannot be reached by ssh: {_sentence(first.message)}"
    task = f"{first.role}: {first.task}" if first.role else first.task
    others = sum(f.message != first.message for f in here)
    more = f" ({others} more {'says' if others == 1 else 'say'} otherwise)" if others else ""
    return f'"{task}" failed on {where}{more}: {_sentence(first.message)}'


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


FOLDER = "ansible"
_GRACE_S = 3.0


def ansible_folder(directory: Path) -> Path:
    """Return the folder of Ansible's files for the testbed kept in `directory`."""
    return directory / FOLDER


def ansible_processes(directory: Path) -> list[int]:
    """Return the ids of the processes of the testbed's Ansible."""
    mark = os.fsencode(ansible_folder(directory) / "inventory")
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(mark) for word in words):
            found.append(int(entry.name))
    return found


def end_ansible(directory: Path) -> None:
    """End these processes and what they started: SIGTERM first, then SIGKILL."""
    for number, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        limit = time.monotonic() + patience_s
        for pid in ansible_processes(directory):
            _signal(pid, number)
        while ansible_processes(directory):
            if time.monotonic() > limit:
                break
            time.sleep(0.05)
        else:
            return


def _signal(pid: int, number: int) -> None:
    try:
        group = os.getpgid(pid)
        if group == pid:
            os.killpg(group, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        return


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
    """Hold the testbed's Ansible folder for this command alone. UserError: another command deploys
    this testbed."""
    folder = ansible_folder(testbed.directory)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock = take(folder / "lock", 0.0)
    except BlockingIOError as error:
        raise UserError(
            "is being deployed by another command",
            where=f"testbed {testbed.name}",
            do="wait for it",
        ) from error
    try:
        # Processes that a killed command left running would interfere.
        end_ansible(testbed.directory)
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
        "LC_ALL": "C.UTF-8",  # Ansible refuses other encodings
        # Each worker (task and node) would compile its plugins anew, a third of the time. With the
        # cache apart, root leaves no compiled files in the user's clone; all testbeds share it.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(cache_folder("ansible")),
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
) -> dict[str, int]:
    """Run `playbook` of the folder `ansible.root` on the nodes of `inventory`, with the testbed's
    private Ansible `folder`; return changed tasks by node. `progress` gets role and task, with the
    finished share of the tasks. RefusedError: a role of `ansible.refusing` says why the
    rest could not succeed. DeployError: a task failed."""
    path = ansible.root / playbook
    tracker = Tracker(playbook_tasks(ansible.root, playbook))
    progress(tracker.phase, 0.0)
    # Next to the testbed's other connections: leftovers of a kill end with the testbed.
    sockets = reach.make_control_dir(testbed) / "ansible"
    sockets.mkdir(mode=0o700, exist_ok=True)
    try:
        run = _PlaybookRun(folder, path, inventory, _environment(ansible, folder, sockets), ansible)
        status = run.finish(tracker, progress)
    finally:
        end_ansible(testbed.directory)
        _hang_up(sockets)
        _keep_log(folder, testbed.directory / LOG)
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


class _PlaybookRun:
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
        # ansible-runner keeps the environment and variables of an earlier run instead of these.
        for kept in ("artifacts", "env"):
            shutil.rmtree(folder / kept, ignore_errors=True)
        self._thread, self._runner = ansible_runner.run_async(
            private_data_dir=str(folder),
            project_dir=str(ansible.root),
            playbook=str(playbook),
            inventory=dict(inventory),
            envvars=environment,
            ident="last",
            quiet=True,
            settings={"pexpect_use_poll": True},
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
    errors = [line for line in lines if "ERROR" in line] or [line for line in lines if line]
    return f"{errors[-1].strip()[:300]}." if errors else "it printed nothing."
