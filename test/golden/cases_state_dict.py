"""States that PyTorch's optimizers and schedulers save in the middle of a run, and how the run goes on."""

import torch
from torch.optim import lr_scheduler

from cases_scheduler import LAMBDAS, SIMPLE, optimizer_of, real_options

STEPS = 6
SAVED_AFTER = 3
SHAPES = ((3, 5), (7,))

RUNS = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1}),
    ("Adam", {"lr": 0.05, "amsgrad": True}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.1, "betas": [0.85, 0.9]}),
]

# What a program that writes JSON would leave out, and what it would write otherwise.
NOT_JSON = {"_scale_fn_ref", "anneal_func"}


def build(g):
    for optimizer, options in RUNS:
        run(g, optimizer, options)
    # One of each, the last: it has the most options.
    for name, options in dict(SIMPLE).items():
        schedule(g, name, options)
    composed(g)
    plateau(g)


def state_of(g, value):
    """PyTorch's names as they are; tensors by key, tuples as lists."""
    if isinstance(value, torch.Tensor):
        return {"tensor": g.key(value)}
    if isinstance(value, dict):
        return {str(k): state_of(g, v) for k, v in value.items() if k not in NOT_JSON}
    if isinstance(value, (list, tuple)):
        return [state_of(g, v) for v in value]
    return None if value == float("inf") else value


def run(g, optimizer, options):
    def record():
        start = [g.rand(shape) for shape in SHAPES]
        grads = [g.rand((STEPS, *shape)) for shape in SHAPES]
        parameters = [torch.nn.Parameter(p.clone()) for p in start]
        groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.02}]
        stepper = getattr(torch.optim, optimizer)(groups, **options)
        for step in range(STEPS):
            if step == SAVED_AFTER:
                state = state_of(g, stepper.state_dict())
                middle = [g.key(p.detach().clone()) for p in parameters]
            for p, grad in zip(parameters, grads, strict=True):
                p.grad = grad[step].clone()
            stepper.step()
        return {
            "kind": "optimizer",
            "optimizer": optimizer,
            "options": g.encode(options),
            "start": [g.key(p) for p in start],
            "grads": [g.key(x) for x in grads],
            "state": state,
            "middle": middle,
            "expected": [g.key(p) for p in parameters],
        }

    g.attempt(f"{optimizer} with {', '.join(f'{k} {v}' for k, v in options.items())}", record)


def follow(g, optimizer, scheduler, metrics=None):
    """Steps both; what they save after three steps, and the rates and momenta of every step."""
    lrs, momenta = [], []
    for index in range(STEPS):
        if index == SAVED_AFTER:
            saved = {"optimizer": state_of(g, optimizer.state_dict()), "state": state_of(g, scheduler.state_dict())}
        optimizer.step()
        scheduler.step(*([metrics[index]] if metrics else []))
        lrs.append([float(group["lr"]) for group in optimizer.param_groups])
        momenta.append([float(group["momentum"]) for group in optimizer.param_groups])
    return {"kind": "scheduler", **saved, "lr": lrs, "momentum": momenta}


def schedule(g, name, options):
    def record():
        optimizer = optimizer_of((0.1, 0.02))
        scheduler = getattr(lr_scheduler, name)(optimizer, **real_options(options))
        return {"scheduler": name, "options": g.encode(options), **follow(g, optimizer, scheduler)}

    shown = ", ".join(f"{k} {v}" for k, v in g.encode(options).items())
    g.attempt(f"{name}{' with ' + shown if shown else ''}", record)


def composed(g):
    parts = [["LinearLR", {"start_factor": 0.1, "total_iters": 5}], ["CosineAnnealingLR", {"T_max": 10}]]
    for name, milestones in (("SequentialLR", [4]), ("ChainedScheduler", None)):

        def record(name=name, milestones=milestones):
            optimizer = optimizer_of((0.1, 0.02))
            made = [getattr(lr_scheduler, part)(optimizer, **options) for part, options in parts]
            whole = lr_scheduler.SequentialLR(optimizer, made, milestones=milestones) if milestones else lr_scheduler.ChainedScheduler(made)
            return {"scheduler": name, "parts": g.encode(parts), "milestones": milestones, **follow(g, optimizer, whole)}

        g.attempt(f"{name} of LinearLR and CosineAnnealingLR", record)


def plateau(g):
    options = {"factor": 0.5, "patience": 1, "min_lr": [0.02, 0.001]}

    def record():
        optimizer = optimizer_of((0.1, 0.02))
        metrics = [3, 3, 3, 3, 3, 3]
        return {
            "scheduler": "ReduceLROnPlateau",
            "options": g.encode(options),
            "metrics": metrics,
            **follow(g, optimizer, lr_scheduler.ReduceLROnPlateau(optimizer, **options), metrics),
        }

    g.attempt("ReduceLROnPlateau", record)
