/**
 * Reduces the gradients of a module while backward computes them: when the last gradient of a
 * bucket has arrived, its reduction starts. Buckets are reduced in one order, which is the same on
 * all ranks.
 *
 * @see PyTorch `torch/csrc/distributed/c10d/reducer.cpp`
 */
import { type ProcessGroup, withPurpose } from '../../distributed/index.js';
import { AutogradError, autograd, foreachCopy_, noGrad, type Tensor } from '../../index.js';
import { Bucket, planBuckets, type ReducedParameter } from './buckets.js';
import { allreduceHook, type CommHook } from './comm-hooks.js';
import { reachedLeaves } from './unused.js';

export interface ReducerSettings {
  readonly group: ProcessGroup;
  readonly capBytes: number;
  readonly findsUnused: boolean;
  readonly isStatic: boolean;
  /** Whether `.grad` lies in the buckets. */
  readonly usesViews: boolean;
}

interface Place {
  readonly bucket: Bucket;
  readonly view: Tensor;
}

export class Reducer {
  private readonly parameters: readonly ReducedParameter[];
  private readonly settings: ReducerSettings;
  private reduce: (bucket: Bucket) => Tensor;
  private buckets: readonly Bucket[] = [];
  /** By the index of the parameter. */
  private places: Place[] = [];
  private readonly hasArrived: boolean[];
  /** Indices of parameters that this pass does not reach. */
  private unused: readonly number[] = [];
  private staticUnused: readonly number[] | null = null;
  /** From a forward pass until all gradients are reduced. */
  private isExpecting = false;
  /** Whether a gradient has arrived since the forward pass. */
  private hasBegun = false;
  /** Whether the running backward pass will call back. */
  private isQueued = false;
  private results: Tensor[] = [];
  private arrivals: ReducedParameter[] = [];
  /** The order of the first backward pass, until buckets follow it. */
  private newOrder: readonly ReducedParameter[] | null = null;
  private hasOrder = false;

  /** @param parameters - in the order of the module */
  constructor(parameters: readonly ReducedParameter[], settings: ReducerSettings) {
    this.parameters = parameters;
    this.settings = settings;
    this.hasArrived = parameters.map(() => false);
    this.reduce = (bucket) => allreduceHook(settings.group, bucket);
    this.build(parameters.toReversed());
    for (const each of parameters)
      each.parameter.registerPostAccumulateGradHook(() => this.arrived(each));
  }

  get layout(): readonly (readonly string[])[] {
    return this.buckets.map(({ list }) => list.map(({ name }) => name));
  }

  useHook<S>(state: S, hook: CommHook<S>): void {
    this.reduce = (bucket) => bucket.checkedResult(hook(state, bucket));
  }

  /** @throws AutogradError if parts of the gradients of the pass before were not reduced */
  beforeForward(): void {
    if (this.isExpecting && this.hasBegun) throw this.unfinished();
    if (this.newOrder === null) return;
    this.build(this.newOrder);
    this.newOrder = null;
  }

  /** Expects the gradients of a forward pass. */
  afterForward(result: unknown): void {
    this.reset();
    this.isExpecting = true;
    if (this.settings.isStatic) this.unused = this.staticUnused ??= this.findUnused(result);
    else this.unused = this.settings.findsUnused ? this.findUnused(result) : [];
  }

  private findUnused(result: unknown): readonly number[] {
    const reached = reachedLeaves(result);
    return this.parameters.flatMap(({ parameter, index }) =>
      reached.has(parameter) ? [] : [index],
    );
  }

  private reset(): void {
    this.isExpecting = false;
    this.hasBegun = false;
    this.isQueued = false;
    this.results = [];
    this.arrivals = [];
    this.hasArrived.fill(false);
    for (const bucket of this.buckets) bucket.pending = bucket.list.length;
  }

  private build(order: readonly ReducedParameter[]): void {
    const { capBytes, usesViews } = this.settings;
    const before = this.buckets;
    const plan = planBuckets(order, capBytes);
    this.buckets = plan.map((list, i) => new Bucket(list, i, plan.length));
    const places = this.places;
    this.places = [];
    for (const bucket of this.buckets) {
      for (const [i, { index }] of bucket.list.entries())
        this.places[index] = { bucket, view: bucket.views[i] as Tensor };
      if (usesViews) bucket.receive(true);
    }
    for (const { parameter, index } of this.parameters) {
      const grad = parameter.grad;
      if (grad !== null && places[index]?.bucket.holds(grad)) this.takeIn(index, parameter, grad);
    }
    for (const bucket of before) bucket.dispose();
  }

  /** A gradient of a parameter is in `.grad`: after all uses of the parameter. */
  private arrived(each: ReducedParameter): void {
    if (!this.isExpecting) return;
    if (!this.isQueued) {
      autograd.queueCallback(
        () => this.passEnded(),
        () => this.reset(),
      );
      this.isQueued = true;
    }
    noGrad(() => {
      if (!this.hasBegun)
        for (const i of this.unused) this.mark(this.parameters[i] as ReducedParameter);
      this.hasBegun = true;
      this.mark(each);
      this.startReductions();
    });
  }

  private mark(each: ReducedParameter): void {
    const { index, parameter } = each;
    if (this.hasArrived[index]) throw arrivedTwice(each, this.unused.includes(index));
    this.hasArrived[index] = true;
    this.arrivals.push(each);
    const { bucket, view } = this.places[index] as Place;
    const { grad } = parameter;
    if (grad === null) view.zero_();
    else if (!bucket.holds(grad)) this.takeIn(index, parameter, grad);
    bucket.pending--;
  }

  /** Copies a gradient that lies elsewhere into its bucket. */
  private takeIn(index: number, parameter: Tensor, grad: Tensor): void {
    const { view } = this.places[index] as Place;
    noGrad(() => view.copy_(grad));
    if (this.settings.usesViews) parameter.grad = view.detach();
  }

  private startReductions(): void {
    const { buckets, results } = this;
    for (
      let bucket = buckets[results.length];
      bucket !== undefined && bucket.pending === 0;
      bucket = buckets[results.length]
    ) {
      const next = bucket;
      results.push(withPurpose(next.purpose, () => this.reduce(next)));
    }
  }

  private passEnded(): void {
    this.isQueued = false;
    if (this.results.length < this.buckets.length) return;
    noGrad(() => this.finish());
    const { findsUnused, isStatic } = this.settings;
    if (!this.hasOrder && (isStatic || !findsUnused)) this.newOrder = this.arrivals;
    this.hasOrder = true;
    this.reset();
  }

  private finish(): void {
    for (const [i, bucket] of this.buckets.entries()) {
      const result = this.results[i] as Tensor;
      if (result !== bucket.buffer()) bucket.buffer().copy_(result);
    }
    const [targets, sources]: [Tensor[], Tensor[]] = [[], []];
    for (const { parameter, index } of this.parameters) {
      const { bucket, view } = this.places[index] as Place;
      const { grad } = parameter;
      if (grad === null) parameter.grad = this.settings.usesViews ? view.detach() : view.clone();
      else if (!bucket.holds(grad)) {
        targets.push(grad.detach());
        sources.push(view);
      }
    }
    foreachCopy_(targets, sources);
  }

  private unfinished(): AutogradError {
    const missing = this.parameters.filter(({ index }) => !this.hasArrived[index]);
    const names = missing.map(({ name }) => name);
    return new AutogradError(
      'DistributedDataParallel: expected to have finished reduction in the prior iteration ' +
        'before starting a new one. The module has parameters that were not used in producing the loss, ' +
        `so these received no gradient on rank ${this.settings.group.rank}: ${names.join(', ')}. ` +
        'Pass { findUnusedParameters: true }, and make sure that all outputs of forward take ' +
        'part in the loss, in arrays, plain objects or maps.',
      { op: 'DistributedDataParallel', parameters: names },
    );
  }
}

function arrivedTwice({ name }: ReducedParameter, isUnused: boolean): AutogradError {
  return new AutogradError(
    isUnused
      ? `DistributedDataParallel: the parameter "${name}" received a gradient, but the graph of ` +
          'the outputs of forward does not lead to it. With staticGraph the same parameters must ' +
          'be used in each iteration; else return all outputs in arrays, plain objects or maps.'
      : `DistributedDataParallel: the parameter "${name}" received a second gradient before the ` +
          'others had one. Run one backward pass for each forward, or more inside noSync().',
    { op: 'DistributedDataParallel', parameter: name },
  );
}
