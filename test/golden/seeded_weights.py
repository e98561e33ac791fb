"""Weights that both languages compute from a seed, bit for bit, so that fixtures need not hold them (see seeded-weights.ts)."""

import math

import torch

MASK = 0xFFFFFFFF


def mulberry32(seed):
    """Yields uniform multiples of 2^-32 in [0, 1)."""
    state = seed & MASK
    while True:
        state = (state + 0x6D2B79F5) & MASK
        t = ((state ^ (state >> 15)) * (state | 1)) & MASK
        t ^= (t + (((t ^ (t >> 7)) * (t | 61)) & MASK)) & MASK
        yield (t ^ (t >> 14)) / 2**32


def scale_of(name):
    """(offset, scale): value = offset + scale * (2 u - 1). Weights of norms lie around 1."""
    if "norm" in name and name.endswith("weight"):
        return 1.0, 0.25
    return 0.0, 0.25


def fill(named_parameters, seed):
    """Overwrites the parameters in their order. Returns name: [shape, offset, scale] for the fixture."""
    numbers = mulberry32(seed)
    described = {}
    with torch.no_grad():
        for name, parameter in named_parameters:
            offset, scale = scale_of(name)
            values = [offset + scale * (2 * next(numbers) - 1) for _ in range(math.prod(parameter.shape))]
            parameter.copy_(torch.tensor(values, dtype=torch.float64).reshape(parameter.shape))
            described[name] = [list(parameter.shape), offset, scale]
    return described
