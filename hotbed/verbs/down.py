"""`hotbed down`: remove a testbed and everything made for it."""

from __future__ import annotations

from hotbed import completion
from hotbed.alone import alone_on
from hotbed.options import argument, named
from hotbed.output import JsonFlag, emit
from hotbed.progress import progress
from schemas.errors import HotbedError, UserError


def verb(
    name: str | None = argument(
        "Optional if there is only one.", None, autocompletion=completion.testbeds
    ),
    everything: bool = named(
        "--all", "Remove every testbed, and leftovers of crashed ones.", False
    ),
    force: bool = named(
        "--force", "First end the campaign or command that uses the testbed.", False
    ),
    as_json: JsonFlag = False,
) -> None:
    """Remove a testbed, whatever state it is in; safe to repeat. One that cannot be removed,
    such as one on machines that are away, does not keep --all from the others."""
    from campaigns.engine.lock import InUseError
    from testbed.choose import choose, existing
    from testbed.faults import forget

    if everything and name is not None:
        raise UserError("give a testbed's name or --all, not both")
    doomed = existing() if everything else [choose(name, "hotbed down {}")]
    removed: list[str] = []
    failed: list[HotbedError] = []
    for site, each in doomed:
        try:
            held = alone_on(site.folder(each), each, end_holder=force)
            with held, progress(f"down {each}") as report:
                forget(site, each)
                site.release(each, report)
        except InUseError as error:
            mend = f"{error.do}, or by `hotbed down {each} --force`"
            failed.append(UserError(error.what, do=mend))
        except HotbedError as error:
            failed.append(error)
        else:
            removed.append(each)
    if len(failed) == len(doomed) == 1:
        raise failed[0]
    none = "nothing was removed" if failed else "nothing to remove"
    emit(
        {"removed": removed}, as_json, lambda: f"removed: {', '.join(removed)}" if removed else none
    )
    if failed:
        why = "; ".join(str(error).rstrip(".") for error in failed)
        raise HotbedError(f"{len(failed)} of {len(doomed)} testbeds are still there: {why}.")
