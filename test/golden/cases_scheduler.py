"""Learning rates (and momenta where they cycle) of every scheduler over twenty steps, for two parameter groups."""

import torch
from torch.optim import lr_scheduler

STEPS = 20

# Functions are named, and written out in TypeScript in lr-scheduler.test.ts.
LAMBDAS = {"warmup": lambda step: min(1.0, (step + 1) / 5), "inverse": lambda step: 1.0 / (1 + step), "shrink": lambda step: 0.9 if step % 3 else 0.8}

SIMPLE = [
    ("StepLR", {"step_size": 3}),
    ("StepLR", {"step_size": 7, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 13], "gamma": 0.3}),
    ("ConstantLR", {}),
    ("ConstantLR", {"factor": 0.25, "total_iters": 4}),
    ("LinearLR", {}),
    ("LinearLR", {"start_factor": 0.1, "end_factor": 0.8, "total_iters": 7}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {}),
    ("PolynomialLR", {"total_iters": 11, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 20}),
    ("CosineAnnealingLR", {"T_max": 6, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 4}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.001}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 2, "step_size_down": 4, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "mode": "exp_range", "gamma": 0.9, "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 21}),
    ("OneCycleLR", {"max_lr": 0.5, "epochs": 3, "steps_per_epoch": 7, "pct_start": 0.5, "anneal_strategy": "linear"}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 21, "three_phase": True, "div_factor": 10.0, "final_div_factor": 100.0}),
    ("LambdaLR", {"lr_lambda": "warmup"}),
    ("LambdaLR", {"lr_lambda": "inverse"}),
    ("MultiplicativeLR", {"lr_lambda": "shrink"}),
]


def optimizer_of(lrs):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in lrs]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def real_options(options):
    return {k: LAMBDAS[v] if k == "lr_lambda" else v for k, v in options.items()}


def follow(optimizer, step):
    """The learning rates and momenta of every group before the first step and after each; momenta only if they cycle."""
    lrs, momenta = [], []
    for index in range(STEPS + 1):
        lrs.append([float(group["lr"]) for group in optimizer.param_groups])
        momenta.append([float(group["momentum"]) for group in optimizer.param_groups])
        if index < STEPS:
            optimizer.step()
            step(index)
    cycles = any(momentum != momenta[0] for momentum in momenta) or momenta[0][0] != 0.9
    return {"lr": lrs, "momentum": momenta} if cycles else {"lr": lrs}


def build(g):
    for name, options in SIMPLE:
        simple(g, name, options, (0.1, 0.02))
    composed(g)
    plateau(g)


def simple(g, name, options, lrs):
    def record():
        optimizer = optimizer_of(lrs)
        scheduler = getattr(lr_scheduler, name)(optimizer, **real_options(options))
        return {
            "scheduler": name,
            "options": g.encode(options),
            "lrs": list(lrs),
            **follow(optimizer, lambda _: scheduler.step()),
        }

    shown = ", ".join(f"{k} {v}" for k, v in g.encode(options).items())
    g.attempt(f"{name}{' with ' + shown if shown else ''}", record)


def composed(g):
    """Schedulers of schedulers: each part is [class, options]."""
    parts = [["LinearLR", {"start_factor": 0.1, "total_iters": 5}], ["CosineAnnealingLR", {"T_max": 10}], ["ConstantLR", {"factor": 0.5, "total_iters": 3}]]
    for name, milestones in (("SequentialLR", [5, 15]), ("ChainedScheduler", None)):

        def record(name=name, milestones=milestones):
            optimizer = optimizer_of((0.1,))
            made = [getattr(lr_scheduler, part)(optimizer, **options) for part, options in parts]
            whole = lr_scheduler.SequentialLR(optimizer, made, milestones=milestones) if milestones else lr_scheduler.ChainedScheduler(made)
            return {
                "scheduler": name,
                "parts": g.encode(parts),
                "milestones": milestones,
                "lrs": [0.1],
                **follow(optimizer, lambda _: whole.step()),
            }

        g.attempt(f"{name} of LinearLR, CosineAnnealingLR and ConstantLR", record)


def plateau(g):
    metrics = [5, 4, 4, 4, 4, 3.9999, 3.9999, 3.5, 3.6, 3.6, 3.6, 3.6, 3.6, 3.6, 3.6, 1, 2, 2, 2, 2]
    variants = (
        {"patience": 2},
        {"factor": 0.5, "patience": 1, "cooldown": 2, "min_lr": 0.02},
        {"mode": "max", "patience": 3, "threshold_mode": "abs", "threshold": 0.1},
    )
    for options in variants:

        def record(options=options):
            optimizer = optimizer_of((0.1,))
            scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, **options)
            path = follow(optimizer, lambda index: scheduler.step(metrics[index]))
            return {"scheduler": "ReduceLROnPlateau", "options": g.encode(options), "metrics": metrics, "lrs": [0.1], **path}

        g.attempt(f"ReduceLROnPlateau with {', '.join(f'{k} {v}' for k, v in g.encode(options).items())}", record)
