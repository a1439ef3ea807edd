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
# Runs commands on nodes, reads their logs, and watches the testbed live. In a terminal: `hotbed
# ssh`, `hotbed exec` and `hotbed top` (docs/debugging.md).

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
# `hotbed ssh NODE COMMAND`. Host keys are verified. Nodes without a public address are reached
# through the admin node.

# %%
from testbed.reach import shell_to

shell = shell_to(found, found.node(node))
print(shell.run(["uptime"]).text)

# %% [markdown]
# ## A command on all nodes
# `hotbed exec all -- COMMAND`: exit codes by node.

# %%
from testbed.reach import run_on

run_on(found, found.nodes, ["df -h /"], lambda name, line, error: print(f"{name} | {line}"))

# %% [markdown]
# ## Logs of a node's services

# %%
logged = shell.run(["journalctl", "-u", unit, "-n", "20", "--no-pager", "-o", "short-iso"])
print(logged.text)

# %% [markdown]
# ## Running load and controllers
# Load and controllers that Hotbed started, and foreign load.

# %%
from testbed.client import agent_client

agent = agent_client(found)
{"units": agent.units(), "not ours": agent.strays()}

# %% [markdown]
# ## Live
# `hotbed top`: pressure, disks, links and affinities of every node, once a second. The button stops
# it; it stops by itself after `follow_s` seconds. Without widgets it shows one sample.

# %%
from hotbed.live_view import live_view

view = live_view(found, seconds=follow_s)
view
