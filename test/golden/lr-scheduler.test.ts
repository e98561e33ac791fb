/**
 * Every schedule gives PyTorch's learning rates over twenty steps. It computes no tensors, so one
 * device is enough.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import * as sw from '../../lib/index.js';
import { assertNear } from './compare.js';
import { withFixture } from './read-fixture.js';
import type { Encoded } from './run-case.js';

type Options = Record<string, unknown>;

interface Case {
  name: string;
  scheduler: string;
  options?: Record<string, Encoded>;
  /** Schedulers that a composed scheduler consists of. */
  parts?: [scheduler: string, options: Record<string, Encoded>][];
  milestones?: number[] | null;
  metrics?: number[];
  lrs: number[];
  /** The value of each group, before the first step and after each. */
  lr: number[][];
  momentum?: number[][];
}

interface Scheduler {
  step(metric?: number): void;
  getLastLr(): number[];
}

/** The functions that cases_scheduler.py names. */
const lambdas: Record<string, (step: number) => number> = {
  warmup: (step) => Math.min(1, (step + 1) / 5),
  inverse: (step) => 1 / (1 + step),
  shrink: (step) => (step % 3 ? 0.9 : 0.8),
};

const classes = sw.optim.lrScheduler as unknown as Record<
  string,
  new (
    ...args: unknown[]
  ) => Scheduler
>;

function make(scheduler: string, ...args: unknown[]): Scheduler {
  const Class = classes[scheduler];
  assert.ok(Class, `sw.optim.lrScheduler has no ${scheduler}`);
  return new Class(...args);
}

function withFunctions(options: Record<string, Encoded> = {}): Options {
  return 'lrLambda' in options
    ? { ...options, lrLambda: lambdas[options.lrLambda as string] }
    : options;
}

function schedulerOf(c: Case, optimizer: sw.optim.Optimizer): Scheduler {
  if (!c.parts) return make(c.scheduler, optimizer, withFunctions(c.options));
  const parts = c.parts.map(([scheduler, options]) =>
    make(scheduler, optimizer, withFunctions(options)),
  );
  return c.milestones
    ? make(c.scheduler, optimizer, parts, { milestones: c.milestones })
    : make(c.scheduler, parts);
}

function check(c: Case): void {
  const groups = c.lrs.map((lr) => ({ params: [sw.zeros([1]).requiresGrad_()], lr }));
  const optimizer: sw.optim.Optimizer = new sw.optim.SGD(groups, { lr: 0.1, momentum: 0.9 });
  const scheduler = schedulerOf(c, optimizer);
  c.lr.forEach((wanted, step) => {
    const now = optimizer.paramGroups as unknown as { lr: number; momentum: number }[];
    wanted.forEach((lr, i) => {
      assertNear(
        Number(now[i]?.lr),
        lr,
        1e-9,
        1e-12,
        `learning rate of group ${i} after ${step} steps`,
      );
      const momentum = c.momentum?.[step]?.[i];
      if (momentum !== undefined)
        assertNear(
          Number(now[i]?.momentum),
          momentum,
          1e-9,
          1e-12,
          `momentum of group ${i} after ${step} steps`,
        );
    });
    if (step > 0)
      scheduler
        .getLastLr()
        .forEach((lr, i) =>
          assertNear(lr, wanted[i] as number, 1e-9, 1e-12, `getLastLr()[${i}] after ${step} steps`),
        );
    if (step === c.lr.length - 1) return;
    optimizer.step();
    if (c.metrics) scheduler.step(c.metrics[step]);
    else scheduler.step();
  });
}

describe('the learning rate schedule', () => {
  withFixture<Case>('scheduler', (fixture) => {
    for (const c of fixture.cases) it(`${c.name} matches PyTorch`, () => check(c));
  });
});
