/**
 * What belongs to one rank where several share a process: devices with streams of their own, and
 * random numbers. Looked up by factories, device names and random numbers, never on the path of an
 * op: ops follow their operands' device.
 */
import type { Device } from './device.js';
import { DistributedError } from './errors.js';
import { hooks } from './hooks.js';
import type { Generator } from './random.js';
import { UnheardFailures } from './unobserved-failures.js';

/**
 * Who decides when a rank goes on that waits for the library: where the order of ranks is drawn, or
 * faults are put in. @internal
 */
export interface TurnTaker {
  /** One rank runs at a time. */
  readonly ordered: boolean;
  /** A collective is called; may throw instead. */
  call(name: string): void;
  /**
   * Tells, later, whether what has been called so far can complete without other ranks' JavaScript.
   */
  mark(): () => boolean;
  /**
   * Resolves or rejects as `value` does, if there is one, when it is the rank's turn. Without
   * `isReady`: once what was called before can complete; `'outside'`: when the value has come,
   * which is not up to the ranks.
   */
  wait<T>(
    what: string,
    value: Promise<T> | null,
    isReady?: (() => boolean) | 'outside',
  ): Promise<T>;
}

let ranks = 0;

/** @internal */
export class Home {
  /** A number of its own; 0 for the process itself. */
  readonly id: number;
  /** Who it is, for errors: `rank 3`; null for the process itself. */
  readonly label: string | null;
  /** By code. */
  readonly devices: Device[] = [];
  defaultDevice: Device | null = null;
  generator: Generator | null;
  /** The index that `cuda` without a number means; asked once, because that may open the driver. */
  findCudaIndex: (() => number) | null = null;
  /**
   * Called before JavaScript waits for a value: throws where the value needs ranks that JavaScript
   * has not run yet.
   */
  beforeWaiting: ((op: string) => void) | null = null;
  /** Whether {@link Home.beforeWaiting} would throw. */
  mustNotWait: (() => boolean) | null = null;
  /** Called when a failure of a stream was heard of: what it had been given by then is over. */
  afterFailure: ((stream: number) => void) | null = null;
  turns: TurnTaker | null = null;
  /**
   * Called with a failure before the program gets it: what other ranks have to say of it comes
   * later, if anything does.
   */
  explain: ((error: unknown) => Promise<unknown> | null) | null = null;
  /** The same where JavaScript waits: what is known here. */
  explainAtOnce: ((error: unknown) => void) | null = null;
  /** The last collective that it has called, and where; '' for none. */
  lastCall = '';
  lastPlace = '';
  /** Words of errors that the program has had for calls which fail once more behind them. */
  readonly told: string[] = [];
  /**
   * How long it waits for other ranks of its process, in milliseconds; null where there are none.
   */
  timeoutMs: number | null = null;
  /** Failures that something of the program has in hand and has not asked for. */
  readonly unheard = new UnheardFailures();

  constructor(label: string | null, generator: Generator | null = null) {
    this.label = label;
    this.generator = generator;
    this.id = label === null ? 0 : ++ranks;
  }

  /** Ends a wait with its failure, once that is explained. */
  reject(error: unknown, reject: (error: unknown) => void): void {
    const explained = this.explain?.(error) ?? null;
    if (explained === null) reject(error);
    else explained.then(reject, reject);
  }

  /** Whether it is one of several ranks in a process, and has not come to its end. */
  get isRunning(): boolean {
    return this.beforeWaiting !== null;
  }
}

/** What a program has that is not one of several ranks. @internal */
export const processHome = new Home(null);

/** @internal */
export function currentHome(): Home {
  return hooks.findRank?.() ?? processHome;
}

/**
 * Whether it is another rank of this process, which is running: a use of what belongs to it would
 * be its call, in its place and with its tensors, which nobody expects of it. @internal
 */
export function isAnothers(home: Home): boolean {
  return home !== currentHome() && home.isRunning;
}

/** Where {@link isAnothers}; `what` names it, such as `group "world"`. @internal */
export function usedByAnother(op: string, what: string, home: Home): DistributedError {
  const own = currentHome();
  return new DistributedError(
    `${op}: ${what} belongs to ${home.label}, and ${own.label ?? 'the main program'} uses it. Ranks that share a process have groups, meshes and tensors of their own: make them inside of the function that each rank runs, and do not keep them in variables outside of it.`,
    { op, owner: home.label, user: own.label },
  );
}
