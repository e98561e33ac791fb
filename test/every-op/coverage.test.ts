/** Every op in the table is tested: it has samples, or names the test that replaces them. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import '../../lib/distributed.js';
import '../../lib/index.js';
import { root } from '../../scripts/check-tree.js';
import { ownOps } from './differentiable.js';

/** Ops without samples, why they have none, and where they are tested. */
const elsewhere: Record<string, { why: string; file: string }> = {
  nonzero: {
    why: 'the number of valid rows in its result depends on values',
    file: 'test/ops/nonzero.test.ts',
  },
  nonzeroRows: {
    why: 'it writes the rows that nonzero found',
    file: 'test/ops/nonzero.test.ts',
  },
  toDevice: {
    why: 'it needs a second device, or pinned memory',
    file: 'test/core/pinned.gpu.test.ts',
  },
  randomUniform: {
    why: 'it has no operands, and its values are tested by their distribution',
    file: 'test/ops/random.test.ts',
  },
  randomNormal: {
    why: 'it has no operands, and its values are tested by their distribution',
    file: 'test/ops/random.test.ts',
  },
  randomInteger: {
    why: 'it has no operands, and its values are tested by their distribution',
    file: 'test/ops/random.test.ts',
  },
  randomBernoulli: {
    why: 'it has no operands, and its values are tested by their distribution',
    file: 'test/ops/random.test.ts',
  },
  full: { why: 'it has no operands', file: 'test/ops/factories.test.ts' },
  empty: { why: 'it has no operands and no values', file: 'test/ops/factories.test.ts' },
  arange: { why: 'it has no operands', file: 'test/ops/factories.test.ts' },
  linspace: { why: 'it has no operands', file: 'test/ops/factories.test.ts' },
  sgdStep: { why: 'it overwrites its operands', file: 'test/ops/optimizer-steps.test.ts' },
  adamStep: { why: 'it overwrites its operands', file: 'test/ops/optimizer-steps.test.ts' },
  adamStepCapturable: {
    why: 'it overwrites its operands',
    file: 'test/ops/capturable-steps.test.ts',
  },
  sgdStepCapturable: {
    why: 'it overwrites its operands',
    file: 'test/ops/capturable-steps.test.ts',
  },
  foreachAddScalar: {
    why: 'it overwrites its operands',
    file: 'test/ops/capturable-steps.test.ts',
  },
  foreachAdd: { why: 'it overwrites its operands', file: 'test/ops/optimizer-steps.test.ts' },
  redistribute: { why: 'it needs ranks', file: 'test/dtensor/redistribute/run.test.ts' },
  toLocal: { why: 'it needs ranks', file: 'test/dtensor/redistribute/run.test.ts' },
  fromLocal: { why: 'it needs ranks', file: 'test/dtensor/redistribute/run.test.ts' },
  foreachCopy: { why: 'it overwrites its operands', file: 'test/ops/foreach-copy.test.ts' },
  splitWithSizesCopy: {
    why: 'it overwrites its operands',
    file: 'test/ops/foreach-copy.test.ts',
  },
  fusedPointwise: {
    why: 'its program names kernels by number',
    file: 'test/ops/fused-pointwise.test.ts',
  },
  foreachMul: { why: 'it overwrites its operands', file: 'test/ops/optimizer-steps.test.ts' },
};

/** On a machine with a GPU the tests may run compiled, without their sources. */
const compiled = import.meta.url.endsWith('.js');

describe('every op in the table', () => {
  const ops = ownOps();

  it('has samples, or a test elsewhere', () => {
    const without = ops.filter((op) => op.samples().length === 0).map((op) => op.name);
    assert.deepEqual(without.sort(), Object.keys(elsewhere).sort());
  });

  it('has a gradient rule, a decomposition, or recorded values to compare with', () => {
    const folder = path.join(root, 'test/golden');
    const recorded = readdirSync(folder)
      .filter((name) => name.startsWith('cases_'))
      .map((name) => readFileSync(path.join(folder, name), 'utf8'))
      .join('\n');
    const compared = new Set([...recorded.matchAll(/"(\w+)"/g)].map(([, name]) => name));
    // Collectives: test/distributed/process-group/collectives.test.ts.
    const untested = ops.filter(
      (op) =>
        !op.traits.includes('collective') &&
        op.vjp === null &&
        op.decompose === null &&
        !(op.name in elsewhere) &&
        !compared.has(op.name),
    );
    // test/autograd/detach.test.ts, test/ops/view-dtype.test.ts, test/ops/sampling.test.ts: copies,
    // of which two are checked
    assert.deepEqual(
      untested.map((op) => op.name),
      ['viewDtype', 'detach', 'bernoulliProbabilities', 'multinomialWeights'],
    );
  });

  for (const [name, { why, file }] of Object.entries(elsewhere)) {
    it(`has samples, except ${name}, because ${why}`, () => {
      assert.match(
        readFileSync(path.join(root, compiled ? file.replace(/ts$/, 'js') : file), 'utf8'),
        new RegExp(`\\b${name}\\b`),
      );
    });
  }
});
