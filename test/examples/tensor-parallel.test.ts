/** The tensor parallel example runs as a user starts it. */
import assert from 'node:assert/strict';
import { runExample } from './run-example.js';

describe('examples/tensor-parallel', () => {
  it('prints shards and communication, and learns on four ranks what one rank learns', function () {
    this.timeout(60_000);
    const { status, stdout, stderr } = runExample('tensor-parallel');
    assert.equal(status, 0, stderr);
    assert.match(stdout, /float32\[32, 8\] on mesh \(tp: 4\): \[Shard\(0\)\]/);
    // One reduction of the result a step; the input needs no gradient.
    assert.match(stdout, /\nallReduce +5 +2560 +3840 +tp +forward +down /);
    const losses = [...stdout.matchAll(/step \d: loss (\S+) on 4 ranks, (\S+) on one/g)].map(
      ([, shared, alone]) => [Number(shared), Number(alone)] as const,
    );
    assert.equal(losses.length, 5);
    for (const [shared, alone] of losses)
      assert.ok(Math.abs(shared - alone) < 1e-5, `${shared} is ${alone}`);
  });
});
