"""Random graphs at every level of optimisation on random configurations: always the bits of ONNX Runtime.

`make levels`: minutes to an hour. The validator looks at every program, as in each compilation. Exit code 1 when
anything differs or does not compile.
"""

import argparse
import sys
from random import Random

import random_graphs
from graphs import inputs_of
from npukit.isa.config import NpuConfig

from npukit import Session
from npukit.compare import Oracle, compare

__all__ = ["random_config", "run"]


def random_config(seed: int) -> NpuConfig:
    """An int8 machine of that seed: any size of memories, banks, lanes, taps, bus and queues."""
    random = Random(f"configuration {seed}")
    array = random.choice([4, 4, 8, 8, 16, 32])
    divisors = [size for size in (1, 2, 4, 8, 16, 32) if size <= array]
    return NpuConfig(
        array=array,
        act_depth=random.choice([random.randint(200, 3000), 1024, 2048]),
        act_banks=random.randint(1, 9),
        wgt_depth=random.choice([random.randint(60 * array, 9000), 8192]),
        acc_depth=random.choice([random.randint(16, 600), 256, 512]),
        acc_banks=random.randint(1, 5),
        par_depth=random.choice([random.randint(80, 700), 256]),
        vector_lanes=random.choice(divisors),
        fma_lanes=random.choice(divisors),
        vector_taps=random.randint(1, 5),
        max_window=random.randint(3, 9),
        bus_bytes=random.choice([4, 8, 16, 32]),
        max_burst=random.randint(8, 32),
        queue_depth=random.randint(1, 12),
    )


def run(seed: int, graphs: int, configs: int, levels: tuple[int, ...] = (0, 1, 2)) -> tuple[int, list[str]]:
    """(elements compared, what went wrong) of graphs `seed * 1000003 + 0, 1, ...` on as many configurations."""
    elements, failures = 0, []
    for index in range(graphs):
        number = seed * 1_000_003 + index
        model = random_graphs.build_graph(number)
        inputs, oracle = inputs_of(model, number), Oracle(model)
        for place in range(configs):
            config = random_config(seed * 1_000_003 + place)
            for level in levels:
                where = f"graph {number}, configuration {seed * 1_000_003 + place}, level {level}"
                try:
                    session = Session(model, config, capture=True, optimize=level)
                    found = compare(session, oracle, inputs, session.run(inputs))
                except Exception as error:
                    failures.append(f"{where}: {type(error).__name__}: {error}")
                    continue
                elements += found.elements
                if found.mismatches or found.tensors != found.tensors_total:
                    failures.append(f"{where}: {found.first_mismatch}")
        if sys.stderr.isatty():
            print(f"\r{index + 1} of {graphs} graphs", end="", file=sys.stderr, flush=True)
    return elements, failures


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--configs", type=int, default=20)
    options = parser.parse_args()
    elements, failures = run(options.seed, options.graphs, options.configs)
    print(
        f"seed {options.seed}: {options.graphs} graphs, {options.configs} configurations, 3 levels: {elements} elements"
    )
    for failure in failures[:20]:
        print(failure)
    print(f"{len(failures)} failures" if failures else "0 mismatches")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
