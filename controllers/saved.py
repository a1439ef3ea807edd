"""State of a store before a controller changed it, on disk until it has been restored.

It is written before the first action, so that the next command can heal a killed controller: the
controller's next start, `hotbed control stop`, or systemd's ExecStopPost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from schemas.durable import make_folder, write_file
from schemas.errors import StoreError
from testbed.stores.contract import Effect, Store

_TRIES = 3
_PAUSE_S = 2.0


class Saved:
    """File that holds a store's state."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        """Return True if a state waits to be restored."""
        return self.path.exists()

    def write(self, state: Mapping[str, Any]) -> None:
        """Keep `state` atomically and durably."""
        make_folder(self.path.parent)
        write_file(self.path, json.dumps(state))

    def forget(self) -> None:
        """Forget the saved state: the store must stay as it is."""
        self.path.unlink(missing_ok=True)

    def put_back(self, store: Store, pause: Callable[[float], object]) -> list[Effect]:
        """Restore `store` from the file and remove the file; do nothing if there is no file.

        Tries three times, with `pause`(seconds) between: a restarting monitor is away for seconds.

        Raises:
            StoreError: the store could not be restored; the file stays for another try.
        """
        if not self.exists():
            return []
        try:
            state = json.loads(self.path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise StoreError(
                f"{self.path} is damaged ({error}): put the store back by hand"
            ) from None
        problem = ""
        for attempt in range(_TRIES):
            if attempt:
                pause(_PAUSE_S)
            try:
                effects: Sequence[Effect] = store.restore(state)
            except Exception as error:
                problem = " ".join(str(error).split()) or type(error).__name__
                continue
            failed = [effect for effect in effects if not effect.ok]
            if not failed:
                self.path.unlink()
                return list(effects)
            problem = f"{len(failed)} of {len(effects)} changes failed: {failed[0].message}"
        raise StoreError(f"the store could not be put back as it was found: {problem}")
