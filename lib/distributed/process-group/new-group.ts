/** The groups of a program: the world, groups of some of its ranks, and queries about them. */
import { callSite } from '../../core/call-site.js';
import type { DeviceType } from '../../core/device.js';
import { ArgumentError } from '../../core/errors.js';
import { checkNumber, optionsOf, shown, unexpected } from '../../core/options.js';
import { generatorOf } from '../../core/random.js';
import type { RankRuntime, RankWorld } from '../../core/rank-runtime.js';
import { reportUse } from '../../core/unrepeatable.js';
import { writer } from '../../eager/submit.js';
import { type BackendText, type EngineFactory, WORLD } from '../engines/engine.js';
import { backendText } from '../engines/select.js';
import type { Store } from '../stores/index.js';
import {
  type CreationLog,
  type CreationMismatch,
  type GroupCreation,
  shortKey,
  titleOf,
} from './diagnosis/creation-log.js';
import type { PendingCalls } from './diagnosis/deadlock-detector.js';
import { addOwnCreation, explainMissingRanks } from './diagnosis/explain-missing-ranks.js';
import { shownRanks } from './nested-ranks.js';
import { placeOf } from './operands.js';
import { ProcessGroup } from './process-group.js';
import { contextOf, findContext, type RankContext, setContext } from './rank-context.js';

/** What a rank needs to enter its world. @internal */
export interface WorldPlan {
  readonly rank: number;
  readonly worldSize: number;
  readonly localRank: number;
  readonly runtime: RankRuntime;
  readonly store: Store | null;
  readonly factory: EngineFactory;
  readonly pending: PendingCalls | null;
  /** Where draws on meshes start, the same on all ranks; by default this rank's own state. */
  readonly random?: { readonly seed: number; readonly offset: number };
  readonly creationLog?: CreationLog | null;
  /** As of a group's options. */
  readonly named?: readonly DeviceType[] | null;
  /** Called when the rank leaves its world. */
  readonly leaveEngines?: () => void;
}

/** Sets up the world of the current rank. @internal */
export function enterWorld(plan: WorldPlan): RankContext {
  const {
    rank,
    worldSize,
    localRank,
    runtime,
    store,
    factory,
    pending,
    creationLog = null,
    named = null,
    leaveEngines = () => {},
  } = plan;
  const ranks = Array.from({ length: worldSize }, (_, i) => i);
  const world = new ProcessGroup({ name: WORLD, ranks, rank }, plan);
  const counts = { made: 0, creations: 0 };
  const context: RankContext = {
    rank,
    worldSize,
    localRank,
    runtime,
    store,
    pending,
    factory,
    creationLog,
    named,
    world,
    groups: new Set([world]),
    ...counts,
    leaveEngines,
  };
  runtime.enterWorld(worldOf(context));
  const generator = generatorOf(runtime);
  generator.agree(plan.random ?? generator.origin());
  setContext(context);
  return context;
}

/** The hooks of a rank's runtime for waits and failures: see {@link RankWorld}. */
function worldOf(context: RankContext): RankWorld {
  const { rank, pending, creationLog, factory } = context;
  return {
    isShared: pending !== null,
    loadsKernels: (device) => factory.loadsKernels?.(device) ?? true,
    checkWait: (op) => pending?.check(rank, op),
    afterFailure(stream) {
      // The stream may have new work, if the failure was observed on another one before.
      if (pending !== null && writer.addon.streamQuery(stream)) pending.clear(stream);
    },
    explain: (error) => (creationLog === null ? null : explainMissingRanks(context, error)),
    explainAtOnce(error) {
      if (creationLog !== null) addOwnCreation(context, error);
    },
  };
}

/**
 * Ends a group, or without an argument all groups. This rank can no longer call them; earlier calls
 * still run.
 *
 * @see PyTorch `torch.distributed.destroy_process_group`
 */
export function destroyProcessGroup(group?: ProcessGroup): void {
  reportUse('destroyProcessGroup');
  const context = findContext();
  if (context === null) return;
  if (group !== undefined && group !== context.world) {
    group.leave();
    context.groups.delete(group);
    return;
  }
  try {
    leaveGroups(context.groups);
  } finally {
    context.leaveEngines();
    context.creationLog?.leave();
    context.pending?.leave(context.rank);
    context.runtime.leaveWorld();
    setContext(null);
  }
}

/** Leaves all groups. @throws the first error, after all were left @internal */
export function leaveGroups(groups: Iterable<ProcessGroup>): void {
  const failures: unknown[] = [];
  for (const group of groups) {
    try {
      group.leave();
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
}

/** Whether this program is a rank: after `initProcessGroup`, or within `launch`. */
export function isInitialized(): boolean {
  return findContext() !== null;
}

/**
 * This rank's number in the group, by default the world; -1 if it is not a member. @throws
 * DistributedError without a process group
 *
 * @example
 * const ranks = await launch(2, async () => getRank());
 * ranks; // [0, 1]
 */
export function getRank(group?: ProcessGroup): number {
  const context = contextOf('getRank');
  return group === undefined ? context.rank : checkGroup('getRank', group).rank;
}

/**
 * Number of ranks in the group, by default the world; -1 if this rank is not a member. @throws
 * DistributedError without a process group
 */
export function getWorldSize(group?: ProcessGroup): number {
  const context = contextOf('getWorldSize');
  if (group === undefined) return context.worldSize;
  return checkGroup('getWorldSize', group).rank < 0 ? -1 : group.size;
}

/** The group of all ranks. @throws DistributedError without a process group */
export function worldGroup(): ProcessGroup {
  return contextOf('worldGroup').world;
}

/** Options of {@link newGroup}. */
export interface NewGroupOptions {
  /**
   * The most multiprocessors of a GPU that a collective of NCCL occupies, 1 to 64; by default up to
   * 64, which large messages use. Fewer leave more of the GPU to what is computed meanwhile, and
   * move large messages a little slower. Other backends ignore it.
   */
  maxCtas?: number;
  /** As of the plan of a group. @internal */
  ownStream?: boolean;
}

/** NCCL has no more channels. */
const MOST_CTAS = 64;

/**
 * Creates a group of some ranks of the world. Every rank of the world calls it, members or not, in
 * the same order and with the same options. It does not wait. Ranks compare their lists of ranks:
 * at once in shared memory, a little later through the store.
 *
 * @param ranks - ranks of the world, each once; by default all ranks
 * @throws ArgumentError for ranks outside the world, and a `maxCtas` that is no whole number from 1
 * to 64; DistributedError without a process group; CollectiveError if another rank has created this
 * group of different ranks
 * @see PyTorch `torch.distributed.new_group`, and `ncclConfig_t.maxCTAs` of NCCL
 * @example
 * const group = newGroup([1]);
 * const t = ones([1]);
 * if (rank === 1) allReduce(t, { group });
 * await t.read(); // [1]
 */
export function newGroup(
  ranks?: readonly number[] | null,
  options: NewGroupOptions = {},
): ProcessGroup {
  const { maxCtas, ownStream } = optionsOf('newGroup', options, 'maxCtas ownStream');
  if (maxCtas !== undefined)
    checkNumber('newGroup', 'maxCtas', maxCtas, { from: 1, to: MOST_CTAS, whole: true });
  const context = contextOf('newGroup');
  const members = ranks == null ? context.world.ranks : [...checkRanks(ranks, context.worldSize)];
  const name = `group${context.made++}`;
  let group: ProcessGroup | null = null;
  const creation = publishCreation(context, name, members, (mismatch) => group?.fail(mismatch));
  const own = ranks == null ? context.world.rank : members.indexOf(context.rank);
  group = namedGroup(context, name, members, own, {
    ...(maxCtas === undefined ? {} : { maxCtas }),
    ...(ownStream === undefined ? {} : { ownStream }),
  });
  group.creation = creation;
  return group;
}

/** @throws CollectiveError where another rank is known to have made it of other ranks */
function publishCreation(
  context: RankContext,
  name: string,
  ranks: readonly number[],
  fail: (mismatch: CreationMismatch) => void,
): GroupCreation | null {
  const { rank, creationLog, factory } = context;
  const number = ++context.creations;
  if (creationLog === null && factory.publish === undefined) return null;
  const [op, where, list] = ['newGroup', callSite(), shownRanks(ranks)];
  const what = `group "${name}" of the ranks ${list}`;
  const rule =
    'All ranks make their groups of the same ranks, in one order, also those that they are not in';
  const creation: GroupCreation = {
    rank,
    number,
    op,
    where,
    group: name,
    what,
    short: `of ${list}`,
    place: name,
    key: shortKey(ranks.join()),
    rule,
  };
  creationLog?.record(creation);
  factory.publish?.({
    rank,
    number: context.made,
    name,
    ranks,
    title: titleOf(creation),
    where,
    creation: number,
  });
  creationLog?.publish(creation, fail);
  return creation;
}

/** Creates a group by a unique name that its members agree on. @internal */
export function namedGroup(
  context: RankContext,
  name: string,
  ranks: readonly number[],
  rank = ranks.indexOf(context.rank),
  options: NewGroupOptions = {},
): ProcessGroup {
  const plan = { name, ranks, rank, ...options };
  const group = new ProcessGroup(plan, context);
  if (group.rank >= 0) context.groups.add(group);
  return group;
}

function checkRanks(ranks: readonly number[], worldSize: number): readonly number[] {
  if (!Array.isArray(ranks) || ranks.length === 0)
    throw unexpected('newGroup', 'ranks', 'a list of ranks', ranks);
  for (const rank of ranks) {
    if (!Number.isSafeInteger(rank) || rank < 0 || rank >= worldSize) {
      throw new ArgumentError(
        `newGroup: expected ranks from 0 to ${worldSize - 1}, got ${shown(ranks)}`,
        { op: 'newGroup', given: ranks, worldSize },
      );
    }
  }
  if (new Set(ranks).size !== ranks.length)
    throw new ArgumentError(`newGroup: expected each rank once, got ${shown(ranks)}`, {
      op: 'newGroup',
      given: ranks,
    });
  return ranks;
}

/** @internal */
export function checkGroup(op: string, group: ProcessGroup): ProcessGroup {
  if (!(group instanceof ProcessGroup))
    throw unexpected(op, 'group', 'a ProcessGroup, as newGroup returns it', group);
  return group;
}

/**
 * The group of a collective, by default the world. @throws DistributedError without a process
 * group, and if this rank is not a member
 */
export function memberOf(op: string, group: ProcessGroup | undefined): ProcessGroup {
  const chosen = group === undefined ? contextOf(op).world : checkGroup(op, group);
  if (group !== undefined) chosen.checkOwn(op);
  chosen.checkOpen(op);
  return chosen;
}

/**
 * The backend of a group, by default the world: `'shm'`, or `'cpu:shm,cuda:nccl'` if devices
 * differ. It is the backend that the program named, else the chosen one, which is `'shm'` for ranks
 * of one machine, also in a world of several; the query may then open the CUDA driver.
 *
 * @throws ArgumentError unless it is a group, DistributedError without a process group, for a group
 * that has ended, and if this rank is not a member
 * @see PyTorch `torch.distributed.get_backend`, which returns `'undefined'` without a named backend
 */
export function getBackend(group?: ProcessGroup): BackendText {
  return backendText(memberOf('getBackend', group).backends());
}

/**
 * The rank of the world that has a group rank. Also for ranks that are not members.
 *
 * @param groupRank - a rank in the group, as `getRank(group)` returns it
 * @throws ArgumentError unless it is a group with such a rank, DistributedError without a process
 * group
 * @see PyTorch `torch.distributed.get_global_rank`
 */
export function getGlobalRank(group: ProcessGroup, groupRank: number): number {
  const { ranks } = groupOf('getGlobalRank', group);
  checkNumber('getGlobalRank', 'groupRank', groupRank, {
    from: 0,
    to: ranks.length - 1,
    whole: true,
  });
  return ranks[groupRank] as number;
}

/**
 * The group rank of a rank of the world. Also for ranks that are not members.
 *
 * @param globalRank - a rank of the world
 * @throws ArgumentError unless it is a group with this rank, DistributedError without a process
 * group
 * @see PyTorch `torch.distributed.get_group_rank`
 */
export function getGroupRank(group: ProcessGroup, globalRank: number): number {
  return placeOf('getGroupRank', 'globalRank', globalRank, groupOf('getGroupRank', group));
}

/**
 * The ranks of a group in group order, by default of the world, as a new list.
 *
 * @throws ArgumentError unless it is a group, DistributedError without a process group
 * @see PyTorch `torch.distributed.get_process_group_ranks`
 */
export function getProcessGroupRanks(group?: ProcessGroup): number[] {
  return [
    ...(group === undefined
      ? contextOf('getProcessGroupRanks').world
      : groupOf('getProcessGroupRanks', group)
    ).ranks,
  ];
}

function groupOf(op: string, group: ProcessGroup): ProcessGroup {
  contextOf(op);
  return checkGroup(op, group);
}
