/** Backward reads no view of forward after the pass, and computes the same. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { isView } from '../../../lib/compile/graph/traits.js';
import { defaultPartition } from '../../../lib/compile/index.js';
import { halvesOf } from '../../../lib/compile/partition/joint-graph.js';
import { recomputeViews } from '../../../lib/compile/passes/recompute-views.js';
import { nn, rand, scope, type Tensor } from '../../../lib/index.js';
import { assertFaithful, assertSame, jointOf, runGraph } from '../partition/joint-graphs.js';
import { programs } from '../partition/random-programs.js';

const leaf = (...shape: number[]): Tensor => rand(shape).sub(0.5).requiresGrad_();

describe('recomputeViews', () => {
  it('leaves backward no view of forward to read, in random programs', () => {
    fc.assert(
      fc.property(programs, ({ program }) =>
        scope(() => {
          assertFaithful(program, [leaf(3, 3), leaf(3, 3), leaf(3, 3)], (joint) => {
            recomputeViews(joint);
            const { forward, backward } = halvesOf(joint);
            const early = new Set(forward);
            for (const { reads } of backward)
              for (const value of reads)
                assert.ok('number' in value || !early.has(value.node) || !isView(value.node));
            return defaultPartition(joint);
          });
        }),
      ),
      { numRuns: 25 },
    );
  }).timeout(60_000);

  it('makes a view once, before its first reader, and tells how many it made', () => {
    const args = [leaf(4, 4), leaf(4, 4)];
    const joint = jointOf((x, w) => nn.functional.linear(x, w).mul(w.t()), args);
    const inputs = [...args.map((t) => t.detach()), rand([4, 4])];
    const expected = runGraph(joint.graph, inputs);
    const made = recomputeViews(joint);
    assert.equal(made, 2);
    assert.equal(recomputeViews(joint), 0);
    assertSame(runGraph(joint.graph, inputs), expected);
  });
});
