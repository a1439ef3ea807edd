"""Cache files of numba's compiled loops, safe for processes that compile at the same time.

numba (0.68, `numba.core.caching.IndexDataCacheFile`) has two defects. It lists a data file in a
function's index before the file is written. It also reuses a name for other code: after a source
change, or when two processes compile for different types at once. A process that reads in between
runs code of an older source or of other types: one wrong decision on a busy machine. A function's
stamp also covers only its own source file, not the compiled functions that it calls from other
modules. Here a file is written before it is listed, under a name that is never reused. An index is
valid only while the sources of all callees are the same.
"""

from __future__ import annotations

import glob
import uuid
from pathlib import Path
from typing import Any

from numba.core.caching import IndexDataCacheFile
from numba.core.dispatcher import Dispatcher


class SafeFiles(IndexDataCacheFile):
    """Index and data files of one function."""

    def save(self, key: object, data: object) -> None:
        """Keep compiled `data` for `key`. Processes that save at once may lose entries (these
        compile again), but no entry is ever mistaken for another."""
        name = self._data_name(uuid.uuid4().int)  # type: ignore[no-untyped-call]
        self._save_data(name, data)  # type: ignore[no-untyped-call]
        overloads = {**self._load_index(), key: name}  # type: ignore[no-untyped-call]
        self._save_index(overloads)  # type: ignore[no-untyped-call]
        named = set(overloads.values())
        mine = glob.escape(self._index_name.removesuffix(".nbi")) + ".*.nbc"
        for path in Path(self._cache_path).glob(mine):
            if path.name not in named:  # of an older source; a process about to read it compiles
                path.unlink(missing_ok=True)


def keep_safely(compiled: Any) -> None:
    """Make `SafeFiles` keep `compiled`, a function that numba caches on disk.

    A numba with another cache layout is left alone.
    """
    files = _files(compiled)
    if type(files) is not IndexDataCacheFile:
        return
    module = compiled.py_func.__module__
    callees = {
        name: callee
        for name, callee in compiled.py_func.__globals__.items()
        if isinstance(callee, Dispatcher) and callee.py_func.__module__ != module
    }
    stamp = files._source_stamp
    if callees:
        theirs = [(n, getattr(_files(c), "_source_stamp", None)) for n, c in callees.items()]
        stamp = (stamp, sorted(theirs, key=lambda pair: pair[0]))
    base = files._index_name.removesuffix(".nbi")
    compiled._cache._cache_file = SafeFiles(files._cache_path, base, stamp)  # type: ignore[no-untyped-call]


def _files(compiled: Any) -> Any:
    return getattr(getattr(compiled, "_cache", None), "_cache_file", None)
