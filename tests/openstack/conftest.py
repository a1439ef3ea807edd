"""Control plane for a session of tests, and a clean project for each test."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator

import pytest

from tests.openstack.belongings import belongings, wipe
from tests.openstack.plane import ControlPlane
from tests.openstack.rest import Rest

_PROGRAMS = ("apt-get", "dpkg-deb", "setpriv")
_LIBRARIES = ("chi", "blazarclient", "openstack")


def _lacking() -> str:
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    missing += [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    return ", ".join(missing)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Provide the control plane; the environment is from now on that of its user `student`."""
    if lacking := _lacking():
        sentence = f"the control plane needs {lacking}: run `make test-openstack` on Debian 12"
        if os.environ.get("CI") == "true":
            pytest.fail(sentence, pytrace=False)
        pytest.skip(sentence)
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("OS_"):
                patch.delenv(name)
        control = ControlPlane()
        try:
            control.start()
            for name, value in control.credentials().items():
                patch.setenv(name, value)
            # Loopback is not behind this machine's proxy.
            patch.setenv("NO_PROXY", "*")
            patch.setenv("HOTBED_STATE", str(tmp_path_factory.mktemp("state")))
            yield control
        finally:
            control.stop()


@pytest.fixture
def student(plane: ControlPlane) -> Iterator[Rest]:
    """Provide the user's own view, past the proxy; the project is empty before and after."""
    user = plane.user()
    plane.proxy.clear()
    yield user
    plane.proxy.clear()
    if belongings(user):
        wipe(user)
