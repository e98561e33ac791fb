"""
The rows of compile.ts and compiled-step.ts in PyTorch: uncompiled, and by torch.compile where this
version has it and can build kernels. usage: peer_compile.py [cpu|cuda] [rows | step BATCH]
"""
import json, statistics, sys, time

import torch
import torch.nn.functional as F
from torch import nn

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
sync = torch.cuda.synchronize if device == "cuda" else (lambda: None)


def variants(fn):
    """Name and function of each way to call it; compiled ones are tried first."""
    yield "PyTorch", fn
    if not hasattr(torch, "compile"): return
    for name, options in (("PyTorch aot_eager", {"backend": "aot_eager"}), ("PyTorch inductor", {})):
        try:
            compiled = torch.compile(fn, **options)
            compiled()
            yield name, compiled
        except Exception as error:
            print(f"{name}: {type(error).__name__}", file=sys.stderr)


def median_ms(fn, burst, repeats, warm):
    for _ in range(warm): fn()
    sync(); times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(burst): fn()
        sync(); times.append((time.perf_counter() - begin) / burst * 1e3)
    return statistics.median(times)


def rows():
    x = torch.ones(8, device=device)
    batch = torch.ones(4, 8, device=device)
    net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(24))).to(device)

    def adds():
        y = x
        for _ in range(100): y = y + 1
        return y

    with torch.no_grad():
        for what, fn, burst in (
            ("100 adds of 8 elements", adds, 100),
            ("24 linear layers 8x8", lambda: net(batch), 200),
            ("one add of 8 elements", lambda: x + 1, 5000),
        ):
            for name, run in variants(fn):
                us = median_ms(run, burst, 31, 3 * burst) * 1e3
                print(json.dumps({"name": f"{what}, {name}", "unit": "us", "value": float(f"{us:.4g}"), "burst": burst}))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape(b, t, self.heads, 3, d // self.heads).permute(3, 0, 2, 1, 4).unbind(0)
        if hasattr(F, "scaled_dot_product_attention"):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
            scores = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(later, float("-inf"))
            out = scores.softmax(-1) @ v
        return self.proj(out.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """examples/gpt/model.ts with the sizes of compiled-step.ts."""

    def __init__(self, vocabulary=96, context=64, layers=4, heads=4, width=128):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def step(batch):
    torch.manual_seed(1)
    model = Gpt().to(device)
    fused = {"fused": True} if device == "cuda" else {}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, **fused)
    tokens, target = (torch.randint(0, 96, (batch, 64), device=device) for _ in range(2))

    def loss():
        return F.cross_entropy(model(tokens).flatten(0, 1), target.flatten())

    for name, run in variants(loss):
        def train():
            run().backward(); optimizer.step(); optimizer.zero_grad(set_to_none=True)
        print(json.dumps({"backend": name, "stepMs": round(median_ms(train, 1, 15, 6), 3)}))


if len(sys.argv) > 3 and sys.argv[2] == "step": step(int(sys.argv[3]))
else: rows()
