/** The ranks that save or load together: they exchange plain values, and fail for one cause. */
import {
  allGatherObject,
  barrier,
  broadcastObjectList,
  getBackend,
  getRank,
  getWorldSize,
  isInitialized,
  newGroup,
  type ProcessGroup,
  worldGroup,
} from '../../distributed/index.js';
import { CheckpointError, ShardwiseError } from '../../index.js';

/** What one rank sends to the others: a value, or why it has none. */
interface Outcome<T> {
  readonly value?: T;
  readonly failure?: string;
  readonly details?: Record<string, unknown>;
}

const ALONE = {};

/** A group for checkpoints alone: calls in the background must not mix with those of training. */
const groups = new WeakMap<ProcessGroup, ProcessGroup>();

/** The ranks of a save or load; one rank without a process group. */
export class Ranks {
  readonly rank: number;
  readonly size: number;
  private readonly group: ProcessGroup | null;

  /** All ranks of the world call it in the same order. */
  constructor() {
    const isAlone = !isInitialized();
    this.rank = isAlone ? 0 : getRank();
    this.size = isAlone ? 1 : getWorldSize();
    if (this.size === 1) {
      this.group = null;
      return;
    }
    const world = worldGroup();
    let own = groups.get(world);
    if (own === undefined) groups.set(world, (own = newGroup()));
    this.group = own;
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

  /** What stands for this rank and its world. */
  get key(): object {
    return this.group ?? ALONE;
  }

  /**
   * Runs `work` on this rank and gathers its results. @throws CheckpointError on all ranks if it
   * fails on one, with the cause of the first that failed
   */
  async agree<T>(op: string, work: () => T | Promise<T>): Promise<T[]> {
    let own: unknown = null;
    let outcome: Outcome<T>;
    try {
      outcome = { value: await work() };
    } catch (error) {
      own = error;
      outcome = outcomeOf(error);
    }
    await this.arrive(); // results are tensors, which computation would wait for
    const all = await this.gather(outcome);
    const failed = all.findIndex(({ failure }) => failure !== undefined);
    if (failed < 0) return all.map(({ value }) => value as T);
    throw this.failure(op, failed, all[failed] as Outcome<T>, own);
  }

  /** The result of `work`, which runs on rank 0, on all ranks. @throws CheckpointError, too */
  async fromFirst<T>(op: string, work: () => Promise<T>): Promise<T> {
    if (this.group === null) return work();
    let own: unknown = null;
    const list: Outcome<T>[] = [{}];
    if (this.rank === 0) {
      try {
        list[0] = { value: await work() };
      } catch (error) {
        own = error;
        list[0] = outcomeOf(error);
      }
    }
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

  /** Groups of GPUs alone send plain values from there. */
  private device(): 'cpu' | 'cuda' {
    return getBackend(this.group as ProcessGroup) === 'nccl' ? 'cuda' : 'cpu';
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
