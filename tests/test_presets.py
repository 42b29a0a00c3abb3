"""The digits network on machines of many shapes: the same bits, and different cycles."""

from pathlib import Path

import numpy as np
import pytest
from npukit.isa.config import PRESETS, load_config
from onnx import load_from_string

from npukit import zoo
from npukit.compare import Oracle, compare
from npukit.session import Session

ODD = """
base = "int8-16x16"
act_depth = 1021
act_banks = 3
wgt_depth = 2047
acc_depth = 131
acc_banks = 2
par_depth = 97
bus_bytes = 16
"""
CONFIGS = ("int8-8x8", "int8-16x16", "int8-32x32", "odd.toml")


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Three digits; random images where scikit-learn, which brings the digits, is missing."""
    try:
        return zoo.digits_heldout()[0][:3]
    except ImportError:
        return np.random.default_rng(1).random((3, 1, 1, 8, 8), np.float32)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Session]:
    """The network, compiled for three presets and a file with unequal, odd depths."""
    path: Path = tmp_path_factory.mktemp("config") / "odd.toml"
    path.write_text(ODD)
    paths = {"odd.toml": str(path)}
    return {name: Session(zoo.load("digits"), paths.get(name, name), capture=True) for name in CONFIGS}


def test_the_file_is_as_odd_as_it_says(tmp_path) -> None:
    (tmp_path / "odd.toml").write_text(ODD)
    config = load_config(str(tmp_path / "odd.toml"))
    depths = (config.act_depth, config.wgt_depth, config.acc_depth, config.par_depth)
    assert all(depth % 2 for depth in depths) and len(set(depths)) == 4
    assert config not in PRESETS.values()


def test_every_tensor_equals_onnx_runtimes(sessions, images) -> None:
    oracle = Oracle(load_from_string(zoo.load("digits")))
    for name, session in sessions.items():
        total = None
        for image in images:
            total = compare(session, oracle, {"image": image}, session.run({"image": image}), total)
        assert total is not None
        assert total.mismatches == 0, (name, total.first_mismatch)
        assert total.tensors == total.tensors_total == 13 and total.elements == len(images) * 9252


def test_same_bits_and_other_cycles(sessions, images) -> None:
    outputs, tensors, cycles = [], [], {}
    for name, session in sessions.items():
        outputs.append(session.run({"image": images[0]})["logits"])
        tensors.append(session.tensors)
        cycles[name] = session.profile.cycles
    for other, more in zip(outputs[1:], tensors[1:], strict=True):
        assert other.tobytes() == outputs[0].tobytes()
        assert {name: value.tobytes() for name, value in more.items()} == {
            name: value.tobytes() for name, value in tensors[0].items()
        }
    print(cycles)
    assert len(set(cycles.values())) == len(CONFIGS)
    assert cycles["int8-8x8"] > cycles["int8-16x16"] > cycles["int8-32x32"]


def test_cycles_do_not_depend_on_data(sessions, images) -> None:
    for session in sessions.values():
        counters = []
        for image in (*images, np.zeros_like(images[0]), np.full_like(images[0], 1e9)):
            session.run({"image": image})
            counters.append(session.profile.counters)
        assert all(one == counters[0] for one in counters)
