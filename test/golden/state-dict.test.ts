/** Runs that PyTorch saved resume here, and runs that were saved here resume in PyTorch. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import * as sw from '../../lib/index.js';
import { skipBecause } from '../skip.js';
import { assertClose, assertNear } from './compare.js';

import { type Fixture, withFixture } from './read-fixture.js';
import { Decoder, type Encoded } from './run-case.js';
import { expected, makeTensor, snapshot, type Tensor } from './tensors.js';

type Options = Record<string, unknown>;
type State = Record<string, unknown>;

interface OptimizerCase {
  kind: 'optimizer';
  name: string;
  optimizer: 'SGD' | 'Adam' | 'AdamW';
  options: Record<string, Encoded>;
  start: string[];
  grads: string[];
  /** PyTorch's state after three steps; `params` are the parameters then. */
  state: State;
  middle: string[];
  expected: string[];
}

interface SchedulerCase {
  kind: 'scheduler';
  name: string;
  scheduler: string;
  options?: Record<string, Encoded>;
  parts?: [scheduler: string, options: Record<string, Encoded>][];
  milestones?: number[] | null;
  metrics?: number[];
  /** PyTorch's state after three steps. */
  optimizer: State;
  state: State;
  /** After each step, the value of each group. */
  lr: number[][];
  momentum: number[][];
}

interface Scheduler {
  step(metric?: number): void;
  stateDict(): State;
  loadStateDict(state: State): void;
}

type Run = {
  optimizer: string;
  params: unknown;
  grads: unknown;
  state: State;
  scheduler?: [string, Options];
  schedule?: State;
};

const steps = 6;
const savedAfter = 3;
/** The functions that cases_scheduler.py names. */
const lambdas: Record<string, (step: number) => number> = {
  warmup: (step) => Math.min(1, (step + 1) / 5),
  inverse: (step) => 1 / (1 + step),
  shrink: (step) => (step % 3 ? 0.9 : 0.8),
};
const schedulers = sw.optim.lrScheduler as unknown as Record<
  string,
  new (
    ...args: unknown[]
  ) => Scheduler
>;

/** Replaces the keys in a recorded state by their tensors. */
function decoded(value: unknown, fixture: Fixture<unknown>): unknown {
  if (Array.isArray(value)) return value.map((each) => decoded(each, fixture));
  if (typeof value !== 'object' || value === null) return value;
  if ('tensor' in value) return makeTensor(fixture.entry(value.tensor as string), 'cpu');
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [name, decoded(each, fixture)]),
  );
}

function optimizerOf(
  name: OptimizerCase['optimizer'],
  params: Tensor[],
  options: Options,
): sw.optim.Optimizer {
  const Optimizer = sw.optim[name] as unknown as new (
    params: unknown,
    options: Options,
  ) => sw.optim.Optimizer;
  return new Optimizer(
    [{ params: params.slice(0, 1) }, { params: params.slice(1), lr: 0.02 }],
    options,
  );
}

function stepAll(
  optimizer: sw.optim.Optimizer,
  params: Tensor[],
  grads: Tensor[],
  from: number,
  to: number,
): void {
  for (let step = from; step < to; step++) {
    params.forEach((param, i) => {
      param.grad = (grads[i] as Tensor).select(0, step).clone();
    });
    optimizer.step();
  }
}

function checkOptimizer(fixture: Fixture<unknown>, c: OptimizerCase): void {
  const options = new Decoder(fixture, 'cpu').options(c.options);
  const tensors = (keys: string[]): Tensor[] =>
    keys.map((key) => makeTensor(fixture.entry(key), 'cpu'));
  const grads = tensors(c.grads);
  const state = decoded(c.state, fixture) as sw.optim.OptimizerStateDict;
  const params = tensors(c.middle).map((p) => p.requiresGrad_());
  const optimizer = optimizerOf(c.optimizer, params, { lr: 0.7 });
  optimizer.loadStateDict(state);
  assertNames(optimizer.stateDict(), state);
  stepAll(optimizer, params, grads, savedAfter, steps);
  params.forEach((param, i) =>
    assertClose(
      snapshot(param),
      expected(fixture.entry(c.expected[i] as string)),
      `parameter ${i}`,
    ),
  );

  const fresh = tensors(c.start).map((p) => p.requiresGrad_());
  const own = optimizerOf(c.optimizer, fresh, options);
  stepAll(own, fresh, grads, 0, savedAfter);
  assertNames(own.stateDict(), state);
}

/**
 * Checks that the state has all names and shapes that PyTorch saves; later versions may have more
 * hyperparameters.
 */
function assertNames(
  actual: sw.optim.OptimizerStateDict,
  wanted: sw.optim.OptimizerStateDict,
): void {
  const shapes = (values: Record<string, Tensor | number | null>): object =>
    Object.fromEntries(
      Object.entries(values)
        .filter(([, value]) => value !== null)
        .map(([name, value]) => [
          name,
          name === 'step'
            ? Number(value instanceof sw.Tensor ? value.item() : value)
            : (value as Tensor).shape,
        ])
        .sort(),
    );
  for (const [id, values] of Object.entries(wanted.state))
    assert.deepEqual(shapes(actual.state[Number(id)] ?? {}), shapes(values));
  wanted.param_groups.forEach((group, i) => {
    const { params, lr, betas } = actual.param_groups[i] as typeof group;
    assert.deepEqual(
      { params, lr, betas },
      { params: group.params, lr: group['lr'], betas: group['betas'] },
    );
    for (const name of Object.keys(group))
      assert.ok(Object.hasOwn(actual.param_groups[i] as object, name), `group ${i} has no ${name}`);
    for (const name of Object.keys(actual.param_groups[i] as object))
      assert.doesNotMatch(name, /[a-z][A-Z]/);
  });
}

const withFunctions = (options: Options = {}): Options =>
  'lrLambda' in options ? { ...options, lrLambda: lambdas[options.lrLambda as string] } : options;

function scheduleOf(c: SchedulerCase, optimizer: sw.optim.Optimizer): Scheduler {
  const make = (name: string, ...args: unknown[]): Scheduler =>
    new (schedulers[name] as (typeof schedulers)[string])(...args);
  if (c.parts === undefined) return make(c.scheduler, optimizer, withFunctions(c.options));
  const parts = c.parts.map(([name, options]) => make(name, optimizer, withFunctions(options)));
  return c.milestones
    ? make(c.scheduler, optimizer, parts, { milestones: c.milestones })
    : make(c.scheduler, parts);
}

function sgd(): sw.optim.Optimizer {
  const groups = [0.1, 0.02].map((lr) => ({ params: [sw.zeros([1]).requiresGrad_()], lr }));
  return new sw.optim.SGD(groups, { lr: 0.1, momentum: 0.9 }) as unknown as sw.optim.Optimizer;
}

function checkScheduler(fixture: Fixture<unknown>, c: SchedulerCase): void {
  const optimizer = sgd();
  const scheduler = scheduleOf(c, optimizer);
  optimizer.loadStateDict(decoded(c.optimizer, fixture) as sw.optim.OptimizerStateDict);
  scheduler.loadStateDict(c.state);
  const state = scheduler.stateDict();
  for (const name of Object.keys(c.state))
    assert.ok(Object.hasOwn(state, name) || notSaved.has(name), `the state has no ${name}`);
  for (let step = savedAfter; step < steps; step++) {
    if (c.metrics) scheduler.step(c.metrics[step]);
    else scheduler.step();
    optimizer.paramGroups.forEach((group, i) => {
      assertNear(
        group['lr'] as number,
        c.lr[step]?.[i] as number,
        1e-9,
        1e-12,
        `learning rate of group ${i} after ${step + 1} steps`,
      );
      assertNear(
        group['momentum'] as number,
        c.momentum[step]?.[i] as number,
        1e-9,
        1e-12,
        `momentum of group ${i} after ${step + 1} steps`,
      );
    });
  }
}

/**
 * Entries of PyTorch's states that are not needed: flags of its calls and messages, and derived
 * values.
 */
const notSaved = new Set([
  'verbose',
  '_get_lr_called_within_step',
  '_is_initial',
  '_scale_fn_ref',
  'mode_worse',
  'use_beta1',
  '_last_lr',
  'milestones',
]);

describe('a state that PyTorch saved', () => {
  withFixture<OptimizerCase | SchedulerCase>('state-dict', (fixture) => {
    for (const c of fixture.cases)
      it(`resumes as in PyTorch: ${c.name}`, () =>
        c.kind === 'optimizer' ? checkOptimizer(fixture, c) : checkScheduler(fixture, c));
  });
});

const plain = (t: Tensor): unknown => t.detach().tolist();

/** A state as JSON, with tensors as lists. */
function asJson(state: sw.optim.OptimizerStateDict): State {
  const lists = (values: Record<string, Tensor | number>): object =>
    Object.fromEntries(
      Object.entries(values).map(([name, value]) => [
        name,
        value instanceof sw.Tensor ? plain(value) : value,
      ]),
    );
  return {
    ...state,
    state: Object.fromEntries(
      Object.entries(state.state).map(([id, values]) => [id, lists(values)]),
    ),
  };
}

/** Runs three steps here. Returns what PyTorch needs to resume, and the expected result. */
function savedRun(
  name: OptimizerCase['optimizer'],
  options: Options,
  schedule?: [string, Options],
): { run: Run; end: { params: unknown; lr: unknown } } {
  sw.manualSeed(7);
  const params = [sw.randn([3, 5]), sw.randn([7])].map((p) => p.requiresGrad_());
  const grads = params.map((p) => sw.randn([steps, ...p.shape]));
  const optimizer = optimizerOf(name, params, options);
  const scheduler =
    schedule &&
    new (schedulers[schedule[0]] as (typeof schedulers)[string])(
      optimizer,
      withFunctions(camelCased(schedule[1])),
    );
  const lr: unknown[] = [];
  const stepTo = (from: number, to: number): void => {
    for (let step = from; step < to; step++) {
      stepAll(optimizer, params, grads, step, step + 1);
      scheduler?.step();
      if (from > 0) lr.push(optimizer.paramGroups.map((group) => group['lr']));
    }
  };
  stepTo(0, savedAfter);
  const run: Run = {
    optimizer: name,
    params: params.map(plain),
    grads: [3, 4, 5].map((step) => grads.map((g) => plain(g.select(0, step)))),
    state: asJson(optimizer.stateDict()),
    ...(schedule && { scheduler: schedule, schedule: scheduler?.stateDict() as State }),
  };
  stepTo(savedAfter, steps);
  return { run: JSON.parse(JSON.stringify(run)) as Run, end: { params: params.map(plain), lr } };
}

const camelCased = (options: Options): Options =>
  Object.fromEntries(
    Object.entries(options).map(([name, value]) => [
      name.replace(/_([a-z0-9])/gi, (_, letter: string) => letter.toUpperCase()),
      value,
    ]),
  );

const saved: Record<string, () => ReturnType<typeof savedRun>> = {
  'SGD with momentum': () => savedRun('SGD', { lr: 0.1, momentum: 0.9, weightDecay: 0.01 }),
  'SGD without momentum': () => savedRun('SGD', { lr: 0.1 }),
  'Adam with amsgrad': () => savedRun('Adam', { lr: 0.05, amsgrad: true }),
  AdamW: () => savedRun('AdamW', { lr: 0.05, betas: [0.85, 0.9] }),
  ...Object.fromEntries(
    Object.entries<Options>({
      StepLR: { step_size: 2 },
      MultiStepLR: { milestones: [2, 5, 5] },
      ConstantLR: { total_iters: 5 },
      LinearLR: { total_iters: 5 },
      ExponentialLR: { gamma: 0.9 },
      PolynomialLR: { total_iters: 11, power: 2 },
      CosineAnnealingLR: { T_max: 5 },
      CosineAnnealingWarmRestarts: { T_0: 2, T_mult: 2 },
      CyclicLR: {
        base_lr: 0.01,
        max_lr: 0.1,
        step_size_up: 2,
        step_size_down: 3,
        mode: 'triangular2',
      },
      OneCycleLR: { max_lr: 0.5, total_steps: 9, three_phase: true },
      LambdaLR: { lr_lambda: 'inverse' },
      MultiplicativeLR: { lr_lambda: 'shrink' },
    }).map(([name, options]) => [
      name,
      () => savedRun('SGD', { lr: 0.1, momentum: 0.9 }, [name, options]),
    ]),
  ),
};

describe('a state that this library saved', () => {
  let ends: { params: unknown[]; lr: number[][] }[] = [];

  before(function () {
    this.timeout(120_000);
    const python = ['python3', '/usr/bin/python3'].find(
      (each) => spawnSync(each, ['-c', 'import torch']).status === 0,
    );
    if (python === undefined) skipBecause(this, 'there is no PyTorch');
    const program = fileURLToPath(new URL('./resume.py', import.meta.url));
    const { status, stdout, stderr } = spawnSync(python, [program], {
      input: JSON.stringify(Object.values(saved).map((make) => make().run)),
      encoding: 'utf8',
    });
    assert.equal(status, 0, stderr);
    ends = JSON.parse(stdout) as typeof ends;
  });

  Object.entries(saved).forEach(([name, make], i) => {
    it(`resumes in PyTorch as it does here: ${name}`, () => {
      const { end } = make();
      const [actual, wanted] = [ends[i] as (typeof ends)[number], end];
      const flat = (values: unknown): number[] => (values as unknown[]).flat(4) as number[];
      flat(wanted.params).forEach((value, at) =>
        assertNear(flat(actual.params)[at] as number, value, 1e-5, 1e-6, `parameter value ${at}`),
      );
      flat(wanted.lr).forEach((value, at) =>
        assertNear(flat(actual.lr)[at] as number, value, 1e-9, 1e-12, `rate ${at}`),
      );
    });
  });
});
