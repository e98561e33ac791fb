/**
 * Runs the ranks of one machine (node), alone or together with other nodes: their environment,
 * their store, restarts, and the end of all when one fails.
 */
import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { DistributedError, StoreError, TimeoutError } from '../../core/errors.js';
import { LONGEST_TIMEOUT_MS } from '../../core/options.js';
import { PrefixStore, type Store, TCPStore } from '../stores/index.js';
import { publishEnd, storeOfRun } from './rendezvous.js';
import {
  type RankFailure,
  RankProcesses,
  type RankProgram,
  type RankSettings,
  type Supervision,
} from './worker-processes.js';

/** @internal */
export interface NodePlan extends Supervision {
  readonly program: RankProgram;
  /** Number of ranks on this machine. */
  readonly ranksHere: number;
  /** Number of machines, and the index of this one. */
  readonly nodes: number;
  readonly nodeRank: number;
  readonly masterAddr: string;
  /** 0: any free port. */
  readonly masterPort: number;
  /** How often all ranks are restarted after a failure. */
  readonly maxRestarts: number;
  /** Called before each restart. */
  readonly onRestart?: (restart: number, outcome: NonNullable<NodeOutcome>) => void;
  /** Timeout for the other machines to come. */
  readonly joinTimeoutMs: number;
  /** In addition to the environment of this process. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** The first failure was on another machine. @internal */
export interface RemoteFailure {
  readonly node: number;
  readonly text: string;
}

/** @internal */
export type NodeOutcome =
  | { readonly failure: RankFailure }
  | { readonly remote: RemoteFailure }
  | null;

/** Time for an answer of the machine that serves the store. */
const REACH_MS = 5_000;
/** Time for the other machines to read the outcome, before the store closes. */
const LAST_WORDS_MS = 2_000;

/**
 * Runs this machine's ranks until all have ended, on all machines. Resolves to the first failure,
 * or null. @throws TimeoutError, StoreError
 */
export async function runNode(plan: NodePlan): Promise<NodeOutcome> {
  // The ranks of one machine get a random secret; those of several need one that the user sets.
  const secret =
    plan.nodes === 1 ? randomBytes(16).toString('hex') : process.env['SHARDWISE_STORE_SECRET'];
  const store = new TCPStore(plan.masterAddr, plan.masterPort, {
    isServer: plan.nodeRank === 0,
    timeoutMs: plan.joinTimeoutMs,
    ...(secret === undefined ? {} : { secret }),
  });
  try {
    await store.ready();
    const layout = await awaitNodes(new PrefixStore('launcher', store), plan);
    for (let attempt = 0; ; attempt++) {
      const env = {
        ...plan.env,
        MASTER_ADDR: plan.masterAddr,
        MASTER_PORT: String(store.port),
        SHARDWISE_STORE_SECRET: secret,
        TORCHELASTIC_RESTART_COUNT: String(attempt),
      };
      // Ends the wait of other ranks in initProcessGroup; if it fails, they have their timeout.
      const onEnd = (rank: number): void =>
        void publishEnd(storeOfRun(store, attempt), rank, layout.worldSize).catch(() => {});
      const outcome = await runAttempt(
        { ...plan, onEnd },
        layout,
        env,
        new PrefixStore(`launcher/${attempt}`, store),
      );
      if (outcome === null || attempt >= plan.maxRestarts) return outcome;
      plan.onRestart?.(attempt + 1, outcome);
    }
  } finally {
    await store.close();
  }
}

interface Layout {
  readonly firstRank: number;
  readonly worldSize: number;
}

/** Waits for all machines; computes the first rank of this one and the world size. */
async function awaitNodes(
  store: Store,
  { op, nodes, nodeRank, ranksHere }: NodePlan,
): Promise<Layout> {
  if (nodes === 1) return { firstRank: 0, worldSize: ranksHere };
  if ((await store.add(`node ${nodeRank}`, 1)) > 1) {
    throw new DistributedError(
      `${op}: node ${nodeRank} was started twice. Each machine needs a --node-rank of its own; ` +
        'two runs need a --master-port each.',
      { op, nodeRank },
    );
  }
  await store.set(`ranks of ${nodeRank}`, String(ranksHere));
  const keys = Array.from({ length: nodes }, (_, node) => `ranks of ${node}`);
  try {
    await store.wait(keys);
  } catch (error) {
    if (!(error instanceof TimeoutError)) throw error;
    const here = await Promise.all(keys.map((key) => store.check([key])));
    const absent = here.flatMap((came, node) => (came ? [] : [node]));
    throw new TimeoutError(
      `${op}: node ${absent.join(', ')} of ${nodes} did not come within ${store.timeoutMs} ms ` +
        `(this is node ${nodeRank})`,
      { op, missing: absent },
      { cause: error },
    );
  }
  const sizes = (await store.multiGet(keys)).map(Number);
  const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);
  return { firstRank: sum(sizes.slice(0, nodeRank)), worldSize: sum(sizes) };
}

async function runAttempt(
  plan: NodePlan,
  { firstRank, worldSize }: Layout,
  env: NodePlan['env'],
  store: Store,
): Promise<NodeOutcome> {
  const { ranksHere, nodes, nodeRank } = plan;
  const settings: RankSettings[] = Array.from({ length: ranksHere }, (_, localRank) => ({
    rank: firstRank + localRank,
    env: {
      ...env,
      RANK: String(firstRank + localRank),
      LOCAL_RANK: String(localRank),
      WORLD_SIZE: String(worldSize),
      LOCAL_WORLD_SIZE: String(ranksHere),
      GROUP_RANK: String(nodeRank),
      SHARDWISE_LAUNCHER_STORE: '1',
      SHARDWISE_LAUNCHER_PID: String(process.pid),
      // For messages that say how to start the run again.
      SHARDWISE_COMMAND: JSON.stringify({ argv: process.argv, execArgv: process.execArgv }),
      // All ranks together use as many threads as the machine has processors.
      SHARDWISE_NUM_THREADS:
        process.env['SHARDWISE_NUM_THREADS'] ??
        String(Math.max(1, Math.floor(availableParallelism() / ranksHere))),
    },
  }));
  const ranks = new RankProcesses(plan.program, settings, plan);
  if (nodes > 1) return withOthers(plan, ranks, store);
  const failure = await ranks.ended;
  return failure === null ? null : { failure };
}

/** The first machine that fails ends the ranks of all; success needs all machines. */
async function withOthers(
  { nodes, nodeRank, op }: NodePlan,
  ranks: RankProcesses,
  store: Store,
): Promise<NodeOutcome> {
  let storeError: Error | null = null;
  const verdict = store
    .wait(['outcome'], LONGEST_TIMEOUT_MS)
    .then(async () => JSON.parse((await store.get('outcome')).toString()) as RemoteFailure | 'done')
    .catch((error: Error): RemoteFailure => {
      storeError = error;
      return { node: 0, text: error.message };
    });
  void verdict.then((said) => {
    if (said !== 'done') ranks.stop();
  });
  const failure = await ranks.ended;
  const conclude = async (): Promise<RemoteFailure | 'done'> => {
    if (storeError === null) {
      if (failure !== null)
        await store
          .compareSet(
            'outcome',
            '',
            JSON.stringify({
              node: nodeRank,
              text: `rank ${failure.rank} failed`,
            } satisfies RemoteFailure),
          )
          .catch(() => {});
      else if ((await store.add('done', 1).catch(() => 0)) === nodes)
        await store.compareSet('outcome', '', JSON.stringify('done')).catch(() => {});
    }
    return verdict;
  };
  // If ranks failed, this machine may have lost its network: it does not wait long for the store.
  const said = await (failure === null
    ? conclude()
    : Promise.race([conclude(), sleep(REACH_MS, null, { ref: false })]));
  if (said === null) return { failure: failure as RankFailure };
  await lastWords(store, nodes, nodeRank);
  if (said === 'done') return null;
  if (failure !== null && said.node === nodeRank && storeError === null) return { failure };
  if (storeError !== null)
    throw new StoreError(
      `${op}: the launcher of node 0 is gone: ${(storeError as Error).message}`,
      { op, nodeRank },
      { cause: storeError },
    );
  return { remote: said };
}

async function lastWords(store: Store, nodes: number, nodeRank: number): Promise<void> {
  try {
    if ((await store.add('read', 1)) === nodes) await store.set('all read', '');
    if (nodeRank === 0) await store.wait(['all read'], LAST_WORDS_MS);
  } catch {
    // The store has closed, so nobody waits.
  }
}
