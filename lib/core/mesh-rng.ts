/**
 * RNG offset per set of ranks: a draw on a mesh advances only the counters of ranks that all took
 * part in it. One counter per rank would not do: a draw of a plain tensor, or one on a mesh without
 * some of the ranks, would make replicas differ.
 */
import { ArgumentError } from './errors.js';
import { checkNumber, optionsOf, unexpected } from './options.js';

/** A set of ranks that draw together, and their last draw. @internal */
export interface DrawPlace {
  /** Ranges such as `0-3,8`; empty for all ranks of the world. */
  readonly ranks: string;
  /** A description of the last draw, equal on all of these ranks; empty before the first draw. */
  last: string;
}

/** The state of draws on meshes, as plain data. */
export interface MeshDrawsState {
  /** The seed, equal on all ranks. */
  seed: number;
  /** The number of draws before the seed was agreed, and on meshes of all ranks since. */
  offset: number;
  /** The number of draws on meshes of some ranks, by their ranges. */
  draws: Record<string, number>;
}

/** Counts the draws on meshes since the last seed, which all ranks share. @internal */
export class MeshDraws {
  private readonly seed: number;
  private offset: number;
  private readonly counts: Map<string, number>;

  constructor({ seed, offset, draws }: MeshDrawsState) {
    this.seed = seed;
    this.offset = offset;
    this.counts = new Map(Object.entries(draws));
  }

  /** Counts one draw and returns its seed and offset. */
  next(place: DrawPlace): { seed: number; offset: number } {
    const { seed } = this;
    const offset = this.drawnBy(place.ranks);
    if (place.ranks === '') this.offset++;
    else this.counts.set(place.ranks, (this.counts.get(place.ranks) ?? 0) + 1);
    place.last = `after draw ${offset} from seed ${seed}`;
    return { seed, offset };
  }

  state(): MeshDrawsState {
    return { seed: this.seed, offset: this.offset, draws: Object.fromEntries(this.counts) };
  }

  private drawnBy(ranks: string): number {
    let drawn = this.offset;
    if (ranks !== '')
      for (const [others, count] of this.counts)
        if (others === ranks || isWithin(ranks, others)) drawn += count;
    return drawn;
  }
}

type Range = readonly [first: number, last: number];
const rangesOf = (ranks: string): Range[] =>
  ranks.split(',').map((text) => {
    const [first, last = first] = text.split('-').map(Number);
    return [first as number, last as number];
  });

/** Cached results of {@link isWithin}. */
const within = new Map<string, boolean>();

function isWithin(ranks: string, others: string): boolean {
  const key = `${ranks} ${others}`;
  let found = within.get(key);
  if (found === undefined) {
    const wider = rangesOf(others);
    found = rangesOf(ranks).every(([first, last]) =>
      wider.some((range) => range[0] <= first && last <= range[1]),
    );
    within.set(key, found);
  }
  return found;
}

/** Formats ranks, in any order, as {@link DrawPlace.ranks}. @internal */
export function rankRanges(ranks: readonly number[], worldSize: number): string {
  if (ranks.length === worldSize) return '';
  const ranges: [number, number][] = [];
  for (const rank of ranks.toSorted((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (last !== undefined && last[1] === rank - 1) last[1] = rank;
    else ranges.push([rank, rank]);
  }
  return ranges
    .map(([first, last]) => (first === last ? String(first) : `${first}-${last}`))
    .join();
}

/** Checks a state that a program passed in. @throws ArgumentError @internal */
export function checkMeshDraws(op: string, state: MeshDrawsState): MeshDrawsState {
  const { seed, offset, draws } = optionsOf(op, state, 'seed offset draws');
  checkNumber(op, 'onMeshes.seed', seed, { from: 0, whole: true });
  checkNumber(op, 'onMeshes.offset', offset, { from: 0, whole: true });
  if (typeof draws !== 'object' || draws === null)
    throw unexpected(op, 'onMeshes.draws', 'numbers of draws by ranks', draws);
  for (const [ranks, count] of Object.entries(draws)) {
    if (!/^\d+(-\d+)?(,\d+(-\d+)?)*$/.test(ranks))
      throw new ArgumentError(
        `${op}: expected ranks such as '0-3,8' in onMeshes.draws, got '${ranks}'`,
        { op, given: ranks },
      );
    checkNumber(op, `onMeshes.draws['${ranks}']`, count, { from: 0, whole: true });
  }
  return state;
}
