/** Where what a front graph returns comes from, when the lowered graph has run. */
import { gradMode } from '../../autograd/grad-mode.js';
import { isAsynchronous } from '../../core/asynchronous.js';
import { heldOf, type Sharding } from '../../core/sharding.js';
import { Tensor } from '../../core/tensor.js';
import { detachOp } from '../../ops/view.js';
import type { Recorder } from '../capture/recorder.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value } from '../graph/node.js';
import { type Aliased, aliasedResults, type FrontResult } from './alias-groups.js';
import { primalNodes, type ViewOfPrimal, viewOfPrimal } from './aliases.js';

/** Where a result of the front graph comes from when the lowered graph has run. @internal */
export type OutputSource =
  | { readonly kind: 'primal'; readonly index: number }
  | { readonly kind: 'view'; readonly view: ViewOfPrimal }
  | {
      readonly kind: 'alias';
      /** Which result of the forward graph it is a view of. */
      readonly at: number;
      /** The views, in order. */
      readonly steps: readonly Node[];
    }
  | ResultSource
  | LeafSource;

/** A result of the forward graph. @internal */
export interface ResultSource {
  readonly kind: 'result';
  /** Which result of the forward graph. */
  readonly at: number;
  /** The sharding of a distributed result; its local shard is without memory. */
  readonly sharding: Sharding | null;
  /** Whether it is the result of a collective that nobody has waited for. */
  readonly isAsynchronous: boolean;
  /** Whether another result shares its memory, and is no view that a run makes of it. */
  readonly shared: boolean;
}

/** A leaf that the function makes. @internal */
export interface LeafSource {
  readonly kind: 'leaf';
  /** The tensor on whose memory it is. */
  readonly data: OutputSource;
  /** Its class, `Parameter`; null for the tensor itself. */
  readonly type: (new (data: Tensor, requiresGrad: boolean) => Tensor) | null;
  readonly requiresGrad: boolean;
}

/** The sources of one trace. */
export class OutputSources {
  /** The tensors that the lowered graph returns. */
  readonly results: Tensor[] = [];
  /** The leaves that the function makes and returns. */
  readonly leaves = new Map<Tensor, LeafSource>();
  /** Results that others are views of, and that may be no results of the function. */
  readonly bases = new Set<ResultSource>();
  private readonly known = new Map<Tensor, OutputSource>();
  private aliased: ReadonlyMap<Tensor, Aliased> = new Map();
  private all: readonly FrontResult[] = [];
  private readonly graph: Graph;
  private readonly primals: ReadonlyMap<Tensor, number>;
  private readonly recorder: Recorder;

  /** `primals`: the inputs and constants of the front graph, with their positions. */
  constructor(graph: Graph, primals: ReadonlyMap<Tensor, number>, recorder: Recorder) {
    this.graph = graph;
    this.primals = primals;
    this.recorder = recorder;
  }

  get(t: Tensor): OutputSource | undefined {
    return this.known.get(t);
  }

  /** The results that a run makes as views, with a history of their own. */
  get views(): (readonly [Tensor, OutputSource])[] {
    const isView = ({ kind }: OutputSource): boolean => kind === 'view' || kind === 'alias';
    return [...this.known].filter(([t, source]) => isView(source) && t.currentGradFn !== null);
  }

  /** Says which tensors will get sources, with their values in the front graph. */
  expect(all: readonly FrontResult[]): void {
    const { leaves } = this.recorder.epilogue;
    this.all = all;
    this.aliased = aliasedResults(
      this.graph,
      all.filter(([t]) => !this.isOnPrimal(t)),
      (t, steps) =>
        !leaves.has(t) && !(t.isTracked && steps.some(endsHistory)) && !this.isHooked(steps),
    );
  }

  /** The source of a tensor, which is this value of the front graph. */
  add(t: Tensor, value: Value): OutputSource {
    const known = this.known.get(t);
    if (known !== undefined) return known;
    const source = this.leafOf(t, value) ?? this.sourceOf(t, value, t.isTracked);
    this.known.set(t, source);
    return source;
  }

  /** Whether the memory of a tensor, which is not that of an input, is that of another one, too. */
  isShared(t: Tensor): boolean {
    return (
      !this.isOnPrimal(t) && this.all.some(([other]) => other !== t && other.storage === t.storage)
    );
  }

  private isOnPrimal(t: Tensor): boolean {
    return [...this.primals.keys()].some((primal) => primal.storage === t.storage);
  }

  private leafOf(t: Tensor, value: Value): LeafSource | null {
    const { recorder } = this;
    if (!recorder.epilogue.leaves.has(t)) return null;
    const data = this.sourceOf(t, dataOf(value), false);
    if (this.isShared(t))
      recorder.unsupported('a leaf that was made shares memory with another result');
    const type = t.constructor === Tensor ? null : (t.constructor as LeafSource['type']);
    const leaf = { kind: 'leaf', data, type, requiresGrad: t.leafRequiresGrad } as const;
    this.leaves.set(t, leaf);
    return leaf;
  }

  private sourceOf(t: Tensor, value: Value, hasHistory: boolean): OutputSource {
    const { primals, recorder, aliased } = this;
    const index = primals.get(t);
    if (index !== undefined) return { kind: 'primal', index };
    if (this.isOnPrimal(t)) {
      const view =
        viewOfPrimal(this.graph, value) ??
        recorder.unsupported('a result on the memory of an input is not a view of the input');
      if (hasHistory && view.steps.some(endsHistory))
        recorder.unsupported('a detached view of an input got a history');
      if (this.isHooked([primalNodes(this.graph)[view.index] as Node, ...view.steps]))
        recorder.unsupported('a view of an input got a hook and is a result');
      return { kind: 'view', view };
    }
    const alias = aliased.get(t);
    if (alias === undefined || alias.base === t)
      return this.resultOf(t, alias === undefined && this.isShared(t));
    const known = this.known.get(alias.base) as ResultSource | undefined;
    const base = known ?? this.resultOf(alias.base, false);
    this.known.set(alias.base, base);
    this.bases.add(base);
    return { kind: 'alias', at: base.at, steps: alias.steps };
  }

  private resultOf(t: Tensor, shared: boolean): ResultSource {
    this.results.push(t);
    return {
      kind: 'result',
      at: this.results.length - 1,
      sharding: t.sharding,
      isAsynchronous: isAsynchronous(heldOf(t)),
      shared,
    };
  }

  /** Whether an effect of the front graph watches the gradient of one of the nodes. */
  private isHooked(nodes: readonly Node[]): boolean {
    const { graph } = this;
    const observed = new Set(nodes);
    return graph.nodes.some(
      ({ effect, inputs: [of] }) =>
        (effect === 'registerHook' || effect === 'retainGrad') &&
        of !== undefined &&
        'node' in of &&
        observed.has(of.node),
    );
  }
}

/** What a parameter was made of; other values are their own data. */
function dataOf(value: Value): Value {
  let at = value;
  while ('node' in at && at.node.effect === 'createParameter') at = at.node.inputs[0] as Value;
  return at;
}

/** Whether a view has no gradient, whatever its input has. */
const endsHistory = ({ op, mode }: Node): boolean =>
  op === detachOp || !(mode ?? gradMode()).enabled;
