"""Deploys a testbed's store by Ansible, and removes it: playbooks/site.yml and remove.yml.

Ansible runs through ansible-runner, with everything it writes below the testbed's directory. Its
full output is kept in ``deploy.log`` there.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from schemas.errors import HotbedError, UserError
from testbed import ansible_processes, reach, twochoice_variables
from testbed.agent import bundle
from testbed.agent.config import config_to_json
from testbed.inventory import agent_config, build_inventory
from testbed.playbook_events import Event, Failure, Tracker, explain, playbook_tasks
from testbed.sites.contract import Progress, ShapingSite, Site, Testbed, silent
from testbed.spec import TestbedSpec

PLAYBOOKS = Path(__file__).resolve().parents[1] / "playbooks"
FORKS = 10
STOP_S = 15.0  # given to Ansible to end what it began when it is interrupted
LOG = "deploy.log"


class DeployError(HotbedError):
    """A task failed; the message names node, task and reason in a sentence or two."""

    def __init__(self, message: str, failures: tuple[Failure, ...] = ()) -> None:
        super().__init__(message)
        self.failures = failures


class RefusedError(DeployError, UserError):
    """The role `validate` found that a deployment could not succeed; nothing was changed."""


def deploy(
    testbed: Testbed,
    spec: TestbedSpec,
    progress: Progress = silent,
    *,
    site: Site | None = None,
    wipe: bool = False,
) -> dict[str, int]:
    """Bring the store, the load generators' files and the control plane to the nodes.

    Repeating it resumes an interrupted deployment and changes nothing on a finished one.

    Args:
        testbed: its nodes answer ssh.
        spec: what they were made from.
        progress: gets role and task with the share of the expected time that is done.
        site: where it has `Capability.SHAPING`, disks are filled at full speed.
        wipe: take devices that hold something else, and destroy it.

    Returns:
        Changed tasks by node; a second run's are all 0.

    Raises:
        UserError: the spec cannot be deployed, or a node is not fit for it (`RefusedError`).
        DeployError: a task failed.
    """
    save_spec(testbed, spec)
    with _private_data(testbed) as folder:
        archive = folder / "bundle.tar"
        digest = bundle.write(archive)
        config = json.loads(json.dumps(config_to_json(agent_config(testbed, spec))))
        extra = {
            "agent_bundle": str(archive),
            "agent_bundle_mark": f".bundle-{digest[:16]}",
            "agent_known_hosts": str(testbed.known_hosts),
            "agent_config": config,
            "validate_wipe": wipe,
        }
        inventory = build_inventory(testbed, spec, extra)
        with _unshaped(testbed, site):
            return _play(testbed, folder, "site.yml", inventory, progress)


def remove(
    testbed: Testbed,
    spec: TestbedSpec,
    progress: Progress = silent,
    *,
    packages: bool = False,
    site: Site | None = None,
) -> dict[str, int]:
    """Take everything away that `deploy` brought, also after a failed or interrupted one.

    Args:
        packages: also remove Ceph's and fio's packages.

    Raises:
        DeployError: a task failed.
    """
    with _private_data(testbed) as folder:
        inventory = build_inventory(testbed, spec, {"remove_packages": packages})
        with _unshaped(testbed, site):
            return _play(testbed, folder, "remove.yml", inventory, progress)


def remove_agents(
    testbed: Testbed, spec: TestbedSpec, progress: Progress = silent, *, site: Site | None = None
) -> dict[str, int]:
    """Take the two-choice scheduler's agents away, with their data, pools and keys; the store
    stays, and the next `deploy` of the same spec brings them again.

    Raises:
        UserError: the spec asks for none.
        DeployError: a task failed.
    """
    if twochoice_variables.asked(spec.store) is None:
        raise UserError(
            f"testbed {testbed.name} has no agents of the two-choice scheduler: its spec asks for "
            "none."
        )
    with _private_data(testbed) as folder:
        inventory = build_inventory(testbed, spec)
        with _unshaped(testbed, site):
            return _play(testbed, folder, "remove-twochoice.yml", inventory, progress)


def save_spec(testbed: Testbed, spec: TestbedSpec) -> None:
    """Keep the spec beside the testbed, for commands that get only its name."""
    path = testbed.directory / "spec.json"
    new = path.with_suffix(".new")
    new.write_text(spec.model_dump_json(indent=1))
    new.replace(path)


def spec_of(testbed: Testbed) -> TestbedSpec:
    """The spec that the testbed was brought up from.

    Raises:
        UserError: it was not kept, or is another version's.
    """
    path = testbed.directory / "spec.json"
    try:
        return TestbedSpec.model_validate_json(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(
            f"testbed {testbed.name}: {path} cannot be read; run `hotbed up SPEC` again."
        ) from error


# --- inside ------------------------------------------------------------------------------------


@contextmanager
def _private_data(testbed: Testbed) -> Iterator[Path]:
    folder = ansible_processes.ansible_folder(testbed.directory)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"testbed {testbed.name} is being deployed by another command: wait for it."
            ) from error
        # What a killed command left at work would get in our way.
        ansible_processes.end(testbed.directory)
        yield folder


@contextmanager
def _unshaped(testbed: Testbed, site: Site | None) -> Iterator[None]:
    if site is None or not isinstance(site, ShapingSite):
        yield
        return
    site.shape(testbed.name, False)
    try:
        yield
    finally:
        site.shape(testbed.name, True)


def _environment(folder: Path, sockets: Path) -> dict[str, str]:
    """Ansible's settings: nothing from or to the user's home or /etc/ansible."""
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "home" / "tmp"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
        "ANSIBLE_FORKS": str(FORKS),
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_FORCE_COLOR": "False",
        "ANSIBLE_NOCOLOR": "True",
        # A worker a task and node: each would compile its plugins anew, a third of the time. Kept
        # here, what root compiles is not left in the user's clone.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(folder / "home" / "bytecode"),
    }


def _play(
    testbed: Testbed,
    folder: Path,
    playbook: str,
    inventory: Mapping[str, Any],
    progress: Progress,
) -> dict[str, int]:
    tracker = Tracker(playbook_tasks(PLAYBOOKS / playbook))
    progress(tracker.phase, 0.0)
    # Where the testbed's other connections are: what a kill leaves there ends with the testbed.
    sockets = reach.make_control_dir(testbed) / "ansible"
    sockets.mkdir(mode=0o700, exist_ok=True)
    try:
        run = _Run(folder, PLAYBOOKS / playbook, inventory, _environment(folder, sockets))
        status = run.finish(tracker, progress)
    finally:
        ansible_processes.end(testbed.directory)
        _hang_up(sockets)
        _keep_log(folder, testbed.directory / LOG)
    log = testbed.directory / LOG
    if tracker.failures:
        refused = all(failure.role == "validate" for failure in tracker.failures)
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
    """One ansible-playbook in a thread of ansible-runner's, which an interruption ends cleanly."""

    def __init__(
        self,
        folder: Path,
        playbook: Path,
        inventory: Mapping[str, Any],
        environment: dict[str, str],
    ) -> None:
        import ansible_runner

        self._events: list[Event] = []
        self._pid: int | None = None
        self._kill = threading.Event()
        shutil.rmtree(folder / "artifacts", ignore_errors=True)
        self._thread, self._runner = ansible_runner.run_async(
            private_data_dir=str(folder),
            project_dir=str(PLAYBOOKS),
            playbook=str(playbook),
            inventory=dict(inventory),
            envvars=environment,
            ident="last",
            quiet=True,
            settings={"suppress_env_files": True, "pexpect_use_poll": True},
            event_handler=self._on_event,
            cancel_callback=self._kill.is_set,
        )

    def _on_event(self, event: Event) -> bool:
        self._pid = event.get("pid") or self._pid
        self._events.append(event)
        return True  # keep it among the artifacts

    def finish(self, tracker: Tracker, progress: Progress) -> str:
        """Follow the run to its end; returns ansible-runner's status."""
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
        """As Ctrl-C in a terminal would: Ansible ends its workers and their connections."""
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGINT)
            end = time.monotonic() + STOP_S
            while self._thread.is_alive() and time.monotonic() < end:
                self._thread.join(0.2)
        self._kill.set()  # ansible-runner then kills what is left
        self._thread.join(STOP_S)


def _hang_up(sockets: Path) -> None:
    """End the shared ssh connections, which would outlive the run."""
    for socket in sockets.iterdir():
        subprocess.run(
            ["ssh", "-F", "none", "-o", f"ControlPath={socket}", "-O", "exit", "none"],
            capture_output=True,
            check=False,
            timeout=10,
        )
    shutil.rmtree(sockets, ignore_errors=True)


def _keep_log(folder: Path, log: Path) -> None:
    output = folder / "artifacts" / "last" / "stdout"
    if output.exists():
        shutil.copyfile(output, log)
        log.chmod(0o600)


def _last_error(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    telling = [line for line in lines if "ERROR" in line] or [line for line in lines if line]
    return f"{telling[-1].strip()[:300]}." if telling else "it printed nothing."
