/** The GPT that is measured: what its backward pass does not do. */
import assert from 'node:assert/strict';
import { Gpt } from '../../bench/gpt.js';
import { amp, bfloat16, profiler, randint } from '../../lib/index.js';

describe('the GPT of the benchmarks', () => {
  it('joins the gradients of queries, keys and values without a copy', () => {
    const layers = 2;
    const size = { vocabulary: 32, width: 16, heads: 2, hidden: 32, layers, context: 8 };
    const model = new Gpt(size, 'cpu');
    const tokens = (): ReturnType<typeof randint> => randint(0, 32, [2, 8]);
    const loss = amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, () =>
      model(tokens(), tokens()),
    );
    const prof = profiler.profile({ activities: ['cpu'] }, () => loss.backward());
    const counts = new Map([...prof.keyAverages()].map(({ key, count }) => [key, count]));
    assert.equal(counts.get('attentionBackwardJoined'), layers);
    for (const op of ['attentionBackward', 'select', 'empty'])
      assert.equal(counts.get(op), undefined, [...counts].join(' '));
  });
});
