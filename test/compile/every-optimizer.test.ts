/**
 * Every optimizer and schedule does, in a compiled function, what it does eagerly: a capturable
 * step is captured, and any other runs uncompiled or is an error that says where.
 */
import assert from 'node:assert/strict';
import { CompileError, compile, compiler, manualSeed, nn, optim, randn } from '../../lib/index.js';
import { assertSame, backends } from './backends.js';

type Made = (parameters: Iterable<nn.Parameter>, options: object) => optim.Optimizer;

const makes: Record<string, readonly [Made, readonly object[]]> = {
  SGD: [
    (p, options) => new optim.SGD(p, { lr: 0.1, ...options }),
    [{}, { momentum: 0.9, nesterov: true }, { momentum: 0.5, weightDecay: 0.1, maximize: true }],
  ],
  Adam: [
    (p, options) => new optim.Adam(p, { lr: 0.1, ...options }),
    [{}, { amsgrad: true }, { weightDecay: 0.1, maximize: true }],
  ],
  AdamW: [
    (p, options) => new optim.AdamW(p, { lr: 0.1, ...options }),
    [{}, { amsgrad: true }, { weightDecay: 0.1 }],
  ],
};
const forms: readonly object[] = [
  {},
  { foreach: true },
  { foreach: false },
  { fused: true },
  { capturable: true },
];

interface Program {
  readonly model: nn.Linear;
  readonly optimizer: optim.Optimizer;
}

function programOf(make: Made, options: object): Program {
  manualSeed(2);
  const model = new nn.Linear(3, 2);
  return { model, optimizer: make(model.parameters(), options) };
}

/** The parameters and the state after each of four steps. */
function steps({ model, optimizer }: Program, step: (optimizer: optim.Optimizer) => void): unknown {
  return [0, 1, 2, 3].map((i) => {
    manualSeed(i);
    model(randn([4, 3]))
      .square()
      .sum()
      .backward();
    step(optimizer);
    optimizer.zeroGrad();
    return [...model.parameters()].map((p) => [p.tolist(), p._version]);
  });
}

const step = (optimizer: optim.Optimizer): void => void optimizer.step();

describe('every optimizer in a compiled function', () => {
  it('is here', () => {
    const all = Object.entries(optim).flatMap(([name, of]) =>
      typeof of === 'function' && of.prototype instanceof optim.Optimizer ? [name] : [],
    );
    assert.deepEqual(Object.keys(makes).sort(), all.sort());
  });

  for (const [name, [make, settings]] of Object.entries(makes))
    for (const form of forms)
      for (const backend of backends)
        it(`steps as eagerly with ${backend}: ${name} ${JSON.stringify(form)}`, () => {
          for (const options of settings.map((each) => ({ ...each, ...form }))) {
            const expected = steps(programOf(make, options), step);
            const found = steps(programOf(make, options), compile(step, { backend }));
            assertSame(found, expected, backend, JSON.stringify(options));
          }
        });

  for (const [name, [make]] of Object.entries(makes))
    for (const backend of backends) {
      it(`is one graph for all steps if it is capturable, with ${backend}: ${name}`, () => {
        const program = programOf(make, { capturable: true });
        const explained = compiler.explain(compile(step, { backend, fullgraph: true }));
        let graphs: unknown[] = [];
        steps(program, (optimizer) => {
          graphs = [...explained(optimizer).graphs];
        });
        assert.equal(graphs.length, 1);
      });

      it(`is an error that says where, with fullgraph and ${backend}: ${name}`, () => {
        const { model, optimizer } = programOf(make, {});
        model(randn([4, 3]))
          .sum()
          .backward();
        const before = model.weight.tolist();
        assert.throws(
          () => compile(step, { backend, fullgraph: true })(optimizer),
          (error: Error) =>
            error instanceof CompileError &&
            error.message.includes(`step() of ${name} was called`) &&
            error.message.includes('every-optimizer.test.'),
        );
        assert.deepEqual(model.weight.tolist(), before);
      });
    }
});

const S = optim.lrScheduler;
const schedules: Record<string, (optimizer: optim.Optimizer) => { step(metric?: number): void }> = {
  ChainedScheduler: (o) => new S.ChainedScheduler([new S.ExponentialLR(o, 0.9)]),
  ConstantLR: (o) => new S.ConstantLR(o, 0.5, 2),
  CosineAnnealingLR: (o) => new S.CosineAnnealingLR(o, 3),
  CosineAnnealingWarmRestarts: (o) => new S.CosineAnnealingWarmRestarts(o, 2),
  CyclicLR: (o) => new S.CyclicLR(o, 0.01, 0.1, 2),
  ExponentialLR: (o) => new S.ExponentialLR(o, 0.9),
  LambdaLR: (o) => new S.LambdaLR(o, (epoch: number) => 1 / (1 + epoch)),
  LinearLR: (o) => new S.LinearLR(o, 0.5, 1, 3),
  MultiStepLR: (o) => new S.MultiStepLR(o, [1, 3], 0.5),
  MultiplicativeLR: (o) => new S.MultiplicativeLR(o, () => 0.9),
  OneCycleLR: (o) => new S.OneCycleLR(o, 0.1, 6),
  PolynomialLR: (o) => new S.PolynomialLR(o, 4),
  ReduceLROnPlateau: (o) => new S.ReduceLROnPlateau(o, { patience: 0 }),
  SequentialLR: (o) =>
    new S.SequentialLR(o, [new S.ConstantLR(o, 0.5, 2), new S.ExponentialLR(o, 0.9)], [2]),
  StepLR: (o) => new S.StepLR(o, 2, 0.5),
};

describe('every schedule in a compiled function', () => {
  it('is here', () => {
    const all = Object.entries(S).flatMap(([name, of]) =>
      typeof of === 'function' && 'prototype' in of && 'step' in of.prototype ? [name] : [],
    );
    assert.deepEqual(
      Object.keys(schedules),
      all.filter((name) => name !== 'LRScheduler').sort((a, b) => (a < b ? -1 : 1)),
    );
  });

  for (const [name, make] of Object.entries(schedules))
    for (const backend of backends)
      it(`sets the rates that it sets eagerly, with ${backend}: ${name}`, () => {
        const rates = (
          compiled: <A extends unknown[]>(fn: (...a: A) => void) => (...a: A) => void,
        ) => {
          const program = programOf((p) => new optim.SGD(p, { lr: 0.1 }), {});
          const schedule = make(program.optimizer);
          const next = compiled((s: typeof schedule) => s.step(1));
          return [0, 1, 2, 3].map(() => {
            steps(program, step);
            next(schedule);
            return program.optimizer.paramGroups.map(({ lr }) => lr);
          });
        };
        assert.deepEqual(
          rates((fn) => compile(fn, { backend })),
          rates((fn) => fn),
        );
      });
});
