/** The ranks that save or load together: they exchange plain values, and fail for one cause. */
import {
  allGatherObject,
  allReduce,
  barrier,
  broadcastObjectList,
  getRank,
  getWorldSize,
  isInitialized,
  newGroup,
  type ProcessGroup,
  worldGroup,
} from '../../distributed/index.js';
import { CheckpointError, int32, keep, ShardwiseError, tensor } from '../../index.js';

/** What one rank sends to the others: a value, or why it has none. */
interface Outcome<T> {
  readonly value?: T;
  readonly failure?: string;
  readonly details?: Record<string, unknown>;
}

const ALONE = {};

/** Groups by world: calls in the background must not mix with those of training. */
const groups = new WeakMap<ProcessGroup, Map<Purpose, ProcessGroup>>();

/**
 * Calls for different purposes may come in different orders on the ranks, so each has a group. Those
 * in the background come at different places of the program: they have a stream of their own, or
 * what the ranks compute would wait for them.
 */
type Purpose = 'checkpoints' | 'background' | 'signals';

/** The ranks of a save or load; one rank without a process group. */
export class Ranks {
  readonly rank: number;
  readonly size: number;
  /** What stands for this rank and its world. */
  readonly key: object;
  private readonly group: ProcessGroup | null;

  /** All ranks of the world call it in the same order. */
  constructor(purpose: Purpose = 'checkpoints') {
    const isAlone = !isInitialized();
    this.rank = isAlone ? 0 : getRank();
    this.size = isAlone ? 1 : getWorldSize();
    if (this.size === 1) {
      this.group = null;
      this.key = ALONE;
      return;
    }
    const world = worldGroup();
    this.key = world;
    const own = groups.get(world) ?? new Map<Purpose, ProcessGroup>();
    groups.set(world, own);
    this.group = own.get(purpose) ?? newGroup(null, { ownStream: purpose === 'background' });
    own.set(purpose, this.group);
  }

  /** The values of all ranks, in their order. */
  async gather<T>(value: T): Promise<T[]> {
    if (this.group === null) return [value];
    const list = new Array<T>(this.size);
    await allGatherObject(list, value, { group: this.group, device: this.device() });
    return list;
  }

  /** Resolves when all ranks have come this far. Computation of this rank goes on meanwhile. */
  async arrive(): Promise<void> {
    if (this.group !== null) await barrier({ group: this.group });
  }

  /**
   * Starts to find the maximum of a number of each rank; the function that it returns waits for it.
   */
  startMaximum(value: number): () => Promise<number> {
    if (this.group === null) return async () => value;
    const maximum = keep(tensor([value], { dtype: int32, device: this.device() }));
    const work = allReduce(maximum, { op: 'max', group: this.group, asyncOp: true });
    return async () => {
      await work.wait();
      const [found] = await maximum.read<Int32Array>();
      maximum.dispose();
      return found as number;
    };
  }

  /**
   * Runs `work` on this rank and gathers its results. @throws CheckpointError on all ranks if it
   * fails on one, with the cause of the first that failed
   */
  async agree<T>(op: string, work: () => T | Promise<T>): Promise<T[]> {
    const { own, outcome } = await attempt(work);
    return this.resultsOf(op, await this.gather(outcome), own);
  }

  /**
   * Runs `write` on all ranks, then `finish` with their results on rank 0. @throws CheckpointError
   * on all ranks if one of them fails
   */
  async commit<T>(
    op: string,
    write: () => Promise<T>,
    finish: (results: readonly T[]) => Promise<void>,
  ): Promise<void> {
    const results = await this.agree(op, write);
    await this.agree(op, async () => {
      if (this.rank === 0) await finish(results);
    });
  }

  private resultsOf<T>(op: string, all: readonly Outcome<T>[], own: unknown): T[] {
    const failed = all.findIndex(({ failure }) => failure !== undefined);
    if (failed < 0) return all.map(({ value }) => value as T);
    throw this.failure(op, failed, all[failed] as Outcome<T>, own);
  }

  /** The result of `work`, which runs on rank 0, on all ranks. @throws CheckpointError, too */
  async fromFirst<T>(op: string, work: () => Promise<T>): Promise<T> {
    if (this.group === null) return work();
    const { own, outcome: first } =
      this.rank === 0 ? await attempt(work) : { own: null, outcome: {} as Outcome<T> };
    const list = [first];
    await broadcastObjectList(list, 0, { group: this.group, device: this.device() });
    const [outcome] = list as [Outcome<T>];
    if (outcome.failure === undefined) return outcome.value as T;
    throw this.failure(op, 0, outcome, own);
  }

  private failure(op: string, rank: number, outcome: Outcome<unknown>, own: unknown): Error {
    const isOwn = rank === this.rank;
    if (this.group === null && own instanceof ShardwiseError) return own;
    const where = this.size === 1 ? '' : `rank ${rank}: `;
    return new CheckpointError(
      `${op}: ${where}${outcome.failure}`,
      { ...outcome.details, op, rank },
      isOwn ? { cause: own } : undefined,
    );
  }

  /**
   * Groups of GPUs alone send plain values from there. Unlike `getBackend`, this opens no driver,
   * which takes 0.2 s.
   */
  private device(): 'cpu' | 'cuda' {
    return (this.group as ProcessGroup).barrierDevice.type === 'cuda' ? 'cuda' : 'cpu';
  }
}

/** Runs `work`, and makes its error a value. */
async function attempt<T>(
  work: () => T | Promise<T>,
): Promise<{ readonly own: unknown; readonly outcome: Outcome<T> }> {
  try {
    return { own: null, outcome: { value: await work() } };
  } catch (error) {
    return { own: error, outcome: outcomeOf(error) };
  }
}

function outcomeOf(error: unknown): Outcome<never> {
  const { message, details = {} } = error as Error & { details?: Record<string, unknown> };
  const plain = Object.entries(details).filter(([, value]) => isPlain(value));
  return { failure: message ?? String(error), details: Object.fromEntries(plain) };
}

const isPlain = (value: unknown): boolean =>
  value === null ||
  ['string', 'number', 'boolean'].includes(typeof value) ||
  (Array.isArray(value) && value.every(isPlain));
