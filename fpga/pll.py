"""Settings of ECP5's PLL (EHXPLLL): one clock from an oscillator, a shifted copy, and one at twice the rate."""

from dataclasses import dataclass
from typing import Any

__all__ = ["PllSettings"]

_OSCILLATOR = (400.0, 800.0)
"""MHz of the PLL's own oscillator, by Lattice's FPGA-TN-02200."""
_PHASE = (3.125, 400.0)
"""MHz at the phase detector."""
_MOST = 128


@dataclass(frozen=True)
class PllSettings:
    """Dividers of the input, of the feedback from the output, and of the output."""

    input: int
    feedback: int
    output: int
    megahertz: float

    @staticmethod
    def of(source: float, wanted: float) -> "PllSettings":
        """The settings nearest to a clock; among those, the fastest phase detector, and the output divider that can be
        cut in four.

        Raises:
            ValueError: nothing within 0.1 %.
        """
        found = []
        for divider in range(1, _MOST + 1):
            if not _PHASE[0] <= source / divider <= _PHASE[1]:
                continue
            for feedback in range(1, _MOST + 1):
                clock = source / divider * feedback
                error = abs(clock / wanted - 1)
                if error > 1e-3:
                    continue
                for output in range(1, _MOST + 1):
                    if _OSCILLATOR[0] <= clock * output <= _OSCILLATOR[1]:
                        found.append((error, divider, output % 4, output, feedback, clock))
        if not found:
            raise ValueError(f"the PLL cannot make {wanted} MHz of {source} MHz")
        _, divider, _, output, feedback, clock = min(found)
        return PllSettings(divider, feedback, output, clock)

    def parameters(self, shifted_by: int, *, shifted_rate: int = 1, double: bool = False) -> dict[str, Any]:
        """Parameters and attributes of the cell: the clock on CLKOP, fed back; the same, or one at twice the rate, so
        many degrees later on CLKOS; and one at twice the rate on CLKOS2, if it is wanted, whose every second edge is
        one of CLKOP's. Phases count periods of the PLL's own oscillator, and are 0 where they equal the
        divider less one.

        Raises:
            ValueError: the output's divider is odd, so that it cannot be halved.
        """
        phase, half, shifted = self.output - 1, self.output // 2, self.output // shifted_rate
        if (double or shifted_rate > 1) and self.output % 2:
            raise ValueError(
                f"the PLL makes {self.megahertz} MHz with a divider of {self.output}, and not twice as much"
            )
        fast = {
            "p_CLKOS2_ENABLE": "ENABLED",
            "p_CLKOS2_DIV": half,
            "p_CLKOS2_CPHASE": half - 1,
            "p_CLKOS2_FPHASE": 0,
        }
        return (fast if double else {}) | {
            "a_ICP_CURRENT": "12",
            "a_LPF_RESISTOR": "8",
            "a_MFG_ENABLE_FILTEROPAMP": "1",
            "a_MFG_GMCREF_SEL": "2",
            "p_PLLRST_ENA": "DISABLED",
            "p_INTFB_WAKE": "DISABLED",
            "p_STDBY_ENABLE": "DISABLED",
            "p_DPHASE_SOURCE": "DISABLED",
            "p_OUTDIVIDER_MUXA": "DIVA",
            "p_OUTDIVIDER_MUXB": "DIVB",
            "p_FEEDBK_PATH": "CLKOP",
            "p_CLKI_DIV": self.input,
            "p_CLKFB_DIV": self.feedback,
            "p_CLKOP_ENABLE": "ENABLED",
            "p_CLKOP_DIV": self.output,
            "p_CLKOP_CPHASE": phase,
            "p_CLKOP_FPHASE": 0,
            "p_CLKOS_ENABLE": "ENABLED",
            "p_CLKOS_DIV": shifted,
            "p_CLKOS_CPHASE": shifted - 1 + shifted * shifted_by // 360,
            "p_CLKOS_FPHASE": shifted * shifted_by * 8 // 360 % 8,
        }
