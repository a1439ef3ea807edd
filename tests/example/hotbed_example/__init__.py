"""Extensions of Hotbed in a package of its own."""

import os
from pathlib import Path

# For the test that Hotbed imports nothing before it uses it.
if "HOTBED_EXAMPLE_TRACE" in os.environ:
    Path(os.environ["HOTBED_EXAMPLE_TRACE"]).touch()
