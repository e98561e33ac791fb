/** The node of an op of the table: its gradient rule, and what the rule reads. */
import type { Device } from '../core/device.js';
import { type DType, float32, isLowPrecision } from '../core/dtype.js';
import { AutogradError } from '../core/errors.js';
import type { VjpContext } from '../core/gradient-rules.js';
import { layers } from '../core/hooks.js';
import type { AnyOp } from '../core/op.js';
import type { DrawParams } from '../core/random.js';
import { adopt } from '../core/scope-stack.js';
import { type Shape, sameShape } from '../core/shape.js';
import type { Sharding } from '../core/sharding.js';
import type { Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';
import { edgesOf, handOver } from './accumulate-grad.js';
import { isGradEnabled } from './grad-mode.js';
import {
  alreadyReleased,
  type BackwardPass,
  type Edge,
  type Gradients,
  Node,
  type NodeFacts,
  type NodeTask,
} from './node.js';
import { SavedTensor } from './saved-tensor.js';

/** Whether ops of a gradient rule are seen one by one. */
const isSeen = (): boolean => layers.backend.capture !== null || layers.hasMode;

/** In place of the edge of an input without a gradient. */
const NOWHERE = { node: null, outputNr: 0 };

export class OpNode extends Node implements VjpContext<object> {
  readonly op: AnyOp;
  readonly params: object;
  private readonly shapes: Shape[];
  private readonly strides: readonly Shape[] | null;
  private readonly inputDtypes: DType[];
  private readonly inputDevices: Device[];
  /** Which inputs are plain, if plain and distributed inputs are mixed. */
  private readonly plainInputs: readonly boolean[] | null;
  /** The placements of distributed outputs, except of views and of changed placements. */
  private outputSpecs: readonly (Sharding['spec'] | null)[] | null = null;
  private savedInputs: (SavedTensor | undefined)[] | null = null;
  private savedOutputs: (SavedTensor | undefined)[] | null = null;
  /**
   * Whether it saves tensors with memory for its rule; a second backward then needs a retained
   * graph.
   */
  private keepsMemory = false;
  private released = false;

  constructor(op: AnyOp, inputs: readonly Tensor[], params: object) {
    super(1, edgesOf(inputs));
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
      this.shapes[i] = t.sizes;
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
   * Saves the inputs that the rule will read; `copyOf` copies an input that is about to be
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
    const { op } = this;
    if (outputs[0]?.sharding != null && op.view === null && !op.traits.includes('placement'))
      this.outputSpecs = outputs.map((t) => t.sharding?.spec ?? null);
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
    const edge = this.edges[i];
    if (edge === null || edge === undefined) return false;
    const pass = this.task?.run;
    return pass === undefined || pass.reaches(edge.node);
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

  gradientDtype(i: number): DType {
    const own = this.inputDtypes[i] as DType;
    const pass = this.unseenPass();
    return pass === null ? own : (dtypeBefore(this.edges[i] as Edge, own, pass) ?? own);
  }

  /** The dtype of the output of a conversion or a view; null for other ops. @internal */
  dtypeOfOutput(): DType | null {
    const { traits, view } = this.op;
    const { dtype = null } = this.params as { dtype?: DType };
    const isConversion = traits.includes('converts') && dtype !== null;
    return isConversion ? dtype : view === null ? null : this.inputDtype(0);
  }

  takeArrived(i: number): Tensor | null {
    const pass = this.unseenPass();
    const edge = this.edges[i] as Edge;
    const task = edge.node.task;
    if (pass === null || task?.run !== pass) return null;
    const arrived = task.arrived[edge.outputNr];
    if (
      arrived === null ||
      arrived === undefined ||
      arrived.sharding !== null ||
      arrived.dtype !== this.gradientDtype(i) ||
      !sameShape(arrived.sizes, this.shapes[i] as Shape) ||
      !arrived.isContiguous()
    )
      return null;
    task.arrived[edge.outputNr] = null;
    pass.taken.push(arrived);
    return arrived;
  }

  mayChange(t: Tensor): boolean {
    const pass = this.task?.run;
    return pass?.addsUnseen === true && !isSeen() && t.sharding === null && pass.ownsAlone(t);
  }

  lowDtype(i: number): DType | undefined {
    const { node, outputNr } = this.edges[i] ?? NOWHERE;
    const pass = this.task?.run;
    // Captures and dispatch modes see conversions as ops.
    if (!(node instanceof OpNode) || isSeen()) return undefined;
    const { task } = node;
    const isLast = task?.run === pass && task?.dependencies === 1 && !task.arrived[outputNr];
    return isLast && pass?.addsUnseen === true
      ? node.convertsTo(this.shapes[i] as Shape)
      : undefined;
  }

  giveLow(i: number, g: Tensor, low: Tensor): void {
    const task = (this.edges[i] as Edge).node.task as NodeTask;
    task.low = { of: g, version: g.currentVersion, low };
    low.retain();
  }

  /** A gradient of the output in a 16-bit dtype, if the rule that computed it gave that. */
  private lowOf(g: Tensor, dtype: DType): Tensor | null {
    const given = this.task?.low ?? null;
    // a hook may have changed it through `data`
    const isUnchanged = given?.version === g.currentVersion && g.storage?.changesUnseen !== true;
    const isOf = given?.of === g && isUnchanged;
    return isOf && given.low.dtype === dtype ? given.low : null;
  }

  /** The 16-bit dtype to which the rule converts a gradient of this shape. */
  private convertsTo(shape: Shape): DType | undefined {
    if (!this.op.traits.includes('passes-gradient')) return undefined;
    return this.inputDtypes.find(
      (dtype, i) =>
        isLowPrecision(dtype) &&
        this.needs(i) &&
        this.gradientDtype(i) === dtype &&
        sameShape(this.shapes[i] as Shape, shape),
    );
  }

  isPart(i: number): boolean {
    const pass = this.unseenPass();
    const edge = this.edges[i];
    return pass !== null && edge !== null && edge !== undefined && leadsToJoin(edge, pass);
  }

  /** The running pass, if nobody sees the gradients that this node passes on. */
  private unseenPass(): BackwardPass | null {
    const pass = this.task?.run;
    return pass?.addsUnseen === true && this.postHooks === null ? pass : null;
  }

  createsGraph(): boolean {
    return isGradEnabled();
  }

  apply(grads: Gradients): Gradients {
    if (this.released) throw alreadyReleased(this.name);
    const rule = this.op.vjp;
    // The result of the in-place op depends on no input, such as that of a comparison.
    if (rule === null) return this.edges.map(() => null);
    const own = this.outputSpecs === null ? grads : this.sharded(grads);
    const results = (
      own.length === 1 ? rule(this, own[0] as Tensor) : rule(this, ...(own as Tensor[]))
    ) as Gradients;
    const fitted = new Array<Tensor | null>(results.length);
    for (let i = 0; i < results.length; i++) {
      const g = results[i];
      fitted[i] = g === null || g === undefined || !this.needs(i) ? null : this.fitted(g, i);
    }
    if (this.op.keepsNoGrads) handOver(fitted);
    return fitted;
  }

  /** Whether it is an op of the user, see `library.customOp`. */
  override get runsUserCode(): boolean {
    const { compute, keepsNoGrads, traits } = this.op;
    return (
      compute !== null &&
      !keepsNoGrads &&
      !traits.includes('placement') &&
      !traits.includes('collective')
    );
  }

  /**
   * Gradients as large as the parts that this rank computed. That of a sum is whole on all ranks,
   * and each would compute all of it.
   */
  private sharded(grads: Gradients): Gradients {
    return grads.map((g, i) => {
      const spec = this.outputSpecs?.[i];
      return g?.sharding == null || spec == null ? g : g.sharding.shardLike(g, spec);
    });
  }

  /**
   * Converts a gradient to the shape and dtype of the input, and to a plain tensor if the input is
   * plain.
   */
  private fitted(g: Tensor, i: number): Tensor {
    const own = this.inputDtypes[i] as DType;
    const dtype = g.dtype === own ? own : this.gradientDtype(i);
    const shape = this.shapes[i] as Shape;
    const low = this.lowOf(g, dtype);
    if (low !== null && sameShape(g.sizes, shape)) return low;
    const fits = fitGradient(g, shape, g.dtype === dtype ? dtype : own);
    return fits.sharding !== null && this.plainInputs?.[i] === true
      ? fits.sharding.whole(fits)
      : fits;
  }

  override facts(): NodeFacts | null {
    if (this.released) return null;
    const { seedLow, seedHigh, offset, ...params } = this.params as Partial<DrawParams>;
    const saved = [...(this.savedInputs ?? []), ...(this.savedOutputs ?? [])];
    const present = (list: readonly unknown[] | null): readonly number[] =>
      list === null ? [] : [...list.keys()].filter((i) => list[i] !== undefined);
    return {
      facts: [
        this.op,
        params,
        this.shapes,
        this.strides,
        this.inputDtypes,
        this.inputDevices,
        this.plainInputs,
        this.outputSpecs?.map((spec) => spec?.id ?? 0) ?? null,
        present(this.savedInputs),
        present(this.savedOutputs),
        this.op.gradientState?.(params) ?? null,
      ],
      saved: saved.filter((each) => each !== undefined),
      draws:
        seedLow === undefined || seedHigh === undefined || offset === undefined
          ? []
          : [{ seedLow, seedHigh, offset }],
    };
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
    const isRuleOfUser = this.op.compute !== null;
    return saved.unpack(this.name, `${role} ${i}`, this, isGradEnabled(), isRuleOfUser);
  }
}

/**
 * Whether output `i` of an op has a gradient: masks, indices and statistics have none. @internal
 */
export function hasGradient(op: AnyOp, output: Tensor, i: number): boolean {
  return output.dtype.isFloatingPoint && op.differentiable?.includes(i) !== false;
}

/**
 * Converts a gradient to the shape and dtype of its input: sums broadcast dims and undoes
 * promotion.
 */
function fitGradient(g: Tensor, shape: Shape, dtype: DType): Tensor {
  const summed = g.sizes === shape ? g : g.sumToSize(shape);
  return summed.dtype === dtype ? summed : summed.to(dtype);
}

/**
 * The dtype of which a 16-bit tensor is a conversion, looking through views: its gradient is
 * converted back to it. Null if there is none, or if somebody sees the gradient in between.
 */
function dtypeBefore(edge: Edge, own: DType, pass: BackwardPass): DType | null {
  if (!isLowPrecision(own)) return null;
  let { node } = edge;
  while (node instanceof OpNode && !node.isSeen && !pass.captures(node)) {
    const { op } = node;
    if (op.traits.includes('converts')) return node.inputDtype(0) === float32 ? float32 : null;
    const next = node.edges[0];
    if (op.view === null || op.joinGradients !== null || next === null || next === undefined)
      return null;
    ({ node } = next);
  }
  return null;
}

/**
 * Whether a gradient passes through views alone to the join of parts, and nobody sees it before.
 */
function leadsToJoin(edge: Edge, pass: BackwardPass): boolean {
  let { node } = edge;
  while (node instanceof OpNode && !node.isSeen && !pass.captures(node)) {
    if (node.op.joinGradients !== null) return true;
    const next = node.edges[0];
    if (node.op.view === null || next === null || next === undefined) return false;
    ({ node } = next);
  }
  return false;
}
