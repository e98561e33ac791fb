/**
 * The node of a compiled function on the tape. One pass computes all its gradients, until the
 * program asks for what arrives at one of several results: then each result gets a node.
 */
import { isGradEnabled } from '../../autograd/grad-mode.js';
import { copyInLayoutOf, hasLayoutOf } from '../../autograd/gradient-layout.js';
import {
  alreadyReleased,
  type Edge,
  type Gradients,
  Node,
  type NodeFacts,
} from '../../autograd/node.js';
import { SavedTensor } from '../../autograd/saved-tensor.js';
import { AutogradError } from '../../core/errors.js';
import { hooks, inRegion, layers } from '../../core/hooks.js';
import { adopt } from '../../core/scope-stack.js';
import { heldOf } from '../../core/sharding.js';
import type { Storage } from '../../core/storage.js';
import { Tensor } from '../../core/tensor.js';
import { isDraw, type RunValue } from '../graph/effects.js';
import { immediately } from '../lazy/lazily.js';
import type { BackwardPass, BackwardPasses } from './backward-passes.js';
import type { LoweredFunction, LoweredFunctions } from './compiled-function.js';
import { type GradientValue, hasOtherPasses, type Root } from './joint-trace.js';
import { differentiableGradients, ReplayedInputs } from './replayed-inputs.js';

/** The node that a call of a compiled function records. */
export class CompiledNode extends Node {
  readonly name = 'CompiledFunction';
  private readonly fns: LoweredFunctions;
  private saved: readonly (SavedTensor | RunValue)[] = [];
  /** What second derivatives need beside the saved values; null if there are none. */
  private inputs: ReplayedInputs | null = null;
  private released = false;
  /** The nodes of the results, once there are some; this one passes gradients on to them. */
  private results: readonly ResultNode[] | null = null;
  /** Where the gradients of results arrive that are views, and have nodes of their own. */
  private readonly views: Edge[] = [];
  /** The nodes of views that lead here. */
  private readonly viewed: Node[] = [];

  constructor(fns: LoweredFunctions, edges: (Edge | null)[]) {
    super(fns.trace.roots.length, edges);
    this.fns = fns;
  }

  /** Inputs are saved by reference, as by eager ops; other values as results of this node. */
  save(
    values: readonly RunValue[],
    primals: readonly RunValue[],
    returned: ReadonlySet<Tensor>,
  ): void {
    const { savedPrimals, backward, replay } = this.fns;
    if (replay !== null) this.inputs = new ReplayedInputs(replay, primals);
    this.saved = values.map((value, i) => {
      if (!(value instanceof Tensor)) return value;
      const primal = savedPrimals[i] as number;
      if (primal >= 0) return new SavedTensor(primals[primal] as Tensor, null);
      const isOwn = backward?.whole.donated.includes(i) === true || returned.has(value);
      return new SavedTensor(value, isOwn ? this : null, false);
    });
  }

  /**
   * Adds a view among the results, which is this many views behind a result, an input, or a view
   * that was added. Other results may have been computed from it, too.
   */
  addView(index: number, { node, outputNr }: Tensor, steps: number): void {
    const edge = { node: node as Node, outputNr };
    for (let at = edge.node, step = 0; step < steps; step++) {
      const [next] = at.edges as [Edge];
      if (next.node === this) this.viewed.push(at);
      at = next.node;
    }
    this.views[index] = edge;
    if (!hasOtherPasses(this.fns.trace)) return;
    edge.node.edgeOfAll = () => {
      this.separate();
      return edge;
    };
  }

  apply(grads: Gradients): Gradients {
    if (this.results !== null) return grads;
    if (this.released) throw alreadyReleased(this.name);
    if (isGradEnabled()) return this.differentiable(grads);
    const given = grads.flatMap((grad, i) => (grad ? [i] : []));
    const pass = this.readable(this.passes.of(given), this);
    const donates = this.donates(pass);
    const values = this.run(pass, grads, donates);
    if (donates) this.released = true;
    return pass.gradients.map((gradient) => gradientOf(gradient, values));
  }

  private get passes(): BackwardPasses {
    return this.fns.backward as BackwardPasses;
  }

  /**
   * The pass of a node; where a saved value was changed in place, only what the node has to pass
   * on, which may not read it, as uncompiled.
   */
  readable(pass: BackwardPass, { edges, task }: Node): BackwardPass {
    const isChanged = pass.saved.some((i) => {
      const value = this.saved[i];
      return value instanceof SavedTensor && value.isOverwritten;
    });
    if (!isChanged || task === null) return pass;
    const wanted = edges.map((edge) => edge !== null && task.run.reaches(edge.node));
    return wanted.includes(false) ? this.passes.partOf(pass, wanted) : pass;
  }

  /** Runs a pass on saved values. */
  run(pass: BackwardPass, grads: Gradients, donates = false): readonly RunValue[] {
    const { trace, savesWhole, name } = this.fns;
    const saved = pass.saved.map((i) => {
      const value = this.unpacked(i);
      return !(value instanceof Tensor) || savesWhole[i] ? value : heldOf(value);
    });
    const tangents = pass.tangents.map((i) =>
      tangentOf(trace.roots[i] as Root, grads[i] as Tensor),
    );
    // A capture records the ops of the graph, whatever a compiler has made of it.
    const run: LoweredFunction =
      layers.backend.capture === null ? pass.compiled(donates) : pass.opByOp();
    const runNow = (): readonly RunValue[] => immediately(() => run(...saved, ...tangents));
    return hooks.profiler === null ? runNow() : inRegion('compiled', `${name} backward`, runNow);
  }

  /** Gradients that have gradients themselves. */
  private differentiable(grads: Gradients): Gradients {
    const { fns, inputs } = this;
    if (inputs === null || fns.replay === null) throw noSecondDerivative(fns, NOT_PURE);
    const edgeTo = new Map(fns.trace.gradients.map(({ of }, k) => [of, this.edges[k] ?? null]));
    const primals = fns.replay.first.map((i): RunValue => {
      const at = fns.savedPrimals.indexOf(i);
      if (at >= 0) return this.unpacked(at, true);
      const value = inputs.valueOf(i, edgeTo.get(i) ?? null, this);
      if (value === undefined) throw noSecondDerivative(fns, `its input ${i} was ${GONE}`);
      return value;
    });
    return differentiableGradients(fns.replay, fns, primals, this.edges, grads);
  }

  private unpacked(i: number, leaves = false): RunValue {
    const value = this.saved[i] as SavedTensor | RunValue;
    if (!(value instanceof SavedTensor)) return value;
    return value.unpack(this.name, `saved value ${i}`, this, false, leaves);
  }

  /** Takes the donated values for this pass; false if it, or somebody else, needs one of them. */
  private donates({ donated, saved }: BackwardPass): boolean {
    const { task } = this;
    if (donated.length === 0 || layers.backend.capture !== null) return false;
    if (task === null || !task.releases || task.outer !== null) return false;
    const taken: Tensor[] = [];
    for (const at of donated) {
      const t = (this.saved[saved[at] as number] as SavedTensor).take();
      if (t === null) return false;
      taken.push(t);
    }
    for (const { storage } of taken) adopt(storage as Storage);
    return true;
  }

  /** The saved values that a pass reads, as a capture of the backward pass sees them. */
  factsOf({ saved }: BackwardPass, facts: readonly unknown[]): NodeFacts {
    const read = saved.map((i) => this.saved[i]);
    return {
      facts,
      saved: read.filter((value) => value instanceof SavedTensor),
      draws: read.filter((value) => isDraw(value as RunValue)) as NodeFacts['draws'],
    };
  }

  override facts(): NodeFacts | null {
    if (this.results !== null) return { facts: [], saved: [], draws: [] };
    if (this.released || this.fns.backward === null) return null;
    return this.factsOf(this.fns.backward.whole, [this.fns]);
  }

  override release(): void {
    if (this.results === null) this.releaseSaved();
  }

  /** Frees the saved values once all nodes of results have run. */
  releaseSaved(): void {
    if (this.results?.some(({ released }) => !released)) return;
    this.released = true;
    this.inputs?.release();
    this.inputs = null;
    for (const value of this.saved) if (value instanceof SavedTensor) value.release();
    this.saved = [];
  }

  /** Another result may have been computed from this one, so its own node gets all of it. */
  override edgeOfAll(outputNr: number): Edge {
    if (this.numOutputs > 1) this.separate();
    const node = this.results?.[outputNr];
    return node === undefined ? super.edgeOfAll(outputNr) : { node, outputNr: 0 };
  }

  /** Gives each result a node, unless backward has freed what they would need. */
  separate(): void {
    if (!this.released) this.results ??= this.separated();
  }

  private separated(): ResultNode[] {
    this.checkSeparable();
    const passes = this.passes.separate;
    const edges = this.edges.splice(0);
    const nodes = passes.map((pass, i) => new ResultNode(this, this.fns, pass, i));
    const results = [...nodes.map((node) => ({ node, outputNr: 0 })), ...this.views];
    for (const [i, node] of nodes.entries()) {
      const { gradients, ends } = passes[i] as BackwardPass;
      node.edges.push(
        ...gradients.map(({ at }, k) => (at < 0 ? null : (edges[k] as Edge | null))),
        ...ends.map(({ at }, k) => (at < 0 ? null : (results[k] as Edge))),
      );
      this.edges.push({ node, outputNr: 0 });
      const [tensorHooks, retained] = [this.tensorHooks?.[i], this.retained?.[i]];
      if (tensorHooks !== undefined) node.tensorHooks = [tensorHooks];
      if (retained === undefined) continue;
      node.retained = [retained];
      retained.node = node;
      retained.outputNr = 0;
    }
    // Results lead to views from now on, so that these lead no longer through all of them.
    for (const { edges: own } of this.viewed)
      own[0] = { node: nodes[(own[0] as Edge).outputNr] as Node, outputNr: 0 };
    this.tensorHooks = null;
    this.retained = null;
    return nodes;
  }

  /** @throws AutogradError where separate passes would do other things than one */
  private checkSeparable(): void {
    const { name, separable } = this.fns;
    const why =
      this.task !== null
        ? 'a backward pass through it is running'
        : this.preHooks !== null || this.postHooks !== null
          ? 'its node has hooks'
          : separable
            ? null
            : 'hooks or functions of the program run in its backward';
    if (why === null) return;
    throw new AutogradError(
      `expected a result of ${name}, which is compiled, whose gradient may be asked for, and got ` +
        `one of ${this.numOutputs} results while ${why}. Return it alone, use backend 'eager', or ` +
        'leave the function uncompiled.',
      { op: 'CompiledFunction', function: name },
    );
  }
}

/** The node of one of several results of a call. */
class ResultNode extends Node {
  readonly name = 'CompiledFunction';
  override readonly madeIn: readonly object[];
  released = false;
  private readonly whole: CompiledNode;
  private readonly fns: LoweredFunctions;
  private readonly pass: BackwardPass;
  private readonly root: number;

  constructor(whole: CompiledNode, fns: LoweredFunctions, pass: BackwardPass, root: number) {
    super(1, [], whole.sequence);
    this.madeIn = whole.madeIn;
    this.whole = whole;
    this.fns = fns;
    this.pass = pass;
    this.root = root;
  }

  apply([grad]: Gradients): Gradients {
    if (this.released) throw alreadyReleased(this.name);
    if (isGradEnabled()) throw noSecondDerivative(this.fns, SEPARATE);
    const { root } = this;
    const pass = this.whole.readable(this.pass, this);
    const grads: Gradients = [];
    grads[root] = grad ?? null;
    const values = this.whole.run(pass, grads);
    return [...pass.gradients, ...pass.ends].map((gradient) => gradientOf(gradient, values));
  }

  override facts(): NodeFacts | null {
    return this.released ? null : this.whole.factsOf(this.pass, [this.fns, this.root]);
  }

  override release(): void {
    this.released = true;
    this.whole.releaseSaved();
  }
}

const NOT_PURE = 'it does more than compute, or draws random numbers';
const GONE =
  'changed since, or not kept, as before the first backward pass with createGraph of a program: ' +
  'if it is the latter, run forward again';
const SEPARATE = 'a hook or a gradient of one of its results was asked for';

function noSecondDerivative({ name, site }: LoweredFunctions, why: string): AutogradError {
  const called = site === '' ? '' : ` and first called at ${site}`;
  return new AutogradError(
    `backward: expected createGraph to be false, because ${name}, which is compiled${called}, ` +
      `has no second derivative here: ${why}. Use backend 'eager', or leave the function uncompiled.`,
    { op: 'CompiledFunction', function: name, at: site },
  );
}

/** The local tangent as the backward graph expects it. */
function tangentOf({ like, sharding }: Root, grad: Tensor): Tensor {
  const local = sharding === null ? grad : heldOf(sharding.fit(grad));
  return hasLayoutOf(like, local) ? local : copyInLayoutOf(like, local);
}

function gradientOf({ at, sharding }: GradientValue, values: readonly RunValue[]): Tensor | null {
  if (at < 0) return null;
  const local = values[at] as Tensor;
  return sharding === null ? local : sharding.withLocal(local);
}
