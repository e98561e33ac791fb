/** Which calls one kernel can compute together, and what they read. */
import type { Device } from '../../core/device.js';
import { currentRuntime, kernelLoading } from '../../core/rank-runtime.js';
import { isContiguousLayout, numelOf, type Shape, sameShape } from '../../core/shape.js';
import { nativeCall, prepareDevice, writer } from '../../eager/submit.js';
import { catOp } from '../../ops/join.js';
import type { Node, Value, ValueMeta } from '../graph/node.js';
import {
  communicates,
  isElementwise,
  isOrderedEffect,
  isView,
  isWait,
  writes,
} from '../graph/traits.js';
import { standIn } from '../partition/memory.js';
import type { NodeValue } from '../partition/value-map.js';
import { fusionThreshold } from './threshold.js';

/** Why no calls are fused on a device; null if they are. */
export function whyNotFusedOn(device: Device): string | null {
  if (device.type === 'meta') return 'the meta device computes nothing';
  if (!loadsKernels(device))
    return (
      'ranks of this process have a GPU each, and CUDA would wait for the collectives of all to ' +
      'load a fused kernel. Run each rank in a process of its own'
    );
  prepareDevice(device);
  return nativeCall(() => writer.addon.canFuse(device.code), 'canFuse')
    ? null
    : `no kernels can be compiled for ${device}: \`npx shardwise doctor\` says why`;
}

function loadsKernels(device: Device): boolean {
  if (device.type === 'cuda' && kernelLoading.hasEnded) return false;
  return currentRuntime().world.loadsKernels(device);
}

/** Whether a fused call is faster than calls one by one, over the elements of the node. */
export function isWorthFusing({ metas }: Node): boolean {
  const [meta] = metas;
  if (meta?.device.type !== 'cpu') return true;
  return numelOf(meta.shape) >= fusionThreshold.leastOnCpu;
}

/** Whether a kernel that reads elements may as well compute them again. */
export function isCheapToRepeat({ op, metas: [meta] }: Node): boolean {
  const cost = op?.pointwise?.cost;
  return meta?.device.type !== 'cpu' || (cost !== 'vector' && cost !== 'libm');
}

/**
 * Whether no call moves across the node: it changes memory that others may read, communicates, or
 * runs code of the program.
 */
export function isBarrier(node: Node): boolean {
  if (node.kind === 'effect') return isOrderedEffect(node);
  return writes(node) || communicates(node) || isWait(node) || node.op?.compute != null;
}

/**
 * Whether the call computes each element of its result from those of its operands in its place, or
 * joins operands of one size.
 */
export function isCandidate(node: Node): boolean {
  const { kind, op, into, draw, metas, inputs, symbolic } = node;
  if (kind !== 'call' || op === null || into !== null || draw !== null || symbolic !== null)
    return false;
  const [meta] = metas;
  if (metas.length !== 1 || meta === undefined || meta.placements !== null) return false;
  if (!inputs.every((value) => 'number' in value || isOn(value, meta.device))) return false;
  if (isJoin(node)) return joinsEqualParts(node);
  return isElementwise(node) && (op.pointwise !== null || keepsOrder(node));
}

/** Whether a candidate computes nothing, but joins its operands. */
export const isJoin = ({ op }: Node): boolean => op === catOp;

/** The least bytes of a part that are neighbours in the memory of the whole. */
const LEAST_RUN = 16;

/** Whether a kernel can store the parts beside each other: in equal windows, by their rows. */
function joinsEqualParts({ inputs, params, metas }: Node): boolean {
  const { dim } = params as { dim: number };
  const [{ shape, strides, dtype }] = metas as [ValueMeta];
  const parts = inputs.map((value) => ('number' in value ? null : metaOfValue(value)));
  const [first] = parts;
  if (parts.length < 2 || first == null || first.shape.length !== shape.length) return false;
  const run = (first.shape[dim] as number) * (strides[dim] as number) * dtype.itemsize;
  if (run < LEAST_RUN || strides.at(-1) !== 1 || numelOf(shape) === 0) return false;
  return parts.every(
    (part) =>
      part !== null && sameShape(part.shape, first.shape) && (part.strides.at(-1) as number) < 2,
  );
}

/** The number of windows that a kernel stores the result of a candidate in. */
export const storesOf = (node: Node): number => (isJoin(node) ? node.inputs.length : 1);

/** The shape over which a candidate computes: that of its result, or of a part that it joins. */
export function computedShape(node: Node): Shape {
  const [part] = node.inputs;
  const isPart = isJoin(node) && part !== undefined && 'node' in part;
  return (isPart ? metaOfValue(part) : (node.metas[0] as ValueMeta)).shape;
}

function isOn({ node, output }: NodeValue, device: Device): boolean {
  const meta = node.metas[output];
  return meta !== undefined && meta.device === device && meta.placements === null;
}

/** Whether a copy reads and writes memory in one order: others have kernels of their own. */
function keepsOrder({ inputs: [value], metas: [to] }: Node): boolean {
  if (value === undefined || 'number' in value || to === undefined) return false;
  return areInOneOrder(metaOfValue(value), to);
}

/** Whether the dims of tensors of one shape have one order in memory. */
export function areInOneOrder(from: ValueMeta, to: ValueMeta): boolean {
  const order = (strides: Shape): number[] =>
    [...strides.keys()]
      .filter((dim) => (to.shape[dim] as number) > 1 && (from.strides[dim] as number) > 0)
      .sort((a, b) => (strides[b] as number) - (strides[a] as number));
  return sameShape(order(from.strides), order(to.strides));
}

/** What a call computes its elements over: calls of one space can be one call. */
export interface Space {
  /** Equal for all calls that can be one. */
  readonly key: string;
  /** The shape of an operand that is not dense; null where any shape of as many elements does. */
  readonly shape: Shape | null;
}

/** The space of a candidate. Views between dense values are no part of it. */
export function spaceOf(node: Node): Space {
  const { shape, strides, device } = node.metas[0] as ValueMeta;
  if (isJoin(node)) {
    const part = computedShape(node);
    return { key: `${device} ${numelOf(part)}`, shape: part };
  }
  if (!isContiguousLayout(shape, strides))
    return { key: `${device} ${shape} by ${strides}`, shape };
  const numel = numelOf(shape);
  const isFree = node.inputs.every(
    (value) =>
      'number' in value ||
      isDense(metaOfValue(value), numel) ||
      numelOf(metaOfValue(value).shape) === 1,
  );
  return { key: `${device} ${numel}`, shape: isFree ? null : shape };
}

/** The meta of a value that is a tensor. */
export function metaOfValue({ node, output }: NodeValue): ValueMeta {
  return node.metas[output] as ValueMeta;
}

/** Whether a value has so many elements in row-major order without gaps. */
export function isDense({ shape, strides }: ValueMeta, numel: number): boolean {
  return numelOf(shape) === numel && isContiguousLayout(shape, strides);
}

/** The value that a dense value is a view of in other dims; itself if it is none. */
export function withoutViews(value: NodeValue): NodeValue {
  let at = value;
  for (;;) {
    const [from] = at.node.inputs;
    if (!isView(at.node) || from === undefined || 'number' in from) return at;
    const [meta, base] = [metaOfValue(at), from.node.metas[from.output]];
    if (base === undefined || base.placements !== null || base.dtype !== meta.dtype) return at;
    const numel = numelOf(meta.shape);
    if (!isDense(meta, numel) || !isDense(base, numel) || !startsAlike(at.node, base)) return at;
    at = from;
  }
}

/** Whether a view begins with the first element of what it shows: asStrided can begin anywhere. */
function startsAlike({ op, params }: Node, base: ValueMeta): boolean {
  return op?.view?.(standIn(base, Number.POSITIVE_INFINITY), params).offset === 0;
}

/** What a candidate reads: dense values without the views that show them in its shape. */
export function operandOf(node: Node, value: Value): Value {
  if ('number' in value) return value;
  const numel = numelOf(computedShape(node));
  return numelOf(metaOfValue(value).shape) === numel ? withoutViews(value) : value;
}
