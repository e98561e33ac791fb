"""nn modules: the Transformer of the FSDP tests (d_model 32, 2 + 2 layers), its layers, and MultiheadAttention. Dropout is 0."""

import copy

import torch
from torch import nn

import seeded_weights
from recorder import as_list, slack_by_dtype, slack_needed

# Of a large model's gradients only every 7th or 3rd element is kept, and the norm of each tensor.
MODEL = {"d_model": 32, "nhead": 8, "num_encoder_layers": 2, "num_decoder_layers": 2, "dim_feedforward": 128, "dropout": 0.0}


def build(g):
    src, tgt = g.rand((7, 3, 32), low=-1, high=1), g.rand((5, 3, 32), low=-1, high=1)
    module(g, "Transformer", [], MODEL, [src, tgt])
    small = {**MODEL, "d_model": 16, "nhead": 4, "num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 24}
    src, tgt = g.rand((7, 3, 16), low=-1, high=1), g.rand((5, 3, 16), low=-1, high=1)
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    module(g, "Transformer", [], small, [src, tgt], forward={"tgt_mask": causal}, note="a causal target")


def build_layers(g):
    layer = {"dim_feedforward": 128, "dropout": 0.0}
    small = {"dim_feedforward": 24, "dropout": 0.0}
    x, memory = g.rand((5, 3, 32)), g.rand((7, 3, 32))
    module(g, "TransformerEncoderLayer", [32, 8], layer, [x])
    module(g, "TransformerDecoderLayer", [32, 8], layer, [x, memory])
    y, small_memory = g.rand((5, 3, 16)), g.rand((7, 3, 16))
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    batch_first = {"batch_first": True}
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = padding[2, 4:] = True
    z, z_memory = y.transpose(0, 1).contiguous(), small_memory.transpose(0, 1).contiguous()
    module(g, "TransformerEncoderLayer", [16, 4], {**small, "norm_first": True, "activation": "gelu"}, [y])
    module(g, "TransformerEncoderLayer", [16, 4], {**small, **batch_first}, [z], forward={"src_key_padding_mask": padding})
    module(g, "TransformerEncoderLayer", [16, 4], {**small, "bias": False, "layer_norm_eps": 1e-3}, [y], forward={"src_mask": causal})
    module(g, "TransformerEncoderLayer", [16, 4], small, [y], forward={"src_mask": causal, "is_causal": True})
    module(g, "TransformerDecoderLayer", [16, 4], {**small, **batch_first, "norm_first": True}, [z, z_memory])
    module(g, "TransformerDecoderLayer", [16, 4], small, [y, small_memory], forward={"tgt_mask": causal})
    attention(g)


def attention(g):
    q, k, v = g.rand((3, 2, 8)), g.rand((5, 2, 8)), g.rand((5, 2, 8))
    module(g, "MultiheadAttention", [8, 2], {}, [q, k, v])
    module(g, "MultiheadAttention", [8, 2], {}, [q, q, q], note="self")
    module(g, "MultiheadAttention", [8, 2], {"bias": False}, [q, k, v], forward={"need_weights": False})
    module(g, "MultiheadAttention", [8, 4], {}, [q, k, v], forward={"average_attn_weights": False})
    batched = [t.transpose(0, 1).contiguous() for t in (q, k, v)]
    padding = torch.tensor([[False, False, False, True, True], [False] * 5])
    module(g, "MultiheadAttention", [8, 2], {"batch_first": True}, batched, forward={"key_padding_mask": padding})
    future = torch.ones(3, 5, dtype=torch.bool).triu(1)
    module(g, "MultiheadAttention", [8, 2], {}, [q, k, v], forward={"attn_mask": future})
    other = [q, g.rand((5, 2, 6)), g.rand((5, 2, 4))]
    module(g, "MultiheadAttention", [8, 2], {"kdim": 6, "vdim": 4}, other)


def module(g, kind, args, options, inputs, forward=None, note=""):
    forward = forward or {}
    words = [f"{k} {v}" for k, v in options.items() if k not in ("dropout", "dim_feedforward")] if kind != "Transformer" else []
    words += list(forward) + ([note] if note else [])
    name = f"{kind}{' with ' + ', '.join(words) if words else ''}"

    def record():
        model = getattr(nn, kind)(*args, **options)
        seed = 1000 + len(g.cases)
        parameters = seeded_weights.fill(model.named_parameters(), seed)
        elements = sum(p.numel() for p in model.parameters())
        every = 7 if elements > 30_000 else 3 if elements > 1000 else 1
        trained = differentiate(g, model.train(), inputs, forward)
        exact = differentiate(g, copy.deepcopy(model).double(), [x.double() for x in inputs], widened(forward), trained["cotangents"])
        model.eval()
        with torch.no_grad():
            evaluated = as_list(model(*inputs, **forward))
        for a, b in zip(evaluated, trained["outputs"], strict=True):
            if a is not None and slack_needed(a, b) > 0:
                raise AssertionError("without dropout, evaluation must agree with training")
        return {
            "module": kind,
            "args": g.encode(args),
            "options": g.encode(options),
            "seed": seed,
            "params": parameters,
            "inputs": g.encode(inputs),
            "forward": g.encode(forward),
            "outputs": [o if o is None else g.key(o) for o in trained["outputs"]],
            "cotangents": [c if c is None else g.key(c) for c in trained["cotangents"]],
            "inputGrads": [g.key(x) for x in trained["input_grads"]],
            "every": every,
            "grads": {k: g.key(v.flatten()[::every] if every > 1 else v) for k, v in trained["grads"].items()},
            "gradNorms": {k: float(f"{v.double().norm():.8g}") for k, v in trained["grads"].items()} if every > 1 else {},
            "tolerance": tolerance(trained, exact),
        }

    g.attempt(name, record)


def widened(forward):
    return {k: v.double() if isinstance(v, torch.Tensor) and v.dtype.is_floating_point else v for k, v in forward.items()}


def differentiate(g, model, inputs, forward, cotangents=None):
    leaves = [x.detach().requires_grad_() for x in inputs]
    outputs = model(*leaves, **forward)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    named = dict(model.named_parameters())
    if cotangents is None:
        cotangents = [g.cotangent(o) if o is not None and o.requires_grad else None for o in outputs]
    pairs = [(o, c.to(o.dtype)) for o, c in zip(outputs, cotangents, strict=True) if c is not None]
    found = torch.autograd.grad([o for o, _ in pairs], leaves + list(named.values()), [c for _, c in pairs])
    return {
        "outputs": outputs,
        "cotangents": cotangents,
        "input_grads": list(found[: len(leaves)]),
        "grads": dict(zip(named, found[len(leaves) :], strict=True)),
    }


def tolerance(got, exact):
    pairs = [(a, b) for a, b in zip(got["outputs"], exact["outputs"], strict=True) if a is not None]
    pairs += [*zip(got["input_grads"], exact["input_grads"], strict=True), *((got["grads"][k], exact["grads"][k]) for k in got["grads"])]
    slack, hopeless = slack_by_dtype(pairs)
    if hopeless:
        raise AssertionError(f"PyTorch is far from its own float64 result, slack {slack}")
    return slack
