"""scaledDotProductAttention: masks, causal, scale, grouped queries, uneven lengths. [batch, heads, length, size]"""

import torch

from inputs import FLOATS


def attend(g, q, k, v, **options):
    g.call("scaledDotProductAttention", q, k, v, fixed=("attnMask",), **options)


def build(g):
    plain(g)
    masked(g)
    grouped(g)
    layouts(g)


def plain(g):
    for dtype in FLOATS:
        attend(g, g.rand((2, 2, 3, 5), dtype), g.rand((2, 2, 7, 5), dtype), g.rand((2, 2, 7, 5), dtype))
        attend(g, g.rand((1, 2, 5, 4), dtype), g.rand((1, 2, 5, 4), dtype), g.rand((1, 2, 5, 4), dtype), is_causal=True)
    attend(g, g.rand((2, 3, 5)), g.rand((2, 7, 5)), g.rand((2, 7, 5)), note="three dims")
    attend(g, g.rand((3, 5)), g.rand((7, 5)), g.rand((7, 5)), note="two dims")
    attend(g, g.rand((1, 2, 3, 5)), g.rand((1, 2, 7, 5)), g.rand((1, 2, 7, 3)), note="values of another size")
    attend(g, g.rand((1, 1, 3, 5)), g.rand((1, 1, 7, 5)), g.rand((1, 1, 7, 5)), scale=0.25)
    attend(g, g.rand((1, 1, 1, 5)), g.rand((1, 1, 1, 5)), g.rand((1, 1, 1, 5)))
    attend(g, g.rand((1, 1, 3, 5), low=-20, high=20), g.rand((1, 1, 7, 5)), g.rand((1, 1, 7, 5)), note="sharp")
    attend(g, g.rand((1, 1, 67, 4)), g.rand((1, 1, 67, 4)), g.rand((1, 1, 67, 4)), is_causal=True, grad=False)
    attend(g, g.rand((1, 1, 3, 5)), g.rand((1, 1, 7, 5)), g.rand((1, 1, 7, 5)), is_causal=True, note="causal from the top left")
    attend(g, g.rand((1, 1, 7, 5)), g.rand((1, 1, 3, 5)), g.rand((1, 1, 3, 5)), is_causal=True, note="causal from the top left")


def keep(g, shape):
    """A bool mask that leaves every query the first key."""
    mask = g.rand(shape, torch.bool)
    mask[..., 0] = True
    return mask


def masked(g):
    q, k, v = g.rand((2, 2, 3, 5)), g.rand((2, 2, 7, 5)), g.rand((2, 2, 7, 5))
    attend(g, q, k, v, attn_mask=keep(g, (3, 7)))
    attend(g, q, k, v, attn_mask=keep(g, (2, 1, 1, 7)), note="keys left out by batch")
    attend(g, q, k, v, attn_mask=keep(g, (2, 2, 3, 7)), scale=0.5)
    attend(g, q, k, v, attn_mask=g.rand((3, 7)))
    attend(g, q, k, v, attn_mask=g.rand((2, 1, 3, 7)), note="bias shared by the heads")
    g.call("scaledDotProductAttention", q, k, v, attn_mask=g.rand((3, 7)), note="with a gradient of the bias")
    minus_infinity = torch.zeros(3, 7).masked_fill(~keep(g, (3, 7)), float("-inf"))
    attend(g, q, k, v, attn_mask=minus_infinity, note="-inf in the bias")
    blind = keep(g, (3, 7))
    blind[1] = False
    attend(g, q, k, v, attn_mask=blind, grad=False, note="a query that sees nothing gives 0")
    half = [t.to(torch.bfloat16) for t in (q, k, v)]
    attend(g, *half, attn_mask=keep(g, (3, 7)))
    attend(g, *half, attn_mask=g.rand((3, 7), torch.bfloat16))


def grouped(g):
    for heads, key_heads in ((4, 2), (3, 1), (6, 3)):
        kv = (1, key_heads, 5, 4)
        attend(g, g.rand((1, heads, 3, 4)), g.rand(kv), g.rand(kv), enable_gqa=True)
    attend(g, g.rand((2, 4, 5, 4)), g.rand((2, 2, 5, 4)), g.rand((2, 2, 5, 4)), enable_gqa=True, is_causal=True)
    kv = (1, 2, 5, 4)
    attend(g, g.rand((1, 4, 5, 4), torch.bfloat16), g.rand(kv, torch.bfloat16), g.rand(kv, torch.bfloat16), enable_gqa=True)


def layouts(g):
    """[batch, length, heads, size] in memory, as models hold it."""
    held = lambda length, dtype=torch.float32: g.rand((2, length, 2, 5), dtype).transpose(1, 2)  # noqa: E731
    attend(g, held(3), held(7), held(7))
    attend(g, held(5), held(5), held(5), is_causal=True)
    attend(g, held(5, torch.float16), held(5, torch.float16), held(5, torch.float16), is_causal=True)
    packed = g.rand((2, 5, 3, 2, 4))  # one projection for q, k and v
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    attend(g, q, k, v, is_causal=True, note="slices of one tensor")
