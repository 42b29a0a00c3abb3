"""Layers against what array and bus allow: a plot as SVG, without a plotting library."""

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

from npukit.isa.config import NpuConfig
from npukit.profiling.layers import LayerProfile
from npukit.sim.dram import AnyDram, DramModel

__all__ = ["ceiling", "roofline_svg"]

_WIDTH, _HEIGHT, _MARGIN = 860, 560, 64


def ceiling(config: NpuConfig, macs: int, read_bytes: int, write_bytes: int, dram: AnyDram | None = None) -> float:
    """The most MACs a cycle for that traffic: the array's, or what the DRAM, by default the reference one, lets
    through."""
    dram = dram or DramModel()
    traffic, peak = dram.traffic(read_bytes, write_bytes), float(config.array**2)
    return min(peak, macs * dram.bytes_per_cycle(config) / traffic) if traffic else peak


def roofline_svg(config: NpuConfig, layers: Sequence[LayerProfile], dram: AnyDram | None = None) -> str:
    """MACs a cycle over MACs a byte of the busier DRAM channel, both logarithmic; layers without MACs are left out.

    The cycles are those in which the layer was at work, beside others or not, so that no point lies above the roof.
    """
    dram = dram or DramModel()
    rate = dram.bytes_per_cycle(config)
    shown = [layer for layer in layers if layer.macs and layer.elapsed]
    points = [
        (layer.macs / max(1, dram.traffic(layer.read_bytes, layer.write_bytes)), layer.macs / layer.elapsed, layer.node)
        for layer in shown
    ]
    peak = config.array**2
    xs = [x for x, _, _ in points] + [peak / rate]
    ys = [y for _, y, _ in points] + [peak]
    left, right = floor(log10(min(xs))), ceil(log10(max(xs) * 1.1))
    low, high = floor(log10(min(ys))), ceil(log10(max(ys) * 1.1))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - left) / max(1, right - left)
        up = (log10(y) - low) / max(1, high - low)
        return _MARGIN + across * (_WIDTH - 2 * _MARGIN), _HEIGHT - _MARGIN - up * (_HEIGHT - 2 * _MARGIN)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for exponent in range(left, right + 1):
        x, bottom = place(10.0**exponent, 10.0**low)
        parts.append(f'<line x1="{x:.1f}" y1="{_MARGIN}" x2="{x:.1f}" y2="{bottom:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{10.0**exponent:g}</text>')
    for exponent in range(low, high + 1):
        start, y = place(10.0**left, 10.0**exponent)
        parts.append(f'<line x1="{start:.1f}" y1="{y:.1f}" x2="{_WIDTH - _MARGIN}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{start - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{10.0**exponent:g}</text>')
    ridge = peak / rate
    corner, first = place(max(ridge, 10.0**left), peak), 10.0**left
    slope = place(first, max(first * rate, 10.0**low))
    if first * rate < 10.0**low:
        slope = place(10.0**low / rate, 10.0**low)
    end = place(10.0**right, peak)
    roof = " ".join(f"{x:.1f},{y:.1f}" for x, y in (slope, corner, end))
    parts.append(f'<polyline points="{roof}" fill="none" stroke="#a00" stroke-width="2"/>')
    parts.append(
        f'<text x="{end[0]:.1f}" y="{end[1] - 6:.1f}" text-anchor="end" fill="#a00">{peak} MACs/cycle, '
        f"{rate:g} B/cycle</text>"
    )
    for x, y, name in points:
        across, down = place(x, y)
        parts.append(
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" fill="#06c" fill-opacity="0.6">'
            f"<title>{escape(name)}: {y:.1f} MACs/cycle, {x:.1f} MACs/B</title></circle>"
        )
    parts.append(
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 16}" text-anchor="middle">MACs a byte of the busier DRAM channel</text>'
    )
    parts.append(
        f'<text transform="translate(18 {_HEIGHT / 2}) rotate(-90)" text-anchor="middle">MACs a cycle</text></svg>\n'
    )
    return "\n".join(parts)
