"""`hotbed top`: live view of the testbed, once per second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import typer

from hotbed.options import named
from hotbed.output import JsonFlag
from hotbed.views import TestbedOption


def verb(
    testbed: TestbedOption = None,
    once: bool = named("--once", "Print one sample and end.", False),
    interval: float = typer.Option(1.0, min=0.2, max=60.0, help="Seconds between looks."),
    as_json: JsonFlag = False,
) -> None:
    """Pressure, disk, network, primary affinity of every node, client throughput, live.

    In a terminal: Enter shows a node's processes, disks and network; < and > choose the sort
    column; ? lists all keys; q ends.
    """
    import sys
    from contextlib import closing

    from hotbed.top_view import samples
    from testbed.choose import choose_partly
    from testbed.terminal import console

    found = choose_partly(testbed)
    count = 1 if once else None
    if not (once or as_json) and sys.stdout.isatty() and not console().is_dumb_terminal:
        from hotbed.top_app import watch

        watch(found, interval)
        return
    with closing(samples(found, interval_s=interval, count=count)) as seen:
        (_as_json if as_json else _one_below_another)(seen)


def _as_json(samples: Iterable[Mapping[str, Any]]) -> None:
    import json

    from hotbed.output import plain

    for sample in samples:
        print(json.dumps(plain(sample)), flush=True)


def _one_below_another(samples: Iterable[Mapping[str, Any]]) -> None:
    from hotbed.top_view import top_view
    from testbed.terminal import console

    for sample in samples:
        console().print(top_view(sample, console().width))
