/** Finds the rank of the running code: the process's, or one of several local ranks. */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { DeviceType } from '../../core/device.js';
import { DistributedError } from '../../core/errors.js';
import type { RankRuntime } from '../../core/rank-runtime.js';
import type { EngineFactory } from '../engines/engine.js';
import type { Store } from '../stores/index.js';
import type { CreationLog } from './diagnosis/creation-log.js';
import type { PendingCalls } from './diagnosis/deadlock-detector.js';
import type { ProcessGroup } from './process-group.js';

/** @internal */
export interface RankContext {
  readonly rank: number;
  readonly worldSize: number;
  readonly localRank: number;
  readonly runtime: RankRuntime;
  readonly store: Store | null;
  /** The deadlock detector of `local` ranks. */
  readonly pending: PendingCalls | null;
  readonly factory: EngineFactory;
  readonly named: readonly DeviceType[] | null;
  readonly world: ProcessGroup;
  readonly groups: Set<ProcessGroup>;
  /** Counts those of `newGroup`: all ranks make all of them, in one order. */
  made: number;
  /** Counts the calls that make groups, those of meshes too. */
  creations: number;
  /** Where ranks see what the others make; null where nobody looks. */
  readonly creationLog: CreationLog | null;
  /** Called when the rank leaves its world. */
  readonly leaveEngines: () => void;
}

/**
 * The last rank that meshes may have. A rank of a fake world that exceeds its size has meshes of
 * any ranks, as in PyTorch. @internal
 */
export function lastRank({ rank, worldSize }: RankContext): number {
  return rank < worldSize ? worldSize - 1 : Number.MAX_SAFE_INTEGER;
}

let ofProcess: RankContext | null = null;
const ofTask = new AsyncLocalStorage<{ context: RankContext | null; runtime: RankRuntime }>();
let sharing = 0;

/**
 * Runs a local rank, whose functions, timers and promises find its context. @internal
 */
export async function runAsRank<T>(runtime: RankRuntime, fn: () => Promise<T>): Promise<T> {
  sharing++;
  try {
    return await ofTask.run({ context: null, runtime }, fn);
  } finally {
    sharing--;
  }
}

/** The local rank of the running code, if any. @internal */
export function findRuntime(): RankRuntime | undefined {
  return sharing > 0 ? ofTask.getStore()?.runtime : undefined;
}

/** The context of the running code's rank; null before `initProcessGroup`. @internal */
export function findContext(): RankContext | null {
  const task = sharing > 0 ? ofTask.getStore() : undefined;
  return task === undefined ? ofProcess : task.context;
}

/** @internal */
export function setContext(context: RankContext | null): void {
  const task = sharing > 0 ? ofTask.getStore() : undefined;
  if (task === undefined) ofProcess = context;
  else task.context = context;
}

/** @throws DistributedError before `initProcessGroup` */
export function contextOf(op: string): RankContext {
  const context = findContext();
  if (context === null) {
    throw new DistributedError(
      `${op}: there is no process group. Call \`await initProcessGroup()\` first, or run the ` +
        'program with launch() or `npx shardwise run`.',
      { op },
    );
  }
  return context;
}
