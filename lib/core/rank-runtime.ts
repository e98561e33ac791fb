/**
 * The state of one rank: its devices with their streams, its random generator, and its world.
 * Several ranks can share a process. Factories, device names and random numbers look the current
 * rank up; ops do not, they follow the device of their operands.
 */
import type { Device } from './device.js';
import { DistributedError } from './errors.js';
import { hooks } from './hooks.js';
import type { Generator } from './random.js';
import { UnobservedFailures } from './unobserved-failures.js';

/**
 * Decides when a waiting rank continues, if ranks run in a random order or faults are injected.
 * @internal
 */
export interface TurnTaker {
  /** One rank runs at a time. */
  readonly ordered: boolean;
  /** Called before each collective; throws to inject a fault. */
  call(name: string): void;
  /**
   * Returns a function that says whether the calls so far can complete without the JavaScript of
   * other ranks.
   */
  mark(): () => boolean;
  /**
   * Settles as `value` does, when it is the rank's turn and `isReady` returns true. Without
   * `isReady` the earlier calls must be able to complete; `'outside'` waits for the value alone,
   * which does not depend on ranks.
   */
  wait<T>(
    what: string,
    value: Promise<T> | null,
    isReady?: (() => boolean) | 'outside',
  ): Promise<T>;
}

/** The functions that the world provides for a rank, from enterWorld to leaveWorld. @internal */
export interface RankWorld {
  /** Whether other ranks run in this process, so that JavaScript must not block on them. */
  readonly isShared: boolean;
  /**
   * Whether kernels may be loaded onto a device. CUDA loads one when all work of the process is
   * done, which would wait for collectives of other ranks of this process.
   */
  loadsKernels(device: Device): boolean;
  /** Throws if blocking for a value would wait for ranks that JavaScript has not run yet. */
  checkWait(op: string): void;
  /** Called after a stream failure was reported; work queued before it is void. */
  afterFailure(stream: number): void;
  /**
   * Adds reports of other ranks to a failure before the program gets it; null if there is nothing
   * to wait for.
   */
  explain(error: unknown): Promise<unknown> | null;
  /** The same without waiting, for code that blocks: adds the reports that this process has. */
  explainAtOnce(error: unknown): void;
}

const noWorld: RankWorld = {
  isShared: false,
  loadsKernels: () => true,
  checkWait() {},
  afterFailure() {},
  explain: () => null,
  explainAtOnce() {},
};

let ranks = 0;
/** Ranks of this process that are in a world. */
let worlds = 0;

/** @internal */
export class RankRuntime {
  /** Unique in the process; 0 for the process itself. */
  readonly id: number;
  /** The name in errors, such as `rank 3`; null for the process itself. */
  readonly label: string | null;
  /** By code. */
  readonly devices: Device[] = [];
  defaultDevice: Device | null = null;
  generator: Generator | null;
  world: RankWorld = noWorld;
  /**
   * Finds the index that `cuda` without a number means; cached after the first call, which may open
   * the driver.
   */
  findCudaIndex: (() => number) | null = null;
  turns: TurnTaker | null = null;
  /**
   * The last collective that the rank called, with its call site; '' before the first. Both outlive
   * the call, so the call context cannot hold them.
   */
  lastCall = '';
  lastPlace = '';
  /** Ids of failures that the program got as errors; the exit check does not throw them again. */
  readonly reportedFailures = new Set<number>();
  /**
   * The timeout for other ranks of the same process, in milliseconds; null outside of local ranks.
   */
  timeoutMs: number | null = null;
  /** Failures of work whose result the program has not asked for. */
  readonly unobserved = new UnobservedFailures();

  constructor(label: string | null, generator: Generator | null = null) {
    this.label = label;
    this.generator = generator;
    this.id = label === null ? 0 : ++ranks;
  }

  /** @internal */
  enterWorld(world: RankWorld): void {
    if (this.world === noWorld) worlds++;
    this.world = world;
  }

  /** @internal */
  leaveWorld(): void {
    if (this.world !== noWorld) worlds--;
    this.world = noWorld;
    this.findCudaIndex = null;
  }

  /** Rejects a wait with its failure, after reports of other ranks were added. */
  reject(error: unknown, reject: (error: unknown) => void): void {
    const explained = this.world.explain(error);
    if (explained === null) reject(error);
    else explained.then(reject, reject);
  }

  /** Whether it is one of several ranks of a process and has not ended. */
  get isRunning(): boolean {
    return this.world.isShared;
  }
}

/** The runtime of a program outside of local ranks. @internal */
export const processRuntime = new RankRuntime(null);

/**
 * Whether GPUs have loaded their last kernel, since ranks of this process had one each. @internal
 */
export const kernelLoading = { hasEnded: false };

/** Whether a rank of this process is in a world. @internal */
export const isInWorld = (): boolean => worlds > 0;

/** @internal */
export function currentRuntime(): RankRuntime {
  return hooks.findRank?.() ?? processRuntime;
}

/**
 * Whether it belongs to another rank of this process that is running. Its groups and tensors must
 * not be used here: the use would count as a call of that rank. @internal
 */
export function belongsToOtherRank(runtime: RankRuntime): boolean {
  return runtime !== currentRuntime() && runtime.isRunning;
}

/** The error for {@link belongsToOtherRank}; `what` names it, such as `group "world"`. @internal */
export function otherRankError(op: string, what: string, runtime: RankRuntime): DistributedError {
  const own = currentRuntime();
  return new DistributedError(
    `${op}: ${what} belongs to ${runtime.label}, and ${own.label ?? 'the main program'} uses it. ` +
      'Ranks that share a process have groups, meshes and tensors of their own: create them ' +
      'inside of the function that each rank runs, and do not keep them in ' +
      'variables outside of it.',
    { op, owner: runtime.label, user: own.label },
  );
}
