/** Shared behaviour of optimizers: groups, hooks, modes, state; and the state of schedules. */
import assert from 'node:assert/strict';
import { ArgumentError, nn, noGrad, ones, optim, type Tensor, tensor } from '../../lib/index.js';

function parameter(...values: number[]): nn.Parameter {
  const p = new nn.Parameter(tensor(values));
  p.grad = ones([values.length]);
  return p;
}
const values = (t: Tensor): unknown => t.tolist();

describe('an optimizer', () => {
  for (const [name, make] of Object.entries({
    SGD: (p: Tensor, options: object) => new optim.SGD([p], { lr: 0.1, momentum: 0.9, ...options }),
    Adam: (p: Tensor, options: object) => new optim.Adam([p], { lr: 0.1, ...options }),
    AdamW: (p: Tensor, options: object) =>
      new optim.AdamW([p], { lr: 0.1, amsgrad: true, ...options }),
  })) {
    it(`steps equally with foreach, with fused and in a loop: ${name}`, () => {
      const modes = [
        {},
        { foreach: true },
        { fused: true },
        { foreach: false },
        { fused: false },
        { foreach: true, fused: false },
        { foreach: false, fused: true },
      ];
      const results = [...modes, ...(name === 'SGD' ? [] : [{ capturable: true }])].map(
        (options) => {
          const p = parameter(1, 2);
          const optimizer = make(p, options);
          for (let i = 0; i < 3; i++) optimizer.step();
          return p.detach();
        },
      );
      for (const r of results) assert.ok(r.allclose(results[0] as Tensor, { rtol: 1e-6 }));
    });

    it(`maximizes with maximize, and refuses what it does not support: ${name}`, () => {
      const p = parameter(1);
      make(p, { maximize: true }).step();
      assert.ok(p.item() > 0.99);
      assert.throws(() => make(p, { differentiable: true }), ArgumentError);
      assert.throws(() => make(p, { fused: true, foreach: true }), ArgumentError);
    });
  }

  it('leaves an infinite parameter unchanged without weight decay: SGD', () => {
    for (const options of [{}, { momentum: 0.9 }]) {
      const p = parameter(Infinity, 1);
      new optim.SGD([p], { lr: 0.5, ...options }).step();
      assert.deepEqual(values(p.detach()), [Infinity, 0.5]);
    }
  });

  it('propagates NaN in the maximum of AMSGrad', () => {
    const p = parameter(1, 1);
    const optimizer = new optim.Adam([p], { lr: 0.1, amsgrad: true });
    optimizer.step();
    const largest = optimizer.state.get(p)?.['max_exp_avg_sq'] as Tensor;
    largest.copy_(tensor([Number.NaN, 1]));
    optimizer.step();
    assert.deepEqual(
      [values(largest), (values(p.detach()) as number[])[0]],
      [[Number.NaN, 1], Number.NaN],
    );
  });

  it('steps each group with its own settings, and groups that are added later', () => {
    const [a, b] = [parameter(1), parameter(1)];
    const optimizer = new optim.SGD([{ params: [a] }], { lr: 0.5 });
    optimizer.addParamGroup({ params: [b], lr: 0.25 });
    optimizer.step();
    assert.deepEqual([values(a), values(b)], [[0.5], [0.75]]);
    assert.throws(() => optimizer.addParamGroup({ params: [a] }), ArgumentError);
    assert.throws(() => new optim.SGD(a, { lr: 1 }), /one tensor/);
  });

  it('runs hooks around a step until they are removed', () => {
    const seen: string[] = [];
    const optimizer = new optim.SGD([parameter(1)], { lr: 1 });
    const before = optimizer.registerStepPreHook(
      (o) => void seen.push(`before ${o === (optimizer as unknown)}`),
    );
    optimizer.registerStepPostHook(() => void seen.push('after'));
    optimizer.step(() => seen.push('closure'));
    before.remove();
    optimizer.step();
    assert.deepEqual(seen, ['before true', 'closure', 'after', 'after']);
  });

  it('resumes from a state dict as if it had not stopped', () => {
    const [a, b] = [parameter(1, 2), parameter(1, 2)];
    const [first, second] = [a, b].map((p) => new optim.Adam([p], { lr: 0.1 })) as [
      optim.Adam,
      optim.Adam,
    ];
    first.step();
    noGrad(() => b.copy_(a));
    second.loadStateDict(first.stateDict());
    first.step();
    second.step();
    assert.deepEqual(values(a), values(b));
  });
});

describe('a schedule', () => {
  const { lrScheduler } = optim;
  const kinds: Record<
    string,
    (o: optim.Optimizer) => {
      step(metric: number): void;
      getLastLr(): number[];
      stateDict(): object;
      loadStateDict(s: Record<string, unknown>): void;
    }
  > = {
    LambdaLR: (o) => new lrScheduler.LambdaLR(o, { lrLambda: (n) => 0.9 ** n }),
    MultiplicativeLR: (o) => new lrScheduler.MultiplicativeLR(o, { lrLambda: () => 0.9 }),
    StepLR: (o) => new lrScheduler.StepLR(o, { stepSize: 2 }),
    MultiStepLR: (o) => new lrScheduler.MultiStepLR(o, { milestones: [2, 3] }),
    ConstantLR: (o) => new lrScheduler.ConstantLR(o, { totalIters: 3 }),
    LinearLR: (o) => new lrScheduler.LinearLR(o, { totalIters: 4 }),
    ExponentialLR: (o) => new lrScheduler.ExponentialLR(o, { gamma: 0.8 }),
    PolynomialLR: (o) => new lrScheduler.PolynomialLR(o, { totalIters: 6, power: 2 }),
    CosineAnnealingLR: (o) => new lrScheduler.CosineAnnealingLR(o, { TMax: 5 }),
    CosineAnnealingWarmRestarts: (o) =>
      new lrScheduler.CosineAnnealingWarmRestarts(o, { T0: 2, TMult: 2 }),
    OneCycleLR: (o) => new lrScheduler.OneCycleLR(o, { maxLr: 1, totalSteps: 10 }),
    CyclicLR: (o) => new lrScheduler.CyclicLR(o, { baseLr: 0.1, maxLr: 1, stepSizeUp: 2 }),
    SequentialLR: (o) =>
      new lrScheduler.SequentialLR(
        o,
        [
          new lrScheduler.ConstantLR(o, { totalIters: 2 }),
          new lrScheduler.ExponentialLR(o, { gamma: 0.5 }),
        ],
        { milestones: [3] },
      ),
    ChainedScheduler: (o) =>
      new lrScheduler.ChainedScheduler([
        new lrScheduler.ConstantLR(o),
        new lrScheduler.ExponentialLR(o, { gamma: 0.9 }),
      ]),
    ReduceLROnPlateau: (o) => new lrScheduler.ReduceLROnPlateau(o, { patience: 0 }),
  };

  for (const [name, make] of Object.entries(kinds)) {
    it(`resumes from its state through JSON: ${name}`, () => {
      const optimizer = (): optim.SGD => new optim.SGD([parameter(1)], { lr: 1, momentum: 0.9 });
      const [a, b] = [optimizer(), optimizer()];
      const [first, second] = [make(a), make(b)];
      for (let i = 0; i < 2; i++) first.step(i);
      b.loadStateDict(a.stateDict());
      second.loadStateDict(JSON.parse(JSON.stringify(first.stateDict())));
      for (let i = 0; i < 3; i++) {
        first.step(i);
        second.step(i);
        assert.deepEqual(second.getLastLr(), first.getLastLr());
      }
    });
  }
});
