/** Accumulates a gradient into `.grad` of a leaf, and finds where the gradient of a tensor goes. */

import { aliasOf } from '../core/alias-of.js';
import { AutogradError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { outsideScopes } from '../core/scope-stack.js';
import { gradOf, setGrad } from '../core/set-grad.js';
import { isNonOverlappingAndDense } from '../core/shape.js';
import { heldOf } from '../core/sharding.js';
import type { Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';
import { copyInLayoutOf, hasLayoutOf } from './gradient-layout.js';
import { runMade } from './made-hooks.js';
import { ACCUMULATE_SEQUENCE, type Edge, type Gradients, Node, type NodeFacts } from './node.js';

const NO_GRADIENTS: Gradients = [];
/** Who assigns `.grad`, for errors. */
const CALL = 'backward of a leaf, in grad';

/** The node that adds the gradient of a leaf to its `.grad`. */
export class AccumulateGrad extends Node {
  /** Always `AccumulateGrad`. */
  readonly name = 'AccumulateGrad';
  /** The leaf. */
  readonly variable: Tensor;
  /** @internal where the first gradient is written, see `setGradMemory` */
  memory: Tensor | null = null;
  /** @internal runs in place of the hooks of the leaf, see `delayPostAccumulateGradHooks` */
  arrived: ((leaf: Tensor) => void) | null = null;
  /** @internal set by the engine: gradients must keep their history */
  createGraph = false;

  constructor(variable: Tensor) {
    super(1, [], ACCUMULATE_SEQUENCE);
    this.variable = variable;
  }

  /** @internal */
  apply([given]: Gradients): Gradients {
    const { variable } = this;
    // the leaf may have been frozen since the forward pass
    if (given === null || given === undefined || !variable.isTracked) return NO_GRADIENTS;
    const grad = variable.sharding === null ? given : variable.sharding.fit(given);
    const before = gradOf(variable);
    if (before === null) setGrad(variable, this.firstGradient(inGradDtype(variable, grad)), CALL);
    else if (this.createGraph) setGrad(variable, before.add(inGradDtype(variable, grad)), CALL);
    else before.add_(grad);
    const { arrived } = this;
    if (arrived !== null) outsideScopes(() => runMade(arrived, variable));
    else runAccumulateHooks(variable);
    return NO_GRADIENTS;
  }

  /** @internal what runs when the gradient is in `.grad` */
  get accumulateHooks(): readonly ((leaf: Tensor) => void)[] {
    if (this.arrived !== null) return [this.arrived];
    return [...(this.variable.postAccumulateHooks?.values() ?? [])];
  }

  override facts(): NodeFacts | null {
    const { variable } = this;
    const facts = [variable.constructor, variable.ownGradDtype ?? null];
    return { facts, saved: [], draws: [] };
  }

  private firstGradient(grad: Tensor): Tensor {
    const { variable, memory, createGraph } = this;
    const { capture } = layers.backend;
    if (memory !== null && !createGraph) {
      const filled = memory.copy_(grad);
      return capture === null ? aliasOf(filled) : filled.detach();
    }
    if (capture?.takesOver(grad) === true && fits(grad, variable)) return withoutBase(grad);
    return createGraph || !isUnseen(grad, variable)
      ? copyInLayoutOf(variable, grad)
      : takeOver(grad);
  }
}

/** Runs the post-accumulate hooks of a leaf. @internal */
export function runAccumulateHooks(leaf: Tensor): void {
  const { postAccumulateHooks } = leaf;
  if (postAccumulateHooks === null) return;
  outsideScopes(() => {
    for (const hook of postAccumulateHooks.values()) runMade(hook, leaf);
  });
}

function inGradDtype({ ownGradDtype }: Tensor, grad: Tensor): Tensor {
  return ownGradDtype === undefined ? grad : grad.to(ownGradDtype);
}

/** Gradients that a {@link Function} handed over and no `.grad` has taken yet. */
const handedOver = new WeakSet<Tensor>();

/**
 * Marks gradients that their rule does not keep. Each becomes `.grad` without a copy, also where
 * several are views of one buffer: only they own its memory.
 */
export function handOver(grads: Gradients): void {
  for (const grad of grads) if (grad?.storage) grad.storage.refs = grad.storage.retains;
  for (const grad of grads) {
    if (!grad?.storage) continue;
    grad.storage.refs++;
    handedOver.add(grad);
  }
}

/**
 * Whether neither user code nor another node owns the gradient's memory, and its layout is that of
 * its tensor. Then it becomes `.grad` without a copy.
 */
function isUnseen(grad: Tensor, variable: Tensor): boolean {
  const storage = grad.storage;
  return (
    storage !== null &&
    !storage.exposed &&
    (handedOver.has(grad) ? grad.retains <= 1 : ownsStorage(grad, storage)) &&
    fits(grad, variable)
  );
}

/** Whether a gradient has the layout and the placements of its tensor. */
function fits(grad: Tensor, variable: Tensor): boolean {
  return (
    placedAlike(grad, variable) &&
    hasLayoutOf(variable, grad) &&
    isNonOverlappingAndDense(grad.sizes, grad.strides)
  );
}

function ownsStorage(grad: Tensor, storage: Storage): boolean {
  return (
    storage.retains <= 1 &&
    (isOfRules(storage) || (storage.refs <= 2 && grad.base === null)) &&
    storage.nbytes === heldOf(grad).nbytes
  );
}

/**
 * Whether gradient rules allocated the memory. Rules keep no tensors, so other tensors on it are
 * garbage.
 */
function isOfRules(storage: Storage): boolean {
  return storage.scope?.ofBackward === true;
}

/** Takes the memory from the intermediate tensors of the rule that computed the gradient. */
function takeOver(grad: Tensor): Tensor {
  const storage = grad.storage as Storage;
  if (handedOver.delete(grad)) return withoutBase(grad);
  if (!isOfRules(storage)) return grad;
  storage.refs = storage.retains + 1;
  return withoutBase(grad);
}

function withoutBase(grad: Tensor): Tensor {
  grad.base = null;
  return grad;
}

function placedAlike(grad: Tensor, variable: Tensor): boolean {
  return grad.sharding === null || grad.sharding.spec === variable.sharding?.spec;
}

/** The accumulator of a leaf. A leaf has one for its whole life, so that hooks on it stay. */
export function accumulatorOf(t: Tensor): AccumulateGrad {
  let node = t.gradAccumulator as AccumulateGrad | null;
  if (node === null) {
    node = new AccumulateGrad(t);
    t.gradAccumulator = node;
  }
  return node;
}

/** The edge for the gradient of a tensor: to its node, or to the accumulator of a leaf, or null. */
export function edgeOf(t: Tensor): Edge | null {
  const node = t.currentGradFn as Node | null;
  if (node !== null) return { node, outputNr: t.outputNr };
  return t.leafRequiresGrad ? { node: accumulatorOf(t), outputNr: 0 } : null;
}

/** @internal @throws AutogradError for a tensor that requires no gradient */
export function requiredEdge(t: Tensor, op: string, what: string): Edge {
  const edge = edgeOf(t);
  if (edge === null) {
    throw new AutogradError(
      `${op}: ${what}, ${t.dtype.name}[${t.sizes.join(', ')}], does not require a gradient and ` +
        'was not computed from a tensor that does. Call requiresGrad_() on a leaf before it is ' +
        'used, outside of noGrad',
      {
        shape: t.sizes,
      },
    );
  }
  return edge;
}

/** Where all of the gradient of a tensor arrives. The tensor is of that node from now on. */
export function gradientEdge(t: Tensor, op: string, what: string): Edge {
  const { node, outputNr } = requiredEdge(t, op, what);
  const edge = node.edgeOfAll(outputNr);
  if (edge.node === node) return edge;
  t.node = edge.node;
  t.outputNr = edge.outputNr;
  return edge;
}

/** One edge for each tensor, in an array of exactly that length. */
export function edgesOf(tensors: readonly Tensor[]): (Edge | null)[] {
  const edges = new Array<Edge | null>(tensors.length);
  for (let i = 0; i < tensors.length; i++) edges[i] = edgeOf(tensors[i] as Tensor);
  return edges;
}
