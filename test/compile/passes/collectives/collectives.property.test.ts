/** Passes that move communication compute what the graph computed before, on real ranks. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  type Graph,
  raiseCollectives,
  reorderForOverlap,
  sinkWaits,
} from '../../../../lib/compile/index.js';
import { onRanks } from '../../../distributed/support/on-ranks.js';
import { captured, keptBy, peakOf, programOf, programs, resultsOf } from './programs.js';

/** Links so slow that everything would be moved that may be. */
const SLOW = {
  name: 'slow',
  flops: { float32: 1e9 },
  memory: 1e9,
  launch: 1e-6,
  links: [{ ranks: 2, latency: 1e-4, bandwidth: 1e6 }],
};

const passes: Readonly<Record<string, (graph: Graph) => unknown>> = {
  raiseCollectives,
  sinkWaits,
  'raiseCollectives and sinkWaits': (graph) => {
    raiseCollectives(graph);
    sinkWaits(graph);
  },
  reorderForOverlap: (graph) => reorderForOverlap(graph, { rates: SLOW }),
  'reorderForOverlap without more memory': (graph) => {
    const before = peakOf(graph);
    reorderForOverlap(graph, { rates: SLOW, allowanceBytes: 0 });
    assert.ok(peakOf(graph) <= before, `${peakOf(graph)} bytes, ${before} before`);
  },
};

for (const [name, pass] of Object.entries(passes))
  describe(`${name} of random programs`, function () {
    this.timeout(60_000);

    it('keeps results to the bit, writes, and the order of collectives and draws', async () => {
      let moved = 0;
      await fc.assert(
        fc.asyncProperty(programs, async (steps) => {
          await onRanks(2, async (rank) => {
            const fn = programOf(steps);
            const given = captured(fn, rank);
            const expected = await resultsOf(given, rank);
            const changed = captured(fn, rank);
            const before = keptBy(changed.graph);
            const order = changed.graph.nodes.map((node) => node.name);
            pass(changed.graph);
            assert.deepEqual(keptBy(changed.graph), before);
            assert.deepEqual(await resultsOf(changed, rank), expected);
            if (changed.graph.nodes.some((node, i) => node.name !== order[i])) moved++;
          });
        }),
        { numRuns: 40 },
      );
      assert.ok(moved > 20, `${moved} graphs have changed`);
    });
  });
