"""Result of a call of the engine."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.html import table


@dataclass(frozen=True)
class CampaignResult:
    """Result of a call of the engine."""

    campaign: str
    planned: int
    already_done: int
    ran: int
    missing: tuple[tuple[str, str], ...] = ()  # (cell as text, reason why it has no run)
    forgone: tuple[tuple[str, str], ...] = ()  # the same for skipped cells, see `ok`
    spoiled: int = 0
    failed_attempts: int = 0
    interrupted: bool = False
    gave_up: str | None = None
    lease: str | None = None  # why the lease ended the call before its last cell
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if every planned cell has a finished run, and at least one cell was planned.

        A forgone cell does not count as missing. It was spoiled in every attempt, or spoiled
        attempts left no time for it, but another block measured the same. The figures use one run
        less there and report it.
        """
        return self.planned > 0 and not self.missing and not self.interrupted

    @property
    def sentence(self) -> str:
        """The result as a sentence."""
        if self.planned == 0:
            return f"{self.campaign}: no cell was planned, so nothing ran."
        finished = self.planned - len(self.missing) - len(self.forgone)
        text = f"{self.campaign}: {finished} of {self.planned} runs done"
        if self.already_done:
            text += f" ({self.already_done} of them before)"
        if self.spoiled:
            text += f", {self.spoiled} spoiled and redone or given up"
        if self.interrupted:
            return f"{text}; interrupted: give the same command again to resume."
        if self.lease:
            return (
                f"{text}; {self.lease}: bring the testbed up again and deploy it (hotbed up, "
                "hotbed deploy), on a new lease if the old one is over, and give the same "
                "command again to resume."
            )
        if self.gave_up:
            return f"{text}; gave up: {self.gave_up}"
        if self.missing:
            cell, why = self.missing[0]
            more = f" ({len(self.missing) - 1} more)" if len(self.missing) > 1 else ""
            return f"{text}; missing: {cell}: {why}{more}"
        if self.forgone:
            cell, why = self.forgone[0]
            more = f" ({len(self.forgone) - 1} more)" if len(self.forgone) > 1 else ""
            return (
                f"{text}; without {cell}: {why}{more}: fewer repetitions there, which the same "
                "command on a quiet machine adds."
            )
        return f"{text}."

    def _repr_html_(self) -> str:
        status = "done" if self.ok else "failed"
        without = [*self.missing, *self.forgone]
        columns = ("missing", "why") if without else ()
        return table(columns, without, title=self.sentence, status=status)
