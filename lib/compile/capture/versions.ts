/**
 * Versions that a captured function reads. A version is a JavaScript number, so its way through the
 * function is found by further captures in which every read gives another number: where only the
 * numbers of version overrides differ, and by the same amounts, an override is a version plus a
 * constant. One graph then serves all versions. Else the graph serves the versions of its capture.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Tensor } from '../../core/tensor.js';
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
    const node = recorder.addEffect('readVersion', { inputs: [value] });
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

/**
 * Makes overrides of versions in the graph relative to the versions that were read. False, and no
 * change, if that is not possible. `again` captures the function again; null if that fails.
 */
export function makeVersionsRelative(
  first: VersionTrace,
  again: (shown: ShownVersion) => VersionTrace | null,
): boolean {
  const reads = first.reads.all;
  const relative = new Map<Node, number>();
  for (const shown of [shifted, least]) {
    const other = again(shown);
    if (other === null || !agree(first, other, shown, relative)) return false;
  }
  // A version that is only compared, or not used, may decide what the graph is.
  if (new Set(relative.values()).size < reads.length) return false;
  for (const [node, at] of relative) {
    const { node: read, version } = reads[at] as VersionRead;
    node.inputs = [...node.inputs, { node: read, output: 0 }];
    node.params = { version: versionOf(node) - version };
  }
  return true;
}

/**
 * Whether two captures differ in overrides of versions only, and these by what was added to one
 * read. Adds the overrides and their reads to `relative`.
 */
function agree(
  { graph, template, reads }: VersionTrace,
  other: VersionTrace,
  shown: ShownVersion,
  relative: Map<Node, number>,
): boolean {
  const added = reads.all.map(({ version }, i) => shown(version, i) - version);
  return (
    isDeepStrictEqual(template, other.template) &&
    sameStructure(graph, other.graph) &&
    graph.nodes.every((node, i) => {
      const partner = other.graph.nodes[i] as Node;
      if (node.effect !== 'setVersion') return isDeepStrictEqual(node.params, partner.params);
      const difference = versionOf(partner) - versionOf(node);
      const known = relative.get(node);
      if (known !== undefined) return difference === added[known];
      if (difference === 0) return true;
      const at = added.indexOf(difference);
      relative.set(node, at);
      return at >= 0;
    })
  );
}

const versionOf = (node: Node): number => (node.params as { version: number }).version;

/** Whether graphs have equal nodes, apart from parameters, that use equal values. */
function sameStructure(a: Graph, b: Graph): boolean {
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
