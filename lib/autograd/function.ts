/** `autograd.Function`, the base of differentiable operations that users define. */
import type { Applicable } from '../core/backend.js';
import { AutogradError, InPlaceError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { Tensor } from '../core/tensor.js';
import { edgeOf, handOver } from './accumulate-grad.js';
import { expose, fitReturned, type GradientSlot } from './check-gradients.js';
import { isGradEnabled, noGrad } from './grad-mode.js';
import { alreadyReleased, type Gradients, Node, type NodeFacts } from './node.js';
import { SavedTensor } from './saved-tensor.js';
import { checkViewChange, rebaseView } from './view-history.js';

/** The context that `forward` fills for `backward`. */
export class FunctionContext {
  /** Which inputs need a gradient. */
  needsInputGrad: readonly boolean[] = [];
  /** @internal */
  saved: (SavedTensor | null)[] = [];
  /** @internal */
  toSave: readonly (Tensor | null)[] = [];
  /** @internal */
  dirty: ReadonlySet<Tensor> = new Set();
  /** @internal */
  nonDifferentiable: ReadonlySet<Tensor> = new Set();
  /** @internal */
  materializeGrads = true;
  /** @internal */
  node: Node | null = null;
  /** Anything else that `backward` needs. */
  [key: string]: unknown;

  /** Saves tensors for backward, which checks that they were not overwritten. */
  saveForBackward(...tensors: (Tensor | null)[]): void {
    this.toSave = tensors;
  }

  /**
   * The tensors given to {@link saveForBackward}. @throws InPlaceError, AutogradError after the
   * graph was freed
   */
  get savedTensors(): (Tensor | null)[] {
    return this.readSaved(true);
  }

  /** @internal the same; `leaves`: whether they may leave the library, and outlive the node */
  readSaved(leaves: boolean): (Tensor | null)[] {
    const node = this.node as Node;
    return this.saved.map((s, i) =>
      s === null ? null : s.unpack(node.name, `saved tensor ${i}`, node, true, leaves),
    );
  }

  /** Marks the inputs that `forward` changed in place and returns. */
  markDirty(...tensors: Tensor[]): void {
    this.dirty = new Set(tensors);
  }

  /** Marks the outputs that have no gradient. */
  markNonDifferentiable(...tensors: Tensor[]): void {
    this.nonDifferentiable = new Set(tensors);
  }

  /** With false, undefined gradients reach `backward` as null instead of zeros. */
  setMaterializeGrads(value: boolean): void {
    this.materializeGrads = value;
  }
}

interface Implementation {
  name: string;
  keepsNoGrads: boolean;
  forward(ctx: FunctionContext, ...args: unknown[]): Tensor | readonly Tensor[];
  backward(
    ctx: FunctionContext,
    ...grads: (Tensor | null)[]
  ): Tensor | null | readonly (Tensor | null)[];
}

class FunctionNode extends Node {
  readonly name: string;
  private readonly implementation: Implementation;
  private readonly ctx: FunctionContext;
  /** The shape, dtype and device of the gradients of inputs and outputs. */
  private readonly inputSlots: readonly (GradientSlot | null)[];
  private outputSlots: readonly GradientSlot[] = [];
  private released = false;

  constructor(
    implementation: Implementation,
    ctx: FunctionContext,
    tensors: readonly (Tensor | null)[],
    numOutputs: number,
  ) {
    super(
      numOutputs,
      tensors.map((t) => (t === null ? null : edgeOf(t))),
    );
    this.implementation = implementation;
    this.name = implementation.name;
    this.ctx = ctx;
    this.inputSlots = tensors.map((t) => (t === null ? null : slotOf(t)));
    ctx.node = this;
  }

  override get runsUserCode(): boolean {
    return !this.implementation.keepsNoGrads;
  }

  /**
   * Stores the metadata of the outputs, to fill in missing gradients, and saves the tensors of
   * {@link FunctionContext.saveForBackward}.
   */
  describeOutputs(outputs: readonly Tensor[]): void {
    this.outputSlots = outputs.map(slotOf);
    this.ctx.saved = this.ctx.toSave.map((t) =>
      t === null ? null : new SavedTensor(t, outputs.includes(t) ? this : null),
    );
    this.ctx.toSave = [];
  }

  apply(grads: Gradients): Gradients {
    if (this.released && this.ctx.saved.length === 0) throw alreadyReleased(this.name);
    if (typeof this.implementation.backward !== 'function')
      throw new AutogradError(
        `${this.name} has no static method backward, so nothing can be differentiated through it`,
        { function: this.name },
      );
    const result = this.implementation.backward(
      this.ctx,
      ...(this.ctx.materializeGrads ? this.materialized(grads) : grads),
    );
    const list: readonly unknown[] = Array.isArray(result) ? result : [result];
    const { length } = this.edges;
    if (list.length < length || list.slice(length).some((g) => g !== null && g !== undefined)) {
      throw new AutogradError(
        `${this.name}.backward returned ${list.length} gradients, forward had ${length} ` +
          'arguments; return one for each, null for those without',
        {
          op: this.name,
          given: list.length,
          expected: length,
        },
      );
    }
    const fitted = this.edges.map((edge, i) =>
      this.fitted(list[i], edge === null ? null : (this.inputSlots[i] as GradientSlot)),
    );
    if (this.runsUserCode) expose(fitted);
    else handOver(fitted);
    return fitted;
  }

  private materialized(grads: Gradients): Gradients {
    const some = grads.find((g) => g !== null) as Tensor;
    return grads.map((g, i) => {
      const { shape, dtype, device } = this.outputSlots[i] as GradientSlot;
      return g ?? some.newZeros(shape, { dtype, device });
    });
  }

  private fitted(given: unknown, slot: GradientSlot | null): Tensor | null {
    return slot === null || given === null || given === undefined
      ? null
      : fitReturned(given, slot, `${this.name}.backward`);
  }

  override facts(): NodeFacts | null {
    if (this.released) return null;
    const {
      node: _node,
      saved,
      toSave: _toSave,
      dirty: _dirty,
      nonDifferentiable: _n,
      ...fields
    } = this.ctx;
    return {
      facts: [
        this.implementation,
        fields,
        saved.map((each) => each === null),
        this.inputSlots,
        this.outputSlots,
      ],
      saved: saved.filter((each) => each !== null),
      draws: [],
    };
  }

  override release(): void {
    this.released ||= this.ctx.saved.length > 0;
    for (const s of this.ctx.saved) s?.release();
    this.ctx.saved = [];
  }
}

function slotOf({ sizes: shape, dtype, device }: Tensor): GradientSlot {
  return { shape, dtype, device };
}

/** The type of `apply` follows from the static `forward` of the class. */
type ForwardArguments<C> = C extends { forward(ctx: FunctionContext, ...args: infer A): unknown }
  ? A
  : never;
type ForwardResult<C> = C extends { forward(ctx: FunctionContext, ...args: never[]): infer R }
  ? R
  : never;

/**
 * Base of user-defined differentiable operations: a class with static `forward` and `backward`,
 * called through `apply`.
 *
 * @see PyTorch `torch.autograd.Function`
 * @example
 * class Double extends autograd.Function {
 *   static forward(ctx: autograd.FunctionContext, x: Tensor) { return x.mul(2); }
 *   static backward(ctx: autograd.FunctionContext, g: Tensor) { return g.mul(2); }
 * }
 * Double.apply(tensor([1, 2])); // [2, 4]
 */
export abstract class Function {
  /**
   * Set it to true in a class whose `backward` keeps neither the gradients that it receives nor
   * those that it returns. Backward then frees them after their use, as those of the library's own
   * ops, and `.grad` takes over what `backward` returns without a copy. False by default.
   */
  static keepsNoGrads = false;

  /** Runs `forward` and records `backward` as one node of the graph. */
  static apply<C extends typeof Function>(this: C, ...args: ForwardArguments<C>): ForwardResult<C> {
    const implementation = this as unknown as Implementation & Applicable;
    const tensors = (args as unknown[]).map((a) => (a instanceof Tensor ? a : null));
    const needsGrad = tensors.map((t) => t?.isTracked ?? false);
    const tracked = isGradEnabled() && needsGrad.includes(true);
    const run = (): Result => applied(implementation, args, tensors, needsGrad, tracked);
    const { capture } = layers.backend;
    // Without a gradient, only the ops of forward count.
    return (
      capture === null || !tracked ? run() : capture.applies(implementation, args, run)
    ) as ForwardResult<C>;
  }
}

type Result = Tensor | readonly Tensor[];

function applied(
  implementation: Implementation,
  args: readonly unknown[],
  tensors: readonly (Tensor | null)[],
  needsGrad: readonly boolean[],
  tracked: boolean,
): Result {
  const ctx = new FunctionContext();
  ctx.needsInputGrad = needsGrad;
  const result = noGrad(() => implementation.forward(ctx, ...args));
  const outputs = (Array.isArray(result) ? result : [result]) as Tensor[];
  checkDirty(ctx, outputs, implementation.name, tracked);
  if (!tracked) return result;
  const node = new FunctionNode(implementation, ctx, tensors, outputs.length);
  const linked = outputs.map((output, i) => link(output, i, node, ctx, tensors));
  node.describeOutputs(linked);
  return Array.isArray(result) ? linked : (linked[0] as Tensor);
}

/**
 * Links an output to the node. An output that is also an input becomes a view, so that the input
 * keeps its own history (unless marked dirty).
 */
function link(
  output: Tensor,
  i: number,
  node: Node,
  ctx: FunctionContext,
  inputs: readonly (Tensor | null)[],
): Tensor {
  if (ctx.nonDifferentiable.has(output) || !output.dtype.isFloatingPoint) return output;
  const isInput = inputs.includes(output);
  const isDirty = ctx.dirty.has(output);
  if (isDirty && output.base !== null) {
    rebaseView(output, node, inputs.indexOf(output));
    return output;
  }
  const out = isInput && !isDirty ? output.detach() : output;
  out.node = node;
  out.outputNr = i;
  out.leafRequiresGrad = false;
  return out;
}

function checkDirty(
  ctx: FunctionContext,
  outputs: readonly Tensor[],
  name: string,
  tracked: boolean,
): void {
  for (const t of ctx.dirty) {
    if (!outputs.includes(t))
      throw new InPlaceError(`${name}: a tensor marked dirty must be returned by forward`);
    if (t.leafRequiresGrad && isGradEnabled())
      throw new InPlaceError(
        `${name}: a leaf tensor that requires a gradient cannot be changed in place`,
      );
    if (tracked && t.base !== null) checkDirtyView(t, outputs.length, name);
  }
}

/** A changed view gives its base a new history, which one node with one output can hold. */
function checkDirtyView(view: Tensor, numOutputs: number, name: string): void {
  if (view.base?.leafRequiresGrad)
    throw new InPlaceError(
      `${name}: a view of a leaf tensor that requires a gradient cannot be changed in place, its ` +
        'gradient would be lost. Change a copy.',
    );
  if (numOutputs > 1)
    throw new InPlaceError(
      `${name}: a function with ${numOutputs} results cannot change a view in place. Return one ` +
        'result, or change a clone() of the view.',
    );
  checkViewChange({ name }, view);
}
