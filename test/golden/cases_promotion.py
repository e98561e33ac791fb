"""
Result dtypes of every pair of dtypes: tensor with tensor, with a tensor without dims, with a number. No values.

A case holds strings with one digit for each other operand: the place of the result's dtype in DTYPES, or `-` where PyTorch
refuses the pair.
"""

import torch

from recorder import dtype_name, python_callable

OPS = ("add", "sub", "mul", "div", "pow", "eq", "lt", "maximum", "floorDivide", "remainder", "atan2", "bitwiseAnd", "logicalAnd")
NUMBERS = (2, 2.5, True)
# In the order of lib/core/dtype.ts.
DTYPES = [getattr(torch, n) for n in "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()]


def digits(function, left, others):
    return "".join(digit(function, left, right) for right in others)


def digit(function, left, right):
    try:
        return str(DTYPES.index(function(left, right).dtype))
    except (RuntimeError, NotImplementedError, TypeError):
        return "-"


def build(g):
    for op in OPS:
        function = python_callable(op, method=False)
        for dtype in DTYPES:

            def record(dtype=dtype, function=function, op=op):
                left = torch.ones(2, dtype=dtype)
                case = {
                    "op": op,
                    "left": dtype_name(dtype),
                    "tensor": digits(function, left, [torch.ones(2, dtype=d) for d in DTYPES]),
                    "zeroDim": digits(function, left, [torch.ones((), dtype=d) for d in DTYPES]),
                }
                if op not in ("maximum", "atan2", "logicalAnd"):  # these take tensors only
                    case["number"] = digits(function, left, NUMBERS)
                if set(case["tensor"]) == {"-"} and op != "bitwiseAnd" and dtype != torch.bool:
                    raise AssertionError("PyTorch refuses every pair")
                return case

            g.attempt(f"result dtypes of {op} of {dtype_name(dtype)} with every dtype", record)
