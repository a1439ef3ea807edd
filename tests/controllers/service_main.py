"""Controller service in its own process, on a `FakeStore` kept in the file $FAKE_STORE."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controllers.service import ServiceSettings, main
from schemas.errors import StoreError
from testbed.stores.contract import Store
from tests.testbed.fake_store import FakeStore


def fake(path: Path) -> FakeStore:
    """Return a store with half of the OSDs always hot."""
    hot = {osd: 97.0 if osd < 4 else 5.0 for osd in range(8)}
    return FakeStore(pressures=lambda _: hot, hot=lambda _: frozenset(range(4)), path=path)


@contextmanager
def open_fake(settings: ServiceSettings, sensing: bool) -> Iterator[Store]:
    """Open the store in the file; it is unreachable while a file `down` exists next to it."""
    path = Path(os.environ["FAKE_STORE"])
    require(path)
    yield fake(path)


def require(path: Path) -> None:
    """Raise StoreError while the store in the file is unreachable."""
    if path.with_name("down").exists():
        raise StoreError("no monitor answers")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], open_fake))
