"""Cost of a request in the COSBench driver, compared with swift-bench on a real Swift in one run.

Like `bench_cosbench_driver` with its in-memory store, but on a running testbed with a deployed
Swift. The load tools run on this machine as a tenant, with the shares in force. Without a testbed,
or if its proxies are unreachable from here, the rows say so. HOTBED_BENCH_SMALL=1 takes fewer
requests.
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
    """Return a running testbed with Swift, and the login of its first tenant.

    Raises:
        LookupError: no such testbed exists.
    """
    from schemas.errors import HotbedError
    from testbed.choose import existing
    from testbed.deploy.roles import spec_of
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
    """Return the row with a limit if nothing can be measured."""
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
