"""What a request costs the COSBench driver, beside swift-bench, on a real Swift in one run.

As `bench_cosbench_driver`, whose store is in memory, on a testbed that is up and deployed with
Swift: the load tools run on this machine, as a tenant of it, on the shares that are in force.
Without a testbed, or where its proxies cannot be reached from here, the rows say so.
HOTBED_BENCH_SMALL=1 takes fewer requests.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.bench_cosbench_driver import (  # noqa: E402
    TIMES_FEWER,
    Login,
    measured,
    rows,
)

SMALL = bool(os.environ.get("HOTBED_BENCH_SMALL"))
REQUESTS = 40 if SMALL else 500
ROUNDS = 1 if SMALL else 3
WHAT = "COSBench driver on Swift"
HINT = "hotbed up testbed/specs/mos.yaml && hotbed deploy"


def logins() -> tuple[str, Login]:
    """A testbed with Swift that is up, and how its first tenant logs in.

    Raises:
        LookupError: there is none.
    """
    from schemas.errors import HotbedError
    from testbed.choose import existing
    from testbed.deploy import spec_of
    from testbed.reach import shell_to
    from testbed.spec import SwiftSpec
    from workloads.cosbench.driver import tenant

    for site, name in existing():
        testbed = site.find(name)
        if testbed is None or not testbed.with_role("proxy"):
            continue
        try:
            store = spec_of(testbed).store
            if not isinstance(store, SwiftSpec):
                continue
            client = testbed.with_role("client")[0]
            values = tenant(shell_to(testbed, client), store.tenants[0].name).values
        except HotbedError as error:
            raise LookupError(f"testbed {name}: {error}") from error
        return name, Login(values["auth_url"], values["username"], values["password"])
    raise LookupError(f"no testbed with Swift is up: {HINT}")


def unmeasured(why: str) -> list[dict[str, Any]]:
    """The row with a limit, when nothing can be measured."""
    return [
        {
            "name": f"{WHAT}, times less processor time than swift-bench takes",
            "value": None,
            "unit": "times",
            "limit": TIMES_FEWER,
            "at_least": True,
            "n": 0,
            "note": why,
        }
    ]


def main() -> None:
    """Print the rows."""
    try:
        name, login = logins()
        note = f"writes, reads and deletes of testbed {name}"
        found = rows(*measured(login, REQUESTS, ROUNDS), what=WHAT, note=note, requests=REQUESTS)
    except (LookupError, RuntimeError) as error:
        found = unmeasured(str(error))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
