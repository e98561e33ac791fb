"""`to` between all dtypes: rounding to nearest even, overflow, truncation, wrapping, gradients."""

import math

import torch

from inputs import FLOATS, tensor
from safetensors_file import CODES


def build(g):
    dtypes = list(CODES)
    for source in dtypes:
        # Whole and broken numbers that every dtype can take without undefined behaviour.
        values = tensor([0, 1, 2.75, 100.5, 3] if source.is_floating_point else ([0, 1, 1] if source == torch.bool else [0, 1, 2, 100, 3]), source)
        for target in dtypes:
            if target != source:
                g.call("to", values, target, method=True, grad=False)
    for source, target in [(torch.float32, torch.float64), (torch.float32, torch.bfloat16), (torch.float16, torch.float32), (torch.float64, torch.float16)]:
        g.call("to", g.transposed((3, 5), source), target, method=True)
    rounding(g)
    whole_numbers(g)
    layouts(g)


def rounding(g):
    half = 2.0**-24  # the smallest float16 denormal
    g.call(
        "to",
        tensor([65504.0, 65519.0, 65520.0, -65520.0, half, half / 2, 0.75 * half, 1 + 2**-11, 1 + 3 * 2**-11, math.nan, -math.inf], word="rounding"),
        torch.float16,
        method=True,
        grad=False,
    )
    g.call(
        "to",
        tensor([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3.4028234e38, -3.4028234e38, 1e-40, math.nan, math.inf, -0.0], word="rounding"),
        torch.bfloat16,
        method=True,
        grad=False,
    )
    doubles = tensor([1e300, -1e300, 1e-310, 1 + 2**-24, 1 + 3 * 2**-24, 1e-45, 16777217.0, math.nan], torch.float64, "rounding")
    for target in FLOATS:
        g.call("to", doubles, target, method=True, grad=False)


def whole_numbers(g):
    big = tensor([2**24 + 1, 2**24 + 3, 2**53 + 1, -(2**53) - 1, 2**62], torch.int64, "big")
    for target in FLOATS:
        if target != torch.float16:
            g.call("to", big, target, method=True)
    g.call("to", tensor([2**31, -(2**31) - 1, 2**32 + 5, -1], torch.int64, "big"), torch.int32, method=True)
    g.call("to", tensor([300, -1, 255, 256, -129], torch.int32), torch.uint8, method=True)
    g.call("to", tensor([300, -1, 127, 128, -129], torch.int32), torch.int8, method=True)
    g.call("to", tensor([70000, -1], torch.int32), torch.int16, method=True)
    g.call("to", tensor([-2.9, -0.5, 0.5, 2.9, -100.0]), torch.int64, method=True, grad=False)
    g.call("to", tensor([-2.9, -0.5, 0.5, 2.9, -100.0]), torch.int8, method=True, grad=False)
    g.call("to", tensor([0.0, -0.0, 1e-45, math.nan, -math.inf]), torch.bool, method=True, grad=False)
    g.call("to", tensor([0, -1, 2**62], torch.int64), torch.bool, method=True)


def layouts(g):
    for source in g.layouts((3, 5)):
        g.call("to", source, torch.float64, method=True)
        g.call("contiguous", source, method=True, strides=True)
        g.call("clone", source, strides=True)
    g.call("to", g.permuted((2, 3, 5), torch.int64, -9, 9), torch.float16, method=True)
    g.call("to", g.rand((0, 3)), torch.int32, method=True)
    for short in ("float", "double", "half", "bfloat16", "int", "long", "bool"):
        g.call(short, tensor([0.0, 1.5, -2.0]), method=True, grad=False)
