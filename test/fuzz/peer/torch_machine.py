"""
Runs programs of test/fuzz/peer on PyTorch: a program in JSON on each line of the input, its answer in JSON on each line of the output.

Gradients are cloned where the program gives or keeps them: PyTorch makes a view of one `.grad` without a copy, so that a later backward adds into the program's tensor.
"""
import json
import os
import re
import sys
import warnings

import torch
import torch.nn.functional as functional

warnings.filterwarnings('ignore')
torch.set_num_threads(1)
DIGITS = 12
OPTION_NAMES = {'setToNone': 'set_to_none'}


def snake(name):
    return re.sub(r'(?<=[a-z0-9])([A-Z])', lambda found: '_' + found.group(1).lower(), name)


def encode(value):
    number = float(value)
    if number != number:
        return 'nan'
    if number in (float('inf'), float('-inf')):
        return 'inf' if number > 0 else '-inf'
    rounded = float(f'%.{DIGITS}g' % number)
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def decode(value):
    return float(value) if isinstance(value, str) else value


class Absent(Exception):
    pass


class Machine:
    def __init__(self):
        self.tensors = []
        self.kept = []
        self.optimizers = []
        self.refused = []

    def at(self, ref):
        found = self.tensors if 'r' in ref else self.kept
        index = ref['r'] if 'r' in ref else ref['k']
        if index >= len(found):
            raise Absent()
        return found[index]

    def value(self, argument):
        if isinstance(argument, list):
            return [self.value(each) for each in argument]
        return self.at(argument) if isinstance(argument, dict) else argument

    def run(self, index, step):
        try:
            getattr(self, 'do_' + snake(step['do']))(step)
        except (Absent, RuntimeError, IndexError, ValueError, TypeError, AttributeError, NotImplementedError) as error:
            self.refused.append(index)
            if '--trace' in sys.argv:
                print(f'step {index}: {type(error).__name__}: {error}', file=sys.stderr)

    def do_tensor(self, step):
        made = torch.tensor([decode(each) for each in step['data']], dtype=getattr(torch, step['dtype']))
        self.tensors.append(made.reshape(step['shape']).clone().requires_grad_(step['grad']))

    def do_call(self, step):
        name = snake(step['name'])
        args = [self.value(each) for each in step['args']]
        options = {snake(key): self.value(each) for key, each in step.get('options', {}).items()}
        with torch.set_grad_enabled(not step.get('noGrad', False)):
            if isinstance(args[0], torch.Tensor) and hasattr(args[0], name):
                result = getattr(args[0], name)(*args[1:], **options)
            else:
                result = getattr(torch if hasattr(torch, name) else functional, name)(*args, **options)
        if not name.endswith('_'):
            self.keep(result)

    def keep(self, result):
        if isinstance(result, torch.Tensor):
            self.tensors.append(result)
        elif isinstance(result, (tuple, list)):
            for each in result:
                self.keep(each)

    def do_backward(self, step):
        gradient = None if step['gradient'] is None else self.at(step['gradient']).clone()
        inputs = [self.at(ref) for ref in step['inputs']] if 'inputs' in step else None
        self.at(step['of']).backward(gradient, retain_graph=step['retainGraph'], create_graph=step['createGraph'], inputs=inputs)

    def do_grad(self, step):
        gradient = None if step['gradient'] is None else self.at(step['gradient']).clone()
        self.tensors.extend(torch.autograd.grad(self.at(step['of']), [self.at(ref) for ref in step['inputs']], gradient,
                                                retain_graph=step['retainGraph'], create_graph=step['createGraph']))

    def do_hook(self, step):
        target, returns = self.at(step['on']), step['returns']
        other = self.at(returns) if isinstance(returns, dict) else None

        def answer(grad):
            if grad is None:  # of an output that took no part
                return None
            self.kept.append(grad.clone())
            return None if returns == 'nothing' else grad * 2 if returns == 'double' else other.clone()

        if step['at'] == 'tensor':
            target.register_hook(answer)
            return
        if target.grad_fn is None:
            raise Absent()

        def node_hook(inputs, _outputs):
            replaced = tuple(None if grad is None else replacement if (replacement := answer(grad)) is not None else grad for grad in inputs)
            return None if returns == 'nothing' else replaced

        target.grad_fn.register_hook(node_hook)

    def do_read_grad(self, step):
        grad = self.at(step['of']).grad
        if grad is None:
            raise Absent()
        self.tensors.append(grad)

    def do_set_grad(self, step):
        self.at(step['of']).grad = None if step['to'] is None else self.at(step['to'])

    def do_retain_grad(self, step):
        self.at(step['of']).retain_grad()

    def do_requires_grad(self, step):
        self.at(step['of']).requires_grad_(step['value'])

    def do_function(self, step):
        self.tensors.append(user_function(step['kind'], self.kept).apply(self.at(step['of'])))

    def do_module(self, step):
        module = getattr(torch.nn, step['name'])(*step['args']).double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.tensor(pattern(parameter.numel()), dtype=torch.float64).reshape(parameter.shape))
        if step['keeps']:
            module.register_full_backward_hook(lambda _module, inputs, _outputs: self.kept.extend(each.clone() for each in inputs if each is not None))
        result = module(self.at(step['of']))
        self.tensors.extend(module.parameters())
        self.tensors.append(result)

    def do_optimizer(self, step):
        options = {snake(key): each for key, each in step['options'].items()}
        self.optimizers.append(getattr(torch.optim, step['name'])([self.at(ref) for ref in step['parameters']], **options))

    def optimizer(self, index):
        if index >= len(self.optimizers):
            raise Absent()
        return self.optimizers[index]

    def do_step(self, step):
        self.optimizer(step['optimizer']).step()

    def do_zero_grad(self, step):
        self.optimizer(step['optimizer']).zero_grad(set_to_none=step['setToNone'])

    def do_clip(self, step):
        self.tensors.append(torch.nn.utils.clip_grad_norm_([self.at(ref) for ref in step['of']], step['maxNorm']))

    def answer(self):
        return {'refused': self.refused, 'tensors': [describe(each) for each in self.tensors], 'kept': [values_of(each) for each in self.kept]}


def pattern(count):
    return [(1 if i % 2 == 0 else -1) * (i % 7 + 1) * 0.1 for i in range(count)]


def user_function(kind, kept):
    factor = 3 if kind == 'triple' else 1

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, x):
            return x * factor

        @staticmethod
        def backward(_ctx, grad):
            grad = grad.clone()
            kept.append(grad)
            returned = grad if kind == 'same' else grad * 3 if kind == 'triple' else torch.ones_like(grad)
            kept.append(returned)
            return returned

    return Function


def values_of(t):
    return [encode(each) for each in t.detach().reshape(-1).tolist()]


def describe(t):
    """Null for a view whose history PyTorch refuses to tell, since its base was changed in place."""
    try:
        requires_grad, is_leaf, grad = t.requires_grad, t.is_leaf, t.grad
    except RuntimeError:
        return None
    return {'dtype': str(t.dtype).replace('torch.', ''), 'shape': list(t.shape), 'values': values_of(t), 'requiresGrad': requires_grad,
            'isLeaf': is_leaf, 'grad': None if grad is None else values_of(grad)}


def answer_to(line):
    machine = Machine()
    for index, step in enumerate(json.loads(line)['steps']):
        machine.run(index, step)
    return json.dumps(machine.answer(), separators=(',', ':'))


class Worker:
    """Answers in a process of its own, which a program may crash."""

    def __init__(self):
        (questions, self.questions), (self.answers, answers) = os.pipe(), os.pipe()
        self.child = os.fork()
        if self.child != 0:
            os.close(questions)
            os.close(answers)
            self.questions, self.answers = os.fdopen(self.questions, 'w'), os.fdopen(self.answers)
            return
        os.close(self.questions)
        with os.fdopen(questions) as lines, os.fdopen(answers, 'w') as out:
            for line in lines:
                print(answer_to(line), file=out, flush=True)
        os._exit(0)

    def ask(self, line):
        """None if the program crashed it."""
        print(line, end='', file=self.questions, flush=True)
        return self.answers.readline() or None


def main():
    print(json.dumps({'peer': f'torch {torch.__version__}'}), flush=True)
    worker = Worker()
    for line in sys.stdin:
        answer = worker.ask(line)
        if answer is None:
            worker = Worker()
        print(answer or 'null\n', end='', flush=True)


main()
