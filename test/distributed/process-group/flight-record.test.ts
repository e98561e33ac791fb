/** A failure writes the last collectives of all ranks, and its error names the file. */
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import path from 'node:path';
import {
  checkOwn,
  DEVIANT,
  FailingRanks,
  lastOf,
  linesOf,
  RANKS,
  type Said,
} from '../support/flight-records.js';
import { skipWithoutGloo } from '../support/skip-without-gloo.js';

describe('a flight record', () => {
  let ranks: FailingRanks;

  beforeEach(() => {
    ranks = new FailingRanks();
  });
  afterEach(() => ranks.end());

  for (const backend of ['shm', 'gloo']) {
    it(`over ${backend} shows the call of a rank that deviates`, async function () {
      if (backend === 'gloo') skipWithoutGloo(this);
      const said = await ranks.run('deviates', backend);
      checkOwn(said);
      assert.equal(said.length, RANKS.length);
      // Over gloo each rank finds such a failure by itself.
      const folders = new Set(said.map(({ file }) => path.dirname(file)));
      assert.equal(folders.size, backend === 'shm' ? 1 : RANKS.length);
      for (const each of folders) assert.equal(statSync(each).mode & 0o777, 0o700);
      assert.equal(statSync((said[0] as Said).file).mode & 0o777, 0o600);
    });

    it(`over ${backend} is written by the others when a rank is killed`, async function () {
      if (backend === 'gloo') skipWithoutGloo(this);
      checkOwn(await ranks.run('dies', backend));
    });
  }

  for (const fault of ['dies', 'hangs'])
    it(`shows the last call of a rank that ${fault}, from the memory that ranks share`, async () => {
      const said = await ranks.run(fault, 'shm');
      checkOwn(said);
      for (const { file } of said) {
        const last = lastOf(linesOf(file), DEVIANT);
        assert.deepEqual(
          [last?.sequence, last?.op, last?.purpose, last?.end],
          [3, 'allReduce', 'of step 2', 'finished'],
        );
      }
    });

  it('is written by a rank that gets a fatal signal', async () => {
    await ranks.run('crashes', 'shm');
    const file = /The last collectives are in (.*)/.exec(ranks.errors[DEVIANT] as string)?.[1];
    const lines = linesOf(String(file));
    assert.equal(lines[0]?.failure, 'signal 11');
    assert.equal(lastOf(lines, DEVIANT)?.sequence, 3);
  });
});
