"""Matrix products: layouts of both operands, batches that broadcast, empty sizes, bias terms, einsum."""

import torch

from inputs import FLOATS


def build(g):
    mm(g)
    matmul(g)
    batched(g)
    added(g)
    linear(g)
    vectors(g)
    einsum(g)


def mm(g):
    for dtype in FLOATS:
        g.call("mm", g.rand((3, 5), dtype), g.rand((5, 7), dtype))
        g.call("mm", g.transposed((3, 5), dtype), g.rand((5, 7), dtype))
        g.call("mm", g.rand((3, 5), dtype), g.transposed((5, 7), dtype), method=True)
        g.call("mm", g.transposed((3, 5), dtype), g.transposed((5, 7), dtype))
    g.call("mm", g.stepped((3, 5)), g.expanded((5, 2)))
    g.call("mm", g.expanded((3, 5)), g.stepped((5, 2)))
    g.call("mm", g.offset((3, 5)), g.offset((5, 2)))
    g.call("mm", g.rand((1, 1)), g.rand((1, 1)))
    g.call("mm", g.rand((1, 7)), g.rand((7, 1)))
    g.call("mm", g.rand((7, 1)), g.rand((1, 5)))
    g.call("mm", g.rand((0, 5)), g.rand((5, 3)))
    g.call("mm", g.rand((3, 0)), g.rand((0, 5)))
    g.call("mm", g.rand((17, 67)), g.rand((67, 19)), grad=False)
    g.call("mm", g.rand((17, 67), torch.bfloat16), g.transposed((67, 19), torch.bfloat16), grad=False)
    g.call("mm", g.rand((67, 17), torch.float16).t(), g.rand((67, 19), torch.float16), grad=False)
    g.call("mm", g.rand((2, 3), torch.int64, -9, 9), g.rand((3, 2), torch.int64, -9, 9))


def matmul(g):
    shapes = [
        ((5,), (5,)),
        ((3, 5), (5,)),
        ((5,), (5, 3)),
        ((3, 5), (5, 2)),
        ((2, 3, 5), (5,)),
        ((5,), (2, 5, 3)),
        ((2, 3, 5), (5, 2)),
        ((3, 5), (2, 5, 2)),
        ((2, 3, 5), (2, 5, 1)),
        ((2, 1, 3, 5), (4, 5, 2)),
        ((1, 3, 5), (7, 5, 1)),
        ((0, 3, 5), (5, 2)),
        ((2, 3, 0), (2, 0, 5)),
        ((2, 0, 5), (5, 3)),
    ]
    for left, right in shapes:
        g.call("matmul", g.rand(left), g.rand(right))
    g.call("matmul", g.permuted((2, 3, 5)), g.transposed((2, 5, 3)), method=True)
    g.call("matmul", g.expanded((4, 3, 5)), g.stepped((4, 5, 2)))
    g.call("matmul", g.permuted((2, 3, 5), torch.bfloat16), g.rand((5, 7), torch.bfloat16))
    g.call("matmul", g.transposed((2, 3, 5), torch.float64), g.transposed((5, 3), torch.float64))
    g.call("matmul", g.rand((2, 2, 3, 5), torch.float16).transpose(1, 2), g.rand((2, 1, 5, 3), torch.float16))


def batched(g):
    g.call("bmm", g.rand((2, 3, 5)), g.rand((2, 5, 7)))
    g.call("bmm", g.permuted((2, 3, 5)), g.transposed((2, 5, 3)))
    g.call("bmm", g.expanded((3, 2, 5)), g.rand((3, 5, 2)), method=True)
    g.call("bmm", g.rand((2, 3, 5), torch.bfloat16), g.transposed((2, 5, 3), torch.bfloat16))
    g.call("bmm", g.rand((2, 3, 5), torch.float64), g.stepped((2, 5, 3), torch.float64))
    g.call("bmm", g.rand((0, 3, 5)), g.rand((0, 5, 2)))
    g.call("bmm", g.rand((2, 3, 0)), g.rand((2, 0, 2)))


def added(g):
    for bias in ((3, 2), (2,), (3, 1), (1, 1)):
        g.call("addmm", g.rand(bias), g.rand((3, 5)), g.rand((5, 2)))
    g.call("addmm", g.transposed((3, 2)), g.transposed((3, 5)), g.stepped((5, 2)), beta=0.5, alpha=-2.0)
    g.call("addmm", g.rand((3, 2)), g.rand((3, 5)), g.rand((5, 2)), beta=0.0, method=True)
    g.call("addmm", g.rand((3, 2)), g.rand((3, 0)), g.rand((0, 2)), beta=2.0)
    g.call("addmm", torch.full((3, 2), float("nan")), g.rand((3, 5)), g.rand((5, 2)), beta=0, grad=False, note="beta 0 ignores NaN")
    g.call("addmm", g.rand((2,), torch.bfloat16), g.rand((3, 5), torch.bfloat16), g.rand((5, 2), torch.bfloat16))
    g.call("addmm", g.rand((2,), torch.float64), g.rand((3, 5), torch.float64), g.rand((5, 2), torch.float64), alpha=0.25)
    g.call("baddbmm", g.rand((2, 3, 7)), g.rand((2, 3, 5)), g.rand((2, 5, 7)))
    g.call("baddbmm", g.rand((1, 7)), g.permuted((2, 3, 5)), g.transposed((2, 5, 7)), beta=-1.0, alpha=0.5)
    g.call("baddbmm", g.rand((2, 1, 1), torch.float64), g.rand((2, 3, 5), torch.float64), g.rand((2, 5, 7), torch.float64), method=True)


def linear(g):
    for shape in ((5,), (3, 5), (2, 3, 5), (0, 5), (2, 1, 3, 5)):
        g.call("linear", g.rand(shape), g.rand((7, 5)), g.rand((7,)))
    g.call("linear", g.rand((3, 5)), g.rand((7, 5)))
    g.call("linear", g.permuted((2, 3, 5)), g.transposed((7, 5)), g.stepped((7,)))
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        g.call("linear", g.rand((2, 3, 5), dtype), g.rand((7, 5), dtype), g.rand((7,), dtype))
    g.call("linear", g.rand((3, 5)), g.rand((5,)), note="weight of one dim")


def vectors(g):
    g.call("dot", g.rand((7,)), g.stepped((7,)))
    g.call("dot", g.rand((131,), torch.float64), g.rand((131,), torch.float64), method=True, grad=False)
    g.call("dot", g.rand((0,)), g.rand((0,)))
    g.call("mv", g.transposed((3, 5)), g.stepped((5,)))
    g.call("mv", g.rand((3, 5), torch.bfloat16), g.rand((5,), torch.bfloat16), method=True)
    g.call("outer", g.rand((3,)), g.stepped((5,)))
    g.call("outer", g.rand((3,), torch.bfloat16), g.rand((1,), torch.bfloat16), method=True)
    g.call("outer", g.rand((0,)), g.rand((3,)))


def einsum(g):
    equations = [
        ("ij,jk->ik", (3, 5), (5, 2)),
        ("ij,jk", (3, 5), (5, 2)),
        ("ij,kj->ik", (3, 5), (2, 5)),
        ("bij,bjk->bik", (2, 3, 5), (2, 5, 3)),
        ("bhqd,bhkd->bhqk", (2, 1, 3, 5), (2, 1, 7, 5)),
        ("bthd,bshd->bhts", (2, 3, 2, 5), (2, 4, 2, 5)),
        ("...ij,...jk->...ik", (2, 3, 5), (5, 2)),
        ("i,j->ij", (3,), (5,)),
        ("i,i->", (5,), (5,)),
        ("ij,ij->i", (3, 5), (3, 5)),
        ("ij,ij->", (3, 5), (3, 5)),
        ("ii->i", (3, 3)),
        ("ii->", (3, 3)),
        ("ij->ji", (3, 5)),
        ("ij->", (3, 5)),
        ("ijk->k", (2, 3, 5)),
        ("ba", (3, 5)),
        ("bn,anm,bm->ba", (2, 3), (5, 3, 4), (2, 4)),
        ("bij,jk->bik", (0, 3, 5), (5, 2)),
    ]
    for equation, *shapes in equations:
        g.call("einsum", equation, *[g.rand(shape) for shape in shapes])
    g.call("einsum", "ij,jk->ik", g.transposed((3, 5), torch.float64), g.stepped((5, 2), torch.float64))
    g.call("einsum", "bij,bkj->bik", g.permuted((2, 3, 5), torch.bfloat16), g.rand((2, 7, 5), torch.bfloat16))
