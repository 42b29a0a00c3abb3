"""The session in which profile and explain simulate a model's timing."""

import argparse

from npukit.cli.common import (
    add_config,
    add_dram,
    add_limits,
    add_optimize,
    add_output,
    add_partition,
    add_shapes,
    chosen_config,
    dram_of,
    limits_of,
    min_macs_of,
    model_of,
    say_config,
    search_of,
    shapes_of,
)
from npukit.driver.executor import programs_of
from npukit.isa.config import NpuConfig
from npukit.loaded import FALLBACKS
from npukit.npufile import read_model
from npukit.profiling.clock import clock_of
from npukit.session import Session

__all__ = ["add_session_options", "timing_session"]


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """The options that `timing_session` reads, and those of output."""
    add_optimize(parser)
    add_shapes(parser)
    add_partition(parser, FALLBACKS)
    add_dram(parser)
    add_limits(parser)
    add_config(parser)
    add_output(parser)


def timing_session(
    options: argparse.Namespace, config: NpuConfig | None = None, clock: float | None = None
) -> tuple[Session, NpuConfig]:
    """A session over `options.model` that computes no values, and its configuration: the given one, or that of the
    options, which is said on stderr. A clock that does not go with it is refused before any work."""
    model = read_model(model_of(options), shapes_of(options))
    if config is None:
        compiled = programs_of(model)
        config = chosen_config(options, next(iter(compiled.values())).config if compiled else None)
        say_config(options, config)
    dram = dram_of(options, config)
    clock_of(config, clock, dram)
    session = Session(
        model, config, dram=dram, shapes=shapes_of(options), compute=False, fallback=options.fallback,
        min_macs=min_macs_of(options), optimize=options.optimize, search=search_of(options), limits=limits_of(options),
    )  # fmt: skip
    return session, config
