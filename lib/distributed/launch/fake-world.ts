/** A world of which this process is one rank and nobody else is there. */
import { DistributedError } from '../../core/errors.js';
import { currentHome, type Home } from '../../core/home.js';
import { checkNumber } from '../../core/options.js';
import { fakeEngines } from '../engines/fake-engine.js';
import { enterWorld } from '../process-group/new-group.js';
import { findContext, type RankContext } from '../process-group/rank-context.js';
import type { Store } from '../stores/index.js';

/** @internal */
export interface FakeWorldOptions {
  /** May be beyond the size, as tests of what one rank sees have it. */
  readonly rank: number;
  readonly worldSize: number;
  readonly store?: Store | null;
  /** The present one if left out. */
  readonly home?: Home;
}

/**
 * What `initProcessGroup('fake', …)` sets up: any size, no peers, no cost for each rank. @throws
 * ArgumentError, DistributedError
 */
export function enterFakeWorld({
  rank,
  worldSize,
  store = null,
  home = currentHome(),
}: FakeWorldOptions): RankContext {
  checkNumber('initProcessGroup', 'rank', rank, { from: 0, whole: true });
  checkNumber('initProcessGroup', 'worldSize', worldSize, { from: 1, whole: true });
  const context = findContext();
  if (context !== null) {
    throw new DistributedError(
      `initProcessGroup: this is rank ${context.rank} of a world already. Call destroyProcessGroup() first.`,
      { op: 'initProcessGroup' },
    );
  }
  return enterWorld({
    rank,
    worldSize,
    localRank: 0,
    home,
    store,
    factory: fakeEngines,
    pending: null,
  });
}
