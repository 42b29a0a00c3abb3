"""The JSON of a file of `torch.export.save`, field by field: what is allowed is taken over, everything else is not.

PyTorch turns names into Python source, sizes into calls of `eval`, and descriptions of structures into imports. So each
field has a form here, as narrow as what PyTorch writes; fields that are not named are left out.
"""

import ast
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from npukit.compiler.errors import ModelError
from npukit.compiler.frontends.pytorch.archive_operators import is_supported

__all__ = ["ELEMENT_BYTES", "MOST_ELEMENTS", "clean_config", "clean_program"]

Check = Callable[[Any, str], Any]
"""What a value becomes; its second argument says where it stands, for the error that it raises otherwise."""

ELEMENT_BYTES: Mapping[int, int] = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 10: 8, 11: 16, 12: 1, 13: 2}
"""Of `ScalarType`: integers, floats from half to double, two complex types, bool and bfloat16."""
MOST_ELEMENTS = 1 << 31
"""Of a tensor."""
_DEEPEST, _TERMS, _POWER = 32, 1000, 8


def _refuse(where: str, value: Any, wanted: str) -> ModelError:
    shown = repr(value)
    return ModelError(f"{where} is {shown[:100]}{'...' if len(shown) > 100 else ''}, and has to be {wanted}")


# ---- forms


def _record(**fields: Check) -> Check:
    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _refuse(where, value, "an object")
        return {key: form(value.get(key), f"{where}.{key}") for key, form in fields.items()}

    return check


def _union(**members: Check) -> Check:
    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) != 1:
            raise _refuse(where, value, "an object of one field")
        key, content = next(iter(value.items()))
        if key not in members:
            raise _refuse(where, key, f"one of {', '.join(members)}")
        return {key: members[key](content, f"{where}.{key}")}

    return check


def _items(form: Check, most: int = 1 << 20) -> Check:
    def check(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise _refuse(where, value, f"a list of at most {most}")
        return [form(one, f"{where}[{index}]") for index, one in enumerate(value)]

    return check


def _mapping(key_form: Check, form: Check) -> Check:
    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _refuse(where, value, "an object")
        return {key_form(key, f"a name in {where}"): form(one, f"{where}.{key}"[:200]) for key, one in value.items()}

    return check


def _optional(form: Check, default: Any = None) -> Check:
    return lambda value, where: default if value is None else form(value, where)


def _fixed(value: Any) -> Check:
    """Whatever stands there."""
    return lambda _, __: value


def _anything(value: Any, where: str) -> Any:
    return value


def _integer(least: int = -(1 << 63), most: int = (1 << 64) - 1) -> Check:
    def check(value: Any, where: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise _refuse(where, value, f"an integer from {least} to {most}")
        return value

    return check


def _boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _refuse(where, value, "true or false")
    return value


def _number(value: Any, where: str) -> float | str:
    if value in ("Infinity", "-Infinity", "NaN"):
        return value
    if type(value) not in (int, float) or abs(value) > 1.8e308:
        raise _refuse(where, value, "a number")
    return float(value)


def _choice(*values: Any) -> Check:
    def check(value: Any, where: str) -> Any:
        if value not in values or isinstance(value, bool):
            raise _refuse(where, value, f"one of {', '.join(map(str, values))}")
        return value

    return check


def _matching(pattern: str, wanted: str) -> Check:
    compiled = re.compile(pattern)

    def check(value: Any, where: str) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise _refuse(where, value, wanted)
        return value

    return check


def _identifier(value: Any, where: str) -> str:
    """A name that PyTorch writes into Python source."""
    if not isinstance(value, str) or not value.isidentifier() or len(value) > 1000:
        raise _refuse(where, value, "a Python identifier")
    return value


def _operator(value: Any, where: str) -> str:
    if not isinstance(value, str) or not is_supported(value):
        raise ModelError(
            f"it calls {str(value)[:100]!r}, which is none of the operators of aten and quantized_decomposed that a "
            'file may call: a module that has it runs with torch.compile(module, backend="npukit")'
        )
    # of a constant in the module's code, which PyTorch refuses to export once more
    return value.replace(".detach_.", ".detach.")


_path = _matching(r"(?!__)[\w-]+(\.(?!__)[\w-]+)*", "names of letters, digits, _ and -, with points between them")
_symbol = _matching(r"(s|u|zf|zuf)\d{1,6}", "a symbol as s0")
_range = _matching(r"(u|zuf)\d{1,6}|(?!u|zuf)[\w*+/(), -]{1,200}", "a symbol as s0, or a formula of some")
"""What a range is given of: it is looked up, and where `u` and a number stand, so many symbols are made."""
_text = _matching(r"(?s).{0,1000}", "text of at most 1000 characters")


# ---- sizes


_CALLS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("Add", "Mul", "Max", "Min", "And", "Or"), (1, 30)),
    **dict.fromkeys(("FloorDiv", "Mod", "PythonMod", "CleanDiv", "CeilDiv", "IntTrueDiv", "FloatTrueDiv"), (2, 2)),
    **dict.fromkeys(("Equality", "Unequality", "Eq", "Ne", "Lt", "Le", "Gt", "Ge"), (2, 2)),
    **dict.fromkeys(("StrictLessThan", "StrictGreaterThan", "LessThan", "GreaterThan"), (2, 2)),
    **dict.fromkeys(("ToFloat", "CeilToInt", "FloorToInt", "TruncToInt", "TruncToFloat", "RoundToInt", "Not"), (1, 1)),
    "Where": (3, 3),
}
"""Functions of sizes, and how many arguments each takes."""


def _size(value: Any, where: str) -> str:
    """An expression that PyTorch evaluates as Python."""
    wanted = "a short formula of sizes"
    if not isinstance(value, str) or len(value) > 4000 or not re.fullmatch(r"[\w(),'=. +-]*", value, re.ASCII):
        raise _refuse(where, value, wanted)
    try:
        tree = ast.parse(value, mode="eval").body
        terms = _terms(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refuse(where, value, wanted) from None
    if terms > _TERMS:
        raise _refuse(where, value, f"{wanted}; it has {terms} terms")
    return value


def _terms(node: ast.expr) -> int:
    """How many terms an expression has once it is expanded.

    Raises:
        ValueError: it is no formula of sizes.
    """
    if isinstance(node, ast.Name) and node.id in ("true", "false"):
        return 1
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError
    name, args = node.func.id, node.args
    options = {one.arg: _constant(one.value) for one in node.keywords}
    if name == "Symbol" and len(args) == 1 and all(isinstance(one, bool) for one in options.values()):
        if not {*options} <= {"positive", "integer", "nonnegative", "nonzero", "real", "finite"}:
            raise ValueError
        try:
            _symbol(_constant(args[0]), "")
        except ModelError:
            raise ValueError from None
        return 1
    if name == "Float" and len(args) == 1 and options == {"precision": 53}:
        return _checked(len(str(_constant(args[0]))) < 30 and math.isfinite(float(str(_constant(args[0])))))
    if options:
        raise ValueError
    if name in ("Integer", "Rational"):
        numbers = [_constant(one) for one in args]
        whole = all(type(one) is int and abs(one) < 1 << 63 for one in numbers)
        return _checked(whole and len(numbers) == (1 if name == "Integer" else 2) and 0 not in numbers[1:])
    terms = [_terms(one) for one in args]
    if name in ("Pow", "PowByNatural", "FloatPow"):
        if len(args) != 2 or not isinstance(args[1], ast.Call) or "Pow" in ast.dump(args[0]):
            raise ValueError
        power = float(str(_constant(args[1].args[0]))) if len(args[1].args) == 1 else math.inf
        if not abs(power) <= _POWER:
            raise ValueError
        return terms[0] ** max(1, math.ceil(power))
    least, most = _CALLS.get(name, (1, 0))
    if not least <= len(args) <= most:
        raise ValueError
    return sum(terms) if name == "Add" else math.prod(terms)


def _constant(node: ast.expr) -> Any:
    value = ast.literal_eval(node)
    if not isinstance(value, str | int | float):
        raise ValueError
    return value


def _checked(good: bool) -> int:
    if not good:
        raise ValueError
    return 1


# ---- how arguments and results are nested


def _structure(arguments: bool) -> Check:
    """With tuples, lists and mappings in place of classes of other modules, which are not imported: what a
    `transformers` model returns becomes a mapping. That of arguments is a pair of positional and named ones, whose
    names PyTorch writes into Python source."""

    def check(value: Any, where: str) -> str:
        wanted = "a description of nested tuples, lists and mappings"
        if not isinstance(value, str):
            raise _refuse(where, value, wanted)
        try:
            protocol, root = json.loads(value)
            plain = _plain(root, _DEEPEST)
            if arguments:
                keys = json.loads(plain["children_spec"][1]["context"])
                kinds = [one["type"] for one in plain["children_spec"]]
                if protocol != 1 or kinds != ["builtins.tuple", "builtins.dict"]:
                    raise _refuse(where, value, "a tuple and a mapping of arguments")
                for key in keys:
                    _identifier(key, f"an argument's name in {where}")
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            if isinstance(error, ModelError):
                raise
            raise _refuse(where, value, wanted) from None
        return json.dumps([1, plain])

    return check


def _plain(node: dict[str, Any], deepest: int) -> dict[str, Any]:
    kind, context, children = node["type"], node["context"], node["children_spec"]
    if deepest == 0 or not isinstance(children, list):
        raise ValueError
    if kind is None:
        if context is not None or children:
            raise ValueError
        return {"type": None, "context": None, "children_spec": []}
    inner = [_plain(one, deepest - 1) for one in children]
    keys = json.loads(context) if isinstance(context, str) and kind not in ("builtins.tuple", "builtins.list") else None
    if isinstance(keys, list) and len({*map(str, keys)}) == len(inner) and all(isinstance(one, str) for one in keys):
        return {"type": "builtins.dict", "context": json.dumps(keys), "children_spec": inner}
    plain = "builtins.tuple" if kind == "builtins.tuple" else "builtins.list"
    return {"type": plain, "context": "null", "children_spec": inner}


# ---- the schema, of `torch/_export/serde/schema.py`


def _sized(text: Check) -> Check:
    return _union(as_int=_integer(0, 1 << 62), as_expr=text)


_device = _fixed({"type": "cpu", "index": None})  # wherever it was exported
_scalar_type = _choice(*ELEMENT_BYTES)
_layout = _choice(7)  # strided
_hint = _optional(_union(as_int=_integer(-(1 << 63), (1 << 63) - 1), as_float=_number, as_bool=_boolean))
_expression = _record(expr_str=_size, hint=_hint)


def _tensor_meta(size: Check) -> Check:
    form = _record(
        dtype=_scalar_type, sizes=_items(size, 64), requires_grad=_fixed(False), device=_device,
        strides=_items(size, 64), storage_offset=size, layout=_layout,
    )  # fmt: skip

    def check(value: Any, where: str) -> dict[str, Any]:
        meta = form(value, where)
        sizes = [one.get("as_int", 1) for one in meta["sizes"]]
        if len(meta["strides"]) != len(sizes) or math.prod(sizes) > MOST_ELEMENTS:
            raise _refuse(where, sizes, f"a shape of at most {MOST_ELEMENTS} elements with a stride for each dimension")
        return meta

    return check


_tensor = _record(name=_identifier)
_symbolic = {
    "as_sym_int": _union(as_name=_identifier, as_int=_integer()),
    "as_sym_float": _union(as_name=_identifier, as_float=_number),
    "as_sym_bool": _union(as_name=_identifier, as_bool=_boolean),
}
_constants = {
    "as_none": _fixed(True), "as_int": _integer(), "as_float": _number, "as_string": _text, "as_bool": _boolean,
}  # fmt: skip
_argument = _union(
    **_constants, **_symbolic, **{f"{key}s": _items(form) for key, form in _symbolic.items()},
    as_tensor=_tensor, as_tensors=_items(_tensor), as_ints=_items(_integer()), as_floats=_items(_number),
    as_strings=_items(_text), as_bools=_items(_boolean), as_scalar_type=_scalar_type,
    as_memory_format=_choice(1, 2, 3, 4), as_layout=_layout, as_device=_device,
    as_optional_tensors=_items(_union(as_tensor=_tensor, as_none=_fixed(True))),
)  # fmt: skip
"""Not subgraphs, objects and operators, which a node of a supported operator does not take."""
_node = _record(
    target=_operator,
    inputs=_items(_record(name=_identifier, arg=_argument, kind=_optional(_choice(1, 2)))),
    outputs=_items(_argument), metadata=_fixed({}), is_hop_single_tensor_return=_fixed(None),
    name=_optional(_identifier),
)  # fmt: skip
_graph = _record(
    inputs=_items(_argument), outputs=_items(_argument), nodes=_items(_node),
    tensor_values=_mapping(_identifier, _tensor_meta(_sized(_expression))),
    sym_int_values=_mapping(_identifier, _union(as_int=_integer(), as_expr=_expression)),
    sym_float_values=_optional(_mapping(_identifier, _union(as_float=_number, as_expr=_expression)), {}),
    sym_bool_values=_mapping(_identifier, _union(as_bool=_boolean, as_expr=_expression)),
    custom_obj_values=_fixed({}), is_single_tensor_return=_optional(_boolean, False),
)  # fmt: skip
_signature = _record(
    input_specs=_items(
        _union(
            user_input=_record(arg=_argument), parameter=_record(arg=_tensor, parameter_name=_path),
            buffer=_record(arg=_tensor, buffer_name=_path, persistent=_boolean),
            tensor_constant=_record(arg=_tensor, tensor_constant_name=_path),
            constant_input=_record(name=_identifier, value=_union(**_constants)),
        )
    ),
    output_specs=_items(
        _union(
            user_output=_record(arg=_argument), buffer_mutation=_record(arg=_tensor, buffer_name=_path),
            parameter_mutation=_record(arg=_tensor, parameter_name=_path),
            user_input_mutation=_record(arg=_tensor, user_input_name=_identifier),
        )
    ),
)  # fmt: skip
_call = _record(
    fqn=_choice(""),
    signature=_record(
        inputs=_fixed([]), outputs=_fixed([]), in_spec=_structure(True), out_spec=_structure(False),
        forward_arg_names=_optional(_items(_identifier)),
    ),
)  # fmt: skip
_bound = _optional(_integer(-(1 << 63), (1 << 63) - 1))
_program = _record(
    graph_module=_record(
        graph=_graph, signature=_signature, metadata=_fixed({}), treespec_namedtuple_fields=_fixed({}),
        # of submodules nothing is needed
        module_call_graph=lambda value, where: [_call(one, where) for one in _items(_anything)(value, where)[:1]],
    ),
    opset_version=_mapping(_identifier, _integer(0, 1 << 16)),
    range_constraints=_mapping(_range, _record(min_val=_bound, max_val=_bound)),
    schema_version=_record(major=_integer(0, 1 << 16), minor=_integer(0, 1 << 16)),
    verifiers=_items(_choice("ATEN", "TRAINING")), torch_version=_text, guards_code=_fixed([]),
)  # fmt: skip


def clean_program(document: Any) -> dict[str, Any]:
    """The document of a program, with what is needed of it alone.

    Raises:
        ModelError: something stands in it that is not allowed.
    """
    return _program(document, "its model")


# ---- tensors


_payload = _record(
    path_name=_matching(r"(weight|tensor)_\d{1,9}", "the name of a tensor's data"), is_param=_boolean,
    use_pickle=_fixed(False), tensor_meta=_tensor_meta(_union(as_int=_integer(0, 1 << 62))),
)  # fmt: skip


def clean_config(document: Any, where: str) -> dict[str, Any]:
    """The document that describes tensors, of which none is pickled.

    Raises:
        ModelError: something stands in it that is not allowed.
    """
    entries = document.get("config") if isinstance(document, dict) else None
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        if isinstance(entry, dict) and entry.get("use_pickle"):
            raise ModelError(
                f"{name[:100]} is pickled, and nothing is unpickled: make it an ordinary tensor, and save it again"
            )
    return _record(config=_mapping(_path, _payload))(document, where)
