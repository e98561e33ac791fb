/** States of earlier versions load, and states at the end of a schedule resume. */
import assert from 'node:assert/strict';
import { ArgumentError, nn, ones, optim, type Tensor, tensor } from '../../lib/index.js';

const { lrScheduler } = optim;
type Schedule = {
  step(metric?: number): void;
  loadStateDict(state: Record<string, unknown>): void;
};
const schedules = lrScheduler as unknown as Record<
  string,
  new (
    optimizer: unknown,
    ...options: unknown[]
  ) => Schedule
>;

function parameter(...values: number[]): nn.Parameter {
  const p = new nn.Parameter(tensor(values));
  p.grad = ones([values.length]);
  return p;
}

/**
 * By schedule: its options, its state after three steps, the groups then, and the rates of the next
 * three steps.
 */
const earlier: Record<
  string,
  { options: object; state: Record<string, unknown>; groups: object[]; rates: number[][] }
> = {
  MultiStepLR: {
    options: { milestones: [9] },
    state: {
      lastEpoch: 3,
      baseLrs: [1, 0.5],
      lastLrs: [0.5, 0.25],
      milestones: [2, 5, 5],
      gamma: 0.5,
    },
    groups: [
      { lr: 0.5, momentum: 0.9, initialLr: 1 },
      { lr: 0.25, momentum: 0.9, initialLr: 0.5 },
    ],
    rates: [
      [0.5, 0.25],
      [0.125, 0.0625],
      [0.125, 0.0625],
    ],
  },
  CosineAnnealingWarmRestarts: {
    options: { T0: 7 },
    state: {
      lastEpoch: 3,
      baseLrs: [1, 0.5],
      lastLrs: [0.8535533905932737, 0.42677669529663687],
      T0: 2,
      TMult: 2,
      etaMin: 0,
    },
    groups: [
      { lr: 0.8535533905932737, momentum: 0.9, initialLr: 1 },
      { lr: 0.42677669529663687, momentum: 0.9, initialLr: 0.5 },
    ],
    rates: [
      [0.5, 0.25],
      [0.14644660940672627, 0.07322330470336313],
      [1, 0.5],
    ],
  },
  CyclicLR: {
    options: { baseLr: 3, maxLr: 4 },
    state: {
      lastEpoch: 3,
      baseLrs: [1, 0.5],
      lastLrs: [0.7, 1.3666666666666665],
      low: [0.1, 0.1],
      high: [1, 2],
      options: {
        stepSizeUp: 2,
        stepSizeDown: 3,
        mode: 'triangular',
        gamma: 1,
        cycleMomentum: true,
        baseMomentum: 0.8,
        maxMomentum: 0.9,
      },
    },
    groups: [
      { lr: 0.7, momentum: 0.8333333333333334, initialLr: 1 },
      { lr: 1.3666666666666665, momentum: 0.8333333333333334, initialLr: 0.5 },
    ],
    rates: [
      [0.4, 0.7333333333333333],
      [0.1, 0.1],
      [0.55, 1.05],
    ],
  },
  OneCycleLR: {
    options: { maxLr: 1, totalSteps: 20, annealStrategy: 'cos' },
    state: {
      lastEpoch: 3,
      baseLrs: [0.04, 0.04],
      lastLrs: [0.9504846320134737, 0.9504846320134737],
      phases: [
        { end: 2, lr: ['initial', 'max'], momentum: ['max', 'base'] },
        { end: 9, lr: ['max', 'min'], momentum: ['base', 'max'] },
      ],
      levels: [
        { initial: 0.04, max: 1, min: 0.000004 },
        { initial: 0.04, max: 1, min: 0.000004 },
      ],
      momenta: { base: 0.85, max: 0.95 },
      totalSteps: 10,
    },
    groups: [
      { lr: 0.9504846320134737, momentum: 0.854951556604879, initialLr: 0.04 },
      { lr: 0.9504846320134737, momentum: 0.854951556604879, initialLr: 0.04 },
    ],
    rates: [
      [0.8117456539497631, 0.8117456539497631],
      [0.6112620219362893, 0.6112620219362893],
      [0.38874197806371075, 0.38874197806371075],
    ],
  },
  ReduceLROnPlateau: {
    options: {},
    state: {
      lastEpoch: 3,
      options: {
        mode: 'min',
        factor: 0.5,
        patience: 1,
        threshold: 0.0001,
        thresholdMode: 'rel',
        cooldown: 0,
        minLr: 0,
        eps: 1e-8,
      },
      best: 1,
      badEpochs: 0,
      coolingFor: 0,
    },
    groups: [
      { lr: 0.5, momentum: 0.9 },
      { lr: 0.25, momentum: 0.9 },
    ],
    rates: [
      [0.5, 0.25],
      [0.25, 0.125],
      [0.25, 0.125],
    ],
  },
};

const sgd = (...lrs: number[]): optim.SGD =>
  new optim.SGD(
    lrs.map((lr) => ({ params: [parameter(1)], lr })),
    { lr: 1, momentum: 0.9 },
  );

describe('a state of an earlier version', () => {
  it('loads into Adam with expAvg and weightDecay', () => {
    const optimizer = new optim.Adam([parameter(1, 2)], { lr: 0.5 });
    const values = {
      step: 4,
      expAvg: tensor([1, 2]),
      expAvgSq: tensor([3, 4]),
      maxExpAvgSq: tensor([5, 6]),
    };
    const group = {
      lr: 0.25,
      betas: [0.8, 0.9],
      eps: 1e-3,
      weightDecay: 0.5,
      amsgrad: true,
      maximize: false,
      decoupled: false,
      initialLr: 2,
      params: [0],
    };
    optimizer.loadStateDict({ state: { 0: values }, paramGroups: [group] });
    const { state, param_groups } = optimizer.stateDict();
    assert.deepEqual(Object.keys(state[0] as object), [
      'step',
      'exp_avg',
      'exp_avg_sq',
      'max_exp_avg_sq',
    ]);
    assert.deepEqual((state[0] as Record<string, Tensor>)['max_exp_avg_sq']?.tolist(), [5, 6]);
    const { lr, betas, weight_decay, amsgrad, initial_lr, decoupled_weight_decay } =
      param_groups[0] as Record<string, unknown>;
    assert.deepEqual(
      { lr, betas, weight_decay, amsgrad, initial_lr, decoupled_weight_decay },
      {
        lr: 0.25,
        betas: [0.8, 0.9],
        weight_decay: 0.5,
        amsgrad: true,
        initial_lr: 2,
        decoupled_weight_decay: false,
      },
    );
    assert.equal('decoupled' in (param_groups[0] as object), false);
    optimizer.step();
  });

  it('loads into SGD with momentumBuffer', () => {
    const optimizer = sgd(1);
    optimizer.loadStateDict({
      state: { 0: { momentumBuffer: tensor([3]) } },
      paramGroups: [{ lr: 1, params: [0] }],
    });
    assert.deepEqual(
      (optimizer.stateDict().state[0] as Record<string, Tensor>)['momentum_buffer']?.tolist(),
      [3],
    );
  });

  it('is refused if it has groups under both names', () => {
    const state = sgd(1).stateDict();
    assert.throws(
      () => sgd(1).loadStateDict({ ...state, paramGroups: state.param_groups } as never),
      /has both param_groups and paramGroups/,
    );
  });

  for (const [name, { options, state, groups, rates }] of Object.entries(earlier)) {
    it(`resumes ${name}`, () => {
      const optimizer = sgd(1, 0.5);
      const schedule = new (schedules[name] as (typeof schedules)[string])(optimizer, options);
      optimizer.loadStateDict({
        state: {},
        paramGroups: groups.map((group, i) => ({ ...group, params: [i] })),
      });
      schedule.loadStateDict(state);
      for (const wanted of rates) {
        if (name === 'ReduceLROnPlateau') schedule.step(1);
        else schedule.step();
        optimizer.paramGroups.forEach((group, i) =>
          assert.ok(
            Math.abs(group.lr - (wanted[i] as number)) < 1e-12,
            `${group.lr}, not ${wanted[i]}`,
          ),
        );
      }
    });
  }

  it('resumes SequentialLR and ChainedScheduler with nested states', () => {
    const o = sgd(1, 0.5);
    const sequence = new lrScheduler.SequentialLR(
      o,
      [new lrScheduler.LinearLR(o), new lrScheduler.ExponentialLR(o, { gamma: 0.9 })],
      { milestones: [7] },
    );
    const linear = {
      lastEpoch: 1,
      baseLrs: [1, 0.5],
      lastLrs: [0.6, 0.3],
      startFactor: 0.5,
      endFactor: 1,
      totalIters: 2,
    };
    const exponential = { lastEpoch: 1, baseLrs: [1, 0.5], lastLrs: [0.5, 0.25], gamma: 0.5 };
    sequence.loadStateDict({
      lastEpoch: 3,
      baseLrs: [1, 0.5],
      lastLrs: [0.5, 0.25],
      milestones: [2],
      schedulers: [linear, exponential],
    });
    o.paramGroups.forEach((group, i) => {
      group.lr = [0.5, 0.25][i] as number;
    });
    sequence.step();
    assert.deepEqual(sequence.getLastLr(), [0.25, 0.125]);
    assert.deepEqual(sequence.stateDict()['_milestones'], [2]);

    const chain = new lrScheduler.ChainedScheduler([
      new lrScheduler.ExponentialLR(o, { gamma: 0.9 }),
    ]);
    chain.loadStateDict({ schedulers: [exponential] });
    chain.step();
    assert.deepEqual(chain.getLastLr(), [0.125, 0.0625]);
  });
});

describe('the names in parameter groups', () => {
  it('stay in snake_case if the program added them so', () => {
    const make = (): optim.SGD =>
      new optim.SGD([{ params: [parameter(1)], my_name: 'a', otherName: 1 } as never], { lr: 1 });
    const state = make().stateDict();
    assert.deepEqual(
      [state.param_groups[0]?.['my_name'], state.param_groups[0]?.['other_name']],
      ['a', 1],
    );
    const optimizer = make();
    optimizer.loadStateDict({
      ...state,
      param_groups: [{ ...state.param_groups[0], my_name: 'b', other_name: 2 } as never],
    });
    const { my_name, otherName } = optimizer.paramGroups[0] as unknown as Record<string, unknown>;
    assert.deepEqual([my_name, otherName], ['b', 2]);
  });
});

describe('a schedule that ends', () => {
  for (const total of [3, 5, 7, 10, 49, 100]) {
    it(`at 0 is never below 0, and resumes from there: LinearLR in ${total} steps`, () => {
      const optimizer = sgd(0.1);
      const schedule = new lrScheduler.LinearLR(optimizer, {
        startFactor: 1,
        endFactor: 0,
        totalIters: total,
      });
      for (let i = 0; i < total; i++) schedule.step();
      const [lr] = schedule.getLastLr() as [number];
      assert.ok(lr >= 0 && lr < 1e-15, `${lr}`);
      sgd(0.1).loadStateDict(optimizer.stateDict());
    });
  }

  it('below 0 loads its rate, but a rate below 0 without a schedule is refused', () => {
    const optimizer = sgd(0.1);
    new lrScheduler.LambdaLR(optimizer, { lrLambda: () => -1e-19 });
    const state = optimizer.stateDict();
    const other = sgd(0.1);
    other.loadStateDict(state);
    assert.equal(other.paramGroups[0]?.lr, optimizer.paramGroups[0]?.lr);
    const { initial_lr: _, ...group } = state.param_groups[0] as NonNullable<
      (typeof state.param_groups)[0]
    >;
    assert.throws(
      () => sgd(0.1).loadStateDict({ ...state, param_groups: [group as never] }),
      ArgumentError,
    );
  });
});
