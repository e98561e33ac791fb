/** Hooks around the state dicts of modules. */
import assert from 'node:assert/strict';
import { ArgumentError, CheckpointError, nn, ones, type Tensor, zeros } from '../../lib/index.js';

class Net extends nn.Module {
  inner = new nn.Linear(2, 2);
  scale = new nn.Parameter(ones([2]));
  forward(x: Tensor): Tensor {
    return this.inner(x).mul(this.scale);
  }
}

describe('hooks on the state dict of a module', () => {
  it('run with the prefix of their module: before hooks from the root down, after hooks from the leaves up', () => {
    const net = new Net();
    const calls: unknown[] = [];
    for (const [name, module] of [
      ['net', net],
      ['inner', net.inner],
    ] as const) {
      module.registerStateDictPreHook((self: nn.AnyModule, prefix: string, keepVars: boolean) => {
        calls.push([`${name} before`, self === module, prefix, keepVars]);
      });
      module.registerStateDictHook((self: nn.AnyModule, state: nn.StateDict, prefix: string) => {
        calls.push([`${name} after`, self === module, prefix, Object.keys(state)]);
      });
    }
    net.stateDict({ prefix: 'net.', keepVars: true });
    const inner = ['net.inner.weight', 'net.inner.bias'];
    assert.deepEqual(calls, [
      ['net before', true, 'net.', true],
      ['inner before', true, 'net.inner.', true],
      ['inner after', true, 'net.inner.', ['net.scale', ...inner]],
      ['net after', true, 'net.', ['net.scale', ...inner]],
    ]);
  });

  it('change the state in place, and change nothing once they are removed', () => {
    const net = new Net();
    const handle = net.inner.registerStateDictHook((_module, state, prefix) => {
      state[`${prefix}renamed`] = state[`${prefix}bias`] as Tensor;
      delete state[`${prefix}bias`];
    });
    assert.deepEqual(Object.keys(net.stateDict()), ['scale', 'inner.weight', 'inner.renamed']);
    handle.remove();
    assert.deepEqual(Object.keys(net.stateDict()), ['scale', 'inner.weight', 'inner.bias']);
  });

  it('see parameters that a hook before them has changed', () => {
    const net = new Net();
    net.registerStateDictPreHook((module) => void (module.scale.data = zeros([3])));
    assert.deepEqual(net.stateDict().scale?.shape, [3]);
  });

  it('must be functions and return nothing', () => {
    const net = new Net();
    assert.throws(() => net.registerStateDictHook(3 as never), ArgumentError);
    const handle = net.registerStateDictHook((() => ({})) as never);
    assert.throws(
      () => net.stateDict(),
      /registerStateDictHook: expected the hook to return nothing/,
    );
    handle.remove();
    net.registerLoadStateDictPostHook((() => 1) as never);
    assert.throws(() => net.loadStateDict(net.stateDict()), ArgumentError);
  });
});

describe('hooks on loading the state dict of a module', () => {
  it('run before each module with its part of the state, and after it, children first', () => {
    const net = new Net();
    const calls: unknown[] = [];
    for (const [name, module] of [
      ['net', net],
      ['inner', net.inner],
    ] as const) {
      module.registerLoadStateDictPreHook(
        (self: nn.AnyModule, state: nn.StateDict, prefix: string, { strict }) => {
          calls.push([`${name} before`, self === module, prefix, Object.keys(state), strict]);
        },
      );
      module.registerLoadStateDictPostHook((self: nn.AnyModule, result: nn.LoadResult) => {
        calls.push([`${name} after`, self === module, result]);
      });
    }
    const state = net.stateDict();
    delete state.scale;
    net.loadStateDict({ ...state, more: ones([1]) }, false);
    const inner = ['inner.weight', 'inner.bias'];
    const result = { missingKeys: ['scale'], unexpectedKeys: ['more'] };
    assert.deepEqual(calls, [
      ['net before', true, '', [...inner, 'more'], false],
      ['inner before', true, 'inner.', inner, false],
      ['inner after', true, result],
      ['net after', true, result],
    ]);
  });

  it('rename and add tensors of their own module and, from above, of those below', () => {
    const [net, other] = [new Net(), new Net()];
    const given = other.stateDict();
    const old = { scale: given.scale, w: given['inner.weight'], 'inner.b': given['inner.bias'] };
    net.registerLoadStateDictPreHook((_module, state) => {
      state['inner.weight'] = state.w as Tensor;
      delete state.w;
    });
    const handle = net.inner.registerLoadStateDictPreHook((_module, state, prefix) => {
      state[`${prefix}bias`] = state[`${prefix}b`] as Tensor;
      delete state[`${prefix}b`];
    });
    net.loadStateDict(old as nn.StateDict);
    assert.deepEqual(net.inner.bias?.tolist(), other.inner.bias?.tolist());
    assert.deepEqual(net.inner.weight.tolist(), other.inner.weight.tolist());
    assert.deepEqual(Object.keys(old), ['scale', 'w', 'inner.b'], 'the state given is not changed');
    handle.remove();
    assert.throws(() => net.loadStateDict(old as nn.StateDict), /missing: inner\.bias \[2\]/);
  });

  it('add errors, with which a load changes no tensor', () => {
    const net = new Net();
    const before = net.scale.tolist();
    net.inner.registerLoadStateDictPreHook((_module, _state, _prefix, report) => {
      report.errors.push('inner: not today');
    });
    const state = { ...net.stateDict(), scale: zeros([2]) };
    assert.throws(
      () => net.loadStateDict(state, false),
      (error: Error) => error instanceof CheckpointError && /inner: not today/.test(error.message),
    );
    assert.deepEqual(net.scale.tolist(), before);
  });

  it('clear the lists of names after a strict load, which then throws nothing', () => {
    const net = new Net();
    const { scale, ...rest } = net.stateDict();
    assert.throws(() => net.loadStateDict({ ...rest, more: ones([1]) }), CheckpointError);
    net.registerLoadStateDictPostHook((_module, { missingKeys, unexpectedKeys }) => {
      missingKeys.length = 0;
      unexpectedKeys.length = 0;
    });
    net.loadStateDict({ ...rest, 'inner.bias': zeros([2]), more: scale as Tensor });
    assert.deepEqual(net.inner.bias?.tolist(), [0, 0]);
  });

  it('run after a load that fails, so that they can undo what hooks before it did', () => {
    const net = new Net();
    let open = 0;
    net.registerLoadStateDictPreHook(() => void open++);
    net.registerLoadStateDictPostHook(() => void open--);
    assert.throws(() => net.loadStateDict({ scale: ones([5]) }, false), /shape \[5\]/);
    assert.equal(open, 0);
  });
});

describe('loadStateDict with assign', () => {
  it('puts the tensors of the state in place, with their dtype and the requiresGrad of before', () => {
    const net = new Net();
    net.scale.requiresGrad_(false);
    const state = Object.fromEntries(
      Object.entries(new Net().double().stateDict()).map(([name, t]) => [name, t.clone()]),
    );
    const result = net.loadStateDict(state, { assign: true });
    assert.deepEqual(result, { missingKeys: [], unexpectedKeys: [] });
    assert.ok(net.scale instanceof nn.Parameter && net.scale.isSetTo(state.scale as Tensor));
    assert.deepEqual(
      [...net.namedParameters()].map(([name, t]) => [name, t.dtype.name, t.requiresGrad]),
      [
        ['scale', 'float64', false],
        ['inner.weight', 'float64', true],
        ['inner.bias', 'float64', true],
      ],
    );
  });

  it('takes parameters as they are, and keeps one parameter under two names', () => {
    const net = new nn.ModuleList([new nn.Linear(2, 2, false), new nn.Linear(2, 2, false)]);
    const [first, second] = [...net] as [nn.Linear, nn.Linear];
    second.weight = first.weight;
    const weight = new nn.Parameter(zeros([2, 2]));
    net.loadStateDict({ '0.weight': weight, '1.weight': weight }, true, true);
    assert.equal(first.weight, weight);
    assert.equal(second.weight, weight);
    const state = new nn.ModuleList([first, second]).stateDict();
    net.loadStateDict(state, { assign: true });
    assert.equal(first.weight, second.weight);
    assert.equal([...net.parameters()].length, 1);
  });

  it('replaces buffers, and refuses other shapes', () => {
    const net = new nn.Sequential();
    net.registerBuffer('table', ones([2]));
    const table = zeros([2]);
    net.loadStateDict({ table }, { assign: true });
    assert.equal((net as unknown as { table: Tensor }).table, table);
    assert.throws(
      () => net.loadStateDict({ table: zeros([3]) }, { assign: true }),
      /table: the checkpoint has shape \[3\], the module \[2\]/,
    );
  });
});
