"""Makers of input tensors: uneven shapes, layouts that are not contiguous, special values. Each carries a word on itself."""

import math

import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
HALVES = (torch.float16, torch.bfloat16)
INTS = (torch.int64, torch.int32, torch.uint8)


def tag(tensor, word):
    """Names the layout or the content of a tensor, for the name of the case."""
    tensor.golden_word = word
    return tensor


def tensor(data, dtype=None, word=""):
    """As torch.tensor: whole numbers give int64, others float32, unless a dtype is given."""
    return tag(torch.tensor(data, dtype=dtype), word)


class Inputs:
    """Draws from its own generator, so that a new case in one group leaves the other groups as they are."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def rand(self, shape, dtype=torch.float32, low=-2.0, high=2.0):
        """Uniform values, whole numbers for integer dtypes (`high` is left out), coin flips for bool."""
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=self.generator).bool()
        if not dtype.is_floating_point:
            low = max(0, math.ceil(low)) if dtype == torch.uint8 else math.ceil(low)
            return torch.randint(low, max(low + 1, math.ceil(high)), shape, generator=self.generator).to(dtype)
        unit = torch.rand(shape, generator=self.generator, dtype=torch.float64)
        return (low + unit * (high - low)).to(dtype)

    def ints(self, shape, low, high, dtype=torch.int64):
        """Whole numbers in [low, high)."""
        return torch.randint(low, high, shape, generator=self.generator).to(dtype)

    def distinct(self, shape, dtype=torch.float32):
        """Values that all differ, exact in every dtype: shuffled quarters around 0."""
        count = math.prod(shape)
        order = torch.randperm(count, generator=self.generator) - count // 2
        return (order.reshape(shape).to(torch.float64) / (1 if not dtype.is_floating_point else 4)).to(dtype)

    def transposed(self, shape, dtype=torch.float32, low=-2.0, high=2.0):
        """The last two dims are swapped in memory."""
        swapped = [*shape[:-2], shape[-1], shape[-2]]
        return tag(self.rand(swapped, dtype, low, high).transpose(-1, -2), "transposed")

    def permuted(self, shape, dtype=torch.float32, low=-2.0, high=2.0):
        """Three dims, stored in the order 2, 0, 1."""
        stored = [shape[2], shape[0], shape[1]]
        return tag(self.rand(stored, dtype, low, high).permute(1, 2, 0), "permuted")

    def stepped(self, shape, dtype=torch.float32, low=-2.0, high=2.0):
        """Every second element of the last dim, from the second on."""
        stored = [*shape[:-1], 2 * shape[-1] + 1]
        return tag(self.rand(stored, dtype, low, high)[..., 1::2], "stepped")

    def expanded(self, shape, dtype=torch.float32, low=-2.0, high=2.0):
        """The first dim is one element seen many times."""
        return tag(self.rand([1, *shape[1:]], dtype, low, high).expand(shape), "expanded")

    def offset(self, shape, dtype=torch.float32, low=-2.0, high=2.0):
        """Rows 1 to the end of a larger tensor: contiguous, but not at the start of its memory."""
        return tag(self.rand([shape[0] + 1, *shape[1:]], dtype, low, high)[1:], "sliced")

    def layouts(self, shape, dtype=torch.float32, low=-2.0, high=2.0):
        """One tensor of each layout that is not contiguous."""
        makers = [self.stepped, self.expanded, self.offset] + ([self.transposed] if len(shape) > 1 else [])
        return [make(shape, dtype, low, high) for make in makers]


def specials(dtype=torch.float32, huge=True):
    """NaN, infinities, signed zeros, denormals, halves (to round), and the largest values unless `huge` is false."""
    info = torch.finfo(dtype)
    tiny = info.smallest_normal
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, tiny, tiny / 4, -tiny / 2, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 20.0, -20.0]
    if huge:
        values += [100.0, -100.0, info.max, info.min]
    return tensor(values, dtype, "special-valued")
