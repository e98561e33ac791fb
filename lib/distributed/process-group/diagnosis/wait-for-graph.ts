/**
 * The wait-for graph of `local` ranks: which call waits behind which. Searches it for cycles, which
 * are calls that can never complete. A lane is a stream of a rank, which runs its calls in order.
 */
import { DistributedError } from '../../../core/errors.js';

/** One rank's call of a collective or message. @internal */
export interface Entry {
  /** A rank of the world. */
  readonly rank: number;
  /** The stream that runs the call; ranks share no streams. */
  readonly lane: number;
  readonly group: string;
  /** Ranks of the world. */
  readonly members: readonly number[];
  /** The public function, and its call site. */
  readonly name: string;
  readonly where: string;
  /** Whether all groups of the rank use this lane, as on the CPU, so that later calls wait. */
  readonly inOrder?: boolean;
  /** Whether no read of the program waits for it: the call is on a stream of its own. */
  readonly isBeside?: boolean;
  /** Whether the rank has observed a failure. */
  readonly hasFailed?: boolean;
  /** Whether the receiver's lane blocks until the message is there. */
  readonly holdsUp?: boolean;
}

/** A blocking receive. */
interface Receive {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** A collective or message that may be incomplete. @internal */
export interface Call {
  readonly name: string;
  readonly group: string;
  readonly isMessage: boolean;
  readonly inOrder: boolean;
  readonly isBeside: boolean;
  /** Ranks that have not called it. */
  readonly missing: Set<number>;
  /** Its place in each lane; empty once it is done. */
  readonly entered: Map<number, Place>;
  receive: Receive | null;
}

/** A call in a lane: the rank, the call site, and the collective before it. @internal */
export interface Place {
  readonly rank: number;
  readonly where: string;
  readonly before: Call | undefined;
}

/**
 * An edge of the graph: the rank called `earlier` before `later`. If not `isCalled`, the rank has
 * yet to call `later`, on the same lane.
 */
interface Step {
  readonly earlier: Call;
  readonly later: Call;
  readonly rank: number;
  readonly where: string;
  readonly isCalled: boolean;
}

/** The calls that may be incomplete, by lane. @internal */
export interface WaitForGraph {
  readonly lanes: Map<number, Call[]>;
  /** By rank: its lanes. */
  readonly lanesOf: readonly Set<number>[];
  /** By rank: the lane of all its groups, once it has called something there. */
  readonly ownLanes: (number | undefined)[];
  /** Whether a group has failed: its calls wait for nobody, and the graph does not know which. */
  hasFailed: boolean;
}

/**
 * Searches a path from the call back to itself, over the calls before it on any lane, called or
 * not. Messages are left out, because they may overtake.
 *
 * @throws DistributedError if ranks call the collectives of several groups in orders that never
 * complete @internal
 */
export function checkOrder(graph: WaitForGraph, call: Call, { rank, name, where }: Entry): void {
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
    if (later.inOrder && !graph.hasFailed)
      for (const absent of later.missing)
        reachLast(graph, absent, (earlier, place) => reach(later as Call, earlier, place, false));
  }
  let step = reachedBy.get(call);
  if (step === undefined) return;
  let others = '';
  for (; step.later !== call; step = reachedBy.get(step.later) as Step)
    others += clauseOf(step, rank);
  // The last step was taken first; it may be what the rank itself called before this call.
  const isBehind = step.isCalled && step.rank === rank;
  const after = isBehind ? ` after ${textOf(step.earlier)}` : '';
  throw new DistributedError(
    `${name}: this call can never complete. Rank ${rank} calls ${textOf(call)}${after} (${where})` +
      `${others}${isBehind ? '' : clauseOf(step, rank)}. Ranks that share several groups must ` +
      'call their collectives in the same order.',
    { op: name, rank, group: call.group },
  );
}

/** The rank's next call will wait for its last collective. */
function reachLast(
  { lanes, ownLanes }: WaitForGraph,
  rank: number,
  reach: (earlier: Call, place: Place) => void,
): void {
  const id = ownLanes[rank];
  const last = id === undefined ? undefined : lastCollective(lanes.get(id), id);
  const place = last?.entered.get(id as number);
  if (last !== undefined && place !== undefined) reach(last, place);
}

/**
 * Searches a path from the receive back to itself, over the receives before the sender's send.
 * Sends are left out, because they may complete before they are received.
 *
 * @throws DistributedError if ranks receive from each other before they send @internal
 */
export function checkReceives(graph: WaitForGraph, call: Call, { rank, name, group }: Entry): void {
  const reachedFrom = new Map<Call, Call | null>([[call, null]]);
  const next = [call];
  for (let later = next.pop(); later !== undefined; later = next.pop()) {
    for (const before of receivesBefore(graph, later)) {
      if (before === call) {
        const cycle: string[] = [];
        for (let step: Call | null = later; step !== null; step = reachedFrom.get(step) ?? null)
          cycle.unshift(step.receive?.text ?? '');
        throw new DistributedError(
          `${name}: this call can never complete: ${cycle.join(', ')}. Later calls of a rank ` +
            'wait for its receives: let one of the ranks send first.',
          { op: name, rank, group },
        );
      }
      if (reachedFrom.has(before)) continue;
      reachedFrom.set(before, later);
      next.push(before);
    }
  }
}

/** The receives that the sender waits for, or would wait for, before it sends. */
function receivesBefore({ lanes, lanesOf }: WaitForGraph, call: Call): Call[] {
  const sender = call.receive?.from as number;
  const isOwn = (each: Call): boolean => each.receive?.to === sender;
  const all = [...(lanesOf[sender] as Set<number>)].map((id) => lanes.get(id) as Call[]);
  if (call.missing.has(sender)) return all.flatMap((lane) => lane.filter(isOwn));
  const lane = all.find((each) => each.includes(call)) ?? [];
  return lane.slice(0, lane.indexOf(call)).filter(isOwn);
}

/** Describes a step, after a text that ends with its `earlier` call. */
function clauseOf({ later, rank, where, isCalled }: Step, caller: number): string {
  if (rank === caller && !isCalled) return ` before ${textOf(later)}`;
  return (
    `, and rank ${rank} called that before ` +
    `${isCalled ? '' : 'it comes to '}${textOf(later)} (${where})`
  );
}

/** The last collective of a lane, skipping messages. @internal */
export function lastCollective(lane: readonly Call[] | undefined, id: number): Call | undefined {
  const last = lane?.at(-1);
  return last?.isMessage === true ? last.entered.get(id)?.before : last;
}

const textOf = (call: Call): string => `the ${call.name} of group "${call.group}"`;
