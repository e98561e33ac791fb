/**
 * Results on one memory that are views of one intermediate tensor: a run returns that tensor, and
 * makes the views of it, so that they share history and version as those of uncompiled code do.
 *
 * @see PyTorch `OutputType.alias_of_intermediate` of `torch._functorch.aot_autograd`
 */
import { isAsynchronous } from '../../core/asynchronous.js';
import { sameShape } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import type { Graph } from '../graph/graph.js';
import { type Node, sameValue, type Value, type ValueMeta } from '../graph/node.js';
import { viewsOf } from './aliases.js';

/** A result, and the value of the front graph that it is. */
export type FrontResult = readonly [t: Tensor, value: Value];

/** A result that is a view of an intermediate tensor, or that tensor itself. */
export interface Aliased {
  readonly base: Tensor;
  /** The views that lead from the base to the result. */
  readonly steps: readonly Node[];
}

/**
 * The results that share memory with others and can be made as views. `mayView`: whether a run may
 * make a result by these views.
 */
export function aliasedResults(
  graph: Graph,
  results: readonly FrontResult[],
  mayView: (t: Tensor, steps: readonly Node[]) => boolean,
): ReadonlyMap<Tensor, Aliased> {
  const found = new Map<Tensor, Aliased>();
  if (graph.nodes.some(movesTensors)) return found;
  const byStorage = new Map<unknown, Map<Tensor, Value>>();
  for (const [t, value] of results) {
    const group = byStorage.get(t.storage) ?? new Map<Tensor, Value>();
    byStorage.set(t.storage, group.set(t, value));
  }
  for (const group of byStorage.values()) {
    // Hooks on a view end with its history, which changes with its base.
    if (group.size < 2 && ![...group.keys()].some((t) => t.isTracked)) continue;
    const members = membersOf([...group]);
    if (members === null || !members.every(([t, { steps }]) => mayView(t, steps))) continue;
    for (const [t, aliased] of members) found.set(t, aliased);
  }
  return found;
}

/** Null unless all results are views of one tensor that an op made, or that tensor. */
function membersOf(group: readonly FrontResult[]): (readonly [Tensor, Aliased])[] | null {
  const chains = group.map(([t, value]) => ({ t, ...viewsOf(value) }));
  const whole = chains.find(({ steps }) => steps.length === 0);
  const base = whole?.t ?? chains.find(({ t }) => t.base !== null)?.t.base ?? null;
  const [{ root }] = chains as [(typeof chains)[0]];
  if (base === null || !isFresh(root) || !isPlain(base) || base.base !== null) return null;
  if (!hasMeta(base, root.node.metas[root.output])) return null;
  const isView = (t: Tensor, last: Node | undefined): boolean =>
    hasMeta(t, last?.metas[0]) && (t.base === base || isDetachedFrom(t, base));
  const fits = chains.every(
    ({ t, root: own, steps }) =>
      sameValue(own, root) &&
      isPlain(t) &&
      (steps.length === 0 ? t === base : isView(t, steps.at(-1))),
  );
  return fits ? chains.map(({ t, steps }) => [t, { base, steps }] as const) : null;
}

/** Whether a view without a base counts the changes of a tensor. */
const isDetachedFrom = (t: Tensor, base: Tensor): boolean =>
  t.base === null && t.versionCounter !== null && t.versionCounter === base.versionCounter;

/** Whether a value is on memory of its own when its node has run. */
const isFresh = (value: Value): value is Value & { node: Node; output: number } =>
  'node' in value && value.node.kind === 'call' && value.node.into === null;

const isPlain = (t: Tensor): boolean => t.sharding === null && !isAsynchronous(t);

/** Whether a tensor is as its node has made it, and no op has changed its shape since. */
const hasMeta = (t: Tensor, meta: ValueMeta | undefined): boolean =>
  meta !== undefined && sameShape(t.sizes, meta.shape) && sameShape(t.strides, meta.strides);

/** Whether a node gives a tensor other memory, or another shape on it. */
const movesTensors = ({ op, into, effect }: Node): boolean =>
  effect === 'set_' || effect === 'resize_' || (op !== null && op.view !== null && into !== null);
