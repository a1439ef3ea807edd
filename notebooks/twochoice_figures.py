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
# # The figures of the two-choice scheduler
#
# Draws figures 3 and 4 of the paper (simulated), 11 to 14 and Table I (real object servers), and
# what lies beyond them, from whatever runs are under `artifacts` (`hotbed run twochoice-quick`
# makes simulated ones in minutes), and judges every claim. The same as `hotbed report twochoice`.

# %% tags=["parameters"]
artifacts = "artifacts"  # type: str
name = "twochoice"  # type: str

# %%
from IPython.display import Image, Markdown, display

from analysis.core.report import build
from campaigns.engine.campaign_file import ROOT

report = build(ROOT / artifacts, name)
report

# %%
for figure in report.figures:
    display(Markdown(f"**Figure {figure.entry.id}. {figure.entry.title}**"))
    if figure.path is None:
        display(Markdown(f"Missing: {figure.missing}"))
    else:
        display(Image(filename=str(figure.path)))

# %% [markdown]
# Each claim with the paper's value, ours with its 95 % interval, and the verdict:

# %%
import pandas as pd

columns = ["id", "figure", "statement", "paper_value", "measured", "ci95", "n", "verdict", "note"]
pd.DataFrame([claim.model_dump() for claim in report.claims])[columns]

# %% [markdown]
# What every scheduler came to, by share of stragglers:

# %%
for table in report.tables:
    display(Markdown(f"**{table.title}**"), pd.DataFrame(table.as_json()))
