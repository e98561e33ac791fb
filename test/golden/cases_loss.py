"""Loss functions: reductions, ignored and weighted classes, label smoothing, probabilities as targets."""

import torch

from inputs import FLOATS, HALVES, tensor

REDUCTIONS = ("mean", "sum", "none")


def build(g):
    cross_entropy(g)
    class_probabilities(g)
    nll_loss(g)
    elementwise(g)


def cross_entropy(g):
    targets = tensor([0, 6, 3, 3, 1])
    ce = lambda *args, **options: g.call("crossEntropy", *args, fixed=("weight", "1"), **options)  # noqa: E731
    for dtype in FLOATS:
        ce(g.transposed((5, 7), dtype), targets)
    for reduction in REDUCTIONS:
        weight = g.rand((7,), low=0.5, high=2)
        ce(g.rand((5, 7)), targets, reduction=reduction)
        ce(g.rand((5, 7)), targets, reduction=reduction, ignore_index=3)
        ce(g.rand((5, 7)), targets, reduction=reduction, weight=weight)
        ce(g.rand((5, 7)), targets, reduction=reduction, label_smoothing=0.1)
        ce(g.rand((5, 7)), targets, reduction=reduction, weight=weight, ignore_index=3, label_smoothing=0.2)
        ce(g.rand((5, 7, 2)), g.ints((5, 2), 0, 7), reduction=reduction)
    ignored = tensor([-100, 6, -100, 3, 1])
    ce(g.rand((5, 7)), ignored)
    ce(g.rand((5, 7)), ignored, label_smoothing=0.1)
    ce(g.rand((5, 7), torch.bfloat16), ignored, reduction="sum")
    ce(g.rand((7,)), tensor(4))
    ce(g.permuted((2, 7, 3)), g.ints((2, 3), 0, 7), label_smoothing=0.1)
    ce(g.rand((2, 7, 2, 3)), g.ints((2, 2, 3), 0, 7))
    ce(g.rand((2, 131), low=-5, high=5), tensor([130, 7]))
    ce(g.rand((5, 7), low=-100, high=100), targets, note="large logits")
    ce(g.rand((2, 7)), tensor([-100, -100]), grad=False, note="everything ignored is NaN")
    ce(g.rand((2, 7)), tensor([-100, -100]), reduction="sum", note="everything ignored is 0")
    ce(g.rand((0, 7)), tensor([], torch.int64), reduction="sum")


def class_probabilities(g):
    target = torch.softmax(g.rand((5, 7)), 1)
    ce = lambda *args, **options: g.call("crossEntropy", *args, fixed=("weight", "1"), **options)  # noqa: E731
    for reduction in REDUCTIONS:
        ce(g.transposed((5, 7)), target, reduction=reduction)
    ce(g.rand((5, 7)), target, label_smoothing=0.1)
    ce(g.rand((5, 7)), target, weight=g.rand((7,), low=0.5, high=2))


def nll_loss(g):
    targets = tensor([0, 6, 3, 3, 1])
    nll = lambda *args, **options: g.call("nllLoss", *args, fixed=("weight",), **options)  # noqa: E731
    for reduction in REDUCTIONS:
        nll(g.transposed((5, 7)), targets, reduction=reduction)
        nll(g.rand((5, 7)), targets, reduction=reduction, ignore_index=3)
        nll(g.rand((5, 7)), targets, reduction=reduction, weight=g.rand((7,), low=0.5, high=2))
    nll(g.rand((5, 7), torch.float64), targets)
    nll(g.rand((5, 7), torch.bfloat16), targets)
    nll(g.rand((7,)), tensor(4))
    nll(g.rand((2, 7, 3)), g.ints((2, 3), 0, 7))


def elementwise(g):
    for reduction in REDUCTIONS:
        g.call("mseLoss", g.transposed((3, 5)), g.rand((3, 5)), reduction=reduction)
    g.call("mseLoss", g.stepped((7,), torch.float64), g.rand((7,), torch.float64))
    for dtype in HALVES:
        g.call("mseLoss", g.rand((3, 5), dtype), g.expanded((3, 5), dtype))
    g.call("mseLoss", g.rand((0, 3)), g.rand((0, 3)), reduction="sum")
    for reduction in REDUCTIONS:
        g.call("l1Loss", g.transposed((3, 5)), g.rand((3, 5)), reduction=reduction)
        chances = g.rand((3, 5), low=0, high=1)
        g.call("binaryCrossEntropyWithLogits", g.transposed((3, 5), low=-30, high=30), chances, fixed=("1",), reduction=reduction)
