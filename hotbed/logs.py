"""The only configuration of logging, for `hotbed -v` and `hotbed -q`.

| option | on standard error |
|---|---|
| none | progress, messages, and warnings of libraries |
| -q | errors only |
| -v | in addition: every program that is started, and the traceback of an error |
| -vv | in addition: everything that libraries log |
"""

from __future__ import annotations

import logging
import shlex
import sys
from functools import cache

LOG = logging.getLogger("hotbed")


class _Stderr(logging.Handler):
    """Handler that prints to the present `sys.stderr`, which cleans control characters."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def configure(verbose: int = 0, *, quiet: bool = False) -> None:
    """Set what is logged, for all libraries; the last call counts."""
    level = logging.ERROR if quiet else logging.DEBUG if verbose > 1 else logging.WARNING
    root = logging.getLogger()
    root.handlers = [each for each in root.handlers if not isinstance(each, _Stderr)]
    handler = _Stderr()
    handler.setFormatter(logging.Formatter("%(name)s: %(levelname)s: %(message)s"))
    handler.addFilter(lambda record: record.name == LOG.name or _of_library(record, level))
    root.addHandler(handler)
    root.setLevel(level)
    LOG.setLevel(logging.ERROR if quiet else logging.INFO if verbose == 1 else logging.NOTSET)
    logging.captureWarnings(True)
    if verbose:
        _watch()


def _of_library(record: logging.LogRecord, level: int) -> bool:
    """Return True if a library's record is shown. Libraries set levels of their own. Dask's are
    shown with -vv only: the engine itself reports a lost worker."""
    dask = record.name.startswith("distributed")
    return record.levelno >= level and (level == logging.DEBUG or not dask)


@cache
def _watch() -> None:
    sys.addaudithook(_started)  # which cannot be removed


def _started(event: str, arguments: tuple[object, ...]) -> None:
    """Log the command line of every program that this process starts."""
    if event in ("subprocess.Popen", "os.exec") and isinstance(arguments[1], (list, tuple)):
        LOG.info("run %s", shlex.join(str(each) for each in arguments[1]))
