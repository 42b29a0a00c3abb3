# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Why is this layer slow?
#
# MobileNetV2 has 72 % of the array's multiply-accumulates on the default machine. Which layers lose the rest?

# %%
import altair

import npukit
from npukit import zoo

altair.renderers.enable("svg")  # pictures, which need no network; without this line charts have tooltips and zoom

model = zoo.load("mobilenetv2")
timed = npukit.profile(model, "int8-16x16")
layers = timed.to_dataframe()
full = layers["macs"] / timed.config.array_macs  # cycles that a full array would take
layers["lost"] = layers["cycles"] - full
worst = layers.sort_values("lost", ascending=False)
worst[["node", "op", "cycles", "lost", "utilization", "bound", "weight_bytes"]].head(8)

# %% [markdown]
# `explain` says of one layer how it is tiled, what it moves, what bounds it, and what would change that.

# %%
print(timed.explain(worst["node"].iloc[0]))

# %% [markdown]
# When was each engine at work? The last layer waits for its weights, which are used once each.

# %%
timed.plot_timeline()

# %% [markdown]
# What would help, by an estimate, the greatest gain first.

# %%
for one in timed.advice:
    print(f"{100 * one.share:5.1f} %  {one.title}: {one.why}  {one.options}")

# %% [markdown]
# We try the bus, and compare layer by layer.

# %%
from dataclasses import replace

wider = npukit.profile(model, replace(timed.config, bus_bytes=16))
both = layers[["node", "op", "cycles", "bound"]].assign(wider=wider.to_dataframe()["cycles"])
both["gain"] = both["cycles"] - both["wider"]
print(timed.profile.cycles, "->", wider.profile.cycles)
both.sort_values("gain", ascending=False).head(6)
