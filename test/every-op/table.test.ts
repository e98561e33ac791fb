/** Every entry of the op table is documented and has a kernel. */
import assert from 'node:assert/strict';
import { addon } from '../../lib/runtime.js';
import { ownOps } from './differentiable.js';

describe('the op table', () => {
  for (const op of ownOps()) {
    it(`documents ${op.name} and finds its kernel`, () => {
      assert.ok(op.doc.length > 3, 'doc');
      if (op.kernel !== null)
        assert.ok(addon.kernelNames.includes(op.kernel), `kernel ${op.kernel}`);
    });
  }

  it('uses every kernel of the addon', () => {
    const used = new Set(ownOps().map((op) => op.kernel));
    assert.deepEqual(
      addon.kernelNames.filter((name) => !used.has(name)),
      [],
    );
  });
});
