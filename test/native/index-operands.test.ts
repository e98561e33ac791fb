/** Kernels whose operands are indices: no output may be on their memory. */
import assert from 'node:assert/strict';
import type { Operand } from '../fuzz/commands.js';
import { absent, FLOAT64, found, INT64, submit, view } from './raw-commands.js';

/** Commands with an output on the memory of the indices, from the first or the last byte on. */
const overIndices: Record<string, () => void> = {
  cross_entropy: () => {
    const target = view([4], { dtype: INT64 });
    const losses = view([4], { on: target.kind });
    submit('cross_entropy', [view([4, 3]), target, absent], [losses, view([4])], [-100, 0]);
  },
  'cross_entropy with its gradient': () => {
    const target = view([4], { dtype: INT64 });
    const gradient = view([4, 3], { on: target.kind });
    const inputs = [view([4, 3]), target, absent, absent];
    submit('cross_entropy', inputs, [view([4]), view([4]), gradient], [-100, 0]);
  },
  cross_entropy_backward: () => {
    const target = view([4], { dtype: INT64 });
    const inputs = [view([4]), view([4, 3]), view([4]), target, absent];
    submit('cross_entropy_backward', inputs, [view([4, 3], { on: target.kind })], [-100, 0, 0, 3]);
  },
  cross_entropy_statistics: () => {
    const target = view([4], { dtype: INT64 });
    const score = view([4], { dtype: FLOAT64, on: target.kind });
    const outputs = [view([4, 1], { dtype: FLOAT64 }), score];
    submit('cross_entropy_statistics', [view([4, 3]), target, absent], outputs, [-100, 0, 0, 3]);
  },
  gather: () => {
    const index = view([4], { dtype: INT64 });
    submit('gather', [view([4]), index], [view([4], { on: index.kind })]);
  },
  scatter: () => {
    const index = view([4], { dtype: INT64 });
    submit('scatter', [index, view([4])], [view([4], { on: index.kind })], [0]);
  },
  index_select: () => {
    const index = view([2], { dtype: INT64 });
    submit('index_select', [view([1, 3, 4]), index], [view([1, 2, 4], { on: index.kind })]);
  },
  index_add: () => {
    const index = view([2], { dtype: INT64 });
    submit('index_add', [index, view([1, 2, 4])], [view([1, 3, 4], { on: index.kind })], [1]);
  },
  index_get: () => {
    const [rows, columns] = [view([2], { dtype: INT64 }), view([2], { dtype: INT64 })];
    submit('index_get', [view([3, 3]), rows, columns], [view([2], { on: columns.kind })], [2]);
  },
  index_put: () => {
    const index = view([2], { dtype: INT64 });
    submit('index_put', [view([2]), index], [view([3], { on: index.kind })], [1, 0]);
  },
  'nonzero_rows over the starts': () => {
    const operands = found(64);
    const rows = view([3, 1], { dtype: INT64, on: (operands[1] as Operand).kind });
    submit('nonzero_rows', operands, [rows], [64]);
  },
  'nonzero_rows over the flags': () => {
    const operands = found(64);
    const rows = view([3, 1], { dtype: INT64, on: (operands[2] as Operand).kind });
    submit('nonzero_rows', operands, [rows], [64]);
  },
};

describe('an output over indices', () => {
  for (const [kernel, run] of Object.entries(overIndices))
    it(`is refused for ${kernel}`, () =>
      assert.throws(run, (error: NodeJS.ErrnoException) => {
        assert.equal(error.code, 'SW_INVALID');
        assert.match(error.message, /addresses do not fit .*: .*indices /);
        return true;
      }));

  it('is not refused beside them in one storage', () => {
    const index = view([4], { dtype: INT64 });
    const beside = { ...view([4], { on: index.kind }), value: 8 };
    submit('gather', [view([4]), index], [beside]);
  });
});
