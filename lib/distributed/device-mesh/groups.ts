/**
 * The groups along the dimensions of meshes. Name and ranks identify a group, whichever mesh
 * creates it first, so equal meshes share their groups.
 */
import { callSite } from '../../core/call-site.js';
import { ArgumentError } from '../../core/errors.js';
import { type DrawPlace, rankRanges } from '../../core/mesh-rng.js';
import { WORLD } from '../engines/engine.js';
import {
  type CreationMismatch,
  digest,
  type GroupCreation,
  shortKey,
} from '../process-group/diagnosis/creation-log.js';
import { shownRanks, sliceThrough } from '../process-group/nested-ranks.js';
import { namedGroup } from '../process-group/new-group.js';
import type { ProcessGroup } from '../process-group/process-group.js';
import type { RankContext } from '../process-group/rank-context.js';
import { coordinateOf, type MeshPlan, planKey, textOf } from './checks.js';

interface Known {
  /** By name; only the last of each may still be open. */
  readonly groups: Map<string, ProcessGroup[]>;
  /** Ids of meshes, by family and plan. */
  readonly ids: Map<string, number>;
  /** Number of meshes, by their ranks. */
  readonly meshes: Map<string, number>;
  /** Random draws, by the ranks of the mesh. */
  readonly draws: Map<string, DrawPlace>;
}

const ofContext = new WeakMap<RankContext, Known>();
let ids = 0;

function knownOf(context: RankContext): Known {
  let known = ofContext.get(context);
  if (known === undefined) {
    known = { groups: new Map(), ids: new Map(), meshes: new Map(), draws: new Map() };
    ofContext.set(context, known);
  }
  return known;
}

/**
 * The group of these ranks, of which this one is. `family` tells meshes apart that were made of
 * groups; `creation` is that of the mesh. @internal
 */
export function groupAlong(
  context: RankContext,
  family: string,
  meshDim: string,
  ranks: readonly number[],
  creation: GroupCreation | null,
): ProcessGroup {
  const { world } = context;
  if (ranks.length === world.size && ranks.every((rank, i) => rank === i)) return world;
  const name = `${family}${/^\d/.test(meshDim) ? 'dim' : ''}${meshDim}[${rankText(ranks)}]`;
  const { groups } = knownOf(context);
  const made = groups.get(name) ?? [];
  const last = made.at(-1);
  if (last !== undefined && context.groups.has(last)) return last;
  const group = namedGroup(context, made.length === 0 ? name : `${name}.${made.length}`, ranks);
  group.meshDim = meshDim;
  group.creation = creation;
  groups.set(name, [...made, group]);
  return group;
}

/**
 * A group of a mesh that others make differently fails; not one that another mesh has made, which
 * all ranks may have made alike. That of all ranks does, where it is the mesh's along a dim: calls
 * for different dims would meet in it.
 *
 * @internal
 */
export function failOwn(
  creation: GroupCreation | null,
  group: ProcessGroup,
  mismatch: CreationMismatch,
): void {
  if (creation !== null && (group.creation === creation || group.name === WORLD))
    group.fail(mismatch);
}

/**
 * Tells the other ranks of a new mesh, which all ranks of it make; null where nobody looks. `fail`
 * is called where another one is found to have made another.
 *
 * @throws CollectiveError where that is known already
 * @internal
 */
export function publishMesh(
  context: RankContext,
  op: string,
  plan: MeshPlan,
  fail: (mismatch: CreationMismatch) => void,
): GroupCreation | null {
  const { rank, creationLog } = context;
  const number = ++context.creations;
  if (creationLog === null) return null;
  const { meshes } = knownOf(context);
  const ranks = rankRanges(plan.ranks, context.worldSize);
  const before = meshes.get(ranks) ?? 0;
  meshes.set(ranks, before + 1);
  const what = `${textOf(plan)} of the ranks ${shownRanks(plan.ranks, plan.shape)}`;
  const rule =
    'All ranks make the same meshes, of one shape and with the same names; those of the same ' +
    'ranks in one order';
  const creation: GroupCreation = {
    rank,
    number,
    op,
    where: callSite(),
    group: WORLD,
    what,
    short: what,
    place: `mesh ${before} of ${ranks}`,
    key: shortKey(planKey(plan)),
    rule,
  };
  creationLog.record(creation);
  creationLog.publish(creation, fail);
  return creation;
}

/** An id that equal meshes with the same groups share. @internal */
export function meshId(context: RankContext, family: string, plan: MeshPlan): number {
  const { ids: known } = knownOf(context);
  const key = `${family}|${planKey(plan)}`;
  let id = known.get(key);
  if (id === undefined) {
    id = ids++;
    known.set(key, id);
  }
  return id;
}

/** The random draws of these ranks, shared by all of their meshes. @internal */
export function drawsOf(context: RankContext, ranks: readonly number[]): DrawPlace {
  const { draws } = knownOf(context);
  const name = rankRanges(ranks, context.worldSize);
  let place = draws.get(name);
  if (place === undefined) draws.set(name, (place = { ranks: name, last: '' }));
  return place;
}

const FEW = 8;

/** `3,1`; for many ranks `0-60:4` (0, 4, … 60), or a digest if there is no such rule. */
function rankText(ranks: readonly number[]): string {
  if (ranks.length <= FEW) return ranks.join();
  const [first, second, last] = [ranks[0] as number, ranks[1] as number, ranks.at(-1) as number];
  if (ranks.every((rank, i) => rank === first + i * (second - first)))
    return `${first}-${last}:${second - first}`;
  return digest(ranks.join()).slice(0, 16);
}

/** @throws ArgumentError unless each group has the ranks of its dimension */
export function checkGroups(
  op: string,
  { ranks, shape }: MeshPlan,
  rank: number,
  groups: readonly ProcessGroup[],
): void {
  const index = ranks.indexOf(rank);
  // A rank of a fake world may be outside of a mesh whose groups count it as a member.
  const indices = index < 0 ? [...ranks.keys()] : [index];
  const along = (at: number): string[] =>
    shape.map((_, dim) =>
      sliceThrough(ranks, shape, [dim], coordinateOf(at, shape) as readonly number[]).join(', '),
    );
  const given = groups.map((group) => group.ranks.join(', '));
  const fits = (list: readonly string[]): boolean =>
    given.length === list.length && list.every((each, dim) => each === given[dim]);
  if (indices.some((at) => fits(along(at)))) return;
  const expected = along(indices[0] ?? 0);
  throw new ArgumentError(
    `${op}: expected ${shape.length} groups, of the ranks [${expected.join('], [')}], got ` +
      `groups of [${given.join('], [')}]`,
    { op, expected, given },
  );
}
