"""Softmax and normalisation, as functions; activations stand with the other ops of one tensor."""

import math

import torch

from inputs import FLOATS, tensor


def build(g):
    for op in ("softmax", "logSoftmax"):
        softmax(g, op)
    layer_norm(g)
    rms_norm(g)
    dropout(g)


def softmax(g, op):
    for dtype in FLOATS:
        g.call(op, g.transposed((3, 5), dtype), -1)
    g.call(op, g.transposed((3, 5)), 0)
    g.call(op, g.permuted((2, 3, 5)), 1, method=True)
    g.call(op, g.stepped((2, 7), torch.bfloat16), -1, method=True)
    g.call(op, g.expanded((3, 2, 5)), 0)
    g.call(op, g.rand((2, 131), low=-5, high=5), 1)
    g.call(op, g.rand((3, 5), torch.float16), -1, dtype=torch.float32)
    g.call(op, g.rand((3, 5), torch.bfloat16), -1, dtype=torch.float64)
    g.call(op, g.rand((3, 1)), 1)
    g.call(op, g.rand((0, 5)), 1)
    g.call(op, g.rand((3, 0)), 1)
    g.call(op, g.rand(()), 0)
    g.call(op, tensor([[1000.0, 1001.0, 999.0], [-1000.0, -1000.0, -1001.0]]), 1, note="no overflow")
    g.call(op, tensor([[1.0, -math.inf, 2.0], [-math.inf, -math.inf, 0.0]]), 1, note="masked")
    rows = tensor([[-math.inf, -math.inf], [math.nan, 1.0], [math.inf, 1.0], [0.0, 0.0]], word="special-valued")
    g.call(op, rows, 1, grad=False)


def layer_norm(g):
    """Arguments in order: input, shape, weight, bias, eps."""
    affine = lambda shape, dtype=torch.float32: (g.rand(shape, dtype, 0.5, 1.5), g.rand(shape, dtype))  # noqa: E731
    for dtype in FLOATS:
        g.call("layerNorm", g.rand((3, 7), dtype), [7], *affine((7,), dtype))
    g.call("layerNorm", g.rand((3, 7)), [7])
    g.call("layerNorm", g.rand((3, 7)), [7], g.rand((7,)))
    g.call("layerNorm", g.rand((3, 7)), [7], None, None, 0.5)
    g.call("layerNorm", g.transposed((3, 5)), [5], *affine((5,)), 1e-3)
    g.call("layerNorm", g.permuted((2, 3, 5)), [3, 5], *affine((3, 5)))
    g.call("layerNorm", g.expanded((4, 2, 5)), [5], g.stepped((5,)), g.rand((5,)))
    g.call("layerNorm", g.rand((2, 131)), [131], *affine((131,)))
    g.call("layerNorm", g.rand((3, 7), low=100, high=101), [7], note="far from 0")
    g.call("layerNorm", g.rand((0, 7)), [7], *affine((7,)))
    g.call("layerNorm", torch.full((2, 5), 3.0), [5], *affine((5,)), note="constant rows")
    g.call("layerNorm", g.rand((7,)), [7], *affine((7,)))


def rms_norm(g):
    """Arguments in order: input, shape, weight, eps (by default the dtype's epsilon)."""
    for dtype in FLOATS:
        g.call("rmsNorm", g.rand((3, 7), dtype), [7], g.rand((7,), dtype, 0.5, 1.5), 1e-5)
    g.call("rmsNorm", g.rand((3, 7)), [7])
    g.call("rmsNorm", g.rand((3, 7), torch.float64), [7], g.rand((7,), torch.float64))
    g.call("rmsNorm", g.rand((3, 7)), [7], None, 0.5)
    g.call("rmsNorm", g.transposed((3, 5)), [5], g.stepped((5,)), 1e-3)
    g.call("rmsNorm", g.permuted((2, 3, 5)), [3, 5], g.rand((3, 5)), 1e-6)
    g.call("rmsNorm", g.rand((2, 131)), [131], g.rand((131,)), 1e-6)
    g.call("rmsNorm", g.rand((0, 7)), [7], None, 1e-6)


def dropout(g):
    """Only what does not depend on random numbers. Arguments in order: input, p, training."""
    g.call("dropout", g.transposed((3, 5)), 0.5, False)
    g.call("dropout", g.transposed((3, 5)), 0.0, True)
    g.call("dropout", g.transposed((3, 5)), 1.0, True)
