/** Schedules refuse invalid options and resume from any step. */
import assert from 'node:assert/strict';
import { ArgumentError, nn, optim, tensor } from '../../lib/index.js';

const { lrScheduler } = optim;
const sgd = (...lrs: number[]): optim.SGD => {
  const groups = (lrs.length ? lrs : [1]).map((lr) => ({
    params: [new nn.Parameter(tensor([1]))],
    lr,
  }));
  return new optim.SGD(groups, { lr: 1, momentum: 0.9 });
};
type Loose = Record<
  string,
  new (
    ...args: unknown[]
  ) => { step(metric?: number): void; getLastLr(): number[]; lastEpoch: number }
>;
const classes = lrScheduler as unknown as Loose;
const make = (name: string, ...args: unknown[]) => new (classes[name] as Loose[string])(...args);

const refused: [name: string, options: object, message: RegExp][] = [
  [
    'StepLR',
    {},
    /StepLR: expected stepSize; it comes after optimizer, or is given as \{ stepSize: … \}/,
  ],
  ['StepLR', { stepSize: 0 }, /stepSize .* got 0/],
  ['StepLR', { stepSize: 2, gamma: Number.NaN }, /gamma to be a finite number, got NaN/],
  ['StepLR', { stepSize: 2, lastEpoch: 1.5 }, /lastEpoch to be a whole number from -1, got 1.5/],
  ['MultiStepLR', {}, /MultiStepLR: expected milestones; it comes after optimizer/],
  ['MultiStepLR', { milestones: ['2'] }, /each milestone .* got '2'/],
  ['ConstantLR', { factor: 2 }, /factor to be a finite number from 0 to 1, got 2/],
  ['ConstantLR', { totalIters: -1 }, /totalIters/],
  ['LinearLR', { startFactor: 0 }, /startFactor to be a finite number above 0 up to 1, got 0/],
  ['LinearLR', { endFactor: -1 }, /endFactor/],
  ['ExponentialLR', {}, /ExponentialLR: expected gamma; it comes after optimizer/],
  ['PolynomialLR', { power: -1 }, /power/],
  ['CosineAnnealingLR', { TMax: 0 }, /TMax/],
  ['CosineAnnealingLR', { TMax: 3, etaMin: '0' }, /etaMin .* got '0'/],
  ['CosineAnnealingWarmRestarts', { T0: 0 }, /T0/],
  ['CosineAnnealingWarmRestarts', { T0: 2, TMult: 1.5 }, /TMult/],
  ['LambdaLR', {}, /lrLambda/],
  ['LambdaLR', { lrLambda: [Math.sqrt, Math.sqrt] }, /expected 1 functions/],
  ['LambdaLR', { lrLambda: () => Number.NaN }, /LambdaLR: the rate of group 0 at step 0 is NaN/],
  ['MultiplicativeLR', { lrLambda: [3] }, /function/],
  ['OneCycleLR', { maxLr: 1 }, /totalSteps, or epochs and stepsPerEpoch/],
  ['OneCycleLR', { maxLr: 1, totalSteps: 0 }, /totalSteps/],
  ['OneCycleLR', { maxLr: 1, epochs: 2, stepsPerEpoch: 1.5 }, /stepsPerEpoch/],
  ['OneCycleLR', { totalSteps: 5 }, /OneCycleLR: expected maxLr; it comes after optimizer/],
  [
    'OneCycleLR',
    { maxLr: [1, 2], totalSteps: 5 },
    /maxLr to be one number, or 1, one for each group, got \[1, 2\]/,
  ],
  ['OneCycleLR', { maxLr: 1, totalSteps: 5, pctStart: 2 }, /pctStart/],
  [
    'OneCycleLR',
    { maxLr: 1, totalSteps: 5, annealStrategy: 'x' },
    /annealStrategy to be one of 'cos', 'linear', got 'x'/,
  ],
  ['CyclicLR', { baseLr: 0.1 }, /maxLr/],
  ['CyclicLR', { baseLr: 0.1, maxLr: 1, stepSizeUp: 0 }, /stepSizeUp/],
  ['CyclicLR', { baseLr: 0.1, maxLr: 1, mode: 'x' }, /mode/],
  ['ReduceLROnPlateau', { mode: 'x' }, /mode/],
  ['ReduceLROnPlateau', { thresholdMode: 'x' }, /thresholdMode/],
  ['ReduceLROnPlateau', { factor: 1 }, /factor to be a finite number from 0 below 1, got 1/],
  ['ReduceLROnPlateau', { patience: -1 }, /patience/],
  ['ReduceLROnPlateau', { minLr: [0, 0] }, /minLr/],
];

describe('the options of a schedule', () => {
  for (const [name, options, message] of refused) {
    it(`are checked by ${name} for ${JSON.stringify(options)}: ${message.source}`, () => {
      assert.throws(
        () => make(name, sgd(), options),
        (error: Error) => error instanceof ArgumentError && message.test(error.message),
      );
    });
  }

  it('require schedules of one optimizer and ascending milestones in composed schedules', () => {
    const o = sgd();
    const two = (): InstanceType<typeof lrScheduler.LRScheduler>[] => [
      new lrScheduler.ConstantLR(o),
      new lrScheduler.ExponentialLR(o, { gamma: 0.5 }),
    ];
    assert.throws(() => make('SequentialLR', o, two(), { milestones: [] }), ArgumentError);
    assert.throws(
      () => make('SequentialLR', o, [...two(), ...two()], { milestones: [2, 3, 1] }),
      /milestone 2 .* from 3, got 1/,
    );
    assert.throws(
      () => make('SequentialLR', sgd(), two(), { milestones: [1] }),
      /schedule 0 belongs to another optimizer/,
    );
    assert.throws(
      () => make('ChainedScheduler', [...two(), new lrScheduler.ConstantLR(sgd())]),
      /schedule 2 belongs to another optimizer/,
    );
    assert.throws(
      () => make('ChainedScheduler', [new lrScheduler.ReduceLROnPlateau(o)]),
      /to be an LRScheduler/,
    );
    assert.throws(
      () => make('StepLR', {}, { stepSize: 1 }),
      /optimizer to be an optimizer, got an object/,
    );
    assert.throws(
      () => make('ReduceLROnPlateau', o).step(),
      /metric to be a number, got undefined/,
    );
  });

  it('are refused in the state of another schedule', () => {
    const schedule = new lrScheduler.StepLR(sgd(), { stepSize: 2 });
    assert.throws(
      () => schedule.loadStateDict(new lrScheduler.LinearLR(sgd()).stateDict()),
      /has "start_factor"; expected only/,
    );
    assert.throws(() => schedule.loadStateDict({}), /last_epoch/);
    assert.throws(
      () => schedule.loadStateDict({ ...schedule.stateDict(), gamma: '3' }),
      /gamma to be a number, got '3'/,
    );
    assert.throws(
      () => schedule.loadStateDict({ ...schedule.stateDict(), step: 3 }),
      ArgumentError,
    );
  });

  it('resume ReduceLROnPlateau through JSON before its first metric', () => {
    const [a, b] = [
      new lrScheduler.ReduceLROnPlateau(sgd(), { patience: 0 }),
      new lrScheduler.ReduceLROnPlateau(sgd(), { patience: 0 }),
    ];
    b.loadStateDict(JSON.parse(JSON.stringify(a.stateDict())));
    b.step(5);
    assert.deepEqual(b.getLastLr(), [1]);
    assert.equal(b.lastEpoch, 1);
  });

  it('may be 0 in ConstantLR, which then restores the rate, and one-step phases in OneCycleLR', () => {
    const zero = new lrScheduler.ConstantLR(sgd(), { factor: 0, totalIters: 1 });
    assert.deepEqual(zero.getLastLr(), [0]);
    zero.step();
    assert.deepEqual(zero.getLastLr(), [1]);
    assert.deepEqual(
      new lrScheduler.OneCycleLR(sgd(), { maxLr: 1, totalSteps: 10, pctStart: 0.1 }).getLastLr(),
      [1],
    );
  });

  it('leave a group unchanged that was added after the schedule', () => {
    const o = sgd(1);
    const schedule = new lrScheduler.LambdaLR(o, { lrLambda: (n) => 1 / (n + 1) });
    o.addParamGroup({ params: [new nn.Parameter(tensor([1]))], lr: 7 });
    schedule.step();
    assert.deepEqual(schedule.getLastLr(), [0.5, 7]);
  });
});

describe('a schedule with lastEpoch', () => {
  const kinds: Record<string, object> = {
    LambdaLR: { lrLambda: (n: number) => 0.9 ** n },
    MultiplicativeLR: { lrLambda: () => 0.9 },
    StepLR: { stepSize: 2 },
    MultiStepLR: { milestones: [2, 5] },
    ConstantLR: { totalIters: 5 },
    LinearLR: { totalIters: 6 },
    ExponentialLR: { gamma: 0.8 },
    PolynomialLR: { totalIters: 6, power: 2 },
    CosineAnnealingLR: { TMax: 5 },
    CosineAnnealingWarmRestarts: { T0: 2, TMult: 2 },
    OneCycleLR: { maxLr: 1, totalSteps: 10 },
    CyclicLR: { baseLr: 0.1, maxLr: 1, stepSizeUp: 2 },
  };
  for (const [name, options] of Object.entries(kinds)) {
    it(`resumes where the state of the optimizer was saved: ${name}`, () => {
      const [a, b] = [sgd(1, 0.5), sgd(1, 0.5)];
      const first = make(name, a, options);
      for (let i = 0; i < 3; i++) first.step();
      b.loadStateDict(a.stateDict());
      const second = make(name, b, { ...options, lastEpoch: first.lastEpoch - 1 });
      assert.equal(second.lastEpoch, 3);
      for (let i = 0; i < 5; i++) {
        assert.deepEqual(second.getLastLr(), first.getLastLr());
        first.step();
        second.step();
      }
    });

    it(`refuses an optimizer without initial rates: ${name}`, () => {
      assert.throws(
        () => make(name, sgd(), { ...options, lastEpoch: 3 }),
        /group 0 has no initialLr to go on from step 3/,
      );
    });
  }

  it('resumes SequentialLR in the schedule of its step, also inside another', () => {
    const parts = (o: optim.Optimizer, lastEpoch: number) => [
      new lrScheduler.LinearLR(o, { totalIters: 2, lastEpoch }),
      new lrScheduler.ExponentialLR(o, {
        gamma: 0.5,
        lastEpoch: lastEpoch < 0 ? -1 : lastEpoch - 2,
      }),
    ];
    const [a, b] = [sgd(), sgd()];
    const first = new lrScheduler.SequentialLR(a, parts(a, -1), { milestones: [2] });
    for (let i = 0; i < 4; i++) first.step();
    assert.deepEqual(first.getLastLr(), [0.25]);
    b.loadStateDict(a.stateDict());
    const second = new lrScheduler.SequentialLR(b, parts(b, 3), { milestones: [2], lastEpoch: 3 });
    for (const schedule of [first, second]) schedule.step();
    assert.deepEqual(second.getLastLr(), [0.125]);
    assert.deepEqual(first.getLastLr(), [0.125]);

    const o = sgd();
    const inner = new lrScheduler.SequentialLR(o, parts(o, -1), { milestones: [2] });
    const outer = new lrScheduler.SequentialLR(
      o,
      [new lrScheduler.ConstantLR(o, { factor: 0.5, totalIters: 9 }), inner],
      { milestones: [2] },
    );
    const seen = [outer.getLastLr()[0]];
    for (let i = 0; i < 5; i++) {
      outer.step();
      seen.push(outer.getLastLr()[0]);
    }
    assert.deepEqual(
      seen.map((lr) => Number(lr?.toFixed(6))),
      [0.5, 0.5, 0.333333, 0.666667, 1, 0.5],
    );
  });
});
