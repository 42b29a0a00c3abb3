"""`make board`: networks on a board's design in Verilator, over its serial line: at its true rate, and with damage.

Exit code 1 when an output is wrong, cycles are more than 1 % from the simulator's, or a board is not usable afterwards.
"""

import argparse
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import onnx
from npukit.driver.device import DeviceError
from npukit.driver.serial_device import SerialDevice
from npukit.sim.dram import SdramDram

from npukit import Session, zoo
from tests.board_sim.served import FAST, FaultyLine, Made, make, served

__all__ = ["main"]

_SHARE = 0.01


class Digits:
    """Digits on a board and on the simulator."""

    def __init__(self, made: Made) -> None:
        self.model = onnx.load_from_string(zoo.load("digits", "fp32" if made.config.activation.floating else "int8"))
        self.dram = SdramDram(megahertz=made.board.megahertz, rate=made.board.memory_rate)
        self.simulated = Session(self.model, made.config, dram=self.dram)
        self.images, _, _ = zoo.digits_heldout()

    def run(self, device: SerialDevice, number: int) -> tuple[bool, float]:
        """Whether the outputs of an image are the simulator's, and by how much its cycles are others."""
        session = Session(self.model, device.config, device, dram=self.dram)
        given = {"image": self.images[number % len(self.images)]}
        expected, found = self.simulated.run(given), session.run(given)
        same = all(np.array_equal(found[name], value) for name, value in expected.items())
        return same, session.profile.cycles / self.simulated.profile.cycles - 1


def true_rate(preset: str, images: int) -> bool:
    """As many cycles for a bit as on the board itself."""
    made = make(preset, None)
    digits, good = Digits(made), True
    with served(made) as server:
        device = SerialDevice(made.config, server.path)
        print(f"{preset}: {made.board.rate} baud, {device.identity.divisor} cycles for a bit", flush=True)
        for number in range(images):
            begin, cycles = time.perf_counter(), server.board.cycles
            same, apart = digits.run(device, number)
            good &= same and abs(apart) <= 0.01
            milliseconds = (server.board.cycles - cycles) / made.board.megahertz / 1e3
            print(
                f"  image {number}: outputs {'equal' if same else 'DIFFERENT'}, cycles {100 * apart:+.2f} %; "
                f"{device.sent} bytes sent so far, {milliseconds:.1f} ms "
                f"on the board, simulated in {time.perf_counter() - begin:.0f} s",
                flush=True,
            )
        device.close()
    return good


def damaged(preset: str, runs: int, seed: int) -> bool:
    """Runs of which bytes are lost, changed and doubled on the line, both ways."""
    made = make(preset, FAST)
    digits, right, refused, wrong = Digits(made), 0, 0, 0
    lines = [FaultyLine(Random(seed + one), _SHARE) for one in range(2)]
    repeated = 0
    with served(made) as server:
        server.to_board, server.to_host = lines
        for number in range(runs):
            try:
                device = SerialDevice(made.config, server.path)
                with closing(device):
                    same, _ = digits.run(device, number)
                right, wrong = right + same, wrong + (not same)
                repeated += device._link.repeated
            except DeviceError as error:
                refused += 1
                print(f"  run {number}: {error}", flush=True)
        server.to_board = server.to_host = bytes
        device = SerialDevice(made.config, server.path)
        same, _ = digits.run(device, 0)
        device.close()
    print(
        f"{preset}: {runs} runs with {sum(line.faults for line in lines)} bytes damaged, {repeated} requests repeated: "
        f"{right} right, {refused} with an error, {wrong} wrong; afterwards {'right' if same else 'WRONG'}",
        flush=True,
    )
    return not wrong and same


def main() -> int:
    """All of it; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="with damage (default: 50)")
    parser.add_argument("--images", type=int, default=3, help="at the true rate (default: 3)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--config", default="ulx3s-int8-8x8", help="at the true rate (default: %(default)s)")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    good = damaged("ulx3s-int8-4x4", options.runs, options.seed)
    return 0 if true_rate(options.config, options.images) and good else 1


if __name__ == "__main__":
    sys.exit(main())
