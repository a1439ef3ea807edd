"""Process of one cell: `python -m campaigns.engine.papermill_cell ATTEMPT_FOLDER`.

Without a folder it starts the kernel, and reads the folder from its standard input once the engine
knows the next cell. Runs the job's notebook through papermill, alone in its process, because
notebooks that share a process clash on ZMQ ports. Exit code 0 if every notebook cell ran, else 1
with the reason in `error.json` (papermill's own exit code has been wrong). SIGTERM, SIGINT and the
engine's death interrupt the kernel, so that the experiment restores the testbed before the process
ends.
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from campaigns.engine.job import ERROR_FILE, Job, read_job

_PR_SET_PDEATHSIG = 1
_KERNEL = "python3"
_KERNEL_START_S = 60
_ROOT = str(Path(__file__).resolve().parents[2])
_IMPORTED = ("campaigns.by_hand", "pandas")
"""Modules that a cell of the experiment's notebook imports, for a kernel that waits for a cell."""


class _Running:
    """State for the signal handler."""

    manager: Any = None  # of the kernel
    interrupted = False


def main(folder: Path | None) -> int:
    """Run the job in `folder`, or in the folder that standard input names; return the exit code."""
    _die_with(os.getppid())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    try:
        with _kernel(() if folder else _IMPORTED) as manager:
            # Imported while the kernel starts, because each takes about a second.
            _import_papermill()
            if folder is None:
                line = sys.stdin.readline().rstrip("\n")
                if not line:  # there was no other cell
                    return 0
                folder = Path(line)
            job = read_job(folder)
            if job is None:
                print(f"{folder}: no job.json", file=sys.stderr)
                return 1
            _execute(job, folder, manager)
    except BaseException as error:
        kind, message = _explain(error)
        _leave(folder, kind, message)
        return 1
    return 0


def notebook_parameters(job: Job, folder: Path, known: Container[str]) -> dict[str, Any]:
    """Return the values for the notebook's `parameters` cell: the cell's and the engine's.

    Args:
        known: names in that cell. A notebook without `cell` gets the cell's parameters by name, as
            notebooks that users adapted from Hotbed's former ones expect.
    """
    own = {"kind": job.kind, "cell": job.parameters} if "cell" in known else job.parameters
    return {
        **own,
        "seed": job.seed,
        "block": job.block,
        "time_scale": job.time_scale,
        "ground": job.ground,
        "testbed": job.testbed,
        "run_folder": str(folder),
    }


def parameter_names(notebook: Path) -> set[str]:
    """Return the names that a notebook's `parameters` cell assigns. Papermill's own function needs
    the name of a kernel in the notebook."""
    cells = json.loads(notebook.read_text())["cells"]
    tagged = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", ())]
    tree = ast.parse("\n".join("".join(cell["source"]) for cell in tagged))
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}


def _execute(job: Job, folder: Path, manager: Any) -> None:
    """Run the job's notebook in the running kernel."""
    import papermill
    from papermill.clientwrap import PapermillNotebookClient
    from papermill.engines import NBClientEngine, papermill_engines

    class Client(PapermillNotebookClient):  # type: ignore[misc]
        """Client that stops after an interrupt: an idle kernel ignores SIGINT."""

        def execute_cell(self, *arguments: Any, **named: Any) -> Any:
            if _Running.interrupted:
                raise KeyboardInterrupt
            return super().execute_cell(*arguments, **named)

    class CellEngine(NBClientEngine):  # type: ignore[misc]
        """nbclient's engine with the running kernel."""

        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **_: Any) -> None:
            Client(nb_man, km=manager, timeout=None, startup_timeout=_KERNEL_START_S).execute()

    papermill_engines.register("hotbed", CellEngine)
    papermill.execute_notebook(
        job.notebook,
        str(folder / "notebook.ipynb"),
        parameters=notebook_parameters(job, folder, parameter_names(Path(job.notebook))),
        engine_name="hotbed",
        kernel_name=_KERNEL,
        progress_bar=False,
        log_output=False,
        cwd=_ROOT,
    )


@contextmanager
def _kernel(imported: Iterable[str]) -> Iterator[Any]:
    """Yield a kernel behind unix sockets that no other user can open. It skips IPython startup
    files, which may replace a cell's imports. `imported`: modules to import at its start."""
    from campaigns.engine.own_kernel import OwnKernel  # after the signal handlers are set

    # The kernel must import this repository from any notebook folder.
    path = os.pathsep.join([_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory(prefix="hotbed-kernel-") as sockets:
        manager = OwnKernel(kernel_name=_KERNEL, transport="ipc", ip=f"{sockets}/k")
        manager.connection_file = f"{sockets}/connection.json"
        manager.start_kernel(
            cwd=_ROOT,
            env=os.environ | {"PYTHONPATH": path, "IPYTHONDIR": f"{sockets}/ipython"},
            extra_arguments=[
                "--HistoryManager.enabled=False",
                "--InteractiveShellApp.exec_PYTHONSTARTUP=False",
                *(f"--InteractiveShellApp.exec_lines=__import__({name!r})" for name in imported),
            ],
        )
        _Running.manager = manager
        try:
            if _Running.interrupted:
                raise KeyboardInterrupt
            yield manager
        finally:
            manager.shutdown_kernel(now=True)


def _import_papermill() -> None:
    """Import papermill without pyarrow, which it needs only to read notebooks from HDFS."""
    absent = "pyarrow" not in sys.modules
    if absent:
        sys.modules["pyarrow"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("papermill")
    finally:
        if absent:
            del sys.modules["pyarrow"]


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    _Running.interrupted = True
    process = getattr(_Running.manager, "provisioner", None)
    pid = getattr(process, "pid", None)
    if pid is None:
        raise KeyboardInterrupt
    os.kill(pid, signal.SIGINT)


def _explain(error: BaseException) -> tuple[str, str]:
    """Return the name and message of the notebook's error."""
    kind = getattr(error, "ename", type(error).__name__)
    message = str(getattr(error, "evalue", error)).strip()
    if _Running.interrupted or isinstance(error, KeyboardInterrupt) or kind == "KeyboardInterrupt":
        return "KeyboardInterrupt", "interrupted"
    if kind == "DeadKernelError":
        return kind, "the notebook's kernel died (out of memory, or killed)"
    return kind, message or kind


def _leave(folder: Path | None, kind: str, message: str) -> None:
    """Write the error for the engine, and to standard error in case the disk is full."""
    print(f"{kind}: {message}", file=sys.stderr)
    if folder is None:
        return
    try:
        (folder / ERROR_FILE).write_text(json.dumps({"kind": kind, "message": message}) + "\n")
    except OSError as error:
        print(f"error.json: {error}", file=sys.stderr)


def _die_with(parent: int) -> None:
    """Ask the kernel for a SIGTERM on any end of the engine."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # the engine ended before the request
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else None))
