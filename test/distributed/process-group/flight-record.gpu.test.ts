/** Flight records of collectives on GPUs, which ranks may share. */
import assert from 'node:assert/strict';
import { skipWithoutCuda } from '../../skip.js';
import {
  checkOwn,
  DEVIANT,
  FailingRanks,
  lastOf,
  linesOf,
  RANKS,
} from '../support/flight-records.js';

describe('a flight record of GPU ranks', () => {
  let ranks: FailingRanks;

  before(function () {
    skipWithoutCuda(this);
  });
  beforeEach(() => {
    ranks = new FailingRanks();
  });
  afterEach(() => ranks.end());

  it('shows the call of a rank that deviates', async () => {
    const said = await ranks.run('deviates', '', 'cuda');
    assert.equal(said.length, RANKS.length);
    checkOwn(said);
  });

  it('is written by the others when a rank is killed', async () => {
    const said = await ranks.run('dies', '', 'cuda');
    checkOwn(said);
    for (const { file } of said) assert.equal(lastOf(linesOf(file), DEVIANT)?.sequence, 3);
  });
});
