# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Looking into a testbed
#
# Commands on nodes, their logs, and the testbed live. In a terminal: `hotbed ssh`, `hotbed exec`
# and `hotbed top` (docs/debugging.md).

# %% tags=["parameters"]
testbed = ""  # type: str
node = "admin"  # type: str
unit = "hotbed-*"  # type: str
follow_s = 600.0  # type: float

# %%
from testbed.choose import choose_partly
from testbed.sites import open_site

found = choose_partly(testbed or None)
open_site(found.site).status(found.name)

# %% [markdown]
# ## A command on a node
# `hotbed ssh NODE COMMAND`. Host keys are checked; nodes without an address of their own are
# reached through the admin node.

# %%
from testbed.reach import shell_to

shell = shell_to(found, found.node(node))
print(shell.run(["uptime"]).text)

# %% [markdown]
# ## A command on all of them
# `hotbed exec all -- COMMAND`; the exit codes by node.

# %%
from testbed.reach import run_on

run_on(found, found.nodes, ["df -h /"], lambda name, line, error: print(f"{name} | {line}"))

# %% [markdown]
# ## What a node's services logged

# %%
logged = shell.run(["journalctl", "-u", unit, "-n", "20", "--no-pager", "-o", "short-iso"])
print(logged.text)

# %% [markdown]
# ## What Hotbed runs there now
# Load and controllers that it started, and load that somebody else did.

# %%
from testbed.client import agent_client

agent = agent_client(found)
{"units": agent.units(), "not ours": agent.strays()}

# %% [markdown]
# ## Live
# `hotbed top`: pressure, disks, links and affinities of every node, a look a second. The button
# ends it; it ends by itself after `follow_s` seconds. Without widgets it is the first look.

# %%
from hotbed.live_view import live_view

view = live_view(found, seconds=follow_s)
view
