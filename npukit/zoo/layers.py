"""Single layers that accelerators are measured by."""

__all__ = ["VTA_LAYERS"]

VTA_LAYERS: dict[str, tuple[int, int, int, int, int, int]] = {
    "vta-c2": (56, 64, 64, 3, 1, 1),
    "vta-c3": (56, 64, 128, 3, 1, 2),
    "vta-c4": (56, 64, 128, 1, 0, 2),
    "vta-c5": (28, 128, 128, 3, 1, 1),
    "vta-c6": (28, 128, 256, 3, 1, 2),
    "vta-c7": (28, 128, 256, 1, 0, 2),
    "vta-c8": (14, 256, 256, 3, 1, 1),
    "vta-c9": (14, 256, 512, 3, 1, 2),
    "vta-c10": (14, 256, 512, 1, 0, 2),
    "vta-c11": (7, 512, 512, 3, 1, 1),
}
"""Height and width, channels in, channels out, kernel, padding, stride: ResNet-18's convolutions as VTA's benchmarks
number them (Moreau et al., "A Hardware-Software Blueprint for Flexible Deep Learning Specialization", 2019)."""
