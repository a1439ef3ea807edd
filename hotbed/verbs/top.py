"""`hotbed top`: live view of the testbed, once per second."""

from __future__ import annotations

import json
import sys
from contextlib import closing

import typer

from hotbed.options import named
from hotbed.output import JsonFlag, plain
from hotbed.views import TestbedOption
from testbed.terminal import console


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
    from hotbed.top_view import samples, top_view
    from testbed.choose import choose_partly

    found = choose_partly(testbed)
    count = 1 if once else None
    if not (once or as_json) and sys.stdout.isatty() and not console().is_dumb_terminal:
        from hotbed.top_app import watch

        watch(found, interval)
        return
    with closing(samples(found, interval_s=interval, count=count)) as seen:
        for sample in seen:
            if as_json:
                print(json.dumps(plain(sample)), flush=True)
            else:
                console().print(top_view(sample, console().width))
