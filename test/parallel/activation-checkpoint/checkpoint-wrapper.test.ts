/** Wrapped modules keep their names and members, and compute what they computed. */
import assert from 'node:assert/strict';
import {
  applyActivationCheckpointing,
  CheckpointImpl,
  CommDebugMode,
  checkpoint,
  checkpointWrapper,
  fullyShard,
} from '../../../lib/distributed.js';
import { float64, manualSeed, nn, optim, randn, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

class Block extends nn.Module<[x: Tensor, options?: { scale?: Tensor }]> {
  up = new nn.Linear(6, 10);
  norm = new nn.BatchNorm1d(10);
  down = new nn.Linear(10, 6);
  runs = 0;
  forward(x: Tensor, { scale }: { scale?: Tensor } = {}): Tensor {
    this.runs++;
    const y = this.down(this.norm(this.up(x)).relu()).tanh();
    return scale === undefined ? y : y.mul(scale);
  }
  half6(): number {
    return this.up.inFeatures / 2;
  }
}

class Model extends nn.Module {
  first = new Block();
  blocks = new nn.ModuleList([new Block(), new Block()]);
  head = new nn.Linear(6, 2);
  forward(x: Tensor): Tensor {
    let h = this.first(x);
    for (const block of this.blocks) h = (block as Block)(h);
    return this.head(h);
  }
}

const namesOf = (model: nn.AnyModule) => ({
  parameters: [...model.namedParameters()].map(([name]) => name),
  buffers: [...model.namedBuffers()].map(([name]) => name),
  state: Object.keys(model.stateDict()),
});
const isBlock = (m: nn.AnyModule): boolean => m instanceof Block;

describe('checkpointWrapper', () => {
  it('leaves all names of parameters, buffers and state dicts as they were', () => {
    const model = new Model();
    const before = namesOf(model);
    const state = model.stateDict();
    applyActivationCheckpointing(model, { checkFn: isBlock });
    assert.deepEqual(namesOf(model), before);
    assert.deepEqual(model.loadStateDict(state), { missingKeys: [], unexpectedKeys: [] });
    assert.deepEqual(new Model().loadStateDict(model.stateDict()).missingKeys, []);
  });

  it('names what does not fit as before', () => {
    const model = new Model();
    const state = model.stateDict();
    model.first = checkpointWrapper(model.first);
    const { 'first.up.bias': _, ...others } = state;
    const result = model.loadStateDict({ ...others, 'first.x': randn([1]) }, { strict: false });
    assert.deepEqual(result, { missingKeys: ['first.up.bias'], unexpectedKeys: ['first.x'] });
    assert.throws(
      () => model.loadStateDict({ ...state, 'first.up.bias': randn([3]) }),
      /first\.up\.bias: the checkpoint has shape \[3\]/,
    );
  });

  it('runs the module that has taken the place of the wrapped one', () => {
    const wrapper = checkpointWrapper(new nn.Identity());
    const other = new nn.Linear(6, 2);
    (wrapper as unknown as Record<string, nn.Module>)[''] = other;
    const x = randn([4, 6]);
    assert.deepEqual(wrapper(x).tolist(), other(x).tolist());
    assert.equal(wrapper._checkpointWrappedModule, other);
    const own = checkpointWrapper(new nn.Identity(), {
      checkpointFn: (module: nn.Module, t: Tensor) => module(t),
    });
    (own as unknown as Record<string, nn.Module>)[''] = other;
    assert.deepEqual(own(x).tolist(), other(x).tolist());
  });

  it('wraps a model as a whole, and in a wrapper', () => {
    const model = new Model();
    const before = namesOf(model);
    const twice = checkpointWrapper(checkpointWrapper(model));
    assert.deepEqual(namesOf(twice), before);
    twice.loadStateDict(model.stateDict());
    twice(randn([4, 6]))
      .sum()
      .backward();
    assert.ok(model.head.weight.grad);
  });

  it('has the members and methods of the module, and its paths', () => {
    const block = new Block();
    const wrapper = checkpointWrapper(block);
    assert.equal(wrapper.up, block.up);
    assert.equal(wrapper.half6(), 3);
    wrapper.runs = 7;
    assert.equal(block.runs, 7);
    const model = new Model();
    model.first = checkpointWrapper(model.first);
    assert.equal(model.getSubmodule('first.up'), model.first.up);
    assert.equal(model.getParameter('first.up.weight'), model.first.up.weight);
    assert.equal(wrapper._checkpointWrappedModule, block);
    assert.match(String(model), /\(first\): CheckpointWrapper\(\n +Block\(\n +\(up\): Linear/);
    model.eval();
    assert.equal(model.first.norm.training, false);
  });

  it('computes the gradients of the model, and runs each block once more', () => {
    manualSeed(0);
    const model = new Model().double();
    const blocks = [...model.modules()].filter(isBlock) as Block[];
    const x = randn([5, 6], { dtype: float64 });
    model.eval();
    model(x).square().sum().backward();
    const expected = [...model.parameters()].map((p) => p.grad?.tolist());
    model.zeroGrad();
    for (const block of blocks) block.runs = 0;
    applyActivationCheckpointing(model, { checkFn: isBlock });
    model(x).square().sum().backward();
    assert.deepEqual(
      [...model.parameters()].map((p) => p.grad?.tolist()),
      expected,
    );
    assert.deepEqual(
      blocks.map((block) => block.runs),
      [2, 2, 2],
    );
  });

  it('passes options objects to the module', () => {
    const block = checkpointWrapper(new Block());
    const scale = randn([6]).requiresGrad_();
    block(randn([4, 6]), { scale })
      .sum()
      .backward();
    assert.ok(scale.grad);
  });

  it('runs checkpointFn with the module, its arguments and the other options', () => {
    const calls: unknown[][] = [];
    const checkpointFn = (module: nn.Module, ...args: unknown[]): Tensor => {
      calls.push(args);
      return module(args[0] as Tensor);
    };
    const linear = new nn.Linear(2, 2);
    const x = randn([1, 2]);
    checkpointWrapper(linear, { checkpointFn, preserveRngState: false })(x);
    checkpointWrapper(linear, { checkpointFn })(x);
    assert.deepEqual(calls, [[x, { preserveRngState: false }], [x]]);
    const own = checkpointWrapper(linear, {
      checkpointImpl: CheckpointImpl.NO_REENTRANT,
      checkpointFn: checkpoint,
      useReentrant: false,
    });
    own(x).sum().backward();
    assert.ok(linear.weight.grad);
  });

  it('wraps all modules with forward by default, and shared ones in each place', () => {
    const shared = new nn.Linear(2, 2);
    const model = new nn.Sequential(shared, new nn.Sequential(shared, new nn.ReLU()));
    applyActivationCheckpointing(model);
    const inner = model.at(1) as nn.Sequential;
    assert.equal(model.at(0), inner.at(0));
    assert.notEqual(model.at(0), shared);
    assert.equal([...model.parameters()].length, 2);
    applyActivationCheckpointing(model);
    model(randn([1, 2]))
      .sum()
      .backward();
    assert.ok(shared.weight.grad);
  });

  it('refuses wrong arguments', () => {
    const linear = new nn.Linear(2, 2);
    assert.throws(() => checkpointWrapper(3 as never), /module to be an nn\.Module/);
    assert.throws(
      () => checkpointWrapper(linear, { checkpointImpl: 'REENTRANT' as never }),
      /one of 'NO_REENTRANT'/,
    );
    assert.throws(() => checkpointWrapper(linear, { early: true } as never), /no option "early"/);
    const model = new nn.Sequential(linear);
    const bad = { checkpointWrapperFn: () => 3 as never };
    assert.throws(() => applyActivationCheckpointing(model, bad), /what checkpointWrapperFn/);
  });
});

class Net extends nn.Module {
  up = new nn.Linear(6, 10);
  down = new nn.Linear(10, 6);
  forward(x: Tensor): Tensor {
    return this.down(this.up(x).relu()).dropout(0.25);
  }
}

describe('checkpoints of modules that fullyShard shards', () => {
  const inside = (net: Net): Net => checkpointWrapper(fullyShard(net));
  const outside = (net: Net): Net => fullyShard(checkpointWrapper(net));
  const plain = (net: Net): Net => fullyShard(net);
  const train = async (wrap: (net: Net) => Net) => {
    manualSeed(1);
    const nets = [new Net(), new Net()].map((net) => wrap(net.double()));
    const model = fullyShard(new nn.Sequential(...nets, new nn.Linear(6, 2).double()));
    const names = [...model.namedParameters()].map(([name]) => name);
    const sgd = new optim.SGD(model.parameters(), { lr: 0.1 });
    const comm = new CommDebugMode();
    const losses: number[] = [];
    for (let step = 0; step < 3; step++) {
      manualSeed(10 + step);
      const x = randn([4, 6], { dtype: float64 });
      const loss = comm.run(() => {
        const result = model(x).square().mean();
        result.backward();
        return result;
      });
      sgd.step();
      sgd.zeroGrad();
      losses.push((await loss.detach().read())[0] as number);
    }
    return { names, losses, counts: comm.getCommCounts() };
  };

  it(
    'train as without them, with the same names and as many collectives',
    withRanks(2, async () => {
      const expected = await train(plain);
      assert.deepEqual(await train(outside), expected);
      assert.deepEqual(await train(inside), expected);
    }),
  );
});
