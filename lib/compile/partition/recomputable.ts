/**
 * Which nodes of forward backward may compute again, by properties of their ops: those that would
 * give another value never, those that take long only if a tag says so.
 */
import type { Node, ValueMeta } from '../graph/node.js';
import { communicates, isElementwise, isRandom, isView, writes } from '../graph/traits.js';
import { bytesOf, isAlias, type Memory } from './memory.js';
import { isResharded, isTagged, PREFER_RECOMPUTE, PREFER_SAVE, regionOf, SAVE } from './tags.js';
import { type NodeValue, ValueMap } from './value-map.js';

/**
 * Whether the node, run again in backward, may give another value or repeat an effect. @internal
 */
export function isUnrepeatable(node: Node, memory: Memory): boolean {
  const { op, kind } = node;
  if (kind !== 'call' || op === null || writes(node) || isAlias(node)) return true;
  if (op.traits.includes('uninitialized') || !memory.readsUnchanged(node)) return true;
  // An in-place change of a result belongs to no node that would be run again.
  return node.metas.some((_, output) => memory.writes({ node, output }) > 0);
}

/**
 * Whether running the node again takes long or saves little: products and their like, code of the
 * program, communication, copies between devices, and results much smaller than the operands.
 *
 * @internal
 */
export function isCostly(node: Node): boolean {
  const { op, metas } = node;
  if (op === null || op.compute !== null || op.traits.includes('compute-bound')) return true;
  if (communicates(node)) return true;
  const operands = operandsOf(node);
  const device = metas[0]?.device;
  if (device !== undefined && operands.some((meta) => String(meta.device) !== String(device)))
    return true;
  return bytesOfAll(metas) * 4 < bytesOfAll(operands);
}

/**
 * Whether running the node again takes a kernel of its own, where pointwise calls are fused with
 * those that read them.
 *
 * @internal
 */
export function isCostlyBesideFused(node: Node): boolean {
  return isCostly(node) || !(isElementwise(node) || isView(node) || node.inputs.length === 0);
}

/**
 * What the tags of forward say. The nodes of a region are computed again from what the region
 * reads: of a region `mustRecompute:a`, another one gets saved values, and nodes of no region that
 * read its values are not computed again from there.
 *
 * @internal
 */
export class RecomputeTags {
  private readonly memory: Memory;
  private readonly costs: (node: Node) => boolean;
  /** The values that another region reads, and the nodes that read values of another region. */
  private readonly read = new ValueMap<true>();
  private readonly reading = new Set<Node>();

  /** `costs`: which nodes take long to run again. */
  constructor(forward: readonly Node[], memory: Memory, costs: (node: Node) => boolean = isCostly) {
    this.memory = memory;
    this.costs = costs;
    for (const node of forward)
      for (const value of node.reads) if ('node' in value) this.addRead(node, value);
  }

  private addRead(node: Node, value: NodeValue): void {
    const base = this.memory.base(value);
    const [own, other] = [regionOf(node), regionOf(base.node)];
    if (other === undefined || own === other || base.node.tags.has(SAVE)) return;
    if (own !== undefined) this.read.set(base, true);
    if (other !== '') this.reading.add(node);
  }

  /** Whether the value is saved because another region begins with it. */
  crosses(value: NodeValue): boolean {
    return this.read.has(value);
  }

  /** Whether backward computes the node again where no partition weighs what that costs. */
  isRecomputed(node: Node): boolean {
    // The op has said so itself, when the node was recorded. A checkpoint has it run in any case.
    if (node.op?.runsAgain != null) return isTagged(node);
    if (isUnrepeatable(node, this.memory)) return false;
    if (communicates(node) && isResharded(node)) return true;
    return regionOf(node) !== undefined && !node.tags.has(SAVE) && !node.tags.has(PREFER_SAVE);
  }

  /** Whether backward must compute the node again: it is never saved. */
  mustRecompute(node: Node): boolean {
    return this.isRecomputed(node) && !node.tags.has(PREFER_RECOMPUTE);
  }

  /** Whether values of the node are saved wherever backward reads them. */
  isSaved(node: Node): boolean {
    if (node.tags.has(SAVE)) return true;
    return regionOf(node) !== undefined && !hasChoice(node);
  }

  /** Whether backward must not compute the node again, although it could. */
  isKept(node: Node): boolean {
    if (this.isSaved(node) || this.reading.has(node)) return true;
    return this.costs(node) && !node.tags.has(PREFER_RECOMPUTE);
  }
}

const hasChoice = ({ tags }: Node): boolean => tags.has(PREFER_SAVE) || tags.has(PREFER_RECOMPUTE);

/** Whether a compiler can compute the node in the same pass over memory as others. @internal */
export function isFusible(node: Node): boolean {
  const { op, inputs } = node;
  if (op === null || op.compute !== null) return false;
  return op.traits.includes('pointwise') || isView(node) || isRandom(node) || inputs.length === 0;
}

function operandsOf({ inputs }: Node): ValueMeta[] {
  return inputs.flatMap((value) => {
    const meta = 'number' in value ? undefined : value.node.metas[value.output];
    return meta === undefined ? [] : [meta];
  });
}

function bytesOfAll(metas: readonly ValueMeta[]): number {
  return metas.reduce((sum, meta) => sum + bytesOf(meta), 0);
}
