/** Records the collectives of a rank: kind, bytes, cause, and the module that needed them. */

import { callContext } from '../../core/call-context.js';
import type { CollectiveEvent } from '../../core/collective.js';
import { ShardingError } from '../../core/errors.js';
import { modulePath } from '../../core/module-path.js';
import { checkFunction } from '../../core/options.js';
import { numelOf } from '../../core/shape.js';
import { trafficOf } from '../../core/traffic.js';
import {
  type CollectiveRecord,
  watchCollectives,
} from '../../distributed/process-group/process-group.js';
import { findContext } from '../../distributed/process-group/rank-context.js';
import { causeText } from '../redistribute/policy.js';
import { formatTable } from './terminal.js';

/** A number of calls, and the bytes that this rank sends and receives in them. */
export interface CommTraffic {
  /** The number of collectives. */
  calls: number;
  /** Bytes that this rank sends. */
  sentBytes: number;
  /** Bytes that this rank receives. */
  receivedBytes: number;
}

/** The traffic along a mesh dimension. */
export interface MeshDimTraffic extends CommTraffic {
  /** The traffic by kind of collective: `allReduce`, `allGather`, … */
  byKind: Record<string, CommTraffic>;
}

/** What {@link CommDebugMode.getTraffic} returns. */
export interface TotalTraffic extends CommTraffic {
  /**
   * The traffic by mesh dimension: its name, or its number if dimensions have no names. Groups that
   * no mesh created count by their name.
   */
  byMeshDim: Record<string, MeshDimTraffic>;
}

/** One collective, as this rank called it, and why. */
export interface CommEvent extends CollectiveEvent {
  /**
   * Why an op or a redistribution needed it: `'softmax, in div: input 1 from …'` names first the
   * function that the program called, if it is made of other ops. Null for collectives that the
   * program calls itself.
   */
  readonly cause: string | null;
  /**
   * The path of the innermost running module in the outermost one, or the class name of the
   * outermost one. Null outside of modules, and in the backward of a forward that ran while no mode
   * was on.
   */
  readonly modulePath: string | null;
  /** Whether the call belongs to a backward pass. */
  readonly phase: 'forward' | 'backward';
}

/**
 * Records the collectives of this rank while it is on, also those of gradients and those after an
 * `await`. Local ranks of one process do not see each other's collectives.
 *
 * @see PyTorch `torch.distributed.tensor.debug.CommDebugMode`
 * @example
 * const partial = DTensor.fromLocal(ones([4]), mesh, [Partial()]);
 * const comm = new CommDebugMode();
 * comm.run(() => partial.redistribute([Replicate()]));
 * comm.getTotalCounts(); // 1
 * console.log(String(comm));
 */
export class CommDebugMode {
  private readonly list: CommEvent[] = [];
  private stopWatching: (() => void) | null = null;

  /** The recorded collectives, in order. */
  get events(): readonly CommEvent[] {
    return this.list;
  }

  /**
   * Runs `fn` with this mode on, until its promise settles if it returns one. Events of earlier
   * runs are kept.
   */
  run<T>(fn: () => T): T {
    checkFunction('CommDebugMode.run', 'fn', fn);
    const open = this.enter();
    let result: T;
    try {
      result = fn();
    } catch (error) {
      open[Symbol.dispose]();
      throw error;
    }
    if (!(result instanceof Promise)) {
      open[Symbol.dispose]();
      return result;
    }
    return result.finally(() => open[Symbol.dispose]()) as T;
  }

  /**
   * Turns the mode on until the returned object is disposed: `using _ = comm.enter();`.
   *
   * @throws ShardingError if it is on already
   */
  enter(): Disposable {
    if (this.stopWatching !== null)
      throw new ShardingError(
        'CommDebugMode: expected a mode that is off, got one that is on already. Create ' +
          'another CommDebugMode for a nested region.',
      );
    const own = findContext();
    const stop = watchCollectives((record) => {
      if (findContext() === own) this.list.push(eventOf(record));
    });
    callContext.moduleObservers++;
    this.stopWatching = () => {
      stop();
      callContext.moduleObservers--;
      this.stopWatching = null;
    };
    return { [Symbol.dispose]: () => this.stopWatching?.() };
  }

  /** The number of calls by kind; kinds that were not called are absent. */
  getCommCounts(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { kind } of this.list) counts[kind] = (counts[kind] ?? 0) + 1;
    return counts;
  }

  /** The number of collectives. */
  getTotalCounts(): number {
    return this.list.length;
  }

  /**
   * The payload bytes of all collectives, and the bytes that this rank sent; see {@link CommEvent}.
   */
  getCommBytes(): { bytes: number; sentBytes: number } {
    const sum = (of: (event: CommEvent) => number): number =>
      this.list.reduce((total, event) => total + of(event), 0);
    return { bytes: sum((event) => event.bytes), sentBytes: sum((event) => event.sentBytes) };
  }

  /**
   * The calls and bytes of this rank: in total, by mesh dimension and by kind. Collectives in which
   * all ranks get or give everything count as rings, those with one root as direct messages. In a
   * world of `initProcessGroup('fake', …)` it counts for any rank of any mesh.
   */
  getTraffic(): TotalTraffic {
    const all: TotalTraffic = { ...nothing(), byMeshDim: {} };
    for (const event of this.list) {
      const along = event.meshDim ?? event.group;
      const ofDim = (all.byMeshDim[along] ??= { ...nothing(), byKind: {} });
      for (const traffic of [all, ofDim, (ofDim.byKind[event.kind] ??= nothing())])
        add(traffic, event);
    }
    return all;
  }

  /** Removes the recorded events. */
  reset(): void {
    this.list.length = 0;
  }

  /** A table with one line for all equal calls. */
  toString(): string {
    if (this.list.length === 0) return 'no collectives';
    const lines = new Map<
      string,
      { event: CommEvent; count: number; bytes: number; sent: number }
    >();
    for (const event of this.list) {
      const key = [
        event.kind,
        event.group,
        event.meshDim,
        event.modulePath,
        event.phase,
        event.cause,
        event.where,
      ].join('|');
      const line = lines.get(key) ?? { event, count: 0, bytes: 0, sent: 0 };
      lines.set(key, {
        event,
        count: line.count + 1,
        bytes: line.bytes + event.bytes,
        sent: line.sent + event.sentBytes,
      });
    }
    const rows = [...lines.values()].map(({ event, count, bytes, sent }) => [
      event.kind,
      String(count),
      String(bytes),
      String(Math.round(sent)),
      event.meshDim ?? event.group,
      event.phase,
      event.modulePath ?? '',
      event.cause ?? event.name,
      event.where,
    ]);
    return formatTable(
      ['collective', 'calls', 'bytes', 'sent', 'along', 'phase', 'module', 'cause', 'where'],
      rows,
      [1, 2, 3],
    );
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }
}

const nothing = (): CommTraffic => ({ calls: 0, sentBytes: 0, receivedBytes: 0 });

function add(traffic: CommTraffic, { sentBytes, receivedBytes }: CommEvent): void {
  traffic.calls++;
  traffic.sentBytes += sentBytes;
  traffic.receivedBytes += receivedBytes;
}

/** A collective as it was called. @internal */
export function eventOf({ name, group, call, where }: CollectiveRecord): CommEvent {
  const { sent, received } = trafficOf(call, group.size, group.rank);
  return {
    kind: call.kind,
    name,
    group: group.name,
    ranks: group.ranks,
    meshDim: callContext.meshDim ?? group.meshDim,
    bytes: payloadOf(call),
    sentBytes: sent,
    receivedBytes: received,
    cause: causeText(),
    modulePath: modulePath(callContext.modules),
    phase: callContext.isBackward ? 'backward' : 'forward',
    where,
  };
}

type Call = CollectiveRecord['call'];

/** The larger of input and output: one of them is the whole payload. */
function payloadOf({ input, output, counts }: Call): number {
  const one = input ?? output;
  if (one === null) return 0;
  const elements = Math.max(
    input === null ? 0 : numelOf(input.sizes),
    output === null ? 0 : numelOf(output.sizes),
    counts === undefined ? 0 : total(counts),
  );
  return elements * one.dtype.itemsize;
}

const total = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);
