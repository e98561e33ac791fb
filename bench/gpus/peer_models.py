"""The models of gpt.ts and llama.ts in PyTorch, with their loss. Parameters come in the same order."""
import math

import torch
import torch.nn.functional as F
from torch import nn

BASE = 500_000


def loss_of_rows(logits, target):
    """The mean in float32 of the losses of all rows, as in job.ts."""
    if logits.is_cuda and torch.is_autocast_enabled():
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").float().mean()


# ---- GPT ---------------------------------------------------------------------------------------


class GptBlock(nn.Module):
    def __init__(self, size):
        super().__init__()
        width, hidden = size["width"], size["hidden"]
        self.heads = size["heads"]
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(self.n1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.tokens = nn.Embedding(size["vocabulary"], size["width"])
        self.positions = nn.Embedding(size["context"], size["width"])
        self.layers = nn.ModuleList([GptBlock(size) for _ in range(size["layers"])])
        self.norm = nn.LayerNorm(size["width"])
        self.head = nn.Linear(size["width"], size["vocabulary"], bias=False)
        self.loss_of_rows = loss_of_rows

    def forward(self, tokens, target):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.loss_of_rows(self.head(self.norm(x)), target)


# ---- Llama -------------------------------------------------------------------------------------


def rotation_of(size, device):
    head = size["width"] // size["heads"]
    powers = torch.arange(0, head, 2, dtype=torch.float32, device=device) * (-math.log(BASE) / head)
    angles = torch.arange(size["context"], dtype=torch.float32, device=device)[:, None] * powers.exp()
    return angles.cos(), angles.sin()


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Attention(nn.Module):
    def __init__(self, size):
        super().__init__()
        width = size["width"]
        self.features = width // size["heads"]
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, size["kvHeads"] * self.features, bias=False)
        self.v = nn.Linear(width, size["kvHeads"] * self.features, bias=False)
        self.o = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = (
            y.view(y.shape[0], y.shape[1], -1, self.features).transpose(1, 2)
            for y in (self.q(x), self.k(x), self.v(x))
        )
        y = F.scaled_dot_product_attention(
            rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        return self.o(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gate = nn.Linear(size["width"], size["hidden"], bias=False)
        self.up = nn.Linear(size["width"], size["hidden"], bias=False)
        self.down = nn.Linear(size["hidden"], size["width"], bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class LlamaBlock(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.n1 = nn.RMSNorm(size["width"], eps=1e-5)
        self.attention = Attention(size)
        self.n2 = nn.RMSNorm(size["width"], eps=1e-5)
        self.feed_forward = FeedForward(size)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.n1(x), cos, sin)
        return x + self.feed_forward(self.n2(x))


class Llama(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.tokens = nn.Embedding(size["vocabulary"], size["width"])
        self.layers = nn.ModuleList([LlamaBlock(size) for _ in range(size["layers"])])
        self.norm = nn.RMSNorm(size["width"], eps=1e-5)
        self.head = nn.Linear(size["width"], size["vocabulary"], bias=False)
        if size.get("tied"):
            self.head.weight = self.tokens.weight
        self.loss_of_rows = loss_of_rows

    def forward(self, tokens, target, cos, sin):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.loss_of_rows(self.head(self.norm(x)), target)


MODELS = {"gpt": Gpt, "llama": Llama}
