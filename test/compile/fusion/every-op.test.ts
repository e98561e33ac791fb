/** Every pointwise op, fused with the calls around it, computes what it computes alone. */
import assert from 'node:assert/strict';
import { dispatch } from '../../../lib/core/dispatch.js';
import type { AnyOp, Sample } from '../../../lib/core/op.js';
import {
  bfloat16,
  bool,
  type DType,
  float16,
  float32,
  float64,
  int8,
  int16,
  int32,
  int64,
  noGrad,
  ShardwiseError,
  type Tensor,
  uint8,
} from '../../../lib/index.js';
import { ownOps } from '../../every-op/differentiable.js';
import { callsOf, fusedGraph } from './fused.js';

const dtypes = [float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8, bool];

/** The op on operands that were converted, and its result converted and used again. */
function programOf(op: AnyOp, { inputs, params }: Sample<object>, dtype: DType) {
  return (...given: Tensor[]): Tensor[] => {
    let next = 0;
    const operands = inputs.map((t) =>
      t.storage === null ? t : (given[next++] as Tensor).to(dtype, { copy: true }),
    );
    const [y] = dispatch(op, operands, params) as [Tensor];
    return [y, y.to(bfloat16, { copy: true }).mul(3)];
  };
}

/** Whether the op takes these operands: integers may be divided by zero. */
function isAccepted(program: (...given: Tensor[]) => Tensor[], inputs: readonly Tensor[]): boolean {
  try {
    noGrad(() => program(...inputs).map((t) => t.tolist()));
    return true;
  } catch (error) {
    if (error instanceof ShardwiseError) return false;
    throw error;
  }
}

describe('a fused call with one op', () => {
  for (const op of ownOps()) {
    if (op.pointwise === null) continue;
    it(`has the results of the op for ${op.name}, in all dtypes that it takes`, () => {
      for (const sample of op.samples() as Sample<object>[]) {
        const inputs = sample.inputs.filter((t) => t.storage !== null).map((t) => t.mul(3));
        const all = dtypes
          .map((dtype) => programOf(op, sample, dtype))
          .filter((program) => isAccepted(program, inputs));
        assert.ok(all.length >= 3, `${all.length} dtypes`);
        const graph = fusedGraph((...given) => all.flatMap((each) => each(...given)), inputs);
        const calls = callsOf(graph);
        assert.ok(
          calls.every((name) => name === 'copy' || /^fused/.test(name)),
          calls.join(),
        );
      }
    });
  }
});
