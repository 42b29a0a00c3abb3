"""A program of `torch.export` whose parts run on the machine, and everything else in PyTorch."""

import math
import operator
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import fx
from torch.export import ExportedProgram
from torch.fx.passes.tools_common import stable_topological_sort
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.onnx.offload import Offload, Reason
from npukit.compiler.frontends.pytorch.decompositions import RECURRENT
from npukit.compiler.frontends.pytorch.emitter import to_numpy
from npukit.compiler.frontends.pytorch.masks import HiddenRowError
from npukit.compiler.frontends.pytorch.operators import operator_name
from npukit.compiler.frontends.pytorch.simplify import FOLDED, simplified
from npukit.devices import DeviceOptions, make_device
from npukit.driver.apart import in_this_process
from npukit.errors import UsageError
from npukit.isa.config import NpuConfig
from npukit.profiling.layers import Profile, timing_profile
from npukit.pytorch.parts import Part, find_parts, tensors_in
from npukit.pytorch.target import Target
from npukit.session import Session

__all__ = ["AcceleratedGraph", "profile_of"]


class AcceleratedPart(torch.nn.Module):
    """A part on a device: tensors of any device in, tensors of the same device out.

    Attributes:
        session: which runs it.
    """

    def __init__(self, part: Part, session: Session) -> None:
        super().__init__()
        self.session = session
        self._inputs, self._outputs = part.translation.inputs, part.translation.outputs
        self._made = [one.meta["val"] for one in part.outputs]

    def forward(self, *tensors: torch.Tensor) -> Any:
        """What the part makes of its inputs."""
        arrays = {name: to_numpy(tensor) for name, tensor in zip(self._inputs, tensors, strict=True)}
        results = self.session.run(arrays)
        made = tuple(_like(results[name], value) for name, value in zip(self._outputs, self._made, strict=True))
        return made if len(made) != 1 else made[0]


def _like(array: NDArray, value: torch.Tensor) -> torch.Tensor:
    """An array as a tensor with the dtype, the device and the strides that the graph was captured with: what follows in
    PyTorch relies on them."""
    found = torch.from_numpy(array).to(device=value.device, dtype=value.dtype)
    if value.is_contiguous():
        return found
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(found)


class AcceleratedGraph:
    """A program, compiled.

    Args:
        program: of `torch.export`, with static shapes. Its parameters and buffers are taken as they are now.
        target: what it is compiled for and runs on.

    Attributes:
        config: of the machine.
        changed: names of buffers and arguments that it changes when it runs.
        offload: which of its ATen operators run on the machine, and why the others do not.
        profile: of this thread's last run, its parts added up.

    Raises:
        CompileError, DeviceError, UsageError: what compiling its parts or making the device meets.
    """

    def __init__(self, program: ExportedProgram, target: Target) -> None:
        try:
            simple = simplified(program)
        except Exception as error:  # many classes, of what PyTorch does not take apart
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise ModelError(f"PyTorch does not take the program apart: {reason}") from error
        module = simple.module
        nodes = [node for node in module.graph.nodes if node.op == "call_function"]
        quantised = any("quantized_decomposed" in str(node.target) for node in nodes)
        self.config: NpuConfig = target.config_for(quantised)
        self.changed = simple.changed
        with in_this_process():
            found = find_parts(module, simple.constants, self.config, target.min_macs)
        self._device = None
        if found.parts and isinstance(target.device, str):
            self._device = make_device(target.device, self.config, DeviceOptions(target.dram))
        device = self._device if self._device is not None else target.device
        try:
            with in_this_process():
                sessions = [
                    Session(
                        part.translation.model, self.config, device, dram=target.dram, optimize=target.optimize,
                        capture=target.capture,
                    )
                    for part in found.parts
                ]  # fmt: skip
        except BaseException:
            close = getattr(self._device, "close", None)  # the simulator holds nothing but memory
            if close is not None:
                close()
            raise
        self.offload = _offload(nodes, found.reasons, sessions, self.config, quantised)
        self.sessions: tuple[Session, ...] = tuple(sessions)
        _fuse(module, found.parts, sessions)
        self._module = module
        buffers = dict(module.named_buffers())
        self._constants = {_memory(one) for name, one in buffers.items() if name.startswith(FOLDED)}
        self._whole = program.module(check_guards=False)
        self._noticed = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Run it; arguments and results are those of the module that was exported."""
        if self.changed:
            _check_apart([*pytree.tree_leaves((arguments, options))])
        with torch.no_grad():
            try:
                return pytree.tree_map_only(torch.Tensor, self._own, self._module(*arguments, **options))
            except HiddenRowError:  # before anything that was given is changed
                self._notice()
                return self._whole(*arguments, **options)

    def _own(self, result: torch.Tensor) -> torch.Tensor:
        """A result that is not a constant's memory, whoever writes to it."""
        return result.clone() if _memory(result) in self._constants else result

    def _notice(self) -> None:
        if not self._noticed:
            self._noticed = True
            warnings.warn(
                "npukit leaves this call to PyTorch, because a row of an attention sees nothing at all: PyTorch's "
                "result is 0 then, and the machine has no such softmax; further calls pass without a notice",
                stacklevel=4,
            )

    @property
    def profile(self) -> Profile:
        """Where the cycles of this thread's last run went; of a thread without one, of the last of any; before all
        runs, what the programs take."""
        return profile_of(self.config, self.sessions)

    def close(self) -> None:
        """Free the device, unless it was given as an object."""
        for session in self.sessions:
            session.close()
        close = getattr(self._device, "close", None)
        if close is not None:
            close()


def _memory(tensor: torch.Tensor) -> int | None:
    """Where a tensor's numbers lie."""
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else None


def _check_apart(arguments: Sequence[Any]) -> None:
    """Raises UsageError where tensors share memory, of which one is changed: the program was captured with others."""
    found = [_memory(one) for one in arguments if isinstance(one, torch.Tensor) and one.numel()]
    if len({*found}) < len(found):
        raise UsageError("the module changes an argument, and two arguments share memory: give it copies")


def profile_of(config: NpuConfig, sessions: Iterable[Session]) -> Profile:
    """The profiles of some parts, added up."""
    sessions = list(sessions)
    profile = Profile(config, sessions[0].dram) if sessions else Profile(config)
    for session in sessions:
        one = session.profile
        if not one.cycles:
            programs, schedules = session.programs, session.schedules()
            one = timing_profile(config, [(programs[name], schedules[name]) for name in programs], session.dram)
        profile.cycles += one.cycles
        profile.macs += one.macs
        profile.layers.extend(one.layers)
        profile.boundary.moved += one.boundary.moved
        profile.boundary.seconds += one.boundary.seconds
        for name, count in one.counters.items():
            profile.counters[name] = profile.counters.get(name, 0) + count
        for name, seconds in one.seconds.items():
            profile.seconds[name] = profile.seconds.get(name, 0.0) + seconds
    return profile


def _fuse(module: fx.GraphModule, parts: Sequence[Part], sessions: Sequence[Session]) -> None:
    """Put a call of an `AcceleratedPart` in place of each part's nodes."""
    graph, calls = module.graph, []
    for number, (part, session) in enumerate(zip(parts, sessions, strict=True)):
        name = f"npukit_part_{number}"
        module.add_submodule(name, AcceleratedPart(part, session))
        with graph.inserting_before(part.nodes[-1]):
            calls.append(graph.call_module(name, part.inputs))
    for part, call in zip(parts, calls, strict=True):
        made: dict[fx.Node, fx.Node] = {}
        for place, output in enumerate(part.outputs):
            made[output] = call
            if len(part.outputs) > 1:
                with graph.inserting_after(call):
                    made[output] = graph.call_function(operator.getitem, (call, place))
        for view in part.views:
            with graph.inserting_before(view):
                made[view] = graph.node_copy(view, lambda one, made=made: made.get(one, one))
        for node, result in made.items():
            node.replace_all_uses_with(result, lambda user, made=made: user not in made.values())
        for node in reversed(part.nodes):
            graph.erase_node(node)
    stable_topological_sort(module)  # into a new graph
    module.graph.eliminate_dead_code()
    module.recompile()


def _offload(
    nodes: Sequence[fx.Node], reasons: Mapping[fx.Node, tuple[str, bool]], sessions: Sequence[Session],
    config: NpuConfig, quantised: bool,
) -> Offload:  # fmt: skip
    stay = []
    unknown = macs = 0
    for node, (text, edge) in reasons.items():
        count = _macs(node)
        unknown += count is None
        macs += count or 0
        stay.append(Reason(node.name, operator_name(node.target), text, count, edge))
    within = [session.offload for session in sessions]
    accelerated, total = sum(one.macs for one in within), macs + sum(one.macs_total for one in within)
    order = {node.name: place for place, node in enumerate(nodes)}
    return Offload(
        reasons=tuple(sorted(stay, key=lambda reason: order.get(reason.node, 0))),
        nodes_total=len(nodes),
        macs=accelerated,
        macs_total=total,
        macs_unknown=unknown,
        suggestion=_suggestion(config, quantised) if total and not accelerated else "",
    )


def _suggestion(config: NpuConfig, quantised: bool) -> str:
    """What to do about a module of which no product runs on a machine; nothing where its numbers are the machine's."""
    if quantised and config.activation.floating:
        return "the module is quantised, and the configuration computes bf16: take one of int8"
    if not quantised and not config.activation.floating:
        return (
            "the module is float, and the configuration computes int8: quantise it with npukit.quantize, or take a "
            "configuration of bf16"
        )
    return ""


def _macs(node: fx.Node) -> int | None:
    """Multiply-accumulates of a node, by PyTorch's own count; None where they are not known."""
    arguments: Any = node.args
    if str(node.target) == "aten.scaled_dot_product_attention.default":  # on the host its count is missing
        query, key, value = ([*one.meta["val"].shape] for one in arguments[:3])
        return math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
    if str(node.target) in RECURRENT:  # nor has it a count of these
        source, _, weights = arguments[:3]
        steps = source.meta["val"].numel() // source.meta["val"].shape[-1]
        return steps * sum(one.meta["val"].numel() for one in weights if one.meta["val"].dim() > 1)
    values = fx.map_arg((node.args, node.kwargs), lambda one: one.meta.get("val"))
    made = next(iter(tensors_in(node.meta.get("val"))), None)
    fake = getattr(made, "fake_mode", None)
    if fake is None or not isinstance(node.target, torch._ops.OpOverload):
        return 0
    try:
        with fake, torch.no_grad(), FlopCounterMode(display=False) as counter:
            node.target(*values[0], **values[1])
    except Exception:  # whatever an operator raises that cannot be tried
        return None
    return counter.get_total_flops() // 2
