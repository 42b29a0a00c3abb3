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
# # A first model
#
# A trained network for handwritten digits comes with the kit. We run it on the simulated accelerator, look at what it
# answers, and then at where its cycles go.

# %%
import altair

import npukit
from npukit import zoo

altair.renderers.enable("svg")  # pictures, which need no network; without this line charts have tooltips and zoom

model = zoo.load("digits")  # bytes of an ONNX file; a path to your own works as well
images, labels, _ = zoo.digits_heldout()
session = npukit.Session(model, config="int8-8x8")
answers = [int(session.run({"image": image})["logits"].argmax()) for image in images[:20]]
print("answers", answers)
print("labels ", labels[:20].tolist())

# %% [markdown]
# All of it runs on the accelerator but the quantiser at its edge; a session shows what runs where, and the layers of
# its last run.

# %%
session

# %% [markdown]
# `npukit.profile` simulates the timing alone, which needs no values, and takes a second for a network of this size. Its
# layers are a pandas DataFrame.

# %%
timed = npukit.profile(model, "int8-8x8")
print(timed.clock.text(timed.profile.cycles))
timed.to_dataframe()[["node", "op", "macs", "cycles", "utilization", "bound"]]

# %% [markdown]
# The roofline: layers on the slope are limited by DRAM, layers below the flat part by the array. A network as small as
# this one reaches neither: its images are 8 by 8.

# %%
timed.plot_roofline()

# %% [markdown]
# The same with MobileNetV2 for images of 224 by 224, on the default machine.

# %%
larger = npukit.profile(zoo.load("mobilenetv2"), "int8-16x16")
larger.plot_roofline()
