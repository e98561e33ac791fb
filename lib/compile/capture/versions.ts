/**
 * Versions that a captured function reads. A version is a JavaScript number, so its way through the
 * function is found by further captures in which every read gives another number: where only the
 * numbers of version overrides differ, and by the same amounts, an override is a version plus a
 * constant. One graph then serves all versions. Else the graph serves the versions of its capture.
 */
import { isDeepStrictEqual } from 'node:util';
import { isPlain } from '../../core/plain-object.js';
import type { Tensor } from '../../core/tensor.js';
import type { VersionCell } from '../graph/effects.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value } from '../graph/node.js';
import type { Recorder } from './recorder.js';

/** The number that a read gives instead of a version. */
export type ShownVersion = (version: number, read: number) => number;

/** A read of a version. */
interface VersionRead {
  /** A tensor of the program that has the version: an input, by its position, or another. */
  readonly owner: number | Tensor;
  readonly node: Node;
  readonly version: number;
}

/** The reads of one capture. */
export class VersionReads {
  readonly all: VersionRead[] = [];
  private readonly shown: ShownVersion;

  constructor(shown: ShownVersion = (version) => version) {
    this.shown = shown;
  }

  /** The version of a tensor of the program; that of a tensor of the capture is always the same. */
  read(recorder: Recorder, tensor: Tensor): number {
    const version = tensor.currentVersion;
    if (recorder.level !== 'front' || recorder.isHookBody)
      recorder.unsupported('the _version of a tensor was read');
    const value = recorder.valueOf(tensor);
    const owner = recorder.borrowed.versionOwner(tensor);
    if (owner === null || !recorder.repeatsCalls) return version;
    const node = recorder.addEffect('readVersion', { inputs: [value], params: { latest: 0 } });
    const position = recorder.positionOf(owner);
    this.all.push({ owner: position < 0 ? owner : position, node, version });
    return this.shown(version, this.all.length - 1);
  }
}

/** Larger than versions, and odd, so that sums of few of them differ. */
const SHIFT = 1_000_003;

/** Every read gives a number of its own, larger than all constants. */
const shifted: ShownVersion = (version, read) => version + SHIFT * (read + 1);
/** Every read gives the least version, so that comparisons with constants give other results. */
const least: ShownVersion = () => 0;

/** What captures of a function are compared by. */
export interface VersionTrace {
  readonly graph: Graph;
  /** The result with marks in the places of tensors. */
  readonly template: unknown;
  readonly reads: VersionReads;
}

/** Puts the versions of a run into the result that was rebuilt. */
export type VersionedResult = (result: unknown) => unknown;

/**
 * Makes overrides of versions in the graph, and numbers in the result, relative to the versions
 * that were read. Null, and no change, if that is not possible. `again` captures the function
 * again; null if that fails.
 */
export function makeVersionsRelative(
  first: VersionTrace,
  again: (shown: ShownVersion) => VersionTrace | null,
): VersionedResult | null {
  const reads = first.reads.all;
  const uses = new Map<string, RelativeUse>();
  for (const shown of [shifted, least]) {
    const other = again(shown);
    if (other === null || !agree(first, other, shown, uses)) return null;
  }
  const all = [...uses.values()];
  // A version that is only compared, or not used, may decide what the graph is.
  if (new Set(all.map(({ read }) => read)).size < reads.length) return null;
  const results: { path: Path; cell: VersionCell; offset: number }[] = [];
  for (const { node, path, first: number, read } of all) {
    const { node: source, version } = reads[read] as VersionRead;
    const offset = number - version;
    if (node === null) {
      results.push({ path, cell: source.params as VersionCell, offset });
      continue;
    }
    node.inputs = [...node.inputs, { node: source, output: 0 }];
    node.params = { version: offset };
  }
  return (result) =>
    results.reduce(
      (whole, { path, cell, offset }) => withAt(whole, path, cell.latest + offset),
      result,
    );
}

type Path = readonly (string | number)[];

/** A number that differs between captures: of an override, or of the result. */
interface NumberUse {
  readonly node: Node | null;
  readonly path: Path;
  readonly first: number;
  readonly other: number;
}

/** A number that is the version of a read plus a constant. */
interface RelativeUse extends NumberUse {
  readonly read: number;
}

/**
 * Whether two captures differ in numbers only, and these by what was added to one read. Adds the
 * numbers and their reads to `uses`.
 */
function agree(
  { graph, template, reads }: VersionTrace,
  other: VersionTrace,
  shown: ShownVersion,
  uses: Map<string, RelativeUse>,
): boolean {
  const found: NumberUse[] = [];
  if (!sameApartFromNumbers(template, other.template, [], found)) return false;
  if (!sameCalls(graph, other.graph)) return false;
  for (const [i, node] of graph.nodes.entries()) {
    const partner = other.graph.nodes[i] as Node;
    if (node.effect === 'setVersion')
      found.push({ node, path: [i], first: versionOf(node), other: versionOf(partner) });
    else if (!isDeepStrictEqual(node.params, partner.params)) return false;
  }
  const added = reads.all.map(({ version }, i) => shown(version, i) - version);
  return found.every((use) => {
    const key = `${use.node === null ? 'result' : 'node'} ${JSON.stringify(use.path)}`;
    const difference = use.other - use.first;
    const known = uses.get(key);
    if (known !== undefined) return difference === added[known.read];
    if (difference === 0) return true;
    const read = added.indexOf(difference);
    uses.set(key, { ...use, read });
    return read >= 0;
  });
}

/** Compares results down to numbers, which it adds to `found`. */
function sameApartFromNumbers(a: unknown, b: unknown, path: Path, found: NumberUse[]): boolean {
  if (typeof a === 'number' && typeof b === 'number')
    return found.push({ node: null, path, first: a, other: b }) > 0;
  const [keys, others] = [a, b].map((value) =>
    Array.isArray(value) || (typeof value === 'object' && value !== null && isPlain(value))
      ? Object.keys(value)
      : null,
  );
  if (!keys || !others || Array.isArray(a) !== Array.isArray(b)) return isDeepStrictEqual(a, b);
  return (
    isDeepStrictEqual(keys, others) &&
    keys.every((key) =>
      sameApartFromNumbers(
        (a as Record<string, unknown>)[key],
        (b as Record<string, unknown>)[key],
        [...path, key],
        found,
      ),
    )
  );
}

/** The value with a number at the path. */
function withAt(whole: unknown, path: Path, number: number): unknown {
  if (path.length === 0) return number;
  let at = whole as Record<string, unknown>;
  for (const key of path.slice(0, -1)) at = at[key] as Record<string, unknown>;
  at[path.at(-1) as string] = number;
  return whole;
}

const versionOf = (node: Node): number => (node.params as { version: number }).version;

/** Whether graphs have equal nodes, apart from parameters, that use equal values. */
function sameCalls(a: Graph, b: Graph): boolean {
  if (a.nodes.length !== b.nodes.length) return false;
  const partner = new Map(a.nodes.map((node, i) => [node, b.nodes[i]]));
  const same = (x: Value, y: Value | undefined): boolean => {
    if (y === undefined) return false;
    if ('number' in x || 'number' in y)
      return (
        'number' in x &&
        'number' in y &&
        x.number.dtype === y.number.dtype &&
        Object.is(x.number.scalarValue, y.number.scalarValue)
      );
    return partner.get(x.node) === y.node && x.output === y.output;
  };
  const sameList = (x: readonly Value[], y: readonly Value[]): boolean =>
    x.length === y.length && x.every((value, i) => same(value, y[i]));
  return (
    sameList(a.outputs, b.outputs) &&
    a.nodes.every((node, i) => {
      const other = b.nodes[i] as Node;
      return (
        node.kind === other.kind &&
        node.op === other.op &&
        node.effect === other.effect &&
        node.tensor === other.tensor &&
        node.mode === other.mode &&
        sameList(node.reads, other.reads)
      );
    })
  );
}
