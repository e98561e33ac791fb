/**
 * Tracks the calls of `local` ranks that may be incomplete. JavaScript runs one rank at a time: if
 * a rank blocked on a collective that another rank has yet to call, that rank would never run. Each
 * lane (a stream of a rank, which runs in order) lists its pending calls. A call leaves its lanes
 * once every member has called it and nothing is left before it.
 */

import { callContext } from '../../../core/call-context.js';
import { DistributedError } from '../../../core/errors.js';
import { Tensor } from '../../../core/tensor.js';
import {
  type Call,
  checkOrder,
  checkReceives,
  type Entry,
  lastCollective,
  type WaitForGraph,
} from './wait-for-graph.js';

export type { Entry } from './wait-for-graph.js';

/** The collectives of a group, or the messages of one direction, numbered in call order. */
interface Channel {
  /** By rank: number of calls. */
  readonly counts: (number | undefined)[];
  /** By number: the calls that some rank has yet to make. */
  readonly open: Map<number, Call>;
}

/** @internal */
export class PendingCalls {
  private readonly channels = new Map<string, Channel>();
  private readonly graph: WaitForGraph;
  /** By rank: number of collectives that others have called and this rank has not. */
  private readonly missedBy: number[];
  /** By group: number of its collectives that may be incomplete. */
  private readonly inLanes = new Map<string, number>();
  /** Ranks that have left the world, and by group those that have left the group. */
  private readonly gone = new Set<number>();
  private readonly goneFrom = new Map<string, Set<number>>();
  /** By rank: its last call. */
  private readonly last: (Entry | undefined)[] = [];

  constructor(worldSize: number) {
    this.graph = {
      lanes: new Map(),
      lanesOf: Array.from({ length: worldSize }, () => new Set()),
      ownLanes: [],
      hasFailed: false,
    };
    this.missedBy = Array.from({ length: worldSize }, () => 0);
  }

  /**
   * Records that a rank calls the next collective of a group.
   *
   * @throws DistributedError if ranks have called the collectives of several groups in orders that
   * never complete
   */
  enter(entry: Entry): void {
    this.graph.hasFailed ||= entry.hasFailed === true;
    if (entry.inOrder === true) this.graph.ownLanes[entry.rank] = entry.lane;
    const call = this.add(entry, entry.group, false);
    // No cycle is possible with one group, with a call that is done, or with a call that no other
    // rank has made or waits for.
    const mayBeWaitedFor =
      call.entered.size > 1 || (call.entered.size > 0 && (this.missedBy[entry.rank] as number) > 0);
    if (mayBeWaitedFor && this.inLanes.size > 1) checkOrder(this.graph, call, entry);
  }

  /**
   * Records a message between two ranks. The messages of each direction are numbered.
   *
   * @throws DistributedError if ranks receive from each other before they send
   */
  enterMessage(entry: Entry, from: number, to: number): void {
    const call = this.add({ ...entry, members: [from, to] }, `${entry.group}:${from}>${to}`, true);
    if (entry.holdsUp !== true || entry.rank !== to) return;
    call.receive = {
      from,
      to,
      text: `rank ${to} waits in ${entry.name} for rank ${from} (${entry.where})`,
    };
    checkReceives(this.graph, call, entry);
  }

  private add(entry: Entry, channel: string, isMessage: boolean): Call {
    const { rank } = entry;
    this.last[rank] = entry;
    const { counts, open } = this.channelOf(channel);
    const number = counts[rank] ?? 0;
    counts[rank] = number + 1;
    let call = open.get(number);
    if (call === undefined) {
      call = this.begin(entry, isMessage);
      open.set(number, call);
    }
    this.arrive(call, rank);
    const lane = this.laneOf(rank, entry.lane);
    if (call.entered.size === 0) this.count(call, 1);
    call.entered.set(entry.lane, {
      rank,
      where: entry.where,
      before: lastCollective(lane, entry.lane),
    });
    lane.push(call);
    if (call.missing.size === 0) {
      open.delete(number);
      this.settle(call);
    }
    return call;
  }

  private channelOf(name: string): Channel {
    let channel = this.channels.get(name);
    if (channel === undefined) {
      channel = { counts: [], open: new Map() };
      this.channels.set(name, channel);
    }
    return channel;
  }

  private begin(entry: Entry, isMessage: boolean): Call {
    const { name, group, members, inOrder = false, isBeside = false } = entry;
    const missing = new Set<number>();
    const left = this.goneFrom.get(group);
    for (const member of members) {
      if (this.gone.has(member) || left?.has(member) === true) continue;
      missing.add(member);
      if (!isMessage) this.missedBy[member] = (this.missedBy[member] as number) + 1;
    }
    return {
      name,
      group,
      isMessage,
      inOrder,
      isBeside,
      missing,
      entered: new Map(),
      receive: null,
    };
  }

  private count({ isMessage, group }: Call, change: number): void {
    if (isMessage) return;
    const count = (this.inLanes.get(group) ?? 0) + change;
    if (count === 0) this.inLanes.delete(group);
    else this.inLanes.set(group, count);
  }

  /** The rank is no longer missing. @returns whether it was */
  private arrive(call: Call, rank: number): boolean {
    const was = call.missing.delete(rank);
    if (was && !call.isMessage) this.missedBy[rank] = (this.missedBy[rank] as number) - 1;
    return was;
  }

  private laneOf(rank: number, id: number): Call[] {
    const { lanes, lanesOf } = this.graph;
    let lane = lanes.get(id);
    if (lane === undefined) {
      lane = [];
      lanes.set(id, lane);
      (lanesOf[rank] as Set<number>).add(id);
    }
    return lane;
  }

  /** Removes a call from its lanes if it is first in all of them, and then the calls behind it. */
  private settle(first: Call): void {
    const next = [first];
    for (let call = next.pop(); call !== undefined; call = next.pop()) {
      if (!this.standsFirst(call)) continue;
      this.count(call, -1);
      for (const id of call.entered.keys()) {
        const lane = this.graph.lanes.get(id) as Call[];
        lane.shift();
        if (lane.length > 0) next.push(lane[0] as Call);
      }
      call.entered.clear();
    }
  }

  /** Whether all members have called it, and nothing is before it. */
  private standsFirst(call: Call): boolean {
    if (call.missing.size > 0 || call.entered.size === 0) return false;
    for (const id of call.entered.keys()) if (this.graph.lanes.get(id)?.[0] !== call) return false;
    return true;
  }

  /**
   * The rank has left the group, or the world. The engine fails the calls that the rank has not
   * made, so they are no longer pending here.
   */
  leave(rank: number, group?: string): void {
    if (group === undefined) this.gone.add(rank);
    else this.goneFrom.set(group, (this.goneFrom.get(group) ?? new Set()).add(rank));
    for (const { open } of this.channels.values()) {
      for (const [number, call] of open) {
        if (
          (group !== undefined && call.group !== group) ||
          !this.arrive(call, rank) ||
          call.missing.size > 0
        )
          continue;
        open.delete(number);
        this.settle(call);
      }
    }
  }

  /** Clears a lane after a failure was observed, because the stream skips all of its calls. */
  clear(lane: number): void {
    const calls = this.graph.lanes.get(lane)?.splice(0) ?? [];
    for (const call of calls) {
      call.entered.delete(lane);
      if (call.entered.size === 0) this.count(call, -1);
    }
    for (const call of calls) this.settle(call);
  }

  /** The rank's last call; null before its first. */
  lastOf(rank: number): Entry | null {
    return this.last[rank] ?? null;
  }

  /** Whether all calls of the rank can complete without JavaScript. */
  isClear(rank: number): boolean {
    return this.firstOf(rank) === undefined;
  }

  /** Returns a function for whether all calls so far can complete without JavaScript. */
  mark(rank: number): () => boolean {
    const last: [number, Call][] = [];
    for (const id of this.graph.lanesOf[rank] as Set<number>) {
      const call = this.graph.lanes.get(id)?.at(-1);
      if (call !== undefined) last.push([id, call]);
    }
    return () => last.every(([id, call]) => !call.entered.has(id));
  }

  private firstOf(rank: number): Call | undefined {
    for (const id of this.graph.lanesOf[rank] as Set<number>) {
      const [first] = this.graph.lanes.get(id) as Call[];
      if (first !== undefined && !first.isBeside) return first;
    }
    return undefined;
  }

  /** Describes what the rank waits for; null if it is clear. */
  describe(rank: number): string | null {
    const call = this.firstOf(rank);
    if (call === undefined) return null;
    const absent = [...call.missing].sort((a, b) => a - b);
    const who =
      absent.length > 0
        ? `${absent.length === 1 ? 'rank' : 'ranks'} ${absent.join(', ')} ` +
          `${absent.length === 1 ? 'has' : 'have'} not called yet`
        : 'waits for other calls';
    return `the ${call.name} of group "${call.group}" that came before ${who}`;
  }

  /** @throws DistributedError if a blocking read would wait for ranks that have not run yet */
  check(rank: number, op: string): void {
    const call = this.firstOf(rank);
    if (call === undefined) return;
    const reader = callContext.op;
    const advice =
      reader === null
        ? 'Use `await t.read()` or `await t.itemAsync()` instead.'
        : `The result of ${reader} depends on values. ${asyncAdvice(reader)}`;
    throw new DistributedError(
      `${reader ?? op}: waiting here would block ranks that share this process: ` +
        `${this.describe(rank)}. ${advice}`,
      {
        op: reader ?? op,
        rank,
        group: call.group,
        collective: call.name,
        missing: [...call.missing].sort((a, b) => a - b),
      },
    );
  }
}

/** What to call in place of a function that waits. */
function asyncAdvice(reader: string): string {
  if (callContext.advice !== null) return callContext.advice;
  const [name = ''] = reader.split(' ');
  return `${name}Async` in Tensor.prototype
    ? `Use \`await t.${name}Async(…)\` instead.`
    : 'Wait for its inputs with `await input.read()` before it; call fullTensor() of distributed ' +
        'ones before that, and give it the result.';
}
