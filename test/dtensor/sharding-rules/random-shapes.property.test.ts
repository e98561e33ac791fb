/** Sharding rules on random shapes, dims and numbers of ranks. */
import fc from 'fast-check';
import { dispatch } from '../../../lib/core/dispatch.js';
import { float64 } from '../../../lib/core/dtype.js';
import { type AnyOp, opByName } from '../../../lib/core/op.js';
import { wrapNumber } from '../../../lib/core/tensor.js';
import type { Tensor } from '../../../lib/index.js';
import { sampleTensor } from '../../../lib/ops/samples.js';
import { checkStrategies, contextOf, strategiesOf } from './check-strategies.js';

const RUNS = { numRuns: 60 };
const ranks = fc.integer({ min: 1, max: 5 });
const size = fc.integer({ min: 0, max: 7 });
const shape = fc.array(size, { minLength: 1, maxLength: 4 });

/** Terms of a sum in another order: the rules are asked for, not how float32 rounds. */
const inExact = (sizes: readonly number[], seed = 1): Tensor =>
  sampleTensor(sizes, { dtype: float64, seed });

function checkAll(name: string, inputs: readonly Tensor[], params: object, count: number): void {
  const op = opByName(name) as AnyOp;
  const call = { op, inputs, params, expected: dispatch(op, inputs, params) };
  for (const strategy of strategiesOf(op, inputs, params, contextOf(count)))
    checkStrategies(call, [strategy], [count]);
}

/**
 * Splits each size into two factors in one of the possible ways, and merges neighbours where
 * `merges` says so.
 */
function regrouped(
  from: readonly number[],
  picks: readonly number[],
  merges: readonly boolean[],
): number[] {
  const factors = from.flatMap((n, i) => {
    const divisors = Array.from({ length: n }, (_, d) => d + 1).filter((d) => n % d === 0);
    const left =
      divisors.length === 0 ? 1 : (divisors[(picks[i] as number) % divisors.length] as number);
    return [left, n / left];
  });
  const sizes: number[] = [];
  factors.forEach((n, i) => {
    const before = i > 0 && merges[i] ? sizes.pop() : undefined;
    sizes.push(n * (before ?? 1));
  });
  return sizes;
}

describe('sharding rules give the whole result on random shapes of', () => {
  it('view', () => {
    const picks = fc.array(fc.nat(5), { minLength: 4, maxLength: 4 });
    const merges = fc.array(fc.boolean(), { minLength: 8, maxLength: 8 });
    fc.assert(
      fc.property(shape, picks, merges, ranks, (from, pick, merge, count) =>
        checkAll('view', [sampleTensor(from)], { size: regrouped(from, pick, merge) }, count),
      ),
      { numRuns: 200 },
    );
  });

  it('broadcasting ops', () => {
    const pair = shape.chain((whole) =>
      fc.tuple(
        fc.constant(whole),
        fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }),
        fc.nat(3),
      ),
    );
    fc.assert(
      fc.property(pair, ranks, ([whole, stretched, gone], count) => {
        const part = whole.map((n, i) => (stretched[i] ? 1 : n)).slice(gone);
        checkAll(
          'add',
          [sampleTensor(whole), sampleTensor(part, { seed: 2 })],
          { alpha: 0.5 },
          count,
        );
        checkAll('mul', [sampleTensor(part), sampleTensor(whole, { seed: 2 })], {}, count);
      }),
      RUNS,
    );
  });

  it('reductions', () => {
    const flags = fc.array(fc.boolean(), { minLength: 4, maxLength: 4 });
    fc.assert(
      fc.property(
        shape,
        flags,
        fc.boolean(),
        ranks,
        fc.constantFrom('sum', 'mean', 'amax', 'any', 'logsumexp'),
        (sizes, flag, keepdim, count, name) => {
          const dims = [...sizes.keys()].filter((d) => flag[d]);
          fc.pre(name !== 'amax' || !sizes.includes(0)); // there is no largest element of nothing
          checkAll(name, [inExact(sizes)], { dims: dims.length > 0 ? dims : [0], keepdim }, count);
        },
      ),
      RUNS,
    );
  });

  it('matmul', () => {
    fc.assert(
      fc.property(
        fc.tuple(size, size, size, size),
        fc.boolean(),
        fc.boolean(),
        ranks,
        ([batch, m, k, n], shared, added, count) => {
          const [a, b] = [inExact([batch, m, k]), inExact(shared ? [k, n] : [batch, k, n], 2)];
          checkAll(
            'matmul',
            [a, b, added ? inExact([m, 1], 3) : wrapNumber(0, a.dtype, a.device)],
            { alpha: 0.5, beta: 2 },
            count,
          );
        },
      ),
      RUNS,
    );
  });

  it('random ops', () => {
    const { dtype, device } = sampleTensor([1]);
    fc.assert(
      fc.property(shape, ranks, fc.nat(1000), (sizes, count, seedLow) => {
        checkAll(
          'randomNormal',
          [],
          { shape: sizes, dtype, device, seedLow, seedHigh: 0, offset: 1, first: 0, second: 1 },
          count,
        );
        checkAll(
          'dropout',
          [sampleTensor(sizes)],
          { probability: 0.5, seedLow, seedHigh: 0, offset: 1 },
          count,
        );
      }),
      RUNS,
    );
  });
});
