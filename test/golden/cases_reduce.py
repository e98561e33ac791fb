"""Reductions and scans: all dims, some dims, keepdim, empty, integers and bools, NaN, ties."""

import math

import torch

from inputs import HALVES, INTS, tensor

# op: range of floats. `logsumexp` needs a dim, `prod` takes at most one.
FLOATING = {"sum": (-2, 2), "mean": (-2, 2), "prod": (0.5, 1.5), "amax": (-2, 2), "amin": (-2, 2), "logsumexp": (-2, 2), "var": (-2, 2), "std": (-2, 2)}


def build(g):
    for op, (low, high) in FLOATING.items():
        floating(g, op, low, high)
    arg_extrema(g)
    extrema_with_indices(g)
    any_all(g)
    whole_numbers(g)
    empty(g)
    not_finite(g)
    variance(g)
    norms(g)
    scans(g)
    edge_gradients(g)


def floating(g, op, low, high):
    one_dim = op == "prod"
    if op != "logsumexp":
        g.call(op, g.permuted((2, 3, 5), low=low, high=high))
        g.call(op, g.rand((7,), torch.float64, low, high), method=True)
        g.call(op, g.stepped((3, 5), torch.bfloat16, low, high))
        if op not in ("var", "std"):
            g.call(op, g.rand((), low=low, high=high))
    g.call(op, g.transposed((3, 5), low=low, high=high), 1)
    g.call(op, g.transposed((3, 5), low=low, high=high), 0, method=True, keepdim=True)
    g.call(op, g.expanded((3, 5, 2), low=low, high=high), -1, keepdim=True)
    for dtype in HALVES:
        g.call(op, g.offset((3, 7), dtype, low, high), -1)
    if not one_dim:
        g.call(op, g.permuted((2, 3, 5), low=low, high=high), [0, 2])
        g.call(op, g.stepped((2, 3, 5), torch.float64, low, high), [-1, 0], keepdim=True)
        g.call(op, g.rand((2, 1, 3), low=low, high=high), [0, 1, 2])
    if op not in ("amax", "amin", "logsumexp", "var", "std"):
        g.call(op, g.rand((3, 5), torch.float16, low, high), 1, dtype=torch.float32)
    if op in ("sum", "mean", "amax", "logsumexp", "var"):
        g.call(op, g.rand((2, 131), low=low, high=high), 1)
        g.call(op, g.rand((131, 2), low=low, high=high), 0)


def arg_extrema(g):
    for op in ("argmax", "argmin"):
        g.call(op, g.distinct((3, 5)))
        g.call(op, g.distinct((5, 3)).t(), 1)
        g.call(op, g.distinct((2, 3, 5), torch.bfloat16), -2, method=True, keepdim=True)
        g.call(op, g.distinct((7,), torch.int64), 0)
        g.call(op, g.distinct((3, 7), torch.float64)[:, ::2], 1)
        g.call(op, tensor([[1.0, math.nan, 2.0], [math.inf, 3.0, -math.inf]]), 1, note="NaN wins")
        g.call(op, g.rand(()))
        g.call(op, g.rand((0, 3)), 1)


def extrema_with_indices(g):
    for op in ("max", "min"):
        g.call(op, g.permuted((2, 3, 5)))
        g.call(op, g.distinct((3, 5)), 1)
        g.call(op, g.distinct((5, 3)).t(), 0, method=True, keepdim=True)
        g.call(op, tensor([[1.0, math.nan, 2.0]]), 1, grad=False, note="NaN wins")


def any_all(g):
    for op in ("any", "all"):
        g.call(op, g.rand((3, 5), torch.bool))
        g.call(op, g.rand((3, 5), torch.bool), 1)
        g.call(op, g.permuted((2, 3, 5), torch.bool), -1, method=True, keepdim=True)
        g.call(op, tensor([[0.0, -0.0], [math.nan, 0.0], [1.0, 2.0]]), 1)
        g.call(op, g.ints((3, 5), 0, 2), 0)
        g.call(op, tensor([0, 2, 0], torch.uint8), note="uint8 stays uint8")
        g.call(op, tensor([], torch.bool))
        g.call(op, g.rand((0, 3), torch.bool), 0)
        g.call(op, g.rand((2, 3, 5), torch.bool), [0, 2])


def whole_numbers(g):
    for dtype in (*INTS, torch.bool):
        values = g.rand((3, 5), dtype, -4, 5)
        for op in ("sum", "prod"):
            g.call(op, values)
            g.call(op, values, 1)
        g.call("cumsum", values, 1)
        if dtype != torch.bool:
            g.call("amax", values, 0)
            g.call("amin", values)
        g.call("mean", values, None, dtype=torch.float32)
    g.call("sum", tensor([2**62, 2**53 + 1, -(2**62)], torch.int64, "big"))
    g.call("sum", tensor([200, 100, 7], torch.uint8))
    g.call("amax", tensor([2**53, 2**53 + 1], torch.int64, "big"), 0)
    g.call("amax", tensor([False, True], torch.bool), 0)


def empty(g):
    for op in ("sum", "mean", "prod"):
        g.call(op, g.rand((0, 3)))
        g.call(op, g.rand((0, 3)), 0)
        g.call(op, g.rand((0, 3)), 1, keepdim=True)
    g.call("sum", g.rand((2, 0), torch.int64), 1)
    g.call("logsumexp", g.rand((0, 3)), 0)
    g.call("amax", g.rand((0, 3)), 1)
    g.call("var", g.rand((0, 3)), 0)
    g.call("norm", g.rand((0, 3)))
    g.call("cumsum", g.rand((0, 3)), 0)


def not_finite(g):
    values = tensor([[1.0, math.nan, 2.0], [math.inf, 1.0, 2.0], [math.inf, -math.inf, 0.0], [-math.inf, -math.inf, -math.inf]], word="special-valued")
    for op in ("sum", "mean", "prod", "amax", "amin", "logsumexp", "var", "cumsum", "cumprod"):
        g.call(op, values, 1, grad=False)
    g.call("norm", values, 2, 1, grad=False)
    g.call("logsumexp", tensor([[88.0, 89.0, 90.0], [-200.0, -201.0, -300.0]]), 1, note="no overflow")
    g.call("sum", tensor([60000.0, 60000.0, -60000.0], torch.float16), note="summed in float32")
    g.call("mean", tensor([60000.0, 60000.0, 40000.0], torch.float16), note="summed in float32")


def variance(g):
    for op in ("var", "std"):
        for correction in (0, 1, 2):
            g.call(op, g.transposed((3, 5)), 1, correction=correction)
        g.call(op, g.rand((2, 3, 5)), [0, 2], correction=0, keepdim=True)
        g.call(op, g.rand((7,)), None, correction=0, method=True)
        g.call(op, g.rand((3, 1)), 1, grad=False, note="one element")
        g.call(op, g.rand((7,), low=1000, high=1001), note="far from 0")


def norms(g):
    for order in (2, 1, 0, 3, 0.5, math.inf, -math.inf):
        grad = order != 0
        g.call("norm", g.transposed((3, 5), low=0.2, high=2), order, grad=grad)
        g.call("norm", g.rand((3, 5)), order, 1, grad=grad)
        g.call("norm", g.stepped((2, 3, 5), torch.float64), order, [0, 2], keepdim=True, grad=grad)
    g.call("norm", g.permuted((2, 3, 5)))
    g.call("norm", g.rand((7,), torch.bfloat16), method=True)
    g.call("norm", g.rand((7,), torch.float16), 2)
    g.call("norm", g.rand((3, 5)), 2, -1, keepdim=True, method=True)
    g.call("norm", torch.zeros(3), note="gradient at 0 is 0")


def scans(g):
    for op in ("cumsum", "cumprod"):
        low = 0.5 if op == "cumprod" else -2
        g.call(op, g.transposed((3, 5), low=low), 1)
        g.call(op, g.permuted((2, 3, 5), low=low), 0, method=True)
        g.call(op, g.stepped((7,), torch.float64, low), -1)
        g.call(op, g.rand((2, 7), torch.bfloat16, low), -1)
        # PyTorch computes this gradient of cumprod in float16, although the result is float32: too far from the true value.
        g.call(op, g.rand((5,), torch.float16, low), 0, dtype=torch.float32, grad=op != "cumprod")
        g.call(op, g.rand((2, 131), torch.float32, 0.9, 1.1), 1)
        g.call(op, g.rand((3, 5), torch.int32, -3, 4), 0)
        g.call(op, g.rand(()), 0)


def edge_gradients(g):
    for op in ("amax", "amin"):
        g.call(op, tensor([[1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0]]), 1, note="ties share the gradient")
        g.call(op, tensor([3.0, 1.0, 3.0, 1.0]), note="ties share the gradient")
    g.call("prod", tensor([[2.0, 0.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0]]), 1, note="zeros")
    g.call("prod", tensor([2.0, 0.0, 3.0]), note="one zero")
    g.call("cumprod", tensor([2.0, 0.5, 0.0, 3.0]), 0, note="a zero")
