/**
 * The backward graphs of a compiled function: one for passes in which all its results have
 * gradients, and others that are made when a pass asks for them. A gradient that is missing must
 * not become zeros, which give NaN where they meet infinity.
 *
 * @see PyTorch pull request 186355
 */
import { AutogradError, ShardwiseError } from '../../core/errors.js';
import { layers } from '../../core/hooks.js';
import { outsideScopes } from '../../core/scope-stack.js';
import { whileCompiling } from '../compiling.js';
import { Graph } from '../graph/graph.js';
import type { Value } from '../graph/node.js';
import { immediately } from '../lazy/lazily.js';
import type { JointGraph, Partition } from '../partition/joint-graph.js';
import { otherBackward } from '../partition/other-backward.js';
import type { LoweredFunction } from './compiled-function.js';
import type { GradientValue, JointTrace, PrimalGradient, TracedPass } from './joint-trace.js';
import type { Retrace } from './retrace.js';

/** What runs a backward graph. @internal */
export interface BackwardRuns {
  /** With `donates`, what runs the graph overwrites and frees the donated values. */
  readonly compiled: (donates: boolean) => LoweredFunction;
  /** The same, op by op, made when a capture first asks for it. */
  readonly opByOp: () => LoweredFunction;
}

/** A backward graph, what it takes and what it returns. @internal */
export interface BackwardPass extends BackwardRuns {
  /** The roots whose tangents it takes, behind the saved values. */
  readonly tangents: readonly number[];
  /** The values that it takes, by position among those that forward saves. */
  readonly saved: readonly number[];
  /** The positions, among these, of values that nobody else needs after it. */
  readonly donated: readonly number[];
  readonly gradients: readonly PrimalGradient[];
  /** What arrives at each root and view, if it ends there; else empty. */
  readonly ends: readonly GradientValue[];
  /** What it was made of. */
  readonly trace: JointTrace;
}

/** What backward graphs are made of. @internal */
export interface BackwardSource {
  readonly trace: JointTrace;
  /** The joint graph that was partitioned: that of the trace, or one of all passes. */
  readonly joint: JointGraph;
  readonly partition: Partition;
  /** The positions of saved values that nobody else needs after a backward pass. */
  readonly donated: readonly number[];
  /** Compiles a backward graph whose inputs at these positions are donated. */
  readonly compile: (graph: Graph, donated: readonly number[]) => BackwardRuns;
  /** Null if one pass is all that there are. */
  readonly retrace: Retrace | null;
  /** The name of the function, for errors. */
  readonly name: string;
}

/** The graphs for different sets of gradients that a function keeps; the oldest goes. */
const MAX_PASSES = 16;

/** @internal */
export class BackwardPasses {
  /** The pass in which all results have gradients. */
  readonly whole: BackwardPass;
  private readonly source: BackwardSource;
  private readonly others = new Map<string, BackwardPass>();
  private separated: readonly BackwardPass[] | null = null;

  constructor(source: BackwardSource) {
    this.source = source;
    const { trace, joint, partition } = source;
    const tangents = trace.roots.map((_, i) => i);
    this.whole =
      joint === trace.joint
        ? this.compiled(tangents, trace, partition.backward, [...partition.saved.keys()])
        : this.madeOf(tangents, trace);
  }

  /** The pass in which these roots have gradients. @throws AutogradError if there can be none */
  of(roots: readonly number[]): BackwardPass {
    const { whole } = this;
    if (roots.length === whole.tangents.length) return whole;
    return this.kept(roots.join(), () =>
      this.made({ roots, endsAtResults: false }, (pass) => this.traced(pass)),
    );
  }

  /**
   * The part of a pass that computes only some of its gradients, then of its ends: it reads less of
   * what was saved. @throws AutogradError
   */
  partOf(pass: BackwardPass, wanted: readonly boolean[]): BackwardPass {
    const { tangents: roots, trace } = pass;
    const which = wanted.map(Number).join('');
    const part = { roots, endsAtResults: trace.ends.length > 0 };
    return this.kept(`${roots.join()} ${which}`, () =>
      this.made(part, () => this.madeOf(roots, withOnly(trace, wanted))),
    );
  }

  private kept(key: string, make: () => BackwardPass): BackwardPass {
    const { others } = this;
    const pass = others.get(key) ?? make();
    others.delete(key);
    others.set(key, pass);
    if (others.size > MAX_PASSES) others.delete([...others.keys()][0] as string);
    return pass;
  }

  /** For each root, the pass from there to primals and other results. @throws AutogradError */
  get separate(): readonly BackwardPass[] {
    this.separated ??= this.whole.tangents.map((i) =>
      this.made({ roots: [i], endsAtResults: true }, (pass) => this.traced(pass)),
    );
    return this.separated;
  }

  private made(pass: TracedPass, make: (pass: TracedPass) => BackwardPass): BackwardPass {
    const { name, trace } = this.source;
    try {
      return whileCompiling(trace.joint.graph.title, () => outsideCaptures(() => make(pass)));
    } catch (error) {
      if (!(error instanceof ShardwiseError)) throw error;
      throw noOtherPass(name, pass, error);
    }
  }

  private traced(pass: TracedPass): BackwardPass {
    const { trace: first, retrace } = this.source;
    const trace = (retrace as Retrace)(pass);
    const gradients = inOrderOf(first, trace);
    if (gradients === null) throw new AutogradError('it was traced otherwise before');
    return this.madeOf(pass.roots as readonly number[], { ...trace, gradients });
  }

  /** A pass that gets what forward saves for all. */
  private madeOf(roots: readonly number[], trace: JointTrace): BackwardPass {
    const { joint } = trace;
    const tangents = roots.map((i) => joint.tangents[i] as JointGraph['tangents'][number]);
    const { backward, saved } = otherBackward(this.source, joint, tangents);
    backward.title = this.source.partition.backward.title;
    return this.compiled(roots, trace, backward, saved);
  }

  private compiled(
    roots: readonly number[],
    trace: JointTrace,
    backward: Graph,
    saved: readonly number[],
  ): BackwardPass {
    const { gradients, ends } = trace;
    const { donated: all, compile } = this.source;
    // The passes of single roots read the values one after the other.
    const donated = ends.length > 0 ? [] : saved.flatMap((at, i) => (all.includes(at) ? i : []));
    return {
      ...compile(backward, donated),
      tangents: roots,
      saved,
      donated,
      gradients,
      ends,
      trace,
    };
  }
}

/** A trace without some of the gradients, and of the ends behind them, that it computes. */
function withOnly(trace: JointTrace, wanted: readonly boolean[]): JointTrace {
  const { joint, gradients, ends } = trace;
  const { graph: from, forwardOutputs } = joint;
  const graph = Object.assign(new Graph(), { title: from.title, shared: from.shared });
  graph.nodes.push(...from.nodes);
  graph.outputs = from.outputs.slice(0, forwardOutputs);
  const kept = <G extends GradientValue>(gradient: G, i: number): G => {
    if (!wanted[i] || gradient.at < 0) return { ...gradient, at: -1 };
    const at = graph.outputs.push(from.outputs[forwardOutputs + gradient.at] as Value) - 1;
    return { ...gradient, at: at - forwardOutputs };
  };
  return {
    ...trace,
    joint: { ...joint, graph },
    gradients: gradients.map(kept),
    ends: ends.map((end, i) => kept(end, gradients.length + i)),
  };
}

/** Runs a function as if the backward pass that it is in were not recorded. */
function outsideCaptures<T>(fn: () => T): T {
  const { capture } = layers.backend;
  const run = (): T => immediately(() => outsideScopes(fn));
  return capture === null ? run() : capture.outside(run);
}

/**
 * The gradients of a later trace in the order of the first, which the node of the function has;
 * null if the function is another one.
 */
function inOrderOf(first: JointTrace, later: JointTrace): readonly PrimalGradient[] | null {
  const byTarget = new Map(later.gradients.map((gradient) => [gradient.target, gradient]));
  const found = first.gradients.map(({ target, of }) => {
    const gradient = byTarget.get(target);
    return gradient !== undefined && placeOf(gradient.of) === placeOf(of) ? gradient : null;
  });
  const isSame = first.roots.length === later.roots.length && byTarget.size === found.length;
  return isSame && !found.includes(null) ? (found as PrimalGradient[]) : null;
}

/** Two traces have leaves of their own. */
const placeOf = (of: PrimalGradient['of'] | undefined): unknown =>
  typeof of === 'object' ? 'leaf' : of;

function noOtherPass(name: string, { roots }: TracedPass, cause: ShardwiseError): AutogradError {
  const which = (roots ?? []).join(', ');
  return new AutogradError(
    `backward: expected gradients of all results of ${name}, which is compiled, got those of ` +
      `${which} only, and its graph for these could not be made: ${cause.message}. Use backend ` +
      "'eager', or leave the function uncompiled.",
    { op: 'CompiledFunction', function: name, roots },
  );
}
