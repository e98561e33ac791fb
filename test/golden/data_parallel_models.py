"""Two small models of sizes that no number of ranks divides. Mirrored in data-parallel-models.ts."""

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, LENGTH, SIZE, HEADS, LAYERS, HIDDEN = 13, 7, 10, 2, 2, 18
BATCH = 12  # rows of all ranks together: 1, 2, 3 and 4 divide it


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(6, 10)
        self.down = nn.Linear(10, 3)
        self.norm = nn.LayerNorm(3)

    def forward(self, x):
        return self.norm(self.down(F.gelu(self.up(x), approximate="tanh")))


class Mlp(nn.Module):
    """Of four ranks the last has no row of tensors of 3 rows."""

    def __init__(self):
        super().__init__()
        self.first = Net()
        self.second = nn.Linear(3, 6)
        self.third = Net()

    def forward(self, x):
        return self.third(F.gelu(self.second(self.first(x)), approximate="tanh"))

    def blocks(self):
        return [(self, "first"), (self, "third")]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(SIZE)
        self.qkv = nn.Linear(SIZE, 3 * SIZE, bias=False)
        self.proj = nn.Linear(SIZE, SIZE, bias=False)
        self.norm2 = nn.LayerNorm(SIZE)
        self.up = nn.Linear(SIZE, HIDDEN)
        self.down = nn.Linear(HIDDEN, SIZE)

    def attention(self, x):
        batch, length, _ = x.shape
        heads = lambda t: t.reshape(batch, length, HEADS, SIZE // HEADS).transpose(1, 2)  # noqa: E731
        q, k, v = self.qkv(x).chunk(3, -1)
        y = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, SIZE))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """The output projection is the embedding again. Of four ranks the last has one row of 13."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, SIZE)
        self.wpe = nn.Embedding(LENGTH, SIZE)
        self.layers = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(SIZE)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(LENGTH))
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.wte.weight)

    def blocks(self):
        return [(self.layers, str(i)) for i in range(LAYERS)]


def loss_of(model, kind, batch):
    """`batch` is [rows, 9] numbers, 6 given and 3 wanted, or [rows, LENGTH + 1] tokens."""
    if kind == "mlp":
        return F.mse_loss(model(batch[:, :6]).to(batch.dtype), batch[:, 6:])
    logits = model(batch[:, :-1])
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(wide.flatten(0, 1), batch[:, 1:].flatten())


MODELS = {"mlp": Mlp, "gpt": Gpt}
