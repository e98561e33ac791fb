"""Views and joins: values, strides, whether memory is shared with the input, gradients."""

import torch

from inputs import tensor


def build(g):
    reshaping(g)
    reordering(g)
    sizes_of_one(g)
    cutting(g)
    windows(g)
    joining(g)
    rearranging(g)


def reshaping(g):
    view = lambda op, *args, **options: g.call(op, *args, strides=True, **options)  # noqa: E731
    for op in ("reshape", "view"):
        view(op, g.rand((2, 3, 5)), [6, 5])
        view(op, g.rand((2, 3, 5)), [-1])
        view(op, g.rand((2, 3, 5)), 5, -1, 2, method=True)
        view(op, g.rand((1,)), [])
        view(op, g.rand(()), [1, 1])
        view(op, g.rand((0, 3)), [3, 0, 7])
        view(op, g.offset((4, 3), torch.bfloat16), [2, 6])
        view(op, g.stepped((4, 3), torch.int64, -9, 9), [2, 2, 3])
    view("reshape", g.transposed((3, 5)), [15])
    view("reshape", g.permuted((2, 3, 5)), [6, 5])
    view("reshape", g.expanded((2, 3)), [3, 2])
    view("flatten", g.rand((2, 3, 5)))
    view("flatten", g.rand((2, 3, 5)), 1)
    view("flatten", g.permuted((2, 3, 5)), 0, 1)
    view("flatten", g.rand((2, 3, 5)), -2, -1, method=True)
    view("flatten", g.rand(()))
    view("flatten", g.transposed((3, 5), torch.float64))
    view("unflatten", g.rand((6, 5)), 0, [2, 3], method=True)
    view("unflatten", g.permuted((2, 3, 4)), -1, [2, -1], method=True)


def reordering(g):
    view = lambda op, *args, **options: g.call(op, *args, strides=True, **options)  # noqa: E731
    view("permute", g.rand((2, 3, 5)), [2, 0, 1])
    view("permute", g.stepped((2, 3, 5)), [-1, 1, 0])
    view("permute", g.rand((2, 1, 3, 5), torch.float16), 0, 2, 1, 3, method=True)
    view("permute", g.rand(()), [])
    view("transpose", g.rand((2, 3, 5)), 0, 2)
    view("transpose", g.permuted((2, 3, 5)), -1, -2, method=True)
    view("transpose", g.rand((3, 5), torch.bool), 0, 1)
    view("movedim", g.rand((2, 3, 5)), 0, 2)
    view("movedim", g.permuted((2, 3, 5)), -1, 0, method=True)
    view("t", g.rand((3, 5)))
    view("t", g.rand((5,)), method=True)


def sizes_of_one(g):
    view = lambda op, *args, **options: g.call(op, *args, strides=True, **options)  # noqa: E731
    view("squeeze", g.rand((1, 3, 1, 5)))
    view("squeeze", g.rand((1, 3, 1, 5)), 2)
    view("squeeze", g.rand((1, 3, 1, 5)), 1, note="nothing to squeeze")
    view("squeeze", g.rand((1, 3, 1, 5)), [0, 2])
    view("squeeze", g.rand((1, 1)), method=True)
    for dim in (0, 1, 2, -1, -2):
        view("unsqueeze", g.transposed((3, 5)), dim)
    view("unsqueeze", g.rand(()), 0, method=True)
    view("expand", g.rand((3, 1)), [3, 5])
    view("expand", g.rand((5,)), 2, 3, 5, method=True)
    view("expand", g.transposed((3, 1)), [-1, 4])
    view("expand", g.rand(()), [2, 2])
    view("expand", g.rand((1, 3)), [0, 3])


def cutting(g):
    view = lambda op, *args, **options: g.call(op, *args, strides=True, **options)  # noqa: E731
    view("narrow", g.rand((3, 7)), 1, 2, 3)
    view("narrow", g.transposed((5, 3)), 0, 1, 0)
    view("narrow", g.stepped((3, 7), torch.int32, -9, 9), -1, -3, 2, method=True)
    view("select", g.rand((3, 7)), 0, 1)
    view("select", g.permuted((2, 3, 5)), 1, -1)
    view("select", g.expanded((3, 5)), 1, 2, method=True)
    aten_slice = lambda t, *rest: torch.ops.aten.slice.Tensor(t, *rest)  # noqa: E731
    for rest in ((0, 1, 3), (1, 1, 6, 2), (1, -4, -1), (1, 2, 100), (1, 5, 2), (-1, 0, 7, 3)):
        view("slice", g.rand((4, 7)), *rest, fn=aten_slice)
    view("slice", g.transposed((5, 7), torch.float64), 1, 1, 6, 3, fn=aten_slice)
    view("split", g.rand((7, 2)), 3)
    view("split", g.rand((3, 7)), 2, 1)
    view("split", g.permuted((2, 3, 5)), [1, 4], -1, method=True)
    view("split", g.rand((5,)), [2, 0, 3])
    view("split", g.rand((0, 3)), 2, 0)
    for chunks in (1, 2, 3, 4, 5, 7, 9):
        view("chunk", g.rand((7,)), chunks)
    view("chunk", g.transposed((3, 5)), 2, 1, method=True)
    view("chunk", g.rand((6, 2)), 4, 0, note="three chunks of two, not four")
    view("unbind", g.rand((3, 2)))
    view("unbind", g.permuted((2, 3, 5)), 1, method=True)
    view("unbind", g.rand((0, 3)), 1)


def windows(g):
    view = lambda op, *args, **options: g.call(op, *args, strides=True, **options)  # noqa: E731
    view("diagonal", g.rand((3, 5)))
    for offset in (1, -1, 4, 5, -3):
        view("diagonal", g.rand((3, 5)), offset)
    view("diagonal", g.permuted((2, 3, 5)), 1, 0, 2)
    view("diagonal", g.rand((2, 3, 3), torch.bfloat16), 0, -2, -1, method=True)
    view("unfold", g.rand((7,)), 0, 3, 2, method=True)
    view("unfold", g.rand((2, 7)), 1, 3, 1, method=True)
    view("unfold", g.permuted((2, 3, 5)), -1, 2, 2, method=True)
    view("unfold", g.rand((5, 2)), 0, 5, 1, method=True)
    view("asStrided", g.rand((12,)), [2, 3], [1, 4], 2)
    view("asStrided", g.rand((12,)), [3, 3], [2, 2])


def joining(g):
    join = lambda op, *args, **options: g.call(op, *args, strides=True, **options)  # noqa: E731
    join("cat", [g.rand((2, 3)), g.rand((1, 3))])
    join("cat", [g.transposed((2, 3)), g.stepped((2, 5)), g.rand((2, 1))], 1)
    join("cat", [g.permuted((2, 3, 5)), g.rand((2, 1, 5)), g.expanded((2, 4, 5))], -2)
    join("cat", [g.rand((2, 3)), g.rand((0, 3)), g.rand((1, 3))])
    join("cat", [g.rand((0,)), g.rand((2, 3))], 1, note="an empty vector is left out")
    join("cat", [g.rand((2, 3), torch.bfloat16)])
    join("cat", [g.rand((2,), torch.float16), g.rand((3,), torch.float32)])
    join("cat", [g.rand((2,), torch.int64, -9, 9), g.rand((3,), torch.float32)])
    join("cat", [g.rand((2,), torch.uint8, 0, 9), g.rand((1,), torch.bool), g.rand((1,), torch.int32, -9, 9)])
    join("cat", [g.rand((0, 3)), g.rand((0, 2))], 1)
    for dim in (0, 1, 2, -1):
        join("stack", [g.rand((3, 5)), g.transposed((3, 5))], dim)
    join("stack", [g.rand(()), g.rand(()), g.rand(())])
    join("stack", [g.rand((0,)), g.rand((0,))], 1)
    join("stack", [g.rand((2,), torch.int64, -9, 9), g.rand((2,), torch.float64)])
    same = g.rand((2, 3))
    join("cat", [same, same], 1, note="one tensor twice")


def rearranging(g):
    """Copies that move or drop elements."""
    g.call("flip", g.transposed((3, 5)), [0])
    g.call("flip", g.rand((2, 3, 5)), [0, -1], method=True)
    g.call("roll", g.rand((7,)), 3, 0)
    g.call("roll", g.transposed((3, 5)), -2, 1, method=True)
    g.call("repeat", g.transposed((2, 3)), [2, 1], method=True)
    g.call("repeat", g.rand((3,)), 2, 2, method=True)
    for op in ("tril", "triu"):
        g.call(op, g.rand((3, 5)))
        g.call(op, g.transposed((5, 3)), diagonal=1)
        g.call(op, g.permuted((2, 3, 5)), diagonal=-1)
        g.call(op, g.stepped((3, 3), torch.bfloat16), diagonal=2, method=True)
        g.call(op, g.rand((3, 5), torch.int64, -9, 9), diagonal=-2)
        g.call(op, torch.ones(3, 3, dtype=torch.bool))
        g.call(op, g.rand((0, 3)))
        g.call(op, g.rand((2, 3)), diagonal=9)
        g.call(op, tensor([[float("nan"), float("inf")], [float("inf"), float("nan")]]), grad=False, note="NaN outside becomes 0")
