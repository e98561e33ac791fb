/** The public functions of the engine: `tensor.backward`, `autograd.grad`, and hooks on tensors. */
import { ArgumentError, AutogradError, ShapeError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { checkFlag, checkFunction } from '../core/options.js';
import { formatShape, sameShape } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { requireTensors } from '../ops/operand.js';
import { gradientEdge, requiredEdge } from './accumulate-grad.js';
import { exposeOne } from './check-gradients.js';
import { runBackward } from './engine.js';
import { higherOrder } from './higher-order.js';
import { type HookHandle, keepGradient, type Node, register, type TensorHook } from './node.js';

/** Options of {@link Tensor.backward}. */
export interface BackwardOptions {
  /** Keep saved tensors, so that backward can run again. Default: the value of `createGraph`. */
  retainGraph?: boolean | null;
  /** Record the backward pass itself, for higher derivatives. */
  createGraph?: boolean;
  /**
   * Accumulate only into these tensors; those that are not leaves retain their gradients from now
   * on.
   */
  inputs?: Tensor | readonly Tensor[];
}

type BackwardInputs = Pick<BackwardOptions, 'inputs'>;
type Gradients = Tensor | readonly (Tensor | null)[] | null;

/**
 * Accumulates the gradients of `tensors` into the `.grad` of the leaves they were computed from.
 *
 * @throws AutogradError if a tensor does not require a gradient, if one with several elements has
 * no given gradient, or if the graph was freed by an earlier backward. @throws InPlaceError if a
 * saved tensor was overwritten.
 */
export const backward = defineFunction(
  'backward(tensors, /, gradTensors, retainGraph, createGraph, *, inputs)',
  (
    tensors: Tensor | readonly Tensor[],
    gradTensors: Gradients = null,
    retainGraph: boolean | null = null,
    createGraph = false,
    { inputs }: BackwardInputs = {},
  ): void => run(tensors, gradTensors, retainGraph, createGraph, inputs),
);

/** In PyTorch, the method takes `inputs` by position and the function does not. */
const backwardOf = defineFunction(
  'backward(tensor, /, gradient, retainGraph, createGraph, inputs)',
  (
    tensor: Tensor,
    gradient: Tensor | null = null,
    retainGraph: boolean | null = null,
    createGraph = false,
    inputs: Tensor | readonly Tensor[] | null = null,
  ): void => run(tensor, gradient, retainGraph, createGraph, inputs ?? undefined),
);

function run(
  tensors: Tensor | readonly Tensor[],
  gradTensors: Gradients,
  retain: boolean | null,
  createGraph: boolean,
  inputs: BackwardInputs['inputs'],
): void {
  if (createGraph) higherOrder.isUsed = true;
  layers.backend.capture?.startsBackward('backward');
  const roots = asList('backward', 'tensors', tensors);
  const grads = gradientsOf('backward', 'a tensor, or null', gradTensors, roots.length);
  checkFlag('backward', 'retainGraph', retain, { orNull: true });
  checkFlag('backward', 'createGraph', createGraph);
  const retainGraph = retain ?? createGraph;
  let only: Set<Node> | null = null;
  let targets: readonly Tensor[] = [];
  if (inputs !== undefined) {
    const list = asList('backward', 'inputs', inputs);
    if (list.length === 0)
      throw new ArgumentError('backward: inputs is an empty list', { op: 'backward' });
    only = new Set(list.map((t) => gradientEdge(t, 'backward', 'inputs').node));
    targets = list;
  }
  const edges = roots.map((t) => requiredEdge(t, 'backward', 'the tensor'));
  roots.forEach((t, i) => {
    checkRootGradient(t, grads[i] ?? null);
  });
  for (const t of targets) t.retainGrad();
  runBackward(edges, () => rootGradients(roots, grads), {
    retainGraph,
    createGraph,
    captures: null,
    only,
  });
}

/** Options of {@link grad}. */
export interface GradOptions {
  /** The gradient of each output. Default: 1 for an output of one element. */
  gradOutputs?: Tensor | readonly (Tensor | null)[] | null;
  /** Keep the graph for another backward pass. Default: the value of `createGraph`. */
  retainGraph?: boolean | null;
  /** Record the backward pass, for higher derivatives. */
  createGraph?: boolean;
  /** Return null for inputs that the outputs do not depend on, instead of throwing. */
  allowUnused?: boolean;
}

/** {@link grad} in all its forms. With `allowUnused`, some may be null. */
interface GradFunction {
  (
    outputs: Tensor | readonly Tensor[],
    inputs: Tensor | readonly Tensor[],
    options: GradOptions & { allowUnused: true },
  ): (Tensor | null)[];
  (
    outputs: Tensor | readonly Tensor[],
    inputs: Tensor | readonly Tensor[],
    options?: GradOptions,
  ): Tensor[];
  (
    outputs: Tensor | readonly Tensor[],
    inputs: Tensor | readonly Tensor[],
    gradOutputs?: Gradients,
    retainGraph?: boolean | null,
    createGraph?: boolean,
    options?: Pick<GradOptions, 'allowUnused'>,
  ): Tensor[];
}

/**
 * The gradients of `outputs` with respect to `inputs`, returned and not accumulated.
 *
 * @throws AutogradError as {@link backward}, and if the outputs do not depend on an input (unless
 * `allowUnused`).
 * @example
 * const w = tensor([1, 2], { requiresGrad: true });
 * const [g] = autograd.grad(w.square().sum(), [w]);
 * g; // [2, 4]
 */
export const grad = defineFunction(
  'grad(outputs, inputs, /, gradOutputs, retainGraph, createGraph, *, allowUnused)',
  (
    outputs: Tensor | readonly Tensor[],
    inputs: Tensor | readonly Tensor[],
    gradOutputs: Gradients = null,
    retainGraph: boolean | null = null,
    createGraph = false,
    { allowUnused = false }: Pick<GradOptions, 'allowUnused'> = {},
  ): (Tensor | null)[] =>
    gradientsOfInputs(outputs, inputs, gradOutputs, retainGraph, createGraph, allowUnused),
) as unknown as GradFunction;

function gradientsOfInputs(
  outputs: Tensor | readonly Tensor[],
  inputs: Tensor | readonly Tensor[],
  gradOutputs: Gradients,
  retain: boolean | null,
  createGraph: boolean,
  allowUnused: boolean,
): (Tensor | null)[] {
  if (createGraph) higherOrder.isUsed = true;
  layers.backend.capture?.startsBackward('autograd.grad');
  checkFlag('autograd.grad', 'retainGraph', retain, { orNull: true });
  for (const [name, flag] of Object.entries({ createGraph, allowUnused }))
    checkFlag('autograd.grad', name, flag);
  const retainGraph = retain ?? createGraph;
  const roots = asList('autograd.grad', 'outputs', outputs);
  const grads = gradientsOf(
    'autograd.grad',
    'a tensor, or an array of one for each output',
    gradOutputs,
    roots.length,
  );
  const captures = asList('autograd.grad', 'inputs', inputs).map((t) =>
    gradientEdge(t, 'autograd.grad', 'an input'),
  );
  const edges = roots.map((t) => requiredEdge(t, 'autograd.grad', 'an output'));
  roots.forEach((t, i) => {
    checkRootGradient(t, grads[i] ?? null);
  });
  const results = runBackward(edges, () => rootGradients(roots, grads), {
    retainGraph,
    createGraph,
    captures,
    only: null,
  });
  if (!allowUnused) {
    const missing = results.indexOf(null);
    if (missing >= 0) {
      throw new AutogradError(
        `autograd.grad: input ${missing} has no part in the outputs. Pass { allowUnused: true ` +
          '} to get null for it.',
        { input: missing },
      );
    }
  }
  return results;
}

function asList(
  op: string,
  argument: string,
  value: Tensor | readonly Tensor[],
): readonly Tensor[] {
  if (value instanceof Tensor) return [value];
  requireTensors(value, op, argument);
  return value;
}

/**
 * The gradients given, at most one for each root; null for a root without one. @throws
 * ArgumentError
 */
function gradientsOf(
  op: string,
  expected: string,
  given: Tensor | readonly (Tensor | null)[] | null | undefined,
  roots: number,
): readonly (Tensor | null)[] {
  if (given === undefined || given === null) return [];
  const list = given instanceof Tensor ? [given] : given;
  const fits = (g: unknown): boolean => g === null || g === undefined || g instanceof Tensor;
  if (!Array.isArray(list) || !list.every(fits))
    throw new ArgumentError(`${op}: expected the gradient to be ${expected}`, {
      op,
      argument: 'gradient',
    });
  if (list.length > roots)
    throw new ArgumentError(`${op}: ${list.length} gradients for ${roots} tensors`, {
      op,
      argument: 'gradient',
    });
  return list;
}

/** The given gradient of each root, or ones. */
function rootGradients(
  roots: readonly Tensor[],
  given: readonly (Tensor | null)[],
): readonly Tensor[] {
  return roots.map((t, i) => {
    const grad = given[i] ?? null;
    return grad === null ? t.detach().newOnes(t.sizes) : exposeOne(grad);
  });
}

function checkRootGradient(t: Tensor, given: Tensor | null): void {
  if (given === null) {
    if (t.numel() !== 1) {
      throw new AutogradError(
        'backward: only a tensor of one element has an implicit gradient, this one has shape ' +
          `${formatShape(t.sizes)}. Pass a gradient, or call sum() first.`,
        {
          shape: t.sizes,
        },
      );
    }
    return;
  }
  if (!sameShape(given.sizes, t.sizes)) {
    throw new ShapeError(
      `backward: the gradient has shape ${formatShape(given.sizes)}, the tensor ` +
        `${formatShape(t.sizes)}`,
      { gradient: given.sizes, shape: t.sizes },
    );
  }
}

const methods = {
  backward: methodOf(backwardOf),
  registerHook(this: Tensor, hook: TensorHook): HookHandle {
    checkFunction('registerHook', 'hook', hook);
    const { node, outputNr } = gradientEdge(this, 'registerHook', 'the tensor');
    return node.addTensorHook(outputNr, hook);
  },
  registerPostAccumulateGradHook(this: Tensor, hook: (t: Tensor) => void): HookHandle {
    checkFunction('registerPostAccumulateGradHook', 'hook', hook);
    if (!this.isLeaf || !this.leafRequiresGrad) {
      throw new AutogradError(
        'registerPostAccumulateGradHook: only leaf tensors that require a gradient accumulate one',
      );
    }
    this.postAccumulateHooks ??= new Map();
    return register(this.postAccumulateHooks, hook, { kind: 'accumulated', tensor: this });
  },
  retainGrad(this: Tensor): void {
    const edge = gradientEdge(this, 'retainGrad', 'the tensor');
    if (this.isLeaf) return;
    layers.backend.capture?.changesHistory(this, 'retainGrad');
    keepGradient(edge, this);
  },
};
/** @throws AutogradError for a view */
function detachInPlace(this: Tensor): Tensor {
  if (this.base !== null)
    throw new AutogradError(
      'detach_: expected a tensor that is no view, got a view of another tensor. Use detach().',
      { op: 'detach_' },
    );
  layers.backend.capture?.changesHistory(this, 'detach_');
  this.node = null;
  this.outputNr = 0;
  this.leafRequiresGrad = false;
  return this;
}
Object.defineProperty(Tensor.prototype, 'detach_', {
  value: detachInPlace,
  writable: true,
  configurable: true,
  enumerable: false,
});
Object.defineProperty(Tensor.prototype, 'retainsGrad', {
  get(this: Tensor) {
    return !this.isLeaf && (this.gradFn as Node).retained?.[this.outputNr] === this;
  },
  configurable: true,
  enumerable: false,
});

for (const [name, value] of Object.entries(methods)) {
  Object.defineProperty(Tensor.prototype, name, {
    value,
    writable: true,
    configurable: true,
    enumerable: false,
  });
}

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Accumulates gradients into the `.grad` of the leaves that this tensor was computed from.
     *
     * `gradient`: dL/d(this); may be left out for a tensor of one element. `retainGraph`: keep
     * saved tensors, so that backward can run again; the value of `createGraph` by default.
     * `createGraph`: record the backward pass itself, for higher derivatives. `inputs`: accumulate
     * only into these tensors; those that are not leaves retain their gradients from now on. All
     * are given by position in this order, or as options.
     *
     * @throws AutogradError, InPlaceError
     * @example
     * const w = tensor([1, 2], { requiresGrad: true });
     * w.square().sum().backward();
     * w.grad; // [2, 4]
     */
    backward: MethodOf<typeof backwardOf>;
    /**
     * Runs when this tensor's gradient is known; may return another one to use instead.
     *
     * @example
     * const w = ones([2], { requiresGrad: true });
     * w.registerHook((g) => g.mul(10));
     * w.sum().backward();
     * w.grad; // [10, 10]
     */
    registerHook(hook: TensorHook): HookHandle;
    /** Runs after a gradient was accumulated into this leaf. */
    registerPostAccumulateGradHook(hook: (t: Tensor) => void): HookHandle;
    /** Keeps the gradient of a tensor that is not a leaf in its `.grad`. */
    retainGrad(): void;
    /** Whether {@link Tensor.retainGrad} was called on this computed tensor. */
    readonly retainsGrad: boolean;
    /**
     * Detaches this tensor from its graph in place: it becomes a leaf. @throws AutogradError for a
     * view
     */
    detach_(): this;
  }
}
