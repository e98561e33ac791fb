/**
 * The joint graph: forward and backward of a front graph, on local tensors. The graph runs once on
 * borrowed tensors, and so does the engine from its results to its inputs; what reaches the backend
 * is recorded.
 *
 * @see PyTorch `torch._functorch.aot_autograd`
 */
import { edgeOf } from '../../autograd/accumulate-grad.js';
import { runBackward } from '../../autograd/engine.js';
import type { Edge, Node as TapeNode } from '../../autograd/node.js';
import { isAsynchronous } from '../../core/asynchronous.js';
import type { DrawParams } from '../../core/random.js';
import { isNonOverlappingAndDense } from '../../core/shape.js';
import { heldOf } from '../../core/sharding.js';
import { type GradFn, Tensor } from '../../core/tensor.js';
import { fakeTensor } from '../../eager/fake-backend.js';
import { capturing } from '../capture/capture.js';
import type { AttributeSet } from '../capture/epilogue.js';
import { recording } from '../capture/levels.js';
import { isNumberInput, observedNumber } from '../capture/number-inputs.js';
import { Recorder } from '../capture/recorder.js';
import type { EffectName, RunValue } from '../graph/effects.js';
import type { GraphModule } from '../graph/graph-module.js';
import type { HookParams } from '../graph/hook-effects.js';
import type { Node, Value } from '../graph/node.js';
import { GuardCollector } from '../guards/guard-collector.js';
import { BACKWARD } from '../partition/joint-graph.js';
import {
  type GradientValue,
  type JointTrace,
  type PrimalGradient,
  type Root,
  type TracedPass,
  type VersionChanges,
  WHOLE_PASS,
} from './joint-trace.js';
import { type OutputSource, OutputSources } from './output-sources.js';
import { SharedMemory } from './shared-memory.js';
import { arrivalsAt, endsAt, reached, type Target } from './targets.js';

/**
 * Traces forward and, if gradients are recorded, backward. `primals`: the inputs of the front graph
 * and its constants.
 *
 * @throws CompileError for what the lowered graph cannot repeat
 */
export function traceJoint(
  module: GraphModule,
  primals: readonly RunValue[],
  pass: TracedPass = WHOLE_PASS,
): JointTrace {
  const recorder = new Recorder(new GuardCollector(), 'lowered');
  const given = primals.map((value) => {
    if (!isNumberInput(value)) return value;
    return observedNumber(value, () =>
      recorder.unsupported('a number was read that differs from run to run'),
    );
  });
  return capturing(recorder, () =>
    recording(recorder, () => new JointTracer(module, given, recorder, pass).trace()),
  );
}

/** A root in a trace: the edge of its result, and the gradient that it gets. */
interface TracedRoot {
  readonly root: Root;
  readonly edge: Edge;
  readonly tangent: Tensor;
}

class JointTracer {
  private readonly module: GraphModule;
  private readonly primals: readonly RunValue[];
  /** The tensors among the primals, each once, with their positions. */
  private readonly borrowed = new Map<Tensor, number>();
  private readonly recorder: Recorder;
  private readonly locals: number[] = [];
  private readonly primalNodes: Node[] = [];
  private readonly histories: (GradFn | null)[] = [];
  /** Results of collectives among the primals. */
  private readonly asynchronous = new Map<Tensor, number>();
  /** The distributed ones, with the nodes of their local shards and of themselves. */
  private readonly wholes: { index: number; local: Node; node: Node }[] = [];
  private readonly sources: OutputSources;
  private readonly pass: TracedPass;
  private readonly shared = new SharedMemory();

  constructor(
    module: GraphModule,
    primals: readonly RunValue[],
    recorder: Recorder,
    pass: TracedPass,
  ) {
    this.module = module;
    this.primals = primals;
    this.recorder = recorder;
    this.pass = pass;
    this.sources = new OutputSources(module.graph, this.borrowed, recorder);
  }

  trace(): JointTrace {
    const { recorder, primals } = this;
    this.refuseUnrepeatable();
    const views = new Set(primals.filter((t) => t instanceof Tensor && t.base !== null));
    this.lendPrimals();
    const before = new Map([...this.borrowed].map(([t]) => [t, t.currentVersion]));
    const outputs = this.module.forward(...primals.slice(0, this.module.graph.placeholders.length));
    const versions = this.versionChanges(before);
    const dirty = [...this.borrowed].flatMap(([t, i]) =>
      t.currentGradFn === this.histories[i] ? [] : [t],
    );
    if (dirty.some((t) => views.has(t)))
      recorder.unsupported('a view that is an argument was changed in place with a gradient');
    const { sources, attributes } = this.addSources(outputs);
    const { results } = this.sources;
    const assigned = attributes.flatMap(([, source]) => source ?? []);
    const bases = [...this.sources.bases];
    const forward = results.map((t) => recorder.resultOf(heldOf(t)));
    const waited = [...this.asynchronous].flatMap(([t, i]) => (isAsynchronous(t) ? [] : [i]));
    const differentiable = [
      ...results.filter((t) => t.currentGradFn !== null),
      ...dirty.filter((t) => t.isTracked),
    ];
    const tangents: Node[] = [];
    const roots = differentiable.map((t) => this.rootOf(t, tangents));
    const targets = this.targetsOf(roots.map(({ edge }) => edge));
    const retained = this.retainedSources(dirty, targets);
    const { gradients, ends, values } = this.backward(roots, targets);
    const { graph } = recorder;
    graph.title = this.module.graph.title;
    graph.outputs = [...forward, ...values.map((t) => recorder.valueOf(heldOf(t)))];
    const wholes = this.keepWholes();
    graph.shared = this.shared.groups;
    return {
      joint: { graph, primals: this.primalNodes, tangents, forwardOutputs: results.length },
      wholes,
      locals: this.locals,
      outputs: [...sources, ...assigned, ...bases.filter((base) => !sources.includes(base))],
      outputCount: outputs.length,
      attributes,
      retained,
      roots: roots.map(({ root }) => root),
      gradients,
      views: this.sources.views.map(([, source]) => source),
      ends,
      waited,
      versions,
    };
  }

  /** The sources of the results, and of the tensors that attributes of modules are set to. */
  private addSources(outputs: readonly Tensor[]): {
    sources: OutputSource[];
    attributes: [AttributeSet, OutputSource | null][];
  } {
    const { graph } = this.module;
    const sets = this.recorder.epilogue.attributes;
    const values = new Map(graph.nodes.map(({ params, inputs }) => [params, inputs[0]]));
    const returned = outputs.map((t, i) => [t, graph.outputs[i] as Value] as const);
    const assigned = [...sets].flatMap(([set, t]) =>
      t === null ? [] : [[t, values.get(set) as Value] as const],
    );
    this.sources.expect([...returned, ...assigned]);
    const sources = returned.map(([t, value]) => this.sources.add(t, value));
    const attributes = [...sets].map(([set, t]): [AttributeSet, OutputSource | null] => {
      if (t === null) return [set, null];
      const source = this.sources.add(t, values.get(set) as Value);
      if (this.sources.isShared(t))
        this.recorder.unsupported('an attribute of a module shares memory with another result');
      return [set, source];
    });
    return { sources, attributes };
  }

  /**
   * The sources of tensors whose gradients are kept. The engine keeps them at the node of the
   * compiled function, which gets all of the gradient if no other result depends on the tensor.
   */
  private retainedSources(dirty: readonly Tensor[], targets: readonly Target[]): OutputSource[] {
    const found: OutputSource[] = [];
    for (const t of this.recorder.epilogue.retained) {
      const { node, outputNr } = t as { node: TapeNode | null; outputNr: number };
      if (node?.retained?.[outputNr] === t) node.retained[outputNr] = undefined;
      const index = this.borrowed.get(t);
      const source =
        index === undefined ? this.sources.get(t) : ({ kind: 'primal', index } as const);
      if (source === undefined) continue;
      if (dirty.includes(t) || this.feedsOthers(t))
        this.recorder.unsupported('retainGrad() was called on a tensor that results depend on');
      // A pass towards an input that the tensor does not depend on leaves its gradient alone.
      if (source.kind !== 'primal' && reached([edgeOf(t) as Edge], targets).length < targets.length)
        this.recorder.unsupported('retainGrad() was called on one of several results');
      found.push(source);
    }
    return found;
  }

  /** Whether another result than the tensor itself has a gradient for it. */
  private feedsOthers(t: Tensor): boolean {
    if (this.borrowed.has(t)) return false;
    const seen = new Set<unknown>();
    const queue = this.sources.results.filter((each) => each !== t).map(({ node }) => node);
    for (let node = queue.pop(); node !== undefined; node = queue.pop()) {
      if (node === null || seen.has(node)) continue;
      if (node === t.node) return true;
      seen.add(node);
      queue.push(...(node as TapeNode).edges.map((edge) => edge?.node ?? null));
    }
    return false;
  }

  /** Effects that set versions, and hooks that change what they will, are repeated as they are. */
  private versionChanges(before: ReadonlyMap<Tensor, number>): VersionChanges[] {
    const { nodes } = this.recorder.graph;
    const sets = /^((set|keep|restore)Version|callOpaque)$/;
    if (nodes.some(({ effect }) => effect !== null && sets.test(effect))) return [];
    if (!nodes.some(({ into, op }) => into !== null || (op !== null && op.mutates !== null)))
      return [];
    return [...this.borrowed].map(([t, primal]) => ({
      primal,
      changes: t.currentVersion - (before.get(t) as number),
    }));
  }

  /**
   * A hook that runs JavaScript in every backward pass must not run at the capture only. Functions
   * and hooks of the program may read attributes, which a run sets at its end.
   */
  private refuseUnrepeatable(): void {
    const { nodes, outputs } = this.module.graph;
    const has = (name: EffectName): boolean => nodes.some(({ effect }) => effect === name);
    if (has('setAttribute') && has('applyFunction'))
      this.recorder.unsupported('attributes of modules were set beside calls of functions');
    if (nodes.some((n) => n.effect === 'registerHook' && (n.params as HookParams).hook !== null))
      this.recorder.unsupported('a hook was registered that uses no tensor of the function');
    if (outputs.some((v) => 'node' in v && v.node.effect === 'readVersion'))
      this.recorder.unsupported('the version of a tensor was returned');
  }

  /**
   * Makes every primal a leaf on memory of the capture, and its local tensor a placeholder. Random
   * states are inputs, too.
   */
  private lendPrimals(): void {
    const { recorder, primals } = this;
    primals.forEach((t, i) => {
      if (t instanceof Tensor && this.borrowed.has(t)) return;
      this.locals.push(i);
      if (isNumberInput(t)) {
        this.primalNodes.push(recorder.placeholder(t, i, 'number'));
        return;
      }
      if (!(t instanceof Tensor)) {
        this.primalNodes.push(recorder.drawPlaceholder(t as DrawParams));
        return;
      }
      const { storage } = heldOf(t);
      this.borrowed.set(t, i);
      if (isAsynchronous(heldOf(t))) this.asynchronous.set(heldOf(t), i);
      recorder.borrowed.borrowAsLeaf(t);
      this.histories[i] = t.currentGradFn;
      const local = recorder.placeholder(heldOf(t), i, 'primal');
      this.shared.add(local, storage);
      this.primalNodes.push(local);
      if (t.sharding !== null)
        this.wholes.push({ index: i, local, node: recorder.wholes.add(recorder, t) });
    });
  }

  /** Distributed tensors stay inputs beside their local shards where an effect needs them. */
  private keepWholes(): number[] {
    const { graph } = this.recorder;
    const used = graph.allUsers();
    const kept = this.wholes.filter(({ node }) => (used.get(node)?.length ?? 0) > 0);
    const unused = new Set(this.wholes.map(({ node }) => node));
    for (const { node } of kept) unused.delete(node);
    graph.nodes.splice(0, graph.nodes.length, ...graph.nodes.filter((node) => !unused.has(node)));
    const placeholders = kept.map(({ node }) => node);
    this.moveBehindPrimals(placeholders);
    this.primalNodes.push(...placeholders);
    for (const { local, node } of kept) this.shared.addBeside(local, node);
    return kept.map(({ index }) => index);
  }

  /** Inputs have the order of the values that a run gets. */
  private moveBehindPrimals(nodes: readonly Node[]): void {
    if (nodes.length === 0) return;
    const { graph } = this.recorder;
    const moved = new Set(nodes);
    const others = graph.nodes.filter((node) => !moved.has(node));
    const at = others.indexOf(this.primalNodes.at(-1) as Node) + 1;
    others.splice(at, 0, ...nodes);
    graph.nodes.splice(0, graph.nodes.length, ...others);
  }

  private rootOf(t: Tensor, tangents: Node[]): TracedRoot {
    const edge = edgeOf(t) as Edge;
    // Hooks that the caller registers run after it, and before the backward graph.
    if ((edge.node.tensorHooks?.[edge.outputNr]?.size ?? 0) > 0)
      this.recorder.unsupported('a hook was registered on a result');
    const { sizes: shape, strides, dtype, device } = heldOf(t);
    const dense = isNonOverlappingAndDense(shape, strides);
    const local = fakeTensor({ shape, strides: dense ? strides : null, dtype, device });
    const position = this.primals.length + tangents.length;
    tangents.push(this.recorder.placeholder(local, position, 'tangent'));
    const index = this.borrowed.get(t) ?? -1;
    const source = this.sources.get(t) ?? ({ kind: 'primal', index } as const);
    return {
      root: { source, like: local, sharding: t.sharding },
      edge,
      tangent: t.sharding === null ? local : t.sharding.gradient(local),
    };
  }

  /** The primals and new leaves that the results depend on. */
  private targetsOf(roots: readonly Edge[]): Target[] {
    const primals = [...this.borrowed].filter(
      ([t, i]) => this.histories[i] !== null || t.leafRequiresGrad,
    );
    const leaves = [...this.sources.leaves].filter(([t]) => t.leafRequiresGrad);
    return reached(roots, [
      ...primals.map(([t, of]) => ({ of, edge: this.edgeOfPrimal(t, of) })),
      ...leaves.map(([t, of]) => ({ of, edge: edgeOf(t) as Edge })),
    ]);
  }

  private backward(
    all: readonly TracedRoot[],
    targets: readonly Target[],
  ): { gradients: PrimalGradient[]; ends: GradientValue[]; values: Tensor[] } {
    if (all.length === 0) return { gradients: [], ends: [], values: [] };
    if (this.shared.isWritten(this.recorder.graph))
      this.recorder.unsupported(
        'memory was changed in place that several inputs share, or that a custom op manages',
      );
    this.recorder.tags = new Set([BACKWARD]);
    const { roots, endsAtResults } = this.pass;
    const chosen = roots === null ? all : roots.map((i) => all[i] as TracedRoot);
    const views = this.sources.views.map(([t]) => edgeOf(t) as Edge);
    const places = [...all.map(({ edge }) => edge), ...views];
    const arrivals = arrivalsAt(targets);
    const captures = targets.map(({ edge }) => edge);
    const isWhole = roots === null || !endsAtResults;
    const found = isWhole ? gradientsAt(captures, chosen) : [];
    if (endsAtResults) {
      const edges = chosen.map(({ edge }) => edge);
      captures.push(...endsAt(edges, places));
      for (const root of chosen) found.push(...gradientsAt(captures, [root]));
    }
    const values: Tensor[] = [];
    const placed = (grad: Tensor | null): GradientValue => {
      if (grad === null) return { at: -1, sharding: null };
      values.push(grad);
      return { at: values.length - 1, sharding: grad.sharding };
    };
    const positions = new Map(targets.map((target, i) => [target, i]));
    const gradients = [...new Set([...arrivals, ...targets])].map((target) => {
      const position = positions.get(target) as number;
      return { of: target.of, target: position, ...placed(found[position] ?? null) };
    });
    return { gradients, ends: found.slice(targets.length).map(placed), values };
  }

  private edgeOfPrimal(t: Tensor, i: number): Edge {
    const history = this.histories[i] as Edge['node'] | null;
    return history === null ? (edgeOf(t) as Edge) : { node: history, outputNr: 0 };
  }
}

/** The gradients that arrive at some edges. */
function gradientsAt(captures: readonly Edge[], roots: readonly TracedRoot[]): (Tensor | null)[] {
  const edges = roots.map(({ edge }) => edge);
  const tangents = roots.map(({ tangent }) => tangent);
  const options = { retainGraph: true, createGraph: false, captures, only: null };
  return runBackward(edges, () => tangents, options);
}
