"""Ops of two or three tensors: broadcasting, numbers as operands, special values against each other, gradients."""

import math

import torch

from inputs import tensor

ARITHMETIC = {"add": (-2, 2), "sub": (-2, 2), "mul": (-2, 2), "div": (0.5, 3), "pow": (0.3, 2), "maximum": (-2, 2), "minimum": (-2, 2)}
ROUNDING = ("floorDivide", "remainder", "fmod")
COMPARISON = ("eq", "ne", "lt", "le", "gt", "ge")
LOGICAL = ("logicalAnd", "logicalOr", "logicalXor")
BITWISE = ("bitwiseAnd", "bitwiseOr", "bitwiseXor")


def build(g):
    for op, (low, high) in ARITHMETIC.items():
        arithmetic(g, op, low, high)
    arithmetic(g, "atan2", 0.3, 2)
    for op in (*ARITHMETIC, "eq", "lt", "ge", "atan2", "fmod", "remainder"):
        specials_by_specials(g, op)
    rounding(g)
    comparison(g)
    bits(g)
    numbers(g)
    edge_gradients(g)
    three_operands(g)


def arithmetic(g, op, low, high):
    g.call(op, g.rand((3, 1, 5), low=low, high=high), g.rand((2, 1), low=low, high=high))
    g.call(op, g.transposed((3, 5), low=low, high=high), g.expanded((3, 5), low=low, high=high))
    g.call(op, g.transposed((2, 3), low=low, high=high), g.transposed((2, 3), low=low, high=high), method=True)
    g.call(op, g.stepped((2, 7), torch.float64, low, high), g.rand((7,), torch.float64, low, high))
    g.call(op, g.offset((2, 5), torch.float16, low, high), g.rand((2, 1), torch.float16, low, high))
    g.call(op, g.rand((5,), torch.bfloat16, low, high), g.stepped((3, 5), torch.bfloat16, low, high))
    g.call(op, g.rand((0, 5), low=low, high=high), g.rand((1, 5), low=low, high=high))
    g.call(op, g.rand((3,), torch.int64, 1, 5), g.rand((3,), torch.float32, low, high))
    g.call(op, g.rand((2, 3), torch.int64, 1, 5), g.rand((3,), torch.int64, 1, 4))
    g.call(op, g.rand((5,), torch.int32, 1, 5), g.rand((5,), torch.uint8, 1, 4))
    if op in ("add", "mul", "div", "maximum"):
        g.call(op, g.rand((2, 3), low=low, high=high), g.rand((), torch.float64, low, high))
        g.call(op, g.rand((2, 3), torch.bfloat16, low, high), g.rand((3,), torch.float32, low, high))
        g.call(op, g.rand((2, 3), torch.float16, low, high), g.rand((3,), torch.bfloat16, low, high))
        g.call(op, g.rand((5,), torch.bool), g.rand((5,), torch.int32, 1, 4))
        g.call(op, g.rand((131,), low=low, high=high), g.rand((131,), low=low, high=high), grad=False)
    if op in ("add", "mul", "maximum"):
        g.call(op, g.rand((5,), torch.bool), g.rand((5,), torch.bool))


def specials_by_specials(g, op):
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-39, 1.0, -1.0, 2.0, -2.5, 0.5, 3.0]
    if op in ("fmod", "remainder"):
        values = [math.nan, math.inf, -math.inf, 1.0, -1.0, 2.0, -2.5, 0.5, 3.0]
    row = tensor(values, torch.float32, "special-valued")
    g.call(op, tensor([[v] for v in values], torch.float32, "special-valued"), row, grad=False)


def rounding(g):
    """Quotients stay clear of whole numbers, where one rounding error would decide; exact cases come as integers."""
    for op in ROUNDING:
        call = lambda *args, op=op, **options: g.call(op, *args, grad=op != "floorDivide", **options)  # noqa: E731
        steps = lambda shape: g.ints(shape, -9, 9).float() + 0.25  # noqa: E731 quarters: exact in float32
        divisor = tensor([1.5, -1.5, 2.5, -2.5, 3.5], torch.float32)
        call(steps((3, 5)), divisor)
        call(steps((5, 3)).t().contiguous().double(), divisor.double(), method=True)
        call(steps((3, 5)).half(), divisor.half())
        call(tensor([-7, -6, -5, 5, 6, 7]), tensor([3, 3, -3, -3, 4, 2]))
        call(tensor([-7, -6, -5, 5, 6, 7], torch.int64), tensor([3, 3, -3, -3, 4, 2], torch.int64))
        call(tensor([200, 7, 0], torch.uint8), tensor([7, 200, 3], torch.uint8))
        call(tensor([7, 8, -9], torch.int32), 2.5)
        call(tensor([7, 8, -9], torch.int32), -4)
    for mode in ("floor", "trunc"):
        g.call("div", tensor([-7.5, 7.5, 6.0, -0.5]), tensor([2.0, -2.0, 3.0, 2.0]), rounding_mode=mode)
        g.call("div", tensor([-7, 7, 6, -1], torch.int64), tensor([2, -2, 3, 2], torch.int64), method=True, rounding_mode=mode)
        g.call("div", tensor([-7, 7, 6, -1], torch.int32), 2, rounding_mode=mode)
    g.call("div", tensor([-7, 7, 6, -1], torch.int64), tensor([2, -2, 3, 2], torch.int64))


def comparison(g):
    for op in COMPARISON:
        g.call(op, g.ints((3, 5), -2, 3).float(), g.ints((5,), -2, 3).float())
        g.call(op, g.permuted((2, 3, 5), torch.int64, -2, 3), g.expanded((2, 3, 5), torch.int64, -2, 3), method=True)
        g.call(op, g.rand((5,), torch.int64, -2, 3), g.ints((5,), -2, 3).to(torch.bfloat16))
        g.call(op, g.rand((5,), torch.bool), g.rand((5,), torch.uint8, 0, 2))
        g.call(op, g.rand((3, 5), torch.int32, -2, 3), 1)
        g.call(op, g.ints((3, 5), -2, 3).half(), 0.5, method=True)
        g.call(op, g.rand((0, 3)), g.rand((1,)))
        g.call(op, tensor([2**53, 2**53 + 1, -(2**53) - 1], torch.int64), tensor([2**53 + 1, 2**53 + 1, -(2**53)], torch.int64))
    near = tensor([1.0, 1.0 + 1e-9, 1.1, math.nan, math.inf])
    other = tensor([1.0, 1.0, 1.0, math.nan, math.inf])
    g.call("isclose", near, other)
    g.call("isclose", near, other, equal_nan=True)
    g.call("isclose", near, other, rtol=0.2, atol=0.0)
    for op in LOGICAL:
        g.call(op, g.rand((3, 5), torch.bool), g.rand((5,), torch.bool))
        g.call(op, tensor([0.0, -0.0, math.nan, 2.0]), tensor([[1.0], [0.0]]))
        g.call(op, g.ints((5,), -1, 2), g.ints((5,), -1, 2, torch.int32), method=True)


def bits(g):
    for op in BITWISE:
        g.call(op, g.rand((3, 5), torch.int64, -99, 99), g.rand((5,), torch.int64, -99, 99))
        g.call(op, g.rand((5,), torch.uint8, 0, 256), g.rand((5,), torch.uint8, 0, 256))
        g.call(op, g.rand((5,), torch.bool), g.rand((5,), torch.bool), method=True)
        g.call(op, g.rand((5,), torch.int32, -99, 99), g.rand((5,), torch.uint8, 0, 99))
        g.call(op, g.rand((5,), torch.int32, -99, 99), 6)
    for op in ("bitwiseLeftShift", "bitwiseRightShift"):
        g.call(op, g.rand((5,), torch.int64, -99, 99), g.rand((5,), torch.int64, 0, 9))
        g.call(op, g.rand((5,), torch.int32, 0, 99), 3, method=True)


def numbers(g):
    """Numbers as operands: the integer 2 has the category of integers, 2.5 that of floats, true that of bool."""
    for op in ("add", "sub", "mul", "div", "pow", "eq", "lt"):
        for number in (2, 2.5):
            g.call(op, g.rand((3,), torch.float32, 0.5, 2), number)
            g.call(op, g.rand((3,), torch.bfloat16, 0.5, 2), number, method=True)
            g.call(op, g.rand((3,), torch.int64, 1, 5), number)
            g.call(op, g.rand((3,), torch.uint8, 1, 5), number)
    for op in ("add", "mul"):
        g.call(op, tensor([True, False], torch.bool), 2)
        g.call(op, tensor([True, False], torch.bool), 2.5)
        g.call(op, tensor([3, 4], torch.int32), True)
    g.call("add", g.rand((3, 5)), g.rand((5,)), alpha=-2.5)
    g.call("add", g.rand((5,), torch.int64, -9, 9), g.rand((5,), torch.int64, -9, 9), method=True, alpha=3)
    g.call("sub", g.rand((3, 5), torch.bfloat16), g.rand((5,), torch.bfloat16), alpha=0.5)
    for exponent in (0, 1, 2, 3, -1, -2, 0.5, -0.5):
        g.call("pow", g.transposed((2, 3), low=0.5, high=2), exponent)
    g.call("pow", 2.5, g.rand((3,)), fn=torch.pow)
    g.call("pow", tensor([-3, -2, 0, 2, 5], torch.int64), 3)
    g.call("add", tensor([2**62, -(2**62)], torch.int64), tensor([2**61 + 1, -(2**61) - 1], torch.int64))
    g.call("add", tensor([200, 100], torch.uint8), tensor([100, 100], torch.uint8), note="wraps around")


def edge_gradients(g):
    g.call("maximum", tensor([1.0, 2.0, 3.0]), tensor([1.0, 3.0, 2.0]), note="a tie shares its gradient")
    g.call("minimum", tensor([1.0, 2.0, 3.0]), tensor([1.0, 3.0, 2.0]), note="a tie shares its gradient")
    g.call("pow", tensor([0.0, 0.0, 2.0]), tensor([0.0, 2.0, 0.0]), note="gradients at 0")
    g.call("pow", tensor([-2.0, -1.5, 0.0]), 2, note="negative base")
    g.call("mul", tensor([0.0, 1.0]), tensor([math.inf, 2.0]), note="infinite factor")
    g.call("atan2", tensor([-1.0, 1.0, -1.0, 1.0]), tensor([-1.0, -1.0, 1.0, 1.0]), note="four quadrants")


def three_operands(g):
    condition = g.rand((3, 5), torch.bool)
    g.call("where", condition, g.transposed((3, 5)), g.rand((5,)))
    g.call("where", g.rand((3, 1), torch.bool), g.rand((5,), torch.bfloat16), g.rand((1, 5), torch.bfloat16))
    g.call("where", condition, g.rand((3, 5), torch.float16), 0.0)
    g.call("where", condition, 1, g.rand((3, 5), torch.int64, -9, 9))
    g.call("where", condition, g.rand((3, 5), torch.int32, -9, 9), g.rand((5,), torch.float64))
    g.call("where", tensor([True, False], torch.bool), tensor([math.nan, math.nan]), tensor([1.0, 2.0]))
    g.call("where", g.rand((0, 5), torch.bool), g.rand((5,)), g.rand((0, 5)))
    for op in ("addcmul", "addcdiv"):
        g.call(op, g.rand((3, 5)), g.transposed((3, 5)), g.rand((5,), low=0.5, high=2))
        g.call(op, g.rand((3, 1)), g.rand((5,)), g.stepped((3, 5), low=0.5, high=2), value=-0.5)
        g.call(op, g.rand((7,), torch.float64), g.rand((7,), torch.float64), g.rand((7,), torch.float64, 0.5, 2), method=True, value=2.0)
    g.call("lerp", g.rand((3, 5)), g.transposed((3, 5)), 0.3)
    g.call("lerp", g.rand((3, 5)), g.rand((3, 5)), g.rand((5,), low=0, high=1))
    g.call("lerp", g.rand((5,), torch.float64), g.rand((5,), torch.float64), 0.75, method=True)
