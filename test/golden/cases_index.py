"""Indexing, gathering, scattering, ordering. Indices repeat, are negative where PyTorch allows it, and may be empty."""

import math

import torch

from inputs import FLOATS, INTS, tensor


def aten_index(source, indices):
    return torch.ops.aten.index.Tensor(source, list(indices))


def aten_index_put(source, indices, values, accumulate=False):
    return torch.ops.aten.index_put.default(source, list(indices), values, accumulate)


def sort(source, dim, **options):
    return torch.sort(source, dim=dim, **options)


def build(g):
    index(g)
    index_put(g)
    select_and_add(g)
    gather_and_scatter(g)
    masks(g)
    order(g)
    words(g)


def index(g):
    rows = tensor([2, 0, -1, 2])
    call = lambda source, indices, **options: g.call("index", source, indices, fn=aten_index, **options)  # noqa: E731
    call(g.rand((3, 5)), [rows])
    call(g.transposed((3, 5)), [rows])
    call(g.permuted((3, 2, 5)), [None, tensor([1, 0, 0])])
    call(g.rand((3, 5)), [rows, tensor([4, 0, 1, 4])])
    call(g.rand((3, 5)), [tensor([[0], [2]]), tensor([1, 3, -5])], note="indices broadcast")
    call(g.rand((2, 3, 5)), [None, None, tensor([[0, 4], [1, 1]])])
    call(g.rand((2, 3, 5)), [tensor([1, 0]), None, tensor([4, 2])], note="indices apart go first")
    call(g.rand((2, 3, 5)), [None, tensor([1, 0]), tensor([4, 2])], note="indices together stay in place")
    call(g.stepped((4, 3), torch.bfloat16), [tensor([3, 3, 0])])
    call(g.rand((4, 3), torch.int64, -9, 9), [tensor([3, 1])])
    call(g.rand((4, 3), torch.bool), [tensor([3, 1])])
    call(g.rand((3, 5)), [tensor([], torch.int64)])
    call(g.rand((0, 5)), [tensor([], torch.int64)])
    call(g.rand((5,)), [tensor(2)], note="index without dims")
    call(g.rand((5,)), [tensor([True, False, True, False, True], torch.bool)])
    call(g.transposed((3, 5)), [g.rand((3, 5), torch.bool)])
    call(g.rand((3, 5)), [None, tensor([True, False, True, False, True], torch.bool)])
    call(g.rand((3, 5)), [tensor([False, False, False], torch.bool)])


def index_put(g):
    rows = tensor([2, 0, 1])
    call = lambda *args, **options: g.call("indexPut", *args, fn=aten_index_put, **options)  # noqa: E731
    call(g.rand((3, 5)), [rows], g.rand((3, 5)))
    call(g.transposed((3, 5)), [rows], g.rand((5,)))
    call(g.rand((3, 5)), [tensor([2, 0, 2, 2])], g.rand((4, 5)), accumulate=True)
    call(g.rand((3, 5)), [tensor([2, 0, 2]), tensor([-1, 0, 4])], g.rand((3,)), accumulate=True)
    call(g.rand((3, 5)), [tensor([2, 0]), tensor([1, 4])], g.rand(()))
    call(g.rand((2, 3, 5)), [None, tensor([1, 1, 0])], g.rand((2, 3, 5)), accumulate=True)
    call(g.rand((3, 5)), [g.rand((3, 5), torch.bool)], g.rand(()))
    call(g.rand((3, 5), torch.bfloat16), [tensor([0, 0, 1])], g.rand((3, 5), torch.bfloat16), accumulate=True)
    call(g.rand((4,), torch.int64, -9, 9), [tensor([3, 3, 3])], tensor([1, 10, 100]), accumulate=True)
    call(g.rand((3, 5)), [tensor([], torch.int64)], g.rand((0, 5)))


def select_and_add(g):
    for dtype in FLOATS:
        g.call("indexSelect", g.transposed((3, 5), dtype), 1, tensor([4, 0, 0]))
    g.call("indexSelect", g.permuted((2, 3, 5)), -2, tensor([2, 1, 2, 0]), method=True)
    g.call("indexSelect", g.rand((3, 5), torch.int32, -9, 9), 0, tensor([1], torch.int32))
    g.call("indexSelect", g.rand((3, 5)), 0, tensor([], torch.int64))
    g.call("indexAdd", g.rand((3, 5)), 0, tensor([2, 0, 2]), g.rand((3, 5)))
    g.call("indexAdd", g.transposed((3, 5)), 1, tensor([4, 4]), g.stepped((3, 2)), alpha=-0.5)
    g.call("indexAdd", g.rand((4,), torch.int64, -9, 9), 0, tensor([3, 3, 0]), tensor([1, 10, 100]), method=True)


def gather_and_scatter(g):
    index_32 = tensor([[0, 4], [3, 3], [1, 0]])
    g.call("gather", g.rand((3, 5)), 1, index_32)
    g.call("gather", g.transposed((3, 5), torch.float64), 1, index_32, method=True)
    g.call("gather", g.permuted((3, 2, 5)), -2, g.ints((3, 3, 5), 0, 2))
    g.call("gather", g.rand((4, 5), torch.bfloat16), 0, tensor([[3, 0, 0], [1, 1, 2]]))
    g.call("gather", g.rand((5,), torch.int64, -9, 9), 0, tensor([4, 4, 0]))
    g.call("gather", g.rand((3, 5)), 1, torch.zeros(3, 0, dtype=torch.int64))
    apart = tensor([[0, 4], [3, 1], [1, 0]])
    g.call("scatter", g.rand((3, 5)), 1, apart, g.rand((3, 2)))
    g.call("scatter", g.transposed((3, 5)), 1, apart, g.stepped((3, 2)), method=True)
    g.call("scatter", g.rand((3, 5)), 0, tensor([[2, 0, 1, 1, 0]]), g.rand((1, 5)))
    g.call("scatter", g.rand((3, 5), torch.bfloat16), 1, apart, -1.5)
    g.call("scatter", g.rand((3, 5), torch.int64, -9, 9), 1, apart, 7)
    g.call("scatter", g.rand((3, 5)), 1, apart[:2], g.rand((3, 4)), fixed=("3",), note="an index smaller than its source")
    g.call("scatterAdd", g.rand((3, 5)), 1, index_32, g.rand((3, 2)))
    g.call("scatterAdd", g.permuted((2, 3, 5)), 0, g.ints((4, 3, 5), 0, 2), g.rand((4, 3, 5)))
    g.call("scatterAdd", g.rand((5,), torch.float16), 0, tensor([1, 1, 4]), g.rand((3,), torch.float16), method=True)
    g.call("scatterAdd", g.rand((5,), torch.int32, -9, 9), 0, tensor([1, 1, 4]), tensor([1, 10, 100], torch.int32))
    g.call("scatterAdd", g.rand((3, 5)), 0, torch.zeros(0, 5, dtype=torch.int64), g.rand((0, 5)))


def masks(g):
    g.call("maskedFill", g.rand((3, 5)), g.rand((3, 5), torch.bool), -math.inf)
    g.call("maskedFill", g.transposed((3, 5)), g.rand((5,), torch.bool), 0.5)
    g.call("maskedFill", g.permuted((2, 3, 5), torch.bfloat16), g.rand((3, 1), torch.bool), -2, method=True)
    g.call("maskedFill", g.rand((3, 5), torch.int64, -9, 9), g.rand((3, 5), torch.bool), 7)
    g.call("maskedFill", g.rand((3, 5)), g.rand((3, 5), torch.bool), g.rand(()))
    g.call("maskedFill", g.rand((0, 5)), g.rand((1, 5), torch.bool), 1)
    g.call("maskedSelect", g.transposed((3, 5)), g.rand((3, 5), torch.bool))
    g.call("maskedSelect", g.rand((3, 5)), g.rand((5,), torch.bool), method=True)
    g.call("nonzero", tensor([[0.0, 1.0, math.nan], [-0.0, 0.0, 2.0]]))
    g.call("nonzero", g.permuted((2, 3, 5), torch.bool), method=True)
    g.call("nonzero", torch.zeros(3, dtype=torch.int64))
    g.call("nonzero", tensor(3))


def order(g):
    for dtype in (*FLOATS, *INTS):
        values = g.distinct((3, 5), dtype) if dtype != torch.uint8 else g.distinct((3, 5), torch.int64).add(7).to(torch.uint8)
        g.call("sort", values, -1)
        g.call("topk", values, 2)
    g.call("sort", g.distinct((5, 3)).t(), 0, descending=True)
    g.call("sort", g.distinct((2, 3, 5)), 1, method=True)
    g.call("sort", tensor([2, 1, 2, 1, 0, 2], torch.int64), 0, fn=sort, stable=True)
    g.call("sort", tensor([2.0, 1.0, 2.0, 1.0, 0.0, 2.0]), 0, fn=sort, stable=True, descending=True)
    g.call("sort", tensor([1.0, math.nan, -math.inf, math.inf, 0.5]), 0, grad=False, note="NaN is largest")
    g.call("sort", tensor([1.0, math.nan, -math.inf, math.inf, 0.5]), 0, grad=False, descending=True, note="NaN is largest")
    g.call("sort", g.distinct((2, 131)))
    g.call("argsort", g.distinct((5, 3)).t(), 0)
    g.call("argsort", g.distinct((2, 7)), -1, method=True, descending=True)
    g.call("sort", g.rand((0, 3)), 0)
    g.call("sort", g.rand(()))
    g.call("topk", g.distinct((5, 3)).t(), 3, 1)
    g.call("topk", g.distinct((2, 3, 5)), 2, 1, largest=False)
    g.call("topk", g.distinct((7,)), 7, method=True)
    g.call("topk", g.distinct((7,)), 1, -1, sorted=True)
    g.call("topk", g.distinct((2, 131)), 5)
    g.call("topk", g.distinct((3, 5)), 0)
    g.call("topk", tensor([1.0, math.nan, math.inf]), 2, grad=False, note="NaN is largest")


def words(g):
    tokens = tensor([[1, 0, 3], [3, 3, 6]])
    g.call("embedding", tokens, g.rand((7, 5)))
    g.call("embedding", tokens, g.transposed((7, 5)), padding_idx=3)
    g.call("embedding", tokens, g.rand((7, 5)), padding_idx=-1)
    g.call("embedding", tensor(2), g.rand((7, 5), torch.bfloat16))
    g.call("embedding", tensor([6, 1], torch.int32), g.rand((7, 2), torch.float64))
    g.call("embedding", torch.zeros(0, 3, dtype=torch.int64), g.rand((7, 5)))
    g.call("oneHot", tokens)
    g.call("oneHot", tokens, 9)
    g.call("oneHot", tensor(2), 4)
    g.call("oneHot", tensor([], torch.int64), 3)
