"""Ops of one tensor: every dtype class, layouts, special values, empty tensors, gradients."""

import torch

from inputs import specials, tag, tensor

# op: range of the inputs, range of whole-number inputs (None where PyTorch takes floats only), whether huge values are fair.
UNARY = {
    "exp": ((-3, 3), (-3, 4), True),
    "exp2": ((-3, 3), (-3, 4), True),
    "expm1": ((-3, 3), (-3, 4), True),
    "log": ((0.1, 4), (1, 9), True),
    "log2": ((0.1, 4), (1, 9), True),
    "log10": ((0.1, 4), (1, 9), True),
    "log1p": ((-0.8, 4), (0, 9), True),
    "sqrt": ((0.1, 4), (1, 9), True),
    "rsqrt": ((0.1, 4), (1, 9), True),
    "reciprocal": ((0.2, 3), (1, 9), True),
    "sin": ((-4, 4), (-4, 5), False),
    "cos": ((-4, 4), (-4, 5), False),
    "tan": ((-1.2, 1.2), (-1, 2), False),
    "asin": ((-0.9, 0.9), (-1, 2), True),
    "acos": ((-0.9, 0.9), (-1, 2), True),
    "atan": ((-4, 4), (-4, 5), True),
    "sinh": ((-3, 3), (-3, 4), True),
    "cosh": ((-3, 3), (-3, 4), True),
    "tanh": ((-3, 3), (-3, 4), True),
    "asinh": ((-4, 4), (-4, 5), True),
    "acosh": ((1.2, 4), (1, 5), True),
    "atanh": ((-0.9, 0.9), (0, 1), True),
    "erf": ((-2, 2), (-2, 3), True),
    "erfc": ((-2, 2), (-2, 3), True),
    "sigmoid": ((-4, 4), (-4, 5), True),
    "silu": ((-4, 4), None, True),
    "gelu": ((-3, 3), None, True),
    "relu": ((-2, 2), (-2, 3), True),
    "softplus": ((-4, 4), None, True),
    "leakyRelu": ((-2, 2), None, True),
    "elu": ((-2, 2), None, True),
    "neg": ((-2, 2), (-4, 5), True),
    "abs": ((-2, 2), (-4, 5), True),
    "square": ((-2, 2), (-4, 5), True),
    "sign": ((-2, 2), (-2, 3), True),
    "floor": ((-3, 3), (-4, 5), True),
    "ceil": ((-3, 3), (-4, 5), True),
    "round": ((-3, 3), (-4, 5), True),
    "trunc": ((-3, 3), (-4, 5), True),
    "isnan": ((-2, 2), (-4, 5), True),
    "isinf": ((-2, 2), (-4, 5), True),
    "isfinite": ((-2, 2), (-4, 5), True),
    "logicalNot": ((-2, 2), (-2, 3), True),
}
NO_BOOL = {"silu", "gelu", "relu", "softplus", "leakyRelu", "elu", "neg", "abs", "floor", "ceil", "round", "trunc", "square"}
NO_METHOD = {"gelu", "silu", "softplus", "leakyRelu", "elu"}


def build(g):
    for op, ((low, high), whole, huge) in UNARY.items():
        g.call(op, g.transposed((3, 5), torch.float32, low, high))
        g.call(op, g.stepped((2, 3), torch.float64, low, high), method=op not in NO_METHOD)
        g.call(op, g.expanded((2, 3, 2), torch.float16, low, high))
        g.call(op, g.offset((2, 3), torch.bfloat16, low, high))
        values = specials(torch.float32, huge)
        g.call(op, values if op != "gelu" else tag(values[~values.isinf() & ~(values.abs() > 1000)], "special-valued"), grad=False)
        if whole:
            g.call(op, g.rand((5,), torch.int64, *whole))
            g.call(op, g.rand((3,), torch.uint8, *whole))
        if whole and op not in NO_BOOL:
            g.call(op, tensor([True, False, True], torch.bool) if whole[0] <= 0 else tensor([True, True], torch.bool))
    shapes(g)
    with_parameters(g)
    whole_numbers(g)
    long_rows(g)


def shapes(g):
    """What does not depend on the formula is asked of a few ops only."""
    for op in ("exp", "sqrt", "relu", "gelu", "neg", "isnan"):
        (low, high), _, _ = UNARY[op]
        g.call(op, g.rand((0, 3)))
        g.call(op, g.rand((), low=low, high=high))
        g.call(op, g.permuted((2, 3, 5), low=low, high=high))
        g.call(op, g.rand((2, 1, 3), torch.bfloat16, low, high))
    for op in ("exp", "sigmoid", "square", "relu", "floor"):
        g.call(op, specials(torch.float16), grad=False)
        g.call(op, specials(torch.bfloat16), grad=False)


def with_parameters(g):
    g.call("gelu", g.transposed((3, 5), low=-3, high=3), approximate="tanh")
    g.call("gelu", g.stepped((7,), torch.float64), approximate="tanh")
    g.call("gelu", g.rand((3, 5), torch.bfloat16, -3, 3), approximate="tanh")
    g.call("gelu", specials(torch.float32), approximate="tanh", grad=False)
    g.call("gelu", g.rand((3, 5)), approximate="none")
    g.call("leakyRelu", g.transposed((3, 5)), negative_slope=0.2)
    g.call("leakyRelu", g.rand((5,), torch.float16), negative_slope=-0.5)
    g.call("elu", g.transposed((3, 5)), alpha=1.3)
    g.call("softplus", g.transposed((3, 5)), beta=2.0)
    g.call("softplus", g.rand((7,), low=-4, high=4), beta=3.0, threshold=5.0)
    for bounds in ({"min": -0.5, "max": 0.75}, {"min": 0}, {"max": 0.25}, {"min": 1.0, "max": -1.0}):
        g.call("clamp", g.transposed((3, 5)), **bounds)
        g.call("clamp", specials(torch.float32), grad=False, **bounds)
    g.call("clamp", g.stepped((7,), torch.bfloat16), method=True, min=-1, max=1)
    g.call("clamp", g.rand((7,), torch.int64, -9, 9), min=-3, max=4)
    g.call("clamp", g.rand((5,), torch.uint8, 0, 99), min=10, max=50)
    g.call("clamp", tensor([-1.0, 0.0, 1.0, 2.0]), min=0.0, max=1.0, note="gradient at the bounds is 1")
    g.call("relu", tensor([-1.0, -0.0, 0.0, 1.0]), note="gradient at 0 is 0")
    g.call("abs", tensor([-1.0, 0.0, 1.0]), note="gradient at 0 is 0")
    g.call("sqrt", tensor([0.0, 1.0]), note="gradient at 0 is infinite")
    g.call("log", tensor([0.0, 1.0]), note="gradient at 0 is infinite")


def whole_numbers(g):
    """Integers beyond 2^53 must survive; bitwise ops."""
    big = tensor([2**62, -(2**62) + 1, 2**53 + 1, -(2**53) - 1], torch.int64, "big")
    for op in ("neg", "abs", "sign", "bitwiseNot", "floor", "logicalNot"):
        g.call(op, big)
    g.call("bitwiseNot", g.rand((3, 5), torch.int32, -9, 9))
    g.call("bitwiseNot", g.rand((5,), torch.uint8, 0, 256))
    g.call("bitwiseNot", tensor([True, False], torch.bool), method=True)
    g.call("neg", g.rand((5,), torch.uint8, 1, 9))


def long_rows(g):
    """Longer than any vector register, with a ragged end."""
    for op in ("exp", "tanh", "gelu", "silu", "erf", "log"):
        low, high = UNARY[op][0]
        g.call(op, g.rand((131,), low=low, high=high), grad=op != "log")
    g.call("silu", g.rand((131,), torch.bfloat16))
