/** Nodes of the autograd graph: how a gradient passes from the outputs of an op to its inputs. */
import type { Device } from '../core/device.js';
import type { DType } from '../core/dtype.js';
import { AutogradError } from '../core/errors.js';
import { moduleTrace } from '../core/module-trace.js';
import type { AnyOp, VjpContext } from '../core/op.js';
import { adopt } from '../core/scope.js';
import type { Shape } from '../core/shape.js';
import type { Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';
import { captureWatch } from '../core/watch.js';
import { isGradEnabled } from './grad-mode.js';
import { SavedTensor } from './saved-tensor.js';

export type Gradients = (Tensor | null)[];
export type TensorHook = (grad: Tensor) => Tensor | undefined | void;
export type NodePreHook = (
  gradOutputs: readonly (Tensor | null)[],
) => readonly (Tensor | null)[] | undefined | void;
export type NodeHook = (
  gradInputs: readonly (Tensor | null)[],
  gradOutputs: readonly (Tensor | null)[],
) => readonly (Tensor | null)[] | undefined | void;

/** Gradients of leaves are accumulated before any other node runs. */
export const ACCUMULATE_SEQUENCE = Number.MAX_SAFE_INTEGER;
let nextSequence = 0;

/** Where a gradient goes: an output of a node. */
export interface Edge {
  node: Node;
  outputNr: number;
}

/**
 * What one backward knows of a node on its way: gradients still to come, and those that have
 * arrived. @internal
 */
export interface NodeTask {
  /** The backward that this belongs to. */
  readonly run: object;
  /** Of the backward that runs around this one and has met the node too. */
  readonly outer: NodeTask | null;
  /** What nodes saved is let go of behind them: no other backward reads it. */
  readonly releases: boolean;
  /** Backward starts from it: its hooks run, also where no target lies behind it. */
  isRoot: boolean;
  dependencies: number;
  arrived: Gradients;
}

/** A removable registration. */
export interface HookHandle {
  /** Removes the hook. */
  remove(): void;
}

let hookId = 0;

/** @internal */
export function register<F>(hooks: Map<number, F>, hook: F): HookHandle {
  captureWatch.unsupported?.('a hook was registered on a tensor or a node');
  const id = hookId++;
  hooks.set(id, hook);
  return { remove: () => void hooks.delete(id) };
}

/** Base of all nodes. */
export abstract class Node {
  /** The name of the node, such as `MulBackward`. */
  abstract readonly name: string;
  /** Later nodes run first. */
  readonly sequence: number;
  /** Where the gradient of each input goes; null for inputs that need none. */
  readonly edges: (Edge | null)[];
  /** Gradients that arrive: one for each output of the forward op. */
  readonly numOutputs: number;
  /** @internal of the innermost backward that has met the node */
  task: NodeTask | null = null;
  /** @internal by output */
  tensorHooks: (Map<number, TensorHook> | undefined)[] | null = null;
  /** @internal tensors whose `.grad` is kept, by output */
  retained: (Tensor | undefined)[] | null = null;
  /** @internal */
  preHooks: Map<number, NodePreHook> | null = null;
  /** @internal */
  postHooks: Map<number, NodeHook> | null = null;
  /** Call site of the forward op, under anomaly detection. */
  forwardStack: string | undefined = undefined;
  /** @internal the modules in whose forward it was made, if someone asked */
  readonly madeIn: readonly object[] = moduleTrace.calls;

  constructor(numOutputs: number, edges: (Edge | null)[], sequence = nextSequence++) {
    this.numOutputs = numOutputs;
    this.edges = edges;
    this.sequence = sequence;
  }

  /** Gradients of the inputs from those of the outputs. */
  abstract apply(grads: Gradients): Gradients;

  /** Lets go of saved tensors; a second backward is then an error. */
  release(): void {}

  /** Whether `apply` runs user code, which may keep the tensors it sees. */
  get runsUserCode(): boolean {
    return false;
  }

  /** Runs before the node with the gradients of its outputs; may return replacements. */
  registerPrehook(hook: NodePreHook): HookHandle {
    this.preHooks ??= new Map();
    return register(this.preHooks, hook);
  }

  /**
   * Runs after the node with the gradients of its inputs and outputs; may return replacements of
   * the former.
   */
  registerHook(hook: NodeHook): HookHandle {
    this.postHooks ??= new Map();
    return register(this.postHooks, hook);
  }

  /** @internal */
  addTensorHook(outputNr: number, hook: TensorHook): HookHandle {
    this.tensorHooks ??= [];
    let hooks = this.tensorHooks[outputNr];
    if (hooks === undefined) {
      hooks = new Map();
      this.tensorHooks[outputNr] = hooks;
    }
    return register(hooks, hook);
  }
}

/**
 * Makes the accumulator of a leaf; handed over by accumulate-grad.ts, which builds on this file.
 * @internal
 */
export const leaves: { accumulatorOf: (t: Tensor) => Node } = {
  accumulatorOf: () => {
    throw new AutogradError('the autograd engine is not loaded');
  },
};

/** Where the gradient of a tensor goes: its node, or the accumulator of a leaf, or nowhere. */
export function edgeOf(t: Tensor): Edge | null {
  const node = t.gradFn as Node | null;
  if (node !== null) return { node, outputNr: t.outputNr };
  return t.leafRequiresGrad ? { node: leaves.accumulatorOf(t), outputNr: 0 } : null;
}

/**
 * Gives a tensor that has changed another history; a gradient that it retains is that of its new
 * values.
 */
export function changeHistory(t: Tensor, node: Node | null, outputNr: number): void {
  const before = t.node as Node | null;
  if (before?.retained?.[t.outputNr] === t) {
    before.retained[t.outputNr] = undefined;
    if (node !== null) (node.retained ??= [])[outputNr] = t;
  }
  t.node = node;
  t.outputNr = outputNr;
}

/** One edge for each tensor, in an array of exactly that length. */
export function edgesOf(tensors: readonly Tensor[]): (Edge | null)[] {
  const edges = new Array<Edge | null>(tensors.length);
  for (let i = 0; i < tensors.length; i++) edges[i] = edgeOf(tensors[i] as Tensor);
  return edges;
}

/** The node of an op of the table: its gradient rule, and what the rule reads. */
export class OpNode extends Node implements VjpContext<object> {
  readonly op: AnyOp;
  readonly params: object;
  private readonly shapes: Shape[];
  private readonly strides: readonly Shape[] | null;
  private readonly inputDtypes: DType[];
  private readonly inputDevices: Device[];
  /** Where plain tensors, such as scalars, met distributed ones: which inputs they are. */
  private readonly plainInputs: readonly boolean[] | null;
  private savedInputs: (SavedTensor | undefined)[] | null = null;
  private savedOutputs: (SavedTensor | undefined)[] | null = null;
  /**
   * Whether it keeps memory for its rule, and not only numbers: then only one backward may pass,
   * unless the graph is retained.
   */
  private keepsMemory = false;
  private released = false;

  constructor(op: AnyOp, inputs: readonly Tensor[], params: object, numOutputs: number) {
    super(numOutputs, edgesOf(inputs));
    this.op = op;
    this.params = params;
    const count = inputs.length;
    this.shapes = new Array(count);
    this.inputDtypes = new Array(count);
    this.inputDevices = new Array(count);
    let distributed = 0;
    for (let i = 0; i < count; i++) {
      const t = inputs[i] as Tensor;
      if (t.sharding !== null) distributed++;
      this.shapes[i] = t.shape;
      this.inputDtypes[i] = t.dtype;
      this.inputDevices[i] = t.device;
    }
    this.strides = op.savesStrides ? inputs.map((t) => t.strides) : null;
    this.plainInputs =
      distributed === 0 || distributed === count ? null : inputs.map((t) => t.sharding === null);
  }

  get name(): string {
    return this.op.name;
  }

  /**
   * Saves the inputs that the rule will read; `copyOf` stands in for one that is about to be
   * overwritten.
   */
  saveInputs(inputs: readonly Tensor[], copyOf: ((t: Tensor) => Tensor) | null): void {
    const wanted = this.op.savesInputs((i) => this.edges[i] !== null, inputs);
    if (wanted.length === 0) return;
    this.savedInputs = [];
    for (const i of wanted) {
      const t = inputs[i];
      if (t === undefined) continue;
      this.savedInputs[i] = new SavedTensor(copyOf === null ? t : copyOf(t), null);
      this.keepsMemory ||= t.storage !== null;
    }
  }

  saveOutputs(outputs: readonly Tensor[]): void {
    const wanted = this.op.savesOutputs;
    if (wanted.length === 0) return;
    this.savedOutputs = [];
    this.keepsMemory = true;
    for (const i of wanted === 'all' ? outputs.keys() : wanted) {
      const output = outputs[i] as Tensor;
      this.savedOutputs[i] = new SavedTensor(output, this, hasGradient(this.op, output, i));
    }
  }

  needs(i: number): boolean {
    return this.edges[i] !== null && this.edges[i] !== undefined;
  }

  input(i: number): Tensor {
    return this.unpack(this.savedInputs, i, 'input');
  }

  output(i: number): Tensor {
    return this.unpack(this.savedOutputs, i, 'output');
  }

  takeOutput(i: number): Tensor | null {
    const { task } = this;
    if (this.released || task === null || !task.releases || task.outer !== null) return null;
    const taken = this.savedOutputs?.[i]?.take() ?? null;
    if (taken === null) return null;
    this.released = true;
    adopt(taken.storage as Storage);
    return taken;
  }

  inputShape(i: number): Shape {
    return this.shapes[i] as Shape;
  }

  inputStrides(i: number): Shape {
    return (this.strides as readonly Shape[])[i] as Shape;
  }

  inputDtype(i: number): DType {
    return this.inputDtypes[i] as DType;
  }

  inputDevice(i: number): Device {
    return this.inputDevices[i] as Device;
  }

  createsGraph(): boolean {
    return isGradEnabled();
  }

  apply(grads: Gradients): Gradients {
    if (this.released) throw alreadyReleased(this.name);
    const rule = this.op.vjp;
    // A change in place to what depends on no input, such as the result of a comparison.
    if (rule === null) return this.edges.map(() => null);
    const results = (
      grads.length === 1 ? rule(this, grads[0] as Tensor) : rule(this, ...(grads as Tensor[]))
    ) as Gradients;
    const fitted = new Array<Tensor | null>(results.length);
    for (let i = 0; i < results.length; i++) {
      const g = results[i];
      fitted[i] = g === null || g === undefined || !this.needs(i) ? null : this.fitted(g, i);
    }
    return fitted;
  }

  /** An op of the program's, see `library.customOp`. */
  override get runsUserCode(): boolean {
    return this.op.compute !== null;
  }

  /** In shape and dtype of the input, and plain where that is. */
  private fitted(g: Tensor, i: number): Tensor {
    const fits = fitGradient(g, this.shapes[i] as Shape, this.inputDtypes[i] as DType);
    return fits.sharding !== null && this.plainInputs?.[i] === true
      ? fits.sharding.whole(fits)
      : fits;
  }

  override release(): void {
    if (!this.keepsMemory) return;
    this.released = true;
    for (const list of [this.savedInputs, this.savedOutputs])
      list?.forEach((saved) => saved?.release());
    this.savedInputs = null;
    this.savedOutputs = null;
  }

  private unpack(list: (SavedTensor | undefined)[] | null, i: number, role: string): Tensor {
    if (this.released) throw alreadyReleased(this.name);
    const saved = list?.[i];
    if (saved === undefined)
      throw new AutogradError(
        `${this.name}: its gradient rule reads ${role} ${i}, which the op does not save`,
      );
    return saved.unpack(this.name, `${role} ${i}`, this);
  }
}

/**
 * Whether output `i` of an op has a gradient: masks, indices and statistics have none. @internal
 */
export function hasGradient(op: AnyOp, output: Tensor, i: number): boolean {
  return output.dtype.isFloatingPoint && op.differentiable?.includes(i) !== false;
}

/**
 * A gradient in the shape and dtype of the input it belongs to: broadcast dims summed, promotion
 * undone.
 */
function fitGradient(g: Tensor, shape: Shape, dtype: DType): Tensor {
  const summed = g.shape === shape ? g : g.sumToSize(shape);
  return summed.dtype === dtype ? summed : summed.to(dtype);
}

export function alreadyReleased(name: string): AutogradError {
  return new AutogradError(
    `backward through ${name} a second time: its saved tensors were freed by the first backward. Pass { retainGraph: true } to that one.`,
    { op: name },
  );
}
