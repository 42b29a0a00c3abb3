"""Files of `torch.export.save` for tests: of modules, taken apart and put together again, and hostile ones."""

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch

__all__ = ["ATTACKS", "Attack", "Parts", "Small", "apart", "mutated", "saved", "together"]

_MODEL = "models/model.json"
_WEIGHTS = "data/weights/model_weights_config.json"
_CONSTANTS = "data/constants/model_constants_config.json"


class Small(torch.nn.Module):
    """Of a few operators, with a parameter, a buffer, a constant, and an argument that is given by name."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 6)
        self.offset = torch.nn.Buffer(torch.arange(3))

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, Any]:
        one, other = self.linear(x).chunk(2, -1)
        shape = torch.tensor([2.0, 3.0, 4.0])
        return {"y": one * other * scale + shape, "rest": (one.mean(-1), other + self.offset)}


def saved(module: torch.nn.Module, arguments: tuple, options: dict[str, Any] | None = None, **given: Any) -> bytes:
    """The file of a module, exported with some arguments."""
    made = io.BytesIO()
    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval(), arguments, options or {}, **given), made)
    return made.getvalue()


@dataclass
class Parts:
    """What is in a file; `entries` are those that are no documents."""

    model: dict[str, Any]
    weights: dict[str, Any]
    constants: dict[str, Any]
    entries: dict[str, bytes]
    compression: int = zipfile.ZIP_STORED
    raw: dict[str, bytes] = field(default_factory=dict)
    """Of documents, what stands there instead."""

    @property
    def graph(self) -> dict[str, Any]:
        """The graph."""
        return self.model["graph_module"]["graph"]

    @property
    def signature(self) -> dict[str, Any]:
        """What the graph's inputs and outputs are."""
        return self.model["graph_module"]["signature"]

    @property
    def call(self) -> dict[str, Any]:
        """How the module is called."""
        return self.model["graph_module"]["module_call_graph"][0]["signature"]

    def node(self, target: str, /, **arguments: Any) -> dict[str, Any]:
        """A node more, before all others; its result is a float32 tensor of 3 elements."""
        name = f"more_{len(self.graph['nodes'])}"
        made = {
            "target": target, "name": name, "metadata": {}, "is_hop_single_tensor_return": None,
            "inputs": [{"name": key, "arg": value, "kind": 1} for key, value in arguments.items()],
            "outputs": [{"as_tensor": {"name": name}}],
        }  # fmt: skip
        self.graph["nodes"].insert(0, made)
        self.graph["tensor_values"][name] = tensor(3)
        return made


def tensor(*sizes: int, dtype: int = 7) -> dict[str, Any]:
    """How a file describes a contiguous tensor."""
    strides = [1]
    for size in sizes[:0:-1]:
        strides.insert(0, strides[0] * size)
    return {
        "dtype": dtype, "sizes": [{"as_int": size} for size in sizes], "requires_grad": False, "layout": 7,
        "device": {"type": "cpu", "index": None}, "storage_offset": {"as_int": 0},
        "strides": [{"as_int": stride} for stride in strides[: len(sizes)]],
    }  # fmt: skip


def apart(data: bytes) -> Parts:
    """What is in a file."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    model, weights, constants = (json.loads(entries.pop(path)) for path in (_MODEL, _WEIGHTS, _CONSTANTS))
    return Parts(model, weights, constants, entries)


def together(parts: Parts) -> bytes:
    """The file of that."""
    documents = {_MODEL: parts.model, _WEIGHTS: parts.weights, _CONSTANTS: parts.constants}
    entries = parts.entries | {path: json.dumps(one).encode() for path, one in documents.items()} | parts.raw
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", parts.compression) as archive:
        for path, content in entries.items():
            archive.writestr(f"archive/{path}", content)
    return made.getvalue()


# ---- hostile files


@dataclass(frozen=True)
class Attack:
    """What makes a hostile file of that of `Small`, given the path of a file that it is to create; `message` is part of
    the error, None where the file is read and nothing happens."""

    name: str
    change: Callable[[Parts, Path], None]
    message: str | None


class _Touch:
    """What runs where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (eval, (_code(self.path),))


def _code(path: Path) -> str:
    return f"__import__('pathlib').Path('{path}').touch()"


def _pickled(parts: Parts, path: Path) -> None:
    entry = parts.weights["config"]["linear.bias"]
    entry["use_pickle"] = True
    parts.entries[f"data/weights/{entry['path_name']}"] = pickle.dumps(_Touch(path))


def _samples(parts: Parts, path: Path) -> None:
    parts.entries["data/sample_inputs/model.pt"] = pickle.dumps(_Touch(path))


def _object(name: str) -> Callable[[Parts, Path], None]:
    def change(parts: Parts, path: Path) -> None:
        entry = next(iter(parts.constants["config"].values()))
        entry |= {"path_name": name, "tensor_meta": None}
        parts.entries[f"data/constants/{name}"] = pickle.dumps(_Touch(path))

    return change


def _legacy(parts: Parts, path: Path) -> None:
    parts.entries["data/weights/model.pt"] = pickle.dumps(_Touch(path))


def _size(text: str | None = None) -> Callable[[Parts, Path], None]:
    """A size that is text, which PyTorch evaluates; by default such as creates the file."""

    def change(parts: Parts, path: Path) -> None:
        size = {"as_expr": {"expr_str": _code(path) if text is None else text, "hint": {"as_int": 4}}}
        parts.graph["tensor_values"]["x"]["sizes"][0] = size

    return change


def _size_argument(parts: Parts, path: Path) -> None:
    parts.graph["sym_int_values"]["size"] = {"as_expr": {"expr_str": _code(path), "hint": None}}
    parts.graph["sym_bool_values"]["size"] = {"as_expr": {"expr_str": _code(path), "hint": None}}


def _rename(parts: Parts, old: str, new: str) -> None:
    """In the whole of the model's document."""
    text = json.dumps(parts.model).replace(json.dumps(old), json.dumps(new))
    parts.model = json.loads(text)


def _plain_code(path: Path) -> str:
    """The same without quotes, points and spaces, which names are taken apart at."""
    return f"eval(bytes({list(_code(path).encode())}))".replace(" ", "")


def _names(kind: str) -> Callable[[Parts, Path], None]:
    """A name that is Python source."""

    def change(parts: Parts, path: Path) -> None:
        code = _plain_code(path)
        if kind == "input":
            _rename(parts, "scale", f"scale={code}")
        elif kind == "node":
            _rename(parts, "linear", f"linear={code};linear")
        elif kind == "argument":
            parts.call["forward_arg_names"][-1] = f"scale={code}"
        elif kind == "option":
            protocol, root = json.loads(parts.call["in_spec"])
            root["children_spec"][1]["context"] = json.dumps([f"scale={code}"])
            parts.call["in_spec"] = json.dumps([protocol, root])
            parts.call["forward_arg_names"] = None
        elif kind == "parameter":
            name = f'linear.none",{code})#'
            parts.weights["config"][name] = parts.weights["config"].pop("linear.bias")
            _rename(parts, "linear.bias", name)
        else:
            node = parts.node("_operator.add", a={"as_int": 1})
            node["inputs"].append({"name": f"b={code},c", "arg": {"as_int": 1}, "kind": 2})

    return change


def _import(parts: Parts, path: Path) -> None:
    (path.parent / "hostile_module.py").write_text(f"{_code(path)}\nclass A: pass\n", encoding="ascii")
    context = json.dumps({"__enum__": True, "fqn": "hostile_module:A", "name": "a"})
    protocol, root = json.loads(parts.call["out_spec"])
    root["children_spec"][1]["context"] = context
    parts.call["out_spec"] = json.dumps([protocol, root])


def _target(target: str, **arguments: Any) -> Callable[[Parts, Path], None]:
    """An operator, called with the path where `Path` stands."""

    def change(parts: Parts, path: Path) -> None:
        given = {key: {"as_string": str(path)} if value is Path else value for key, value in arguments.items()}
        for one in parts.node(target, **given)["inputs"]:
            one["kind"] = 2 if one["name"] == "dtype" else 1

    return change


def _argument(**argument: Any) -> Callable[[Parts, Path], None]:
    def change(parts: Parts, path: Path) -> None:
        parts.graph["nodes"][0]["inputs"][0]["arg"] = json.loads(json.dumps(argument))

    return change


def _guards(parts: Parts, path: Path) -> None:
    parts.model["guards_code"] = [_code(path)]
    parts.model["graph_module"]["metadata"] = {"custom": "{}"}
    for node in parts.graph["nodes"]:
        node["metadata"] = {"stack_trace": f"\n{_code(path)}\n", "nn_module_stack": f",,{_code(path)}"}


def _entry(path: str, content: bytes = b"") -> Callable[[Parts, Path], None]:
    def change(parts: Parts, _: Path) -> None:
        parts.entries[path] = content

    return change


def _range(name: str) -> Callable[[Parts, Path], None]:
    def change(parts: Parts, _: Path) -> None:
        parts.model["range_constraints"][name] = {"min_val": 0, "max_val": None}

    return change


def _bomb(parts: Parts, _: Path) -> None:
    parts.compression = zipfile.ZIP_DEFLATED
    parts.entries["data/weights/weight_9"] = bytes(1 << 28)


def _deep(parts: Parts, _: Path) -> None:
    parts.raw[_MODEL] = b"[" * 1_000_000


def _deep_structure(parts: Parts, _: Path) -> None:
    node: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    for _depth in range(100):
        node = {"type": "builtins.list", "context": "null", "children_spec": [node]}
    parts.call["out_spec"] = json.dumps([1, node])


def _weight(name: str = "linear.bias", **changes: Any) -> Callable[[Parts, Path], None]:
    """Another description of a weight, in which lists are of sizes."""

    def change(parts: Parts, _: Path) -> None:
        for key, value in changes.items():
            new = [{"as_int": one} for one in value] if isinstance(value, tuple) else value
            parts.weights["config"][name]["tensor_meta"][key] = new
            parts.graph["tensor_values"]["p_" + name.replace(".", "_")][key] = new

    return change


def _repeated(parts: Parts, _: Path) -> None:
    for index in range(1000):
        parts.weights["config"][f"more_{index}"] = entry = json.loads(
            json.dumps(parts.weights["config"]["linear.bias"])
        )
        entry["tensor_meta"] |= {"sizes": [{"as_int": 1 << 24}], "strides": [{"as_int": 0}]}


def _two_types(parts: Parts, _: Path) -> None:
    entry = json.loads(json.dumps(parts.weights["config"]["linear.bias"]))
    entry["tensor_meta"] |= {"dtype": 1, "sizes": [{"as_int": 24}]}
    parts.weights["config"]["more"] = entry


def _held(parts: Parts, _: Path) -> None:
    parts.graph["tensor_values"]["p_linear_bias"] = tensor(600)


def _no_bool(parts: Parts, _: Path) -> None:
    _weight(dtype=12, sizes=(24,))(parts, _)
    path = parts.weights["config"]["linear.bias"]["path_name"]
    parts.entries[f"data/weights/{path}"] = b"\x7f" * 24


def _unbind(parts: Parts, _: Path) -> None:
    node = parts.node("torch.ops.aten.unbind.int", self={"as_tensor": {"name": "large"}})
    node["outputs"] = [{"as_tensors": [{"name": "first"}, {"name": "second"}]}]
    parts.graph["tensor_values"] |= {"first": tensor(), "second": tensor()}
    parts.node("torch.ops.aten.ones.default", size={"as_ints": [1 << 25]})
    _rename(parts, parts.graph["nodes"][0]["name"], "large")
    parts.graph["tensor_values"]["large"] = tensor(1 << 25)


def _unlike(parts: Parts, _: Path) -> None:
    node = parts.node("torch.ops.aten.ones.default", size={"as_ints": [1 << 30]})
    parts.graph["tensor_values"][node["name"]] = tensor(1)


def _constants(parts: Parts, _: Path) -> None:
    for _number in range(1000):
        node = parts.node("torch.ops.aten.ones.default", size={"as_ints": [1 << 20]})
        parts.graph["tensor_values"][node["name"]] = tensor(1 << 20)


def _division(parts: Parts, _: Path) -> None:
    for name, value in (("most", -(1 << 63)), ("minus", -1)):
        node = parts.node("torch.ops.aten.full.default", size={"as_ints": [9]}, fill_value={"as_int": value})
        _rename(parts, node["name"], name)
        parts.graph["tensor_values"][name] = tensor(9, dtype=5)
    arguments = {"self": {"as_tensor": {"name": "most"}}, "other": {"as_tensor": {"name": "minus"}}}
    node = parts.node("torch.ops.aten.div.Tensor_mode", **arguments, rounding_mode={"as_string": "trunc"})
    node["inputs"][-1]["kind"] = 2
    parts.graph["tensor_values"][node["name"]] = tensor(9, dtype=5)
    parts.graph["nodes"].insert(2, parts.graph["nodes"].pop(0))
    specs = parts.signature["output_specs"]
    specs[0]["user_output"]["arg"]["as_tensor"]["name"] = node["name"]
    parts.graph["outputs"][0]["as_tensor"]["name"] = node["name"]


def _squares(dimension: int) -> Callable[[Parts, Path], None]:
    """A size that is squared again and again: in the file of `Small` the first is open, and the second is not."""

    def change(parts: Parts, _: Path) -> None:
        size, name = parts.graph["tensor_values"]["x"]["sizes"][dimension], "size"
        given = {"self": {"as_tensor": {"name": "x"}}, "dim": {"as_int": dimension}}
        nodes = [parts.node("torch.ops.aten.sym_size.int", **given)]
        nodes += [parts.node("_operator.mul", a={}, b={}) for _ in range(60)]
        for index, node in enumerate(nodes):
            for one in node["inputs"] if index else ():
                one["arg"] = {"as_sym_int": {"as_name": name}}
            name = f"size_{index}"
            parts.graph["sym_int_values"][name] = size
            node |= {"outputs": [{"as_sym_int": {"as_name": name}}], "name": name}
        parts.graph["nodes"][: len(nodes)] = nodes

    return change


_SYMBOL = "Symbol('s0', positive=True, integer=True)"

ATTACKS = [
    # code that runs
    Attack("a pickled weight", _pickled, "linear.bias is pickled, and nothing is unpickled"),
    Attack("pickled sample inputs", _samples, None),
    Attack("pickled weights of an older format", _legacy, None),
    Attack("a pickled object", _object("opaque_obj_0"), "is 'opaque_obj_0', and has to be the name of a tensor's data"),
    Attack("a TorchScript object", _object("custom_obj_0"), "is 'custom_obj_0', and has to be the name"),
    Attack("a size that is evaluated", _size(), "has to be a short formula of sizes"),
    Attack("a size of another kind that is evaluated", _size_argument, "has to be a short formula of sizes"),
    Attack("a size that calls a method", _size("Integer(1).func.__call__(1)"), "has to be a short formula of sizes"),
    Attack("a size that is a name", _size("exit"), "has to be a short formula of sizes"),
    Attack("a size that is text in a sum", _size("Add('exit', 1)"), "has to be a short formula of sizes"),
    *(
        Attack(f"source as the name of {kind}", _names(kind), wanted)
        for kind, wanted in {
            "input": "has to be a Python identifier", "node": "has to be a Python identifier",
            "argument": "has to be a Python identifier", "option": "has to be a Python identifier",
            "parameter": "has to be names of letters, digits, _ and -", "operand": "has to be a Python identifier",
        }.items()
    ),
    Attack("a structure that is imported", _import, None),
    Attack("a method of a namespace", _target("torch.ops.aten.__class__.__init__"), "calls 'torch.ops.aten.__class__"),
    Attack("a method of an operator", _target("torch.ops.aten.add.__call__"), "calls 'torch.ops.aten.add.__call__'"),
    Attack("a library", _target("torch.ops.load_library", path=Path), "calls 'torch.ops.load_library'"),
    Attack("a function of Python", _target("_operator.attrgetter", a=Path), "calls '_operator.attrgetter'"),
    Attack("a function of PyTorch", _target("torch.hub.load", a=Path), "calls 'torch.hub.load'"),
    Attack("an operator of an extension", _target("#onnx:x"), "calls '#onnx:x'"),
    Attack("an operator of another library", _target("torch.ops.inductor.x.default"), "calls 'torch.ops.inductor.x"),
    Attack("an operator that prints", _target("torch.ops.aten._print.default", s=Path), "calls 'torch.ops.aten._print"),
    Attack(
        "an operator that creates a file",
        _target(
            "torch.ops.aten.from_file.default", filename=Path, shared={"as_bool": True}, size={"as_int": 3},
            dtype={"as_scalar_type": 7},
        ),
        "calls 'torch.ops.aten.from_file.default'",
    ),
    Attack("an operator that resizes", _target("torch.ops.aten.resize_.default"), "calls 'torch.ops.aten.resize_"),
    Attack("a graph in a graph", _argument(as_graph={"name": "g", "graph": {}}), "is 'as_graph', and has to be one of"),
    Attack("an operator as an argument", _argument(as_operator="torch.hub.load"), "is 'as_operator', and has to be"),
    Attack("an object as an argument", _argument(as_custom_obj={"name": "a"}), "is 'as_custom_obj', and has to be"),
    Attack("guards, traces and metadata", _guards, None),
    Attack("compiled code", _entry("data/aotinductor/model/x.so"), "compiled code of AOTInductor, which is not run"),
    # memory and time
    Attack("a size of endless text", _size("'a'*9999999999"), "has to be a short formula of sizes"),
    Attack("a size that is a tower of powers", _size("9**9**9**9"), "has to be a short formula of sizes"),
    Attack("nested powers", _size(f"Pow(Pow({_SYMBOL}, Integer(8)), Integer(8))"), "has to be a short formula of"),
    Attack("a large power", _size(f"Pow({_SYMBOL}, Integer(99999999))"), "has to be a short formula of sizes"),
    Attack(
        "a product of sums",
        _size(f"Mul({', '.join(f'Add({_SYMBOL}, Integer({n}))' for n in range(1, 20))})"),
        "has to be a short formula of sizes; it has 524288 terms",
    ),
    Attack("a thousand million symbols", _range("u999999999"), "has to be a symbol as s0"),
    Attack("a bomb of zeros", _bomb, "its entries are compressed, encrypted or larger than the file"),
    Attack("a model without an end", _deep, "is damaged"),
    Attack("a deep structure", _deep_structure, "has to be a description of nested tuples, lists and mappings"),
    Attack("weights that are repeated", _repeated, "its tensors have"),
    Attack("a weight without data", _weight(sizes=(1 << 20,)), "which do not hold it"),
    Attack("an operator of millions of results", _unbind, "has a dimension of 33554432; up to 65536 are read"),
    Attack("a result that is larger than stated", _unlike, r"makes float32\[1073741824\], where the file"),
    Attack("constants that are computed", _constants, "elements: let the module hold the result as a buffer"),
    Attack("a size that is squared 60 times", _squares(1), "mul size_1 makes 16, where the file states 4"),
    Attack("an open size that is squared 60 times", _squares(0), "size_7 is a product of more than 64 sizes"),
    # crashes
    Attack("a negative size", _weight(sizes=(-6,)), "is -6, and has to be an integer from 0"),
    Attack("a negative stride", _weight(strides=(-1,)), "is -1, and has to be an integer from 0"),
    Attack("a negative offset", _weight(storage_offset={"as_int": -8}), "is -8, and has to be an integer from 0"),
    Attack("an offset behind the data", _weight(storage_offset={"as_int": 8}), "which do not hold it"),
    Attack("a stride behind the data", _weight(strides=(1 << 61,)), "which do not hold it"),
    Attack("sizes whose product overflows", _weight(sizes=(1 << 32, 1 << 32), strides=(0, 0)), "has to be a shape of"),
    Attack("no element type", _weight(dtype=99), "is 99, and has to be one of"),
    Attack("an element type of other bytes", _weight(dtype=11, sizes=(1,)), "24 bytes of data, which do not hold it"),
    Attack("a sparse layout", _weight(layout=1), "is 1, and has to be one of 7"),
    Attack("two types of the same data", _two_types, "more has another element type than a tensor with the same data"),
    Attack("bool that is neither", _no_bool, "linear.bias is bool, and a byte of it is neither 0 nor 1"),
    Attack("a weight that is not what is taken", _held, "takes p_linear_bias of another shape or element type"),
    Attack("a division that overflows", _division, "divides constant integers and rounds towards 0"),
]  # fmt: skip


# ---- random changes


def mutated(random: Random, data: bytes) -> bytes:
    """A file with bytes that are changed, cut or repeated, entries that are swapped or gone, or fields of its documents
    that are gone or have other values."""
    parts = apart(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        kind = random.randrange(10)
        if kind == 0:
            return _changed_bytes(random, together(parts))
        if kind == 1:
            one, other = (random.choice([*parts.entries]) for _ in range(2))
            parts.entries[one], parts.entries[other] = parts.entries[other], parts.entries[one]
        elif kind == 2:
            name = random.choice([*parts.entries])
            content = parts.entries.pop(name)
            if random.random() < 0.7:
                parts.entries[name] = _changed_bytes(random, content)
        else:
            _change_field(random, parts.model if kind > 4 else random.choice((parts.weights, parts.constants)))
    return together(parts)


def _changed_bytes(random: Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(random.choice((1, 2, 8))):
        if not found:
            break
        start, length = random.randrange(len(found)), random.choice((1, 2, 8, 100))
        kind = random.randrange(4)
        if kind == 0:
            found[start] ^= 1 << random.randrange(8)
        elif kind == 1:
            found[start : start + length] = random.randbytes(len(found[start : start + length]))
        elif kind == 2:
            del found[start : start + random.choice((length, len(found)))]
        else:
            found[start:start] = found[start : start + length]
    return bytes(found)


_VALUES = (
    None, True, False, 0, 1, -1, 2, 3, 7, 12, 1 << 20, 1 << 31, 1 << 62, -(1 << 63), 1e300, 0.5, "", "x", "s0",
    "linear", "NaN", _SYMBOL, [], {}, [0], [[]], {"as_int": 1}, {"as_none": True}, {"as_name": "x"},
)  # fmt: skip


def _change_field(random: Random, document: dict[str, Any]) -> None:
    """One field anywhere is gone, has a value of another kind, or that of another one."""
    places: list[tuple[Any, Any]] = []
    pending: list[Any] = [document]
    while pending:
        one = pending.pop()
        if isinstance(one, dict | list):
            inner = [*one.items()] if isinstance(one, dict) else [*enumerate(one)]
            places += [(one, key) for key, _ in inner]
            pending += [value for _, value in inner]
    if not places:
        return
    holder, key = random.choice(places)
    kind = random.randrange(4)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = json.loads(json.dumps(random.choice(_VALUES)))
    elif kind == 2 and isinstance(holder[key], int) and not isinstance(holder[key], bool):
        holder[key] += random.choice((-1, 1, 10, -holder[key] * 2))
    else:
        other, name = random.choice(places)
        holder[key] = json.loads(json.dumps(other[name]))
