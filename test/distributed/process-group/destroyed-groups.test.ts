/** The memory of groups that all ranks have destroyed. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { allReduce, destroyProcessGroup, newGroup } from '../../../lib/distributed.js';
import { ones } from '../../../lib/index.js';
import { onRanks } from '../support/on-ranks.js';

const COUNT = 200;

/** Addresses of the process, in MiB. */
const addresses = (): number =>
  Number(/VmSize:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) / 1024;

describe('a destroyed group of local ranks', () => {
  it('frees its memory while the world lives on', async function () {
    this.timeout(60_000);
    const grown = await onRanks(2, async () => {
      const round = async (): Promise<void> => {
        const group = await newGroup([0, 1]);
        const x = ones([3]);
        await allReduce(x, { group });
        destroyProcessGroup(group);
        assert.deepEqual(await x.read(), Float32Array.of(2, 2, 2));
      };
      for (let i = 0; i < 10; i++) await round();
      const before = addresses();
      for (let i = 0; i < COUNT; i++) await round();
      return addresses() - before;
    });
    // each has two for its memory, and the C heap may take another 64
    assert.ok(Math.max(...grown) < COUNT, `${grown} MiB more`);
  });
});
