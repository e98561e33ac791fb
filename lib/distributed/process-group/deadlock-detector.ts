/**
 * What ranks of one process wait for of each other. JavaScript runs one of them at a time: if it
 * waited for a collective that another rank has yet to call, that rank would never run. So each
 * lane (a stream of a rank, which works in order) has the list of its calls that may not be
 * complete: one is done with when every member has called it and has nothing left before it.
 */
import { DistributedError } from '../../core/errors.js';
import { waiting } from '../../core/waiting.js';

/** One rank's part of a collective, as it enters. @internal */
export interface Entry {
  /** Of the world. */
  readonly rank: number;
  /** The stream that works it off; no two ranks have one in common. */
  readonly lane: number;
  readonly group: string;
  /** Ranks of the world. */
  readonly members: readonly number[];
  /** What the program called, and where. */
  readonly name: string;
  readonly where: string;
  /**
   * Whether the lane is that of all groups of the rank, as on the CPU: what it calls later comes
   * behind what is there.
   */
  readonly inOrder?: boolean;
  /** Whether the rank has heard of a failure. */
  readonly hasFailed?: boolean;
  /** Of a message: that the rank's lane stands still until it is there. */
  readonly holdsUp?: boolean;
}

/** A message that its receiver waits for. */
interface Receive {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/**
 * Of two collectives, that the rank has called the earlier one first: `later` too, behind it on its
 * lane, or only what comes before.
 */
interface Step {
  readonly earlier: Call;
  readonly later: Call;
  readonly rank: number;
  readonly where: string;
  readonly isCalled: boolean;
}

interface Call {
  readonly name: string;
  readonly group: string;
  readonly isMessage: boolean;
  readonly inOrder: boolean;
  readonly missing: Set<number>;
  /** The lanes that it is in; none once it is done. */
  readonly entered: Map<number, Place>;
  receive: Receive | null;
}

/** A call in a lane: whose it is, where it was called, and the collective that stands before it. */
interface Place {
  readonly rank: number;
  readonly where: string;
  readonly before: Call | undefined;
}

/** The collectives of a group, or the messages of one direction: each rank's come in one order. */
interface Channel {
  /** By rank: how many it has called. */
  readonly counts: (number | undefined)[];
  /** By number: those that somebody has yet to call. */
  readonly open: Map<number, Call>;
}

/** @internal */
export class PendingCalls {
  private readonly channels = new Map<string, Channel>();
  private readonly lanes = new Map<number, Call[]>();
  private readonly lanesOf: Set<number>[];
  /** By rank: the lane of all its groups, once it has called something there. */
  private readonly ownLanes: (number | undefined)[] = [];
  /** By rank: the collectives that others have called and this one has not. */
  private readonly missedBy: number[];
  /** Calls of a group that has failed wait for nobody, and which ones have is not known here. */
  private hasFailed = false;
  /** By group: its collectives that may not be complete. */
  private readonly inLanes = new Map<string, number>();
  /** Ranks that have left everything, and by group those that have left it. */
  private readonly gone = new Set<number>();
  private readonly goneFrom = new Map<string, Set<number>>();
  /** By rank: its last call. */
  private readonly last: (Entry | undefined)[] = [];

  constructor(worldSize: number) {
    this.lanesOf = Array.from({ length: worldSize }, () => new Set());
    this.missedBy = Array.from({ length: worldSize }, () => 0);
  }

  /**
   * A rank calls the next collective of a group.
   *
   * @throws DistributedError if ranks have called the collectives of several groups in orders that
   * never complete
   */
  enter(entry: Entry): void {
    this.hasFailed ||= entry.hasFailed === true;
    if (entry.inOrder === true) this.ownLanes[entry.rank] = entry.lane;
    const call = this.add(entry, entry.group, false);
    // Calls of one group are in order, what is done waits for nothing, and what others neither
    // called nor wait for stands before nothing.
    const mayBeWaitedFor =
      call.entered.size > 1 || (call.entered.size > 0 && (this.missedBy[entry.rank] as number) > 0);
    if (mayBeWaitedFor && this.inLanes.size > 1) this.checkOrder(call, entry);
  }

  /**
   * The same for a message between two ranks, which may send several: they are counted by
   * direction.
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
    this.checkReceives(call, entry);
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
    this.comes(call, rank);
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

  private begin({ name, group, members, inOrder }: Entry, isMessage: boolean): Call {
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
      inOrder: inOrder === true,
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

  /** The rank is missed no longer. @returns whether it was */
  private comes(call: Call, rank: number): boolean {
    const was = call.missing.delete(rank);
    if (was && !call.isMessage) this.missedBy[rank] = (this.missedBy[rank] as number) - 1;
    return was;
  }

  private laneOf(rank: number, id: number): Call[] {
    let lane = this.lanes.get(id);
    if (lane === undefined) {
      lane = [];
      this.lanes.set(id, lane);
      (this.lanesOf[rank] as Set<number>).add(id);
    }
    return lane;
  }

  /**
   * Takes a call that nothing stands before any more off all lanes, and what stood right behind it.
   */
  private settle(first: Call): void {
    const next = [first];
    for (let call = next.pop(); call !== undefined; call = next.pop()) {
      if (!this.standsFirst(call)) continue;
      this.count(call, -1);
      for (const id of call.entered.keys()) {
        const lane = this.lanes.get(id) as Call[];
        lane.shift();
        if (lane.length > 0) next.push(lane[0] as Call);
      }
      call.entered.clear();
    }
  }

  /** Whether all have called it, and nothing stands before it. */
  private standsFirst(call: Call): boolean {
    if (call.missing.size > 0 || call.entered.size === 0) return false;
    for (const id of call.entered.keys()) if (this.lanes.get(id)?.[0] !== call) return false;
    return true;
  }

  /**
   * The rank has left the group, or without one all of them. Calls that it is missed in fail by
   * themselves: nobody waits for them here.
   */
  leave(rank: number, group?: string): void {
    if (group === undefined) this.gone.add(rank);
    else this.goneFrom.set(group, (this.goneFrom.get(group) ?? new Set()).add(rank));
    for (const { open } of this.channels.values()) {
      for (const [number, call] of open) {
        if (
          (group !== undefined && call.group !== group) ||
          !this.comes(call, rank) ||
          call.missing.size > 0
        )
          continue;
        open.delete(number);
        this.settle(call);
      }
    }
  }

  /**
   * All that the lane was given is over: a failure was heard of, behind which everything is
   * skipped.
   */
  clear(lane: number): void {
    const calls = this.lanes.get(lane)?.splice(0) ?? [];
    for (const call of calls) {
      call.entered.delete(lane);
      if (call.entered.size === 0) this.count(call, -1);
    }
    for (const call of calls) this.settle(call);
  }

  /** What the rank called last; null if it has called nothing. */
  lastOf(rank: number): Entry | null {
    return this.last[rank] ?? null;
  }

  /** Whether everything that the rank has called can complete without JavaScript. */
  isClear(rank: number): boolean {
    return this.firstOf(rank) === undefined;
  }

  /** Tells, later, whether what the rank has called so far can complete without JavaScript. */
  mark(rank: number): () => boolean {
    const last: [number, Call][] = [];
    for (const id of this.lanesOf[rank] as Set<number>) {
      const call = this.lanes.get(id)?.at(-1);
      if (call !== undefined) last.push([id, call]);
    }
    return () => last.every(([id, call]) => !call.entered.has(id));
  }

  private firstOf(rank: number): Call | undefined {
    for (const id of this.lanesOf[rank] as Set<number>) {
      const lane = this.lanes.get(id) as Call[];
      if (lane.length > 0) return lane[0];
    }
    return undefined;
  }

  /** What the rank waits for, in words; null if it is clear. */
  describe(rank: number): string | null {
    const call = this.firstOf(rank);
    if (call === undefined) return null;
    const absent = [...call.missing].sort((a, b) => a - b);
    const who =
      absent.length > 0
        ? `${absent.length === 1 ? 'rank' : 'ranks'} ${absent.join(', ')} ${absent.length === 1 ? 'has' : 'have'} not called yet`
        : 'waits for other calls';
    return `the ${call.name} of group "${call.group}" that came before ${who}`;
  }

  /** @throws DistributedError if the value may need ranks that have not run yet */
  check(rank: number, op: string): void {
    const call = this.firstOf(rank);
    if (call === undefined) return;
    const reader = waiting.op;
    const advice =
      reader === null
        ? 'Use `await t.read()` or `await t.itemAsync()` instead.'
        : `What ${reader} gives depends on values: \`await input.read()\` first, and call it then; of a distributed tensor, with what fullTensor() gives.`;
    throw new DistributedError(
      `${reader ?? op}: waiting here would block ranks that share this process: ${this.describe(rank)}. ${advice}`,
      {
        op: reader ?? op,
        rank,
        group: call.group,
        collective: call.name,
        missing: [...call.missing].sort((a, b) => a - b),
      },
    );
  }

  /**
   * Looks for a way from the call back to itself, over what stands before it on any lane, or will.
   * Messages may overtake: they are left out.
   */
  private checkOrder(call: Call, { rank, name, where }: Entry): void {
    const reachedBy = new Map<Call, Step>();
    const next = [call];
    const reach = (
      later: Call,
      earlier: Call | undefined,
      { rank, where }: Pick<Place, 'rank' | 'where'>,
      isCalled: boolean,
    ): void => {
      if (earlier === undefined || reachedBy.has(earlier)) return;
      reachedBy.set(earlier, { earlier, later, rank, where, isCalled });
      next.push(earlier);
    };
    for (let later = next.pop(); later !== undefined && !reachedBy.has(call); later = next.pop()) {
      for (const place of later.entered.values()) reach(later, place.before, place, true);
      if (later.inOrder && !this.hasFailed)
        for (const absent of later.missing)
          this.reachLast(absent, (earlier, place) => reach(later as Call, earlier, place, false));
    }
    let step = reachedBy.get(call);
    if (step === undefined) return;
    let said = '';
    for (; step.later !== call; step = reachedBy.get(step.later) as Step)
      said += clauseOf(step, rank);
    // The last step is the first that was taken: maybe what the rank itself has before its call.
    const isBehind = step.isCalled && step.rank === rank;
    const after = isBehind ? ` after ${textOf(step.earlier)}` : '';
    throw new DistributedError(
      `${name}: this call can never complete. Rank ${rank} calls ${textOf(call)}${after} (${where})${said}${isBehind ? '' : clauseOf(step, rank)}. Ranks that have several groups in common call their collectives in one order.`,
      { op: name, rank, group: call.group },
    );
  }

  /** What the rank calls next comes behind its last collective. */
  private reachLast(rank: number, reach: (earlier: Call, place: Place) => void): void {
    const id = this.ownLanes[rank];
    const last = id === undefined ? undefined : lastCollective(this.lanes.get(id), id);
    const place = last?.entered.get(id as number);
    if (last !== undefined && place !== undefined) reach(last, place);
  }

  /**
   * Looks for a way from the receive back to itself, over those that its sender has before it.
   * Sends may be done before they are received: they hold nothing up.
   */
  private checkReceives(call: Call, { rank, name, group }: Entry): void {
    const reachedFrom = new Map<Call, Call | null>([[call, null]]);
    const next = [call];
    for (let later = next.pop(); later !== undefined; later = next.pop()) {
      for (const before of this.receivesBefore(later)) {
        if (before === call) {
          const circle: string[] = [];
          for (let step: Call | null = later; step !== null; step = reachedFrom.get(step) ?? null)
            circle.unshift(step.receive?.text ?? '');
          const message = `${name}: this call can never complete: ${circle.join(', ')}. What a rank calls behind a receive waits for it: let one of them send first.`;
          throw new DistributedError(message, { op: name, rank, group });
        }
        if (reachedFrom.has(before)) continue;
        reachedFrom.set(before, later);
        next.push(before);
      }
    }
  }

  /**
   * Those that the sender of the message waits for before it sends, or would if it has not called
   * that yet.
   */
  private receivesBefore(call: Call): Call[] {
    const sender = call.receive?.from as number;
    const isOwn = (each: Call): boolean => each.receive?.to === sender;
    const lanes = [...(this.lanesOf[sender] as Set<number>)].map(
      (id) => this.lanes.get(id) as Call[],
    );
    if (call.missing.has(sender)) return lanes.flatMap((lane) => lane.filter(isOwn));
    const lane = lanes.find((each) => each.includes(call)) ?? [];
    return lane.slice(0, lane.indexOf(call)).filter(isOwn);
  }
}

/** Said of `earlier`, behind what it was named in. */
function clauseOf({ later, rank, where, isCalled }: Step, caller: number): string {
  if (rank === caller && !isCalled) return ` before ${textOf(later)}`;
  return `, and rank ${rank} called that before ${isCalled ? '' : 'it comes to '}${textOf(later)} (${where})`;
}

/** The last one of a lane; what stands before a message is known. */
function lastCollective(lane: readonly Call[] | undefined, id: number): Call | undefined {
  const last = lane?.at(-1);
  return last?.isMessage === true ? last.entered.get(id)?.before : last;
}

const textOf = (call: Call): string => `the ${call.name} of group "${call.group}"`;
