"""In-place twins: the result lands in the same memory, and what lies beside a view stays as it was."""

import torch

from inputs import tensor

UNARY = ("exp", "neg", "abs", "sqrt", "relu", "sigmoid", "tanh", "floor", "reciprocal")
BINARY = ("add", "sub", "mul", "div", "pow", "fmod", "remainder")


def build(g):
    for op in UNARY:
        for target in g.layouts((3, 5), low=0.2, high=2):
            if target.golden_word != "expanded":
                g.call(f"{op}_", target, method=True)
    for op in BINARY:
        g.call(f"{op}_", g.transposed((3, 5), low=0.3, high=2), g.rand((5,), low=0.3, high=2), method=True)
        g.call(f"{op}_", g.stepped((3, 5), torch.bfloat16, 0.3, 2), 1.5, method=True)
        g.call(f"{op}_", g.offset((3, 5), torch.float64, 0.3, 2), g.rand((3, 1), torch.float32, 0.3, 2), method=True)
    g.call("add_", g.rand((3, 5)), g.rand((3, 5)), method=True, alpha=-0.5)
    g.call("add_", g.rand((5,), torch.int64, -9, 9), g.rand((5,), torch.uint8, 0, 9), method=True)
    g.call("mul_", g.rand((5,), torch.float16), g.rand((5,), torch.float32), method=True)
    g.call("sub_", g.rand((0, 3)), 1, method=True)
    g.call("clamp_", g.transposed((3, 5)), method=True, min=-0.5, max=0.5)
    g.call("addcmul_", g.transposed((3, 5)), g.rand((3, 5)), g.rand((5,)), method=True, value=0.5)
    g.call("addcdiv_", g.stepped((3, 5)), g.rand((3, 5)), g.rand((5,), low=0.5, high=2), method=True, value=-2.0)
    g.call("lerp_", g.rand((3, 5)), g.rand((3, 5)), 0.25, method=True)
    filling(g)
    indexed(g)


def filling(g):
    for target in (g.transposed((3, 5)), g.stepped((3, 5), torch.bfloat16), g.offset((2, 3), torch.int64, -9, 9), g.rand((), torch.float64)):
        g.call("fill_", target, 2, method=True)
        g.call("zero_", target, method=True)
    g.call("fill_", g.stepped((3,), torch.bool), 1, method=True)
    g.call("copy_", g.transposed((3, 5)), g.rand((3, 5)), method=True)
    g.call("copy_", g.stepped((3, 5), torch.bfloat16), g.rand((5,)), method=True)
    g.call("copy_", g.offset((2, 3), torch.int64, -9, 9), tensor([[1.5], [-2.5]]), method=True)
    g.call("copy_", g.permuted((2, 3, 5)), g.permuted((2, 3, 5)), method=True)


def indexed(g):
    g.call("maskedFill_", g.transposed((3, 5)), g.rand((5,), torch.bool), -1.5, method=True)
    g.call("indexPut_", g.transposed((3, 5)), [tensor([2, 0, 2])], g.rand((3, 5)), fn=index_put_, method=True, accumulate=True)
    g.call("indexAdd_", g.stepped((3, 5)), 0, tensor([2, 0, 2]), g.rand((3, 5)), method=True)
    g.call("scatter_", g.stepped((3, 5)), 1, tensor([[0, 4], [3, 1], [1, 0]]), g.rand((3, 2)), method=True)
    g.call("scatter_", g.rand((3, 5)), 1, tensor([[0, 4], [3, 1], [1, 0]]), 2.5, method=True)
    g.call("scatterAdd_", g.transposed((3, 5)), 1, tensor([[0, 4], [3, 3], [1, 0]]), g.rand((3, 2)), method=True)


def index_put_(target, indices, values, accumulate=False):
    return target.index_put_(tuple(indices), values, accumulate)
