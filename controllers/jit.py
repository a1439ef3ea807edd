"""Compiled loops if numba is installed, else the same functions as plain Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

try:
    from numba import njit as _njit

    from controllers.jit_cache import keep_safely

    COMPILED = True
except ImportError:  # an admin node has only the distribution's numpy
    COMPILED = False

THREADS = max(1, min(os.cpu_count() or 1, 16))


def njit(function: F) -> F:
    """Compile `function` on first use (cached on disk) and release the GIL in it.

    `error_model="numpy"` leaves out the check for a division by zero; fast-math stays off, so that
    sums are the same on every machine.
    """
    if not COMPILED:
        return function
    compiled = _njit(cache=True, nogil=True, error_model="numpy")(function)
    keep_safely(compiled)
    return cast(F, compiled)


def in_threads(function: Callable[[int], None], chunks: int) -> None:
    """Call ``function(0) ... function(chunks - 1)``, in parallel if that helps.

    The caller chooses the chunks, so that results do not depend on this machine's number of
    threads.
    """
    if not COMPILED or THREADS == 1 or chunks <= 1:
        for chunk in range(chunks):
            function(chunk)
        return
    with ThreadPoolExecutor(min(THREADS, chunks)) as pool:
        for done in [pool.submit(function, chunk) for chunk in range(chunks)]:
            done.result()
