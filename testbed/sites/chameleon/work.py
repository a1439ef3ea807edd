"""One process's work on a testbed: its record, its cloud, and calls that make nothing twice.

Every name begins with ``hotbed-<testbed>-<tag>``; the tag is the record's own. A thing is looked up
before it is made, also after a lost answer, and journalled before the call and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_chain, wait_fixed

from schemas.errors import UserError
from testbed.sites.chameleon.cloud import Cloud, CloudError, Fault, TokenIdentity, explain
from testbed.sites.chameleon.options import ChameleonOptions
from testbed.sites.clock import Clock
from testbed.sites.contract import Progress, SiteError, silent
from testbed.sites.records import Record
from testbed.spec import TestbedSpec

T = TypeVar("T")

POLL_S = 5.0
"""Pause between two looks at what is being made."""
PAUSES_S = (5.0, 15.0, 30.0)
"""Pauses before the retries of a call whose fault may pass."""
SKEW_S = 60.0
"""Smallest difference of two clocks that counts."""
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
    skew_s: float = field(default=0.0)

    @property
    def base(self) -> str:
        """Prefix of all names."""
        return base_name(self.record.name, self.tag)

    @property
    def tag(self) -> str:
        """Eight hexadecimal digits that no other testbed has."""
        return str(self.record.data["tag"])

    def server_name(self, node: str) -> str:
        """Return the name of a node's server."""
        return f"{self.base}-{node}"

    def set_clock(self) -> None:
        """Measure the difference between the cloud's clock and ours."""
        skew = self.ask("asking for the time", self.cloud.now) - self.clock.now()
        self.skew_s = skew if abs(skew) > SKEW_S else 0.0
        self.record.data["skew_s"] = self.skew_s

    def now(self) -> float:
        """Return seconds since the epoch by the cloud's clock."""
        return self.clock.now() + self.skew_s

    def ours(self, cloud_s: float) -> float:
        """Convert a time of the cloud's clock to ours."""
        return cloud_s - self.skew_s

    def polls(self, patience_s: float) -> Iterator[float]:
        """Yield the seconds waited so far before each look, every `POLL_S` for `patience_s`."""
        begun = self.clock.monotonic()
        while (waited := self.clock.monotonic() - begun) < patience_s:
            yield waited
            self.clock.sleep(POLL_S)

    # -- calls ----------------------------------------------------------------------------------

    def ask(self, doing: str, call: Callable[[], T]) -> T:
        """Make a call that may be repeated: one that looks, or removes.

        Raises:
            SiteError, UserError: it failed, also after `pauses_s` if the fault may pass.
        """
        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            stop=stop_after_attempt(len(self.pauses_s) + 1),
            wait=wait_chain(*(wait_fixed(pause) for pause in self.pauses_s or (0.0,))),
            sleep=self.clock.sleep,
            reraise=True,
        )
        try:
            return retrying(call)
        except CloudError as error:
            raise explain(error, doing, self.options.site) from error

    def if_allowed(self, doing: str, call: Callable[[], T]) -> T | None:
        """Make a call for optional knowledge; None if the cloud's rules forbid the call.

        Raises:
            SiteError, UserError: see `ask`.
        """
        try:
            return self.ask(doing, call)
        except SiteError as error:
            if fault_under(error) in (Fault.REFUSED, Fault.MISSING):
                return None
            raise

    def ensure(
        self,
        what: str,
        name: str,
        look: Callable[[], T | None],
        make: Callable[[], T],
        id_of: Callable[[T], str] = str,
    ) -> T:
        """Return what `look` finds, else what `make` makes, journalled under `what` and `name`.

        The journal has ``ask`` before `make`, ``made`` or ``refused`` after it, and neither if the
        answer got lost.

        Raises:
            SiteError, UserError: see `ask`.
        """

        def attempt() -> T:
            found = self.ask(f"looking for {what} {name}", look)
            if found is not None:
                return found
            self.record.journal("ask", what=what, name=name, at_s=self.now())
            try:
                made = make()
            except CloudError as error:
                if error.fault is not Fault.PASSING:
                    self.record.journal("refused", what=what, name=name)
                raise
            self.made(what, name, id_of(made))
            return made

        return self.ask(f"making {what} {name}", attempt)

    def remove_each(self, doing: str, ids: Iterable[str], remove: Callable[[str], None]) -> None:
        """Remove all in parallel; raise the first error after all were tried."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            futures = [pool.submit(self.ask, doing, partial(remove, each)) for each in sorted(ids)]
        for future in futures:
            future.result()

    # -- memory ---------------------------------------------------------------------------------

    def made(self, what: str, name: str, identity: str, **more: Any) -> None:
        """Journal that something exists now."""
        self.record.journal("made", what=what, name=name, id=identity, **more)

    def lines(self, what: str) -> list[dict[str, Any]]:
        """Return the journal's lines about one kind of thing."""
        return [line for line in self.record.entries() if line.get("what") == what]

    def made_ids(self, what: str) -> set[str]:
        """Return the journalled ids of one kind of thing."""
        return {str(line["id"]) for line in self.lines(what) if line["entry"] == "made"}

    def identity(self) -> TokenIdentity:
        """Return the user and the project of the credentials."""
        return self.ask("asking who we are", self.cloud.identity)

    def remember_owner(self) -> None:
        """Record the owner, unless something was made already (by an earlier version)."""
        if "owner" not in self.record.data and not self.record.entries():
            self.record.data["owner"] = asdict(self.identity())
            self.record.save()

    def require_owner(self) -> None:
        """Check that the credentials are the owner's: others cannot see the testbed's lease.

        Raises:
            UserError: they are of another user or project.
        """
        kept = self.record.data.get("owner")
        if kept is None:
            return
        owner, here = TokenIdentity(**kept), self.identity()
        if (owner.user_id, owner.project_id) != (here.user_id, here.project_id):
            raise UserError(
                f"testbed {self.record.name!r} on {self.options.site} was made by "
                f"{_words(owner)}, and these credentials are of {_words(here)}, who cannot "
                "see its lease: load the openrc file (OS_* variables) that it was made with, "
                "and try again; nothing was changed"
            )


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, CloudError) and error.fault is Fault.PASSING


def fault_under(error: SiteError) -> Fault | None:
    """Return the fault of the failed call under `error`, None if there was no such call."""
    return error.__cause__.fault if isinstance(error.__cause__, CloudError) else None


def _words(who: TokenIdentity) -> str:
    user, project = who.user_name or who.user_id, who.project_name or who.project_id
    return f"user {user} in project {project}"


def base_name(testbed: str, tag: str) -> str:
    """Return ``hotbed-<testbed>-<tag>``."""
    return f"hotbed-{testbed}-{tag}"


def belongs(name: str, base: str) -> bool:
    """Return True if `name` is `base` or begins with it and a hyphen."""
    return name == base or name.startswith(f"{base}-")


def when(seconds_since_epoch: float) -> str:
    """Return a time such as ``2026-12-01 08:00 UTC``."""
    return f"{datetime.fromtimestamp(seconds_since_epoch, UTC):%Y-%m-%d %H:%M} UTC"


def left(seconds: float) -> str:
    """Return a time span such as ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
