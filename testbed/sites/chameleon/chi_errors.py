"""What OpenStack's libraries raise, as `CloudError`: told apart by the service's words first, for
Blazar answers 500 also to what is no fault of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.sites.chameleon.cloud import CloudError, Fault

_WORDS = (
    # Blazar: "Not enough hosts available", "not enough resources available with query ..." (500).
    (re.compile(r"not enough .*available", re.IGNORECASE), Fault.FULL),
    # Nova and Neutron: "Quota exceeded for ...", "Quota exceeded for resources: ['floatingip']".
    (re.compile(r"quota.{0,40}exceed|exceed.{0,40}quota", re.IGNORECASE), Fault.QUOTA),
)
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise CloudError for whatever OpenStack's libraries raise while `doing` something."""
    from blazarclient.exception import BlazarClientException
    from keystoneauth1.exceptions import ClientException, ConnectFailure, HttpError
    from openstack.exceptions import HttpException, SDKException
    from requests.exceptions import RequestException

    try:
        yield
    except BlazarClientException as error:
        raise _of(str(error), error.kwargs.get("code")) from error
    except HttpException as error:
        raise _of(_details(error), error.status_code) from error
    except HttpError as error:
        raise _of(str(error.details or error), error.http_status) from error
    except (ConnectFailure, RequestException) as error:
        raise CloudError(f"{doing}: {_first_line(error)}", Fault.PASSING) from error
    except (ClientException, SDKException) as error:
        cause = error.__cause__ or error.__context__
        passing = isinstance(cause, (ConnectFailure, RequestException))
        fault = Fault.PASSING if passing else Fault.REFUSED
        raise CloudError(f"{doing}: {_first_line(error)}", fault) from error


def _of(said: str, status: int | None) -> CloudError:
    said = re.sub(r"^ERROR:\s*", "", " ".join(said.split()))
    fault = fault_of(said) or _by_status(status)
    return CloudError(said or f"status {status}", fault, status=status)


def fault_of(said: str) -> Fault | None:
    """What a service's own words say that is wrong; None when they do not."""
    return next((fault for words, fault in _WORDS if words.search(said)), None)


def _by_status(status: int | None) -> Fault:
    if status == 401:
        return Fault.CREDENTIALS
    if status == 404:
        return Fault.MISSING
    return Fault.PASSING if status is None or status in _PASSING else Fault.REFUSED


def _details(error: object) -> str:
    """The service's own words, not the SDK's frame around them."""
    details = getattr(error, "details", None)
    return str(details or error)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
