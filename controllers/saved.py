"""What a store looked like before a controller touched it, on disk until it has been put back.

Written before the first action, so that a controller that was killed can be healed by whoever
comes next: its own next start, `hotbed control stop`, or systemd's ExecStopPost.
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
    """The file that holds a store's state."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        """Whether something waits to be put back."""
        return self.path.exists()

    def write(self, state: Mapping[str, Any]) -> None:
        """Keep `state`, whole or not at all, also through a power cut."""
        make_folder(self.path.parent)
        write_file(self.path, json.dumps(state))

    def forget(self) -> None:
        """The store is to stay as it is: nothing waits to be put back any more."""
        self.path.unlink(missing_ok=True)

    def put_back(self, store: Store, pause: Callable[[float], object]) -> list[Effect]:
        """Restore `store` from the file and remove the file; nothing when there is none.

        Tries three times, `pause`(seconds) between: a monitor that restarts is away for seconds.

        Raises:
            StoreError: it could not be put back; the file stays for another try.
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
