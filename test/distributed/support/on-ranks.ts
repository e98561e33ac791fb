/** Runs tests on local ranks; tensors of every layout, and their values. */
import assert from 'node:assert/strict';
import {
  type LocalOptions,
  type RankFunction,
  runLocalRanks,
} from '../../../lib/distributed/local-ranks/run.js';
import { type DType, noGrad, type Tensor, tensor, zeros } from '../../../lib/index.js';
import { skipWithoutGloo } from './skip-without-gloo.js';

const hostBackends = ['shm', 'gloo'] as const;
let hostBackend: (typeof hostBackends)[number] = 'shm';

/** A suite over shared memory, and once more over gloo: {@link onRanks} follows. */
export function describeOverEngines(name: string, suite: () => void): void {
  for (const backend of hostBackends) {
    describe(`${name} over ${backend}`, () => {
      before(function () {
        if (backend === 'gloo') skipWithoutGloo(this);
        hostBackend = backend;
      });
      after(() => {
        hostBackend = 'shm';
      });
      suite();
    });
  }
}

/** What {@link describeOverEngines} has set. */
export const isOverGloo = (): boolean => hostBackend === 'gloo';

/** Runs `fn` on ranks that share this process; they have five seconds for each other. */
export function onRanks<T>(
  worldSize: number,
  fn: RankFunction<T>,
  options: Partial<LocalOptions> = {},
): Promise<T[]> {
  return runLocalRanks(worldSize, fn, { timeoutMs: 5000, hostBackend, ...options });
}

/**
 * How a tensor lies in memory: alone, in the middle of another, every second element of another, or
 * as one with a gradient.
 */
export const layouts = ['dense', 'offset', 'strided', 'grad'] as const;
export type Layout = (typeof layouts)[number];

/** A tensor of one dim with the values, in the layout. */
export function laidOut(values: readonly number[], dtype: DType, layout: Layout): Tensor {
  const n = values.length;
  const whole = tensor([...values], { dtype });
  if (layout === 'dense' || (layout === 'grad' && !dtype.isFloatingPoint)) return whole;
  if (layout === 'grad') return whole.requiresGrad_(true);
  const room =
    layout === 'offset'
      ? zeros([n + 3], { dtype }).narrow(0, 2, n)
      : zeros([n, 2], { dtype }).select(1, 1);
  return noGrad(() => room.copy_(whole));
}

/** The elements as plain numbers. */
export async function valuesOf(t: Tensor): Promise<number[]> {
  return Array.from((await t.read()) as ArrayLike<number | bigint>, Number);
}

/** What `work` rejects with. */
export async function errorOf(
  work: Promise<unknown>,
): Promise<Error & { code?: string; cause?: unknown }> {
  try {
    await work;
  } catch (error) {
    assert.ok(error instanceof Error);
    return error;
  }
  throw new Error('nothing failed');
}
