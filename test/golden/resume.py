"""Runs of the library that PyTorch goes on with: reads a list of them as JSON, writes what each comes to."""

import json
import sys
import warnings

import torch
from torch.optim import lr_scheduler

from cases_scheduler import real_options


def resume(run_of):
    parameters = [torch.nn.Parameter(torch.tensor(p)) for p in run_of["params"]]
    groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.02}]
    stepper = getattr(torch.optim, run_of["optimizer"])(groups, lr=0.1)
    stepper.load_state_dict(decode_optimizer(run_of["state"]))
    scheduler = None
    if run_of.get("scheduler"):
        name, options = run_of["scheduler"]
        scheduler = getattr(lr_scheduler, name)(stepper, **real_options(options))
        stepper.load_state_dict(decode_optimizer(run_of["state"]))
        scheduler.load_state_dict(decode(run_of["schedule"]))
    rates = []
    for grads in run_of["grads"]:
        for p, grad in zip(parameters, grads, strict=True):
            p.grad = torch.tensor(grad)
        stepper.step()
        if scheduler:
            scheduler.step()
        rates.append([group["lr"] for group in stepper.param_groups])
    return {"params": [p.tolist() for p in parameters], "lr": rates}


def decode_optimizer(state):
    """JSON has no tensors and no numbers as keys."""
    tensors = lambda v: torch.tensor(v) if isinstance(v, list) else v  # noqa: E731
    return {
        "state": {int(k): {name: tensors(v) for name, v in values.items()} for k, values in state["state"].items()},
        "param_groups": state["param_groups"],
    }


def decode(state):
    counts = lambda v: {int(k): n for k, n in v.items()} if isinstance(v, dict) else v  # noqa: E731
    return {k: counts(v) for k, v in state.items()}


if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    print(json.dumps([resume(run_of) for run_of in json.load(sys.stdin)]))
