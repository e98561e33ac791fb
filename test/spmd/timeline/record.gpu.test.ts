/** Recorded timelines of GPUs: times of their streams, not of the host. */
import assert from 'node:assert/strict';
import { recordTimeline } from '../../../lib/spmd/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { skipWithoutCuda } from '../../skip.js';
import { checkNodes, checkTimes, none, scheduled, stepWith } from '../support/recorded-step.js';

describe('recordTimeline on GPUs', function () {
  this.timeout(120_000);
  before(function () {
    skipWithoutCuda(this);
  });

  it(
    'records every node once, in order, before and after passes',
    withRanks(2, async () => {
      for (const passes of [none, scheduled]) {
        const { take, graph } = stepWith(passes, {}, 'cuda');
        const seen = await recordTimeline(take, { title: 'a step' });
        checkTimes(seen);
        checkNodes(seen, graph);
        assert.ok(seen.compute > 0 && seen.communication > 0);
      }
    }),
  );
});
