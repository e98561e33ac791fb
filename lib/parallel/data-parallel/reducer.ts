/**
 * Reduces the gradients of a module while backward computes them: when the last gradient of a
 * bucket has arrived, its reduction starts. Buckets are reduced in one order, which is the same on
 * all ranks.
 *
 * @see PyTorch `torch/csrc/distributed/c10d/reducer.cpp`
 */
import { type ProcessGroup, withPurpose } from '../../distributed/index.js';
import {
  AutogradError,
  autograd,
  compiler,
  foreachCopy_,
  noGrad,
  type Tensor,
} from '../../index.js';
import { numberedOn } from '../common/same-parameters.js';
import { arrivalsOf } from './arrivals.js';
import { Bucket, planBuckets, type ReducedParameter } from './buckets.js';
import { allreduceHook, type CommHook } from './comm-hooks.js';
import type { JoinRounds } from './join-rounds.js';
import type { Members } from './members.js';
import { reachedLeaves } from './unused.js';

export interface ReducerSettings {
  readonly group: ProcessGroup;
  readonly capBytes: number;
  readonly findsUnused: boolean;
  readonly isStatic: boolean;
  /** Whether `.grad` lies in the buckets. */
  readonly usesViews: boolean;
  readonly members: Members;
}

interface Place {
  readonly bucket: Bucket;
  readonly view: Tensor;
}

export class Reducer {
  /** All parameters of the module, also frozen ones. */
  private readonly all: readonly ReducedParameter[];
  /** Those that require gradients. */
  private parameters: readonly ReducedParameter[] = [];
  /** By index, whether it is one of them. */
  private readonly isTrained: boolean[];
  private readonly settings: ReducerSettings;
  /** Which of the models of the group it reduces. */
  private readonly number: string;
  private reduce: (bucket: Bucket) => Tensor;
  private buckets: readonly Bucket[] = [];
  /** By the index of the parameter. */
  private places: Place[] = [];
  private readonly hasArrived: boolean[];
  /** Indices of parameters that this pass does not reach. */
  private unused: readonly number[] = [];
  private staticUnused: readonly number[] | null = null;
  /** From a forward pass, or a later backward pass of one, until all gradients are reduced. */
  private isExpecting = false;
  /** Forward passes since the last reduction. */
  private forwards = 0;
  /** Whether the graph of one forward pass does not show what a backward pass will reach. */
  private findsAtEnd = false;
  /** Whether the outputs of the last forward pass were not found. */
  private isOpaque = false;
  /** Whether a gradient has arrived since the forward pass. */
  private hasBegun = false;
  /** Whether the running backward pass will call back. */
  private isQueued = false;
  private results: Tensor[] = [];
  private arrivals: ReducedParameter[] = [];
  /** The order of the first backward pass, until buckets follow it. */
  private newOrder: readonly ReducedParameter[] | null = null;
  private hasOrder = false;
  /** While ranks may run out of inputs. */
  rounds: JoinRounds | null = null;
  /** Runs when a backward pass comes to an output. Graphs of forwards register it at every run. */
  readonly passHook: () => void;

  /** @param all - all parameters, in the order of the module */
  constructor(all: readonly ReducedParameter[], settings: ReducerSettings) {
    this.all = all;
    this.settings = settings;
    this.number = numberedOn(settings.group);
    this.hasArrived = all.map(() => false);
    this.isTrained = all.map(() => false);
    this.reduce = (bucket) => allreduceHook(settings.group, bucket);
    this.passHook = autograd.opaqueHook(() => this.passBegan(), ['passBegan', this]);
    this.findTrained();
  }

  get layout(): readonly (readonly string[])[] {
    return this.buckets.map(({ list }) => list.map(({ name }) => name));
  }

  useHook<S>(state: S, hook: CommHook<S>): void {
    this.reduce = (bucket) => bucket.checkedResult(hook(state, bucket));
  }

  /**
   * @throws AutogradError if parts of the gradients of the pass before were not reduced,
   * ArgumentError if a parameter was replaced
   */
  beginForward(syncs: boolean): void {
    this.fitBuckets();
    if (!syncs) return;
    this.settings.members.check();
    this.prepareBuckets();
  }

  private prepareBuckets(): void {
    if (this.isExpecting && this.hasBegun) throw this.unfinished();
    if (this.all.some(({ parameter }, i) => parameter.requiresGrad !== this.isTrained[i]))
      this.findTrained();
    else if (this.newOrder !== null) this.build(this.newOrder);
    this.newOrder = null;
  }

  /** Makes new buckets if parameters were converted: `module.to` gives them a dtype or device. */
  private fitBuckets(): void {
    if (this.buckets.every((bucket) => bucket.fits())) return;
    this.build(this.buckets.flatMap(({ list }) => list));
  }

  /**
   * The indices of the parameters that the graph of a result leads to, for {@link endForward}; null
   * if that does not need them. Those of a capture are right for all of its runs.
   */
  reachedFrom(result: unknown): readonly number[] | null {
    const { findsUnused, isStatic } = this.settings;
    const isNeeded = isStatic ? this.staticUnused === null : findsUnused && this.forwards === 0;
    const mayBeNeeded = compiler.isCompiling() && (isStatic || findsUnused);
    if (!isNeeded && !mayBeNeeded) return null;
    const reached = reachedLeaves(result);
    return this.all.flatMap(({ parameter, index }) => (reached.has(parameter) ? [index] : []));
  }

  /** Expects the gradients of a forward pass, and again those of its later backward passes. */
  endForward(reached: readonly number[] | null, isSeen: boolean): void {
    const { findsUnused, isStatic } = this.settings;
    this.reset();
    this.isExpecting = true;
    this.findsAtEnd = findsUnused && !isStatic && this.forwards > 0;
    this.forwards++;
    if (isStatic) this.unused = this.staticUnused ??= this.unusedBeside(reached);
    else this.unused = findsUnused && !this.findsAtEnd ? this.unusedBeside(reached) : [];
    this.isOpaque = !isSeen;
  }

  /** Gradients that come from now on may be those of a pass that reduces nothing. */
  endUnsyncedForward(): void {
    this.isOpaque = false;
  }

  /** A backward pass has reached the outputs of a forward pass. */
  private passBegan(): void {
    if (!this.isExpecting) {
      const { findsUnused, isStatic } = this.settings;
      this.reset();
      this.isExpecting = true;
      this.findsAtEnd = findsUnused && !isStatic;
      this.unused = isStatic ? (this.staticUnused ?? []) : [];
    }
    this.queueEnd();
  }

  private queueEnd(): void {
    if (this.isQueued) return;
    autograd.queueCallback(
      () => this.passEnded(),
      () => this.reset(),
    );
    this.isQueued = true;
  }

  /** Makes buckets of the parameters that require gradients. */
  private findTrained(): void {
    this.parameters = this.all.filter(({ parameter }) => parameter.requiresGrad);
    this.isTrained.fill(false);
    for (const each of this.parameters) {
      this.isTrained[each.index] = true;
      arrivalsOf(each.parameter).add(this, each);
    }
    this.staticUnused = null;
    this.hasOrder = false;
    this.build(this.parameters.toReversed());
  }

  private unusedBeside(reached: readonly number[] | null): readonly number[] {
    const used = new Set(reached);
    return this.parameters.flatMap(({ index }) => (used.has(index) ? [] : [index]));
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
    this.buckets = plan.map((list, i) => new Bucket(list, i, plan.length, this.number));
    const places = this.places;
    this.places = [];
    if (usesViews) for (const bucket of before) bucket.receive(false);
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

  /** Whether the running backward pass will reduce a gradient of each parameter. */
  get isReducing(): boolean {
    return this.isExpecting && this.hasBegun;
  }

  /** A gradient of a parameter is in `.grad`: after all uses of the parameter. */
  arrived(each: ReducedParameter): void {
    if (!this.isExpecting) {
      if (this.isOpaque) throw arrivedUnseen(each);
      return;
    }
    this.queueEnd();
    noGrad(() => {
      if (!this.hasBegun) this.rounds?.publishGradients();
      if (!this.hasBegun) for (const i of this.unused) this.mark(this.all[i] as ReducedParameter);
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

  /** Reduces zeros with the gradients of other ranks, when this one has no inputs any more. */
  reduceZeros(): void {
    this.prepareBuckets();
    this.fitBuckets();
    noGrad(() => {
      for (const bucket of this.buckets) {
        const zeros = new Bucket(bucket.list, bucket.index(), this.buckets.length, this.number);
        withPurpose(zeros.purpose, () => this.reduce(zeros));
        zeros.dispose();
      }
    });
  }

  private passEnded(): void {
    this.isQueued = false;
    if (this.findsAtEnd && this.hasBegun)
      noGrad(() => {
        for (const each of this.parameters) if (!this.hasArrived[each.index]) this.mark(each);
        this.startReductions();
      });
    if (!this.hasBegun || this.results.length < this.buckets.length) return;
    noGrad(() => this.finish());
    const { findsUnused, isStatic } = this.settings;
    if (this.rounds === null) {
      // A rank that never had inputs does not know the order of the others.
      if (!this.hasOrder && (isStatic || !findsUnused)) this.newOrder = this.arrivals;
      this.hasOrder = true;
    }
    this.forwards = 0;
    this.reset();
    for (const { parameter } of this.parameters) arrivalsOf(parameter).runHooks();
  }

  private finish(): void {
    for (const [i, bucket] of this.buckets.entries()) {
      const result = this.results[i] as Tensor;
      if (result !== bucket.buffer()) bucket.buffer().copy_(result);
      this.rounds?.rescale(bucket.buffer());
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
        'before starting a new one. The module has parameters that were not used in producing ' +
        `the loss, so these received no gradient on rank ${this.settings.group.rank}: ` +
        `${names.join(', ')}. Pass { findUnusedParameters: true }, and make sure that all outputs ` +
        'of forward take part in the loss, in arrays, plain objects or maps.',
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

/** Only the outputs of a forward pass show that a backward pass is a second one of it. */
function arrivedUnseen({ name }: ReducedParameter): AutogradError {
  return new AutogradError(
    `DistributedDataParallel: the parameter "${name}" received a gradient when the gradients of ` +
      'the last forward pass were reduced already. For a second backward pass, return the ' +
      'outputs of forward in arrays, plain objects or maps.',
    { op: 'DistributedDataParallel', parameter: name },
  );
}
