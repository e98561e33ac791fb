"""Optimizers over five steps on given gradients, and gradient clipping."""

import math

import torch

from recorder import camel_case

STEPS = 5
SHAPES = ((3, 5), (7,))

RUNS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05}),
    ("Adam", {"lr": 0.05, "betas": [0.8, 0.95], "eps": 1e-4}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "amsgrad": True}),
    ("Adam", {"lr": 0.05, "maximize": True}),
    ("Adam", {"lr": 0.05, "amsgrad": True, "maximize": True, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.0}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.2, "betas": [0.85, 0.9]}),
    ("AdamW", {"lr": 0.05, "amsgrad": True}),
    ("AdamW", {"lr": 0.05, "maximize": True, "amsgrad": True}),
]
GROUPED = [
    ("SGD", {"lr": 0.1, "momentum": 0.9}, [{"lr": 0.02}, {"weight_decay": 0.1}]),
    ("Adam", {"lr": 0.05}, [{"betas": [0.7, 0.9]}, {"weight_decay": 0.1}]),
    ("AdamW", {"lr": 0.05}, [{"weight_decay": 0.0}, {"lr": 0.01, "eps": 1e-3}]),
]


def build(g):
    for optimizer, options in RUNS:
        run(g, optimizer, options)
    for optimizer, options, groups in GROUPED:
        run(g, optimizer, options, groups=groups)
    for optimizer, options in (("SGD", {"lr": 0.1, "momentum": 0.9}), ("Adam", {"lr": 0.05}), ("AdamW", {"lr": 0.05})):
        run(g, optimizer, options, missing=True)
        run(g, optimizer, options, dtype=torch.float64)
    for max_norm, order in ((1.0, 2.0), (0.5, 1.0), (0.3, math.inf), (1.0, 3.0), (1000.0, 2.0)):
        clip(g, max_norm, order)


def run(g, optimizer, options, groups=None, missing=False, dtype=torch.float32):
    """With `missing`, the second parameter has no gradient in step 2 (counted from 0)."""
    words = [f"{camel_case(k)} {v}" for k, v in options.items()]
    words += ["two groups"] * bool(groups) + ["a step without one gradient"] * missing + ["float64"] * (dtype == torch.float64)
    name = f"{optimizer} with {', '.join(words) or 'its defaults'}"

    def record():
        start = [g.rand(shape, dtype) for shape in SHAPES]
        grads = [g.rand((STEPS, *shape), dtype) for shape in SHAPES]
        parameters = [torch.nn.Parameter(p.clone()) for p in start]
        given = [{"params": [p], **group} for p, group in zip(parameters, groups, strict=True)] if groups else parameters
        stepper = getattr(torch.optim, optimizer)(given, foreach=False, **options)
        path = []
        for step in range(STEPS):
            for i, (p, grad) in enumerate(zip(parameters, grads, strict=True)):
                p.grad = None if missing and i == 1 and step == 2 else grad[step].clone()
            stepper.step()
            path.append([p.detach().clone() for p in parameters])
        return {
            "kind": "optimizer",
            "optimizer": optimizer,
            "options": g.encode(options),
            "groups": g.encode(groups) if groups else None,
            "missing": [1, 2] if missing else None,
            "params": [g.key(p) for p in start],
            "grads": [g.key(x) for x in grads],
            "expected": [g.key(torch.stack([step[i] for step in path])) for i in range(len(SHAPES))],
        }

    g.attempt(name, record)


def clip(g, max_norm, order):
    def record():
        grads = [g.rand(shape) for shape in SHAPES]
        parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
        for p, grad in zip(parameters, grads, strict=True):
            p.grad = grad.clone()
        total = torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=order)
        return {
            "kind": "clip",
            "maxNorm": max_norm,
            "normType": g.encode(order),
            "grads": [g.key(x) for x in grads],
            "total": g.key(total),
            "expected": [g.key(p.grad) for p in parameters],
        }

    g.attempt(f"clipGradNorm_ to {max_norm} in the norm of order {order}", record)
