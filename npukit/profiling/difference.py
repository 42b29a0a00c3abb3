"""Two profiles beside each other: which layers gained and lost what."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from npukit.profiling.saved import SavedLayer, SavedProfile
from npukit.profiling.text import thousands

__all__ = ["LayerDifference", "ProfileDifference", "change_text", "difference"]


@dataclass(frozen=True)
class LayerDifference:
    """A layer in two profiles; None in the one that does not have it."""

    before: SavedLayer | None
    after: SavedLayer | None

    @property
    def layer(self) -> SavedLayer:
        """Its newer figures, if there are any."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def cycles(self) -> int:
        """That came; negative when the layer became faster."""
        return (self.after.cycles if self.after else 0) - (self.before.cycles if self.before else 0)

    @property
    def moved(self) -> int:
        """Bytes of DRAM traffic that came."""
        return (self.after.moved if self.after else 0) - (self.before.moved if self.before else 0)

    @property
    def bound(self) -> str:
        """What bounds it, before and after."""
        if self.before is None or self.after is None:
            return f"only in {'A' if self.before else 'B'}"
        if self.before.bound == self.after.bound:
            return self.after.bound
        return f"{self.before.bound} -> {self.after.bound}"


@dataclass(frozen=True)
class ProfileDifference:
    """Two profiles.

    Attributes:
        layers: those whose cycles changed most first; equal ones in the order of execution.
    """

    before: SavedProfile
    after: SavedProfile
    layers: Sequence[LayerDifference]

    @property
    def cycles(self) -> int:
        """That came; negative when the model became faster."""
        return self.after.cycles - self.before.cycles

    @property
    def moved(self) -> int:
        """Bytes of DRAM traffic that came."""
        return self.after.moved - self.before.moved

    @property
    def changes(self) -> list[str]:
        """What differs between the machines and the kits, as lines."""
        found = []
        for what, before, after in (
            ("", {"model": self.before.model}, {"model": self.after.model}),
            ("", {"npukit": self.before.version or "unknown"}, {"npukit": self.after.version or "unknown"}),
            ("", _level(self.before), _level(self.after)),
            ("config ", self.before.config, self.after.config),
            ("memory ", self.before.memory, self.after.memory),
            ("clock ", self.before.clock, self.after.clock),
        ):
            for name in dict.fromkeys([*before, *after]):
                if before.get(name) != after.get(name):
                    found.append(f"{what}{name}: {before.get(name)} -> {after.get(name)}")
        return found

    def to_json(self) -> dict[str, Any]:
        """All of it as a JSON object."""
        sides = {
            name: {"source": one.source, "model": one.model, "version": one.version, "cycles": one.cycles,
                   "milliseconds": one.milliseconds, "macs": one.macs, "dram_bytes": one.moved}
            for name, one in (("a", self.before), ("b", self.after))
        }  # fmt: skip
        return {
            "schema": 1,
            **sides,
            "changes": self.changes,
            "cycles": self.cycles,
            "dram_bytes": self.moved,
            "layers": [
                {
                    "node": one.layer.node,
                    "op": one.layer.op,
                    "cycles": one.cycles,
                    "dram_bytes": one.moved,
                    "a": asdict(one.before) if one.before else None,
                    "b": asdict(one.after) if one.after else None,
                }
                for one in self.layers
            ],
        }


def _level(profile: SavedProfile) -> dict[str, Any]:
    return {"--optimize": "unknown" if profile.optimize is None else profile.optimize}


def difference(before: SavedProfile, after: SavedProfile) -> ProfileDifference:
    """Layers are matched by their nodes' names, and several of one node in the order of execution."""
    found: dict[tuple[str, int], list[SavedLayer | None]] = {}
    for side, profile in enumerate((before, after)):
        seen: Counter[str] = Counter()
        for layer in profile.layers:
            key = layer.node, seen[layer.node]
            seen[layer.node] += 1
            found.setdefault(key, [None, None])[side] = layer
    layers = [LayerDifference(one, other) for one, other in found.values()]
    return ProfileDifference(before, after, sorted(layers, key=lambda one: -abs(one.cycles)))


def change_text(before: int, after: int) -> str:
    """The change of a count, with its sign, and in per cent of what it was."""
    if before == after:
        return "0"
    share = f" ({100 * (after - before) / before:+.1f} %)" if before else ""
    return f"{'+' if after > before else ''}{thousands(after - before)}{share}"
