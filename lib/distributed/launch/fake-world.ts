/** Enters a fake world: this process is one rank, and there are no other ranks. */
import { DistributedError } from '../../core/errors.js';
import { checkNumber } from '../../core/options.js';
import { currentRuntime, type RankRuntime } from '../../core/rank-runtime.js';
import { reportUse } from '../../core/unrepeatable.js';
import { fakeEngines } from '../engines/fake-engine.js';
import { enterWorld } from '../process-group/new-group.js';
import { findContext, type RankContext } from '../process-group/rank-context.js';
import type { Store } from '../stores/index.js';

/** Each rank of a group takes memory here. No machine has more. @internal */
export const MOST_FAKE_RANKS = 2 ** 20;

/** @internal */
export interface FakeWorldOptions {
  /** May exceed the size, as some tests need. */
  readonly rank: number;
  readonly worldSize: number;
  readonly store?: Store | null;
  /** The current one if left out. */
  readonly runtime?: RankRuntime;
}

/**
 * The setup of `initProcessGroup('fake', …)`, whose cost does not depend on the size. @throws
 * ArgumentError, DistributedError
 */
export function enterFakeWorld({
  rank,
  worldSize,
  store = null,
  runtime = currentRuntime(),
}: FakeWorldOptions): RankContext {
  reportUse('initProcessGroup');
  checkNumber('initProcessGroup', 'rank', rank, { from: 0, whole: true });
  const size = { from: 1, to: MOST_FAKE_RANKS, whole: true };
  checkNumber('initProcessGroup', 'worldSize', worldSize, size);
  const context = findContext();
  if (context !== null) {
    throw new DistributedError(
      `initProcessGroup: this is rank ${context.rank} of a world already. Call ` +
        'destroyProcessGroup() first.',
      { op: 'initProcessGroup' },
    );
  }
  return enterWorld({
    rank,
    worldSize,
    localRank: 0,
    runtime,
    store,
    factory: fakeEngines,
    pending: null,
  });
}
