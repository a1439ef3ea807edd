"""Work of one process on a testbed: its record, its cloud, and calls that make nothing twice.

Every name ends or begins with the testbed's own: ``hotbed-<testbed>-<tag>``, or a lease's name and
the tag. A thing is looked up before it is made, also after a lost answer, and journalled before the
call and after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_chain, wait_fixed

from testbed.sites.chameleon.cloud import CallFault, Cloud, CloudError, explain
from testbed.sites.chameleon.options import ChameleonOptions
from testbed.sites.clock import Clock
from testbed.sites.contract import Progress, SiteError, silent
from testbed.sites.records import Record
from testbed.spec import TestbedSpec

T = TypeVar("T")

POLL_S = 5.0
"""Pause between two looks at what is being made."""
PAUSES_S = (5.0, 15.0, 30.0)
"""Pauses before the retries of a call after a passing fault."""
AT_ONCE = 16
"""Largest number of parallel requests."""


@dataclass
class Work:
    """Work on one testbed; see the module."""

    record: Record
    spec: TestbedSpec
    options: ChameleonOptions
    cloud: Cloud
    clock: Clock
    progress: Progress = silent
    pauses_s: tuple[float, ...] = PAUSES_S
    _journal: threading.Lock = field(default_factory=threading.Lock)

    @property
    def tag(self) -> str:
        """Eight hexadecimal digits that no other testbed has."""
        return str(self.record.data["tag"])

    @property
    def base(self) -> str:
        """Prefix of all names."""
        return base_name(self.record.name, self.tag)

    def server_name(self, node: str) -> str:
        """Return the name of a node's server."""
        return f"{self.base}-{node}"

    def polls(self, patience_s: float) -> Iterator[float]:
        """Yield the seconds waited so far before each look, every `POLL_S` for `patience_s`.

        Waits of openstacksdk send a request a server, stop at the first failure, and do not know
        leases.
        """
        begun = self.clock.monotonic()
        while (waited := self.clock.monotonic() - begun) < patience_s:
            yield waited
            self.clock.sleep(POLL_S)

    def failed(self, what: str, retry_after_s: float | None = None) -> SiteError:
        """Return the error of a failure at this site."""
        return SiteError(f"{self.options.site}: {what}", retry_after_s=retry_after_s)

    # -- calls ----------------------------------------------------------------------------------

    def ask(self, doing: str, call: Callable[[], T]) -> T:
        """Make a call that may be repeated: one that looks, or removes. SiteError, UserError: it
        failed, also after `pauses_s` if the fault may pass."""
        retrying = Retrying(
            retry=retry_if_exception(
                lambda error: isinstance(error, CloudError) and error.fault is CallFault.PASSING
            ),
            stop=stop_after_attempt(len(self.pauses_s) + 1),
            wait=wait_chain(*map(wait_fixed, self.pauses_s or (0.0,))),
            sleep=self.clock.sleep,
            reraise=True,
        )
        try:
            return retrying(call)
        except CloudError as error:
            raise explain(error, doing, self.options.site) from error

    def ensure(
        self,
        what: str,
        name: str,
        look: Callable[[], T | None],
        make: Callable[[], T],
        id_of: Callable[[T], str] = str,
    ) -> T:
        """Return what `look` finds, else what `make` makes, also after a lost answer. SiteError,
        UserError: see `ask`."""

        def attempt() -> T:
            found = self.ask(f"looking for {what} {name}", look)
            return self.make(what, name, make, id_of) if found is None else found

        return self.ask(f"making {what} {name}", attempt)

    def make(
        self, what: str, name: str, call: Callable[[], T], id_of: Callable[[T], str] = str
    ) -> T:
        """Make a thing once; raise CloudError if that failed. Threads may call this.

        The journal has ``ask`` before the call, ``made`` or ``refused`` after it, and neither if
        the answer got lost.
        """
        self.journal("ask", what=what, name=name, at_s=self.clock.now())
        try:
            made = call()
        except CloudError as error:
            if error.fault is not CallFault.PASSING:
                self.journal("refused", what=what, name=name)
            raise
        self.journal("made", what=what, name=name, id=id_of(made))
        return made

    def remove_each(self, doing: str, ids: Iterable[str], remove: Callable[[str], None]) -> None:
        """Remove all in parallel; raise the first error after all were tried."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            futures = [pool.submit(self.ask, doing, partial(remove, each)) for each in sorted(ids)]
        for future in futures:
            future.result()

    def journal(self, kind: str, **fields: object) -> None:
        """Append a line to the record's journal, which has one writer at a time."""
        with self._journal:
            self.record.journal(kind, **fields)

    def lines(self, what: str) -> list[dict[str, Any]]:
        """Return the journal's lines about one kind of thing."""
        return [line for line in self.record.entries() if line.get("what") == what]


def fault_under(error: SiteError) -> CallFault | None:
    """Return the fault of the failed call under `error`, None if there was no such call."""
    return error.__cause__.fault if isinstance(error.__cause__, CloudError) else None


def base_name(testbed: str, tag: str) -> str:
    """Return ``hotbed-<testbed>-<tag>``."""
    return f"hotbed-{testbed}-{tag}"


def belongs(name: str, base: str) -> bool:
    """Return True if `name` is `base` or begins with it and a hyphen."""
    return name == base or name.startswith(f"{base}-")
