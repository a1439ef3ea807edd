"""Cost of a request in the COSBench driver, compared with swift-bench on a real Swift in one run.

Like `bench_cosbench_driver` with its in-memory store, but on a running testbed with a deployed
Swift. The load tools run on this machine as a tenant, with the shares in force. Without a testbed,
or if its proxies are unreachable from here, the row says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_cosbench_driver import TIMES_FEWER, Login, measured, rows
from frame import SMALL, show, unmeasured, with_store

if TYPE_CHECKING:
    from testbed.sites.contract import Testbed

REQUESTS = 40 if SMALL else 500
ROUNDS = 1 if SMALL else 3
WHAT = "COSBench driver on Swift"


def login_of(testbed: Testbed) -> tuple[str, Login]:
    """Return the testbed's name, and the login of its first tenant."""
    from testbed.deploy.roles import spec_of
    from testbed.reach import shell_to
    from testbed.spec import SwiftSpec
    from workloads.cosbench.driver import tenant

    store = spec_of(testbed).store
    assert isinstance(store, SwiftSpec), "only Swift has proxies"
    client = testbed.with_role("client")[0]
    values = tenant(shell_to(testbed, client), store.tenants[0].name).values
    return testbed.name, Login(values["auth_url"], values["username"], values["password"])


def main() -> None:
    """Print the rows."""
    try:
        name, login = with_store("proxy", login_of, "testbed/specs/mos.yaml")
        note = f"writes, reads and deletes of testbed {name}"
        found = rows(*measured(login, REQUESTS, ROUNDS), what=WHAT, note=note, requests=REQUESTS)
    except (LookupError, RuntimeError) as error:
        name = f"{WHAT}, times less processor time than swift-bench takes"
        found = [unmeasured(name, str(error), "times", TIMES_FEWER)]
    show(found)


if __name__ == "__main__":
    main()
