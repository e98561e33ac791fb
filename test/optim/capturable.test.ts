/**
 * Capturable optimizers count steps in tensors and read rates that are tensors; their states load
 * across optimizers that do and do not.
 */
import assert from 'node:assert/strict';
import {
  DTensor,
  distributeTensor,
  initDeviceMesh,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import {
  ArgumentError,
  bfloat16,
  float32,
  float64,
  manualSeed,
  nn,
  noGrad,
  optim,
  randn,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

type Options = Record<string, unknown>;
type Make = (params: readonly Tensor[], options?: Options) => optim.Optimizer;

const makers: Record<string, Make> = {
  SGD: (params, options) =>
    new optim.SGD(params, {
      lr: 0.1,
      momentum: 0.9,
      dampening: 0.1,
      ...options,
    }) as optim.Optimizer,
  Adam: (params, options) =>
    new optim.Adam(params, { lr: 0.1, weightDecay: 0.1, ...options }) as optim.Optimizer,
  AdamW: (params, options) =>
    new optim.AdamW(params, { lr: 0.1, amsgrad: true, ...options }) as optim.Optimizer,
};

const forms: Options[] = [{}, { foreach: true }, { fused: true }, { foreach: false }];

function parameters(): nn.Parameter[] {
  manualSeed(3);
  return [[4, 3], [5], []].map((shape) => new nn.Parameter(randn(shape)));
}

/** Steps with gradients that depend on the number of the step; one is missing at first. */
function train(params: readonly Tensor[], optimizer: optim.Optimizer, from: number, to: number) {
  for (let step = from; step < to; step++) {
    manualSeed(step);
    params.forEach((p, i) => {
      const grad = randn(p.shape);
      p.grad = step === 0 && i === 1 ? null : grad;
    });
    optimizer.step();
  }
}

const valuesOf = (params: readonly Tensor[]): unknown => params.map((p) => p.detach().tolist());

function assertNear(a: readonly Tensor[], b: readonly Tensor[], what: string): void {
  a.forEach((t, i) => {
    const other = b[i] as Tensor;
    assert.ok(t.allclose(other, { rtol: 1.3e-6, atol: 1e-6 }), `${what}: ${t} is not ${other}`);
  });
}

describe('a capturable optimizer', () => {
  for (const [name, make] of Object.entries(makers)) {
    for (const form of forms)
      it(`steps as others do: ${name} with ${JSON.stringify(form)}`, () => {
        const [a, b, c] = [parameters(), parameters(), parameters()];
        train(a, make(a, form), 0, 5);
        train(b, make(b, { ...form, capturable: true }), 0, 5);
        const lr = tensor(0.1, { dtype: float64 });
        train(c, make(c, { ...form, capturable: true, lr }), 0, 5);
        if (form['foreach'] === false) assertNear(b, a, name);
        else assert.deepEqual(valuesOf(b), valuesOf(a));
        assertNear(c, a, `${name} with a rate that is a tensor`);
      });

    it(`counts the steps of each parameter in a tensor: ${name}`, () => {
      const params = parameters();
      const optimizer = make(params, { capturable: true });
      train(params, optimizer, 0, 3);
      const steps = params.map((p) => optimizer.state.get(p)?.['step'] as Tensor);
      assert.deepEqual(
        steps.map((t) => [t.dtype.name, t.shape, t.item()]),
        [
          ['float32', [], 3],
          ['float32', [], 2],
          ['float32', [], 3],
        ],
      );
    });

    it(`goes on from a state of one that is not, and the reverse: ${name}`, () => {
      const wanted = parameters();
      train(wanted, make(wanted), 0, 4);
      for (const capturable of [true, false]) {
        const params = parameters();
        const first = make(params, { capturable: !capturable });
        train(params, first, 0, 2);
        const state = first.stateDict();
        for (const group of state.param_groups) group['capturable'] = capturable;
        const second = make(params);
        second.loadStateDict(state);
        const step = second.state.get(params[0] as Tensor)?.['step'];
        if (name !== 'SGD') assert.equal(typeof step, capturable ? 'object' : 'number');
        train(params, second, 2, 4);
        assertNear(params, wanted, `capturable ${capturable}`);
      }
    });

    it(`can be turned on and off between steps: ${name}`, () => {
      const [params, wanted] = [parameters(), parameters()];
      const [optimizer, plain] = [make(params), make(wanted)];
      for (let step = 0; step < 4; step++) {
        for (const group of optimizer.paramGroups) group['capturable'] = step % 2 === 0;
        train(params, optimizer, step, step + 1);
        train(wanted, plain, step, step + 1);
      }
      assertNear(params, wanted, name);
    });

    it(`does not share counts with the state that it loaded: ${name}`, () => {
      const params = parameters();
      const first = make(params, { capturable: true });
      train(params, first, 0, 1);
      const second = make(params, { capturable: true });
      second.loadStateDict(first.stateDict());
      train(params, second, 1, 2);
      const stepOf = (o: optim.Optimizer): unknown =>
        (o.state.get(params[0] as Tensor) as Record<string, Tensor>)['step']?.item();
      assert.deepEqual([stepOf(first), stepOf(second)], [1, 2]);
    });

    it(`shards its state as the parameter, and replicates the count: ${name}`, () =>
      withRanks(2, async () => {
        const mesh = initDeviceMesh('cpu', [2]);
        const value = randn([4, 3]);
        const p = new nn.Parameter(distributeTensor(value, mesh, [Shard(0)]));
        p.grad = distributeTensor(value, mesh, [Shard(0)]);
        const optimizer = make([p], { capturable: true });
        optimizer.step();
        const { step, ...others } = optimizer.state.get(p) as Record<string, Tensor>;
        assert.ok(step instanceof DTensor && Object.values(others).length > 0);
        assert.deepEqual(step.placements, [Replicate()]);
        assert.equal(await step.toLocal().itemAsync(), 1);
        for (const t of Object.values(others)) {
          assert.ok(t instanceof DTensor);
          assert.deepEqual(t.placements, [Shard(0)]);
        }
      })());
  }

  for (const form of forms)
    it(`steps without a running mean, beta 0, as others do: ${JSON.stringify(form)}`, () => {
      for (const betas of [
        [0, 0.9],
        [0.9, 0],
        [0, 0],
      ]) {
        const [a, b] = [parameters(), parameters()];
        train(a, new optim.Adam(a, { lr: 0.1, betas, ...form } as never) as optim.Optimizer, 0, 3);
        const options = { lr: 0.1, betas, capturable: true, ...form } as never;
        train(b, new optim.Adam(b, options) as optim.Optimizer, 0, 3);
        assertNear(b, a, `betas ${betas}`);
      }
    });

  it('reports the error of a step whose state has the shapes of its parameters', () => {
    const p = new nn.Parameter(randn([3]));
    const optimizer = new optim.Adam([p], { capturable: true });
    p.grad = p.detach().clone();
    optimizer.step();
    delete (optimizer.state.get(p) as Record<string, unknown>)['exp_avg'];
    assert.throws(() => optimizer.step(), /the state of a parameter has no exp_avg/);
  });

  it('keeps its state in the dtype of 16-bit parameters, and its count in float32', () => {
    const p = new nn.Parameter(randn([3]).to(bfloat16));
    p.grad = p.detach().clone();
    const optimizer = new optim.Adam([p], { capturable: true });
    optimizer.step();
    const state = optimizer.state.get(p) as Record<string, Tensor>;
    assert.equal(state['exp_avg']?.dtype, bfloat16);
    assert.equal(state['step']?.dtype, float32);
  });
});

describe('a learning rate that is a tensor', () => {
  it('is read at every step, and keeps its identity under a schedule', () => {
    const [p, q] = [parameters(), parameters()];
    const lr = tensor(0.1, { dtype: float64 });
    const [a, b] = [
      new optim.Adam(p, { lr, capturable: true }),
      new optim.Adam(q, { lr: 0.1 }),
    ] as unknown as [optim.Optimizer, optim.Optimizer];
    const [first, second] = [a, b].map(
      (o) => new optim.lrScheduler.StepLR(o, { stepSize: 1, gamma: 0.5 }),
    ) as [optim.lrScheduler.StepLR, optim.lrScheduler.StepLR];
    for (let step = 0; step < 3; step++) {
      train(p, a, step, step + 1);
      train(q, b, step, step + 1);
      first.step();
      second.step();
    }
    assert.equal(a.paramGroups[0]?.['lr'], lr);
    assert.equal(lr.item(), 0.0125);
    assert.deepEqual(first.getLastLr(), second.getLastLr());
    assertNear(p, q, 'Adam');
    noGrad(() => lr.fill_(0));
    const before = valuesOf(p);
    train(p, a, 3, 4);
    assert.deepEqual(valuesOf(p), before);
  });

  it('is allowed with fused, whose steps are then counted in tensors', () => {
    const params = parameters();
    const optimizer = new optim.AdamW(params, { lr: tensor(0.1), fused: true });
    train(params, optimizer as unknown as optim.Optimizer, 0, 2);
    const { step } = optimizer.state.get(params[0] as Tensor) as Record<string, Tensor>;
    assert.equal(step?.item(), 2);
  });

  it('is copied by states of optimizers that can have one, and read by others', () => {
    const lr = tensor(0.25);
    const state = new optim.SGD(parameters(), { lr, capturable: true }).stateDict();
    const same = new optim.SGD(parameters(), { capturable: true });
    same.loadStateDict(state);
    const loaded = same.paramGroups[0]?.lr as unknown as Tensor;
    assert.notEqual(loaded, lr);
    assert.equal(loaded.item(), 0.25);
    (state.param_groups[0] as Options)['capturable'] = false;
    const other = new optim.SGD(parameters());
    other.loadStateDict(state);
    assert.equal(other.paramGroups[0]?.lr, 0.25);
  });

  it('keeps its identity when a state is loaded, whatever that has', () => {
    const lr = tensor(0.5);
    const optimizer = new optim.Adam(parameters(), { lr, capturable: true });
    for (const [saved, value] of [
      [tensor(0.25), 0.25],
      [0.125, 0.125],
    ] as const) {
      const given = { lr: saved, capturable: true };
      optimizer.loadStateDict(new optim.Adam(parameters(), given).stateDict());
      assert.equal(optimizer.paramGroups[0]?.lr, lr);
      assert.equal(lr.item(), value);
    }
    optimizer.loadStateDict(new optim.Adam(parameters(), { lr: 0.75 }).stateDict());
    assert.equal(optimizer.paramGroups[0]?.lr, 0.75);
    assert.equal(lr.item(), 0.125);
  });

  it('is refused where steps do not read it, and with a wrong shape or dtype', () => {
    for (const make of Object.values(makers)) {
      const refuses = (options: Options, message: RegExp): void =>
        assert.throws(
          () => make(parameters(), options),
          (error: Error) => error instanceof ArgumentError && message.test(error.message),
        );
      refuses({ lr: tensor(0.1) }, /lr is a tensor, which only a step with capturable: true or/);
      refuses({ lr: tensor(0.1), foreach: true }, /capturable: true or fused: true/);
      refuses({ lr: tensor([0.1, 0.2]), capturable: true }, /floating tensor of one element/);
      refuses({ lr: tensor(1).long(), capturable: true }, /floating tensor of one element/);
      refuses({ capturable: 1 }, /expected capturable to be true or false, got 1/);
    }
  });
});
