"""onnx_types.py OUT: the element types that each version of each ONNX operator takes, as C++ tables.

They come from the operator schemas in the onnx package, and become src/import/type_rules.cpp's kInputs and kOperators.
They are wider than these in two ways: where an input of an older version is the newest version's too (same place and
name), it may have what that takes; and operators that take everything from booleans to complex numbers only move
elements, which works with elements of all types.
"""

import re
import sys
from pathlib import Path

import onnx
import onnx.defs

ROWS = Path(__file__).resolve().parents[1] / "src" / "support" / "dtype.cpp"
# In the order of sardonyx::DType, by ONNX's names: each row has {DType::kName, "name", bytes, bits, 'kind', number of ONNX, ...
TYPES = [
    onnx.TensorProto.DataType.Name(int(number)).lower()
    for number in re.findall(r"{DType::k\w+, \"\w+\", \d+, \d+, '\w', (\d+),", ROWS.read_text())
]
VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic


def mask(parameter) -> int:
    """Bit k: DType k is taken. 0 when other things than tensors of numbers are meant."""
    if {"tensor(bool)", "tensor(float)", "tensor(complex64)"} <= parameter.types:
        return (1 << len(TYPES)) - 1
    return sum(1 << k for k, name in enumerate(TYPES) if f"tensor({name})" in parameter.types)


def rules(schema, newest) -> list[tuple[str, int, int, bool]]:
    """(name, mask, group, variadic) of each input; inputs of one group (not -1) have one dtype."""
    same = [k < len(newest.inputs) and newest.inputs[k].name == p.name for k, p in enumerate(schema.inputs)]
    source = newest if all(same) else schema
    variables = [c.type_param_str for c in schema.type_constraints] + [
        c.type_param_str for c in newest.type_constraints
    ]
    out = []
    for k, parameter in enumerate(schema.inputs):
        merged = mask(parameter) | (mask(newest.inputs[k]) if same[k] else 0)
        variable = source.inputs[k].type_str
        uniform = variable in variables and (parameter.option != VARIADIC or parameter.is_homogeneous)
        out.append(
            (
                parameter.name,
                merged,
                sorted(set(variables)).index(variable) if uniform else -1,
                parameter.option == VARIADIC,
            )
        )
    return out


def main() -> None:
    newest = {s.name: s for s in onnx.defs.get_all_schemas() if s.domain == ""}
    inputs, operators = [], []
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda s: (s.name, s.since_version)):
        if schema.domain != "" or schema.name not in newest:
            continue
        found = rules(schema, newest[schema.name])
        operators.append(f'    {{"{schema.name}", {schema.since_version}, {len(inputs)}, {len(found)}}},')
        inputs += [f'    {{"{n}", {m:#x}, {g}, {str(v).lower()}}},' for n, m, g, v in found]
    lines = [
        "constexpr InputRule kInputs[] = {",
        *inputs,
        "};",
        "constexpr OperatorRule kOperators[] = {",
        *operators,
        "};",
    ]
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
