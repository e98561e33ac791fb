"""A GPT of two layers: logits, every gradient, and the losses of ten AdamW steps. Mirrored in tiny-gpt.test.ts."""

import torch
import torch.nn.functional as F

import seeded_weights
from recorder import slack_by_dtype

VOCAB, LENGTH, SIZE, HEADS, LAYERS, BATCH = 13, 8, 16, 4, 2, 3
STEPS = 10


def shapes():
    """Names and shapes of the parameters, in order. The output projection is `wte` again."""
    named = {"wte": (VOCAB, SIZE), "wpe": (LENGTH, SIZE)}
    for i in range(LAYERS):
        named |= {
            f"h{i}.norm1.weight": (SIZE,),
            f"h{i}.norm1.bias": (SIZE,),
            f"h{i}.qkv": (3 * SIZE, SIZE),
            f"h{i}.proj": (SIZE, SIZE),
            f"h{i}.norm2.weight": (SIZE,),
            f"h{i}.norm2.bias": (SIZE,),
            f"h{i}.up": (4 * SIZE, SIZE),
            f"h{i}.upBias": (4 * SIZE,),
            f"h{i}.down": (SIZE, 4 * SIZE),
            f"h{i}.downBias": (SIZE,),
        }
    return named | {"norm.weight": (SIZE,), "norm.bias": (SIZE,)}


def attention(p, i, x):
    batch, length, _ = x.shape
    q, k, v = F.linear(x, p[f"h{i}.qkv"]).chunk(3, -1)
    heads = lambda t: t.reshape(batch, length, HEADS, SIZE // HEADS).transpose(1, 2)  # noqa: E731
    y = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
    return F.linear(y.transpose(1, 2).reshape(batch, length, SIZE), p[f"h{i}.proj"])


def logits_of(p, tokens):
    x = F.embedding(tokens, p["wte"]) + p["wpe"][: tokens.shape[1]]
    for i in range(LAYERS):
        x = x + attention(p, i, F.layer_norm(x, [SIZE], p[f"h{i}.norm1.weight"], p[f"h{i}.norm1.bias"]))
        y = F.layer_norm(x, [SIZE], p[f"h{i}.norm2.weight"], p[f"h{i}.norm2.bias"])
        y = F.gelu(F.linear(y, p[f"h{i}.up"], p[f"h{i}.upBias"]), approximate="tanh")
        x = x + F.linear(y, p[f"h{i}.down"], p[f"h{i}.downBias"])
    return F.linear(F.layer_norm(x, [SIZE], p["norm.weight"], p["norm.bias"]), p["wte"])


def loss_of(p, tokens, targets):
    return F.cross_entropy(logits_of(p, tokens).flatten(0, 1), targets.flatten(), ignore_index=-1)


def train(p, tokens, targets):
    """Two groups: matrices decay, vectors do not. Batches take turns. Returns the loss before each step."""
    matrices = [t for t in p.values() if t.dim() > 1]
    vectors = [t for t in p.values() if t.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), foreach=False)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(p, tokens[step % 2], targets[step % 2])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def build(g):
    def record():
        params = {name: torch.zeros(shape).requires_grad_() for name, shape in shapes().items()}
        described = seeded_weights.fill(params.items(), seed=7)
        wide = {name: p.detach().double().requires_grad_() for name, p in params.items()}
        tokens = g.ints((2, BATCH, LENGTH), 0, VOCAB)
        targets = g.ints((2, BATCH, LENGTH), 0, VOCAB)
        targets[0, 1, 5:] = -1  # a short row
        logits = logits_of(params, tokens[0])
        grads = torch.autograd.grad(loss_of(params, tokens[0], targets[0]), list(params.values()))
        exact = torch.autograd.grad(loss_of(wide, tokens[0], targets[0]), list(wide.values()))
        slack, hopeless = slack_by_dtype(zip([logits, *grads], [logits_of(wide, tokens[0]), *exact], strict=True))
        losses, exact_losses = train(params, tokens, targets), train(wide, tokens, targets)
        drift = max(abs(a - b) for a, b in zip(losses, exact_losses, strict=True))
        if not losses[-1] < 0.8 * losses[0] or drift > 1e-4 or hopeless:
            raise AssertionError(f"the reference does not train well: losses {losses}, drift {drift}, slack {slack}")
        return {
            "sizes": {"vocab": VOCAB, "length": LENGTH, "size": SIZE, "heads": HEADS, "layers": LAYERS},
            "seed": 7,
            "params": described,
            "tokens": g.key(tokens),
            "targets": g.key(targets),
            "logits": g.key(logits),
            "grads": {name: g.key(grad) for name, grad in zip(params, grads, strict=True)},
            "tolerance": slack,
            "losses": losses,
            "lossTolerance": max(1e-5, 4 * drift),
        }

    g.attempt("tiny GPT", record)
