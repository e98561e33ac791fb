"""Factories. Numbers that are whole in JavaScript count as integers, so dtypes are given wherever the two languages differ."""

import torch


def build(g):
    make = lambda op, *args, **options: g.call(op, *args, factory=True, calibrate=False, **options)  # noqa: E731
    make("arange", 5)
    make("arange", 2, 9)
    make("arange", 2, 9, 3)
    make("arange", 9, 2, -3)
    make("arange", 0)
    make("arange", 0, 1, 0.1)
    make("arange", 1.5, 7.25, 0.75)
    make("arange", 0.5, -2.5, -0.5)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8):
        make("arange", 1, 14, 3, dtype=dtype)
    make("arange", 7, dtype=torch.float32)
    make("linspace", 0, 1, 5)
    make("linspace", -3, 10, 7)
    make("linspace", 2.5, -2.5, 11)
    make("linspace", 3, 4, 1)
    make("linspace", 3, 4, 0)
    make("linspace", 0, 1, 131)
    for dtype in (torch.float64, torch.bfloat16, torch.int64):
        make("linspace", 0, 10, 6, dtype=dtype)
    for shape in ([], [3], [2, 0], [2, 3, 5]):
        make("zeros", shape)
        make("ones", shape, dtype=torch.int64)
        make("full", shape, 2.5)
    make("full", [3], 7, dtype=torch.int32)
    make("full", [3], 1, dtype=torch.bool)
    make("full", [2], -2.75, dtype=torch.bfloat16)
    make("full", [2], float("-inf"), dtype=torch.float16)
    make("ones", [3], dtype=torch.bool)
    make("zeros", [3], dtype=torch.uint8)
    make("eye", 3)
    make("eye", 3, 5)
    make("eye", 5, 2, dtype=torch.int64)
    make("eye", 0)
    for source in (g.transposed((3, 5), torch.float16), g.rand((2,), torch.int64)):
        like = lambda op, *args, **options: g.call(op, *args, grad=False, **options)  # noqa: E731
        like("zerosLike", source)
        like("onesLike", source)
        like("fullLike", source, 3)
        like("onesLike", source, dtype=torch.float32)
