/** Reductions over ranks, for every dtype and ReduceOp, against plain arithmetic. */
import assert from 'node:assert/strict';
import {
  allReduce,
  newGroup,
  ReduceOp,
  type ReduceOpName,
  reduce,
  reduceScatter,
  reduceScatterTensor,
} from '../../../lib/distributed.js';
import {
  bfloat16,
  bool,
  type DType,
  float16,
  float32,
  float64,
  full,
  int8,
  int16,
  int32,
  int64,
  tensor,
  uint8,
  zeros,
} from '../../../lib/index.js';
import { describeOverEngines, onRanks, valuesOf } from '../support/on-ranks.js';

const WORLD = 5;
const groups = [[0, 1, 2, 3, 4], [2], [3, 1], [4, 2, 0]];
const reductions = Object.values(ReduceOp);
const dtypes = [float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, bool];
/** Small ones go through slots, large ones from memory to memory. */
const lengths = [0, 1, 7, 4099];
const largest = 20_011;
const bits: Record<string, number> = { int8: 8, uint8: 8, int16: 16, int32: 32, int64: 64 };

/** Halves within what products of five ranks keep exact in 16 bits; integers that overflow. */
function given(rank: number, i: number, dtype: DType): number {
  const small = ((i * 7 + rank * 3) % 9) - 4;
  if (dtype === bool) return (i + rank) % 3 === 0 ? 1 : 0;
  if (dtype.isFloatingPoint) return small / 2;
  if (dtype === uint8) return (i * 31 + rank * 97) % 256;
  return dtype === int8 || dtype === int16 ? small * 31 : small * 1001;
}

function wrapped(value: bigint, dtype: DType): number {
  return Number(
    dtype === uint8 ? BigInt.asUintN(8, value) : BigInt.asIntN(bits[dtype.name] as number, value),
  );
}

function expected(values: readonly number[], op: ReduceOpName, dtype: DType): number {
  if (dtype === bool)
    return op === 'sum' || op === 'max' ? Math.max(...values) : Math.min(...values);
  if (op === 'min') return Math.min(...values);
  if (op === 'max') return Math.max(...values);
  if (dtype.isFloatingPoint) {
    const [sum, product] = [values.reduce((a, b) => a + b, 0), values.reduce((a, b) => a * b, 1)];
    return op === 'product' ? product : op === 'sum' ? sum : sum / values.length;
  }
  const whole = values.map(BigInt);
  if (op === 'product')
    return wrapped(
      whole.reduce((a, b) => a * b, 1n),
      dtype,
    );
  const sum = whole.reduce((a, b) => a + b, 0n);
  return wrapped(op === 'sum' ? sum : sum / BigInt(values.length), dtype);
}

/** All members' values at `i` reduced, for `i` of a range; floats rounded to the dtype. */
function reduced(
  members: readonly number[],
  op: ReduceOpName,
  dtype: DType,
  from: number,
  count: number,
): number[] {
  const exact = Array.from({ length: count }, (_, i) =>
    expected(
      members.map((rank) => given(rank, from + i, dtype)),
      op,
      dtype,
    ),
  );
  return dtype.isFloatingPoint
    ? Array.from(tensor(exact, { dtype }).toTypedArray() as ArrayLike<number>)
    : exact;
}

const inputOf = (rank: number, dtype: DType, count: number, from = 0) =>
  tensor(
    Array.from({ length: count }, (_, i) => given(rank, from + i, dtype)),
    { dtype },
  );

describeOverEngines('a reduction over ranks', () => {
  for (const dtype of dtypes) {
    it(`of ${dtype.name} is right for every ReduceOp, groups of 1, 2, 3 and 5, and any size`, async () => {
      const results = await onRanks(WORLD, async (rank) => {
        const made = groups.map((ranks) => newGroup(ranks));
        const reads: Promise<[string, number[]]>[] = [];
        const keep = (name: string, t: Parameters<typeof valuesOf>[0]) =>
          reads.push(valuesOf(t).then((values) => [name, values]));
        for (const [g, group] of made.entries()) {
          if (group.rank < 0) continue;
          for (const op of reductions) {
            for (const n of op === 'sum' ? [...lengths, largest] : lengths) {
              const x = inputOf(rank, dtype, n);
              allReduce(x, { op, group });
              keep(`allReduce ${g} ${op} ${n}`, x);
            }
            const y = inputOf(rank, dtype, 33);
            reduce(y, group.ranks.at(-1) as number, { op, group });
            keep(`reduce ${g} ${op} 33`, y);
            const sizes = group.ranks.map((_, i) => (i === 1 ? 0 : 11 + i));
            const starts = sizes.map((_, i) => sizes.slice(0, i).reduce((a, b) => a + b, 0));
            const part = zeros([sizes[group.rank] as number], { dtype });
            reduceScatter(
              part,
              sizes.map((size, i) => inputOf(rank, dtype, size, starts[i])),
              { op, group },
            );
            keep(`reduceScatter ${g} ${op} ${sizes[group.rank]} ${starts[group.rank]}`, part);
            const even = zeros([3, 5], { dtype });
            reduceScatterTensor(
              even,
              inputOf(rank, dtype, 15 * group.size).reshape([3 * group.size, 5]),
              { op, group },
            );
            keep(`reduceScatterTensor ${g} ${op} 15 ${15 * group.rank}`, even);
          }
        }
        return Promise.all(reads);
      });
      for (const [rank, list] of results.entries()) {
        for (const [name, values] of list) {
          const [kind, g, op, n, from = 0] = name.split(' ') as [
            string,
            number,
            ReduceOpName,
            number,
            number?,
          ];
          const members = groups[g] as number[];
          const own = kind === 'reduce' && members.at(-1) !== rank;
          const wanted = own
            ? await valuesOf(inputOf(rank, dtype, Number(n)))
            : reduced(members, op, dtype, Number(from), Number(n));
          assert.deepEqual(values, wanted, `rank ${rank}: ${name}`);
        }
      }
    });
  }

  it('propagates NaN in minimum and maximum, and keeps infinities', async () => {
    for (const dtype of [float64, float32, float16, bfloat16]) {
      for (const op of ['min', 'max', 'sum'] as const) {
        const [values] = await onRanks(3, async (rank) => {
          const x = tensor(
            [rank === 1 ? Number.NaN : rank, rank === 2 ? Number.POSITIVE_INFINITY : 1],
            { dtype },
          );
          allReduce(x, { op });
          return valuesOf(x);
        });
        assert.deepEqual(
          values,
          [Number.NaN, op === 'min' ? 1 : Number.POSITIVE_INFINITY],
          `${dtype.name} ${op}`,
        );
      }
    }
  });

  it('gives the same bits to all ranks, whatever the rounding', async () => {
    const results = await onRanks(3, async (rank) => {
      const x = full([5000], [0.1, 1e8, -1e8][rank] as number).mul(1 + rank / 7);
      allReduce(x);
      return x.read();
    });
    assert.deepEqual(results[1], results[0]);
    assert.deepEqual(results[2], results[0]);
  });
});
