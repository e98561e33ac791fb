/**
 * One call of a checkpoint: what it keeps instead of the tensors that its ops save, and how these
 * come back. Backward recomputes all of them when it reads the first, and lets each go after its
 * use.
 *
 * @see PyTorch `_CheckpointFrame` in `torch/utils/checkpoint.py`
 */
import {
  AutogradError,
  autograd,
  compiler,
  type Device,
  type DType,
  enableGrad,
  FreedError,
  isGradEnabled,
  memory,
  type Shape,
  type Storage,
  scope,
  type Tensor,
  tree,
} from '../../index.js';
import { KeptTensors } from './kept-tensors.js';
import { type CheckpointedFunction, NestedCalls } from './nested-calls.js';

/** A place that an op saved a tensor in. */
interface Saved {
  readonly of: Recomputation;
  readonly index: number;
  readonly shape: Shape;
  readonly dtype: DType;
  readonly device: Device;
  /** The recomputed tensor, while a backward pass needs it. */
  value: Tensor | null;
  memory: SharedMemory | null;
  isReleased: boolean;
}

/** Recomputed tensors on the same memory, which is freed when no place needs one of them. */
interface SharedMemory {
  readonly tensors: Tensor[];
  places: number;
}

/** How the recomputation of a call runs. */
export interface RecomputePlan {
  /** Runs the function of the checkpoint in the state of the forward pass. */
  readonly run: (fn: CheckpointedFunction, args: readonly unknown[]) => unknown;
  /** Whether shapes, dtypes and devices must be those of the forward pass. */
  readonly checks: boolean;
  /** Whether it ends at the last tensor that was saved. */
  readonly stopsEarly: boolean;
  /** Called when no backward pass can follow. */
  readonly end: () => void;
}

/** Ends a recomputation. */
class AllRecomputed extends Error {}
const allRecomputed = new AllRecomputed('checkpoint: a recomputation ended early');

export class Recomputation {
  readonly fn: CheckpointedFunction;
  fnAgain: CheckpointedFunction | null = null;
  readonly enclosing: Recomputation | null;
  private readonly nested = new NestedCalls<Recomputation>();
  private readonly plan: RecomputePlan;
  private readonly saved: Saved[] = [];
  private readonly needGrad: readonly boolean[];
  /** The arguments with a place for each tensor: a reference to one would make it an old object. */
  private args: readonly unknown[];
  private kept: KeptTensors | null;
  private needed = 0;
  /** False while the forward pass runs: a backward pass inside of it sees a part. */
  private isComplete = false;

  /** A closure of its own: what saved tensors keep of {@link forward} would live until backward. */
  private readonly pack = ({ shape, dtype, device }: Tensor): Saved => {
    const { length: index } = this.saved;
    const saved = {
      of: this,
      index,
      shape,
      dtype,
      device,
      value: null,
      memory: null,
      isReleased: false,
    };
    this.saved.push(saved);
    this.needed++;
    return saved;
  };

  constructor(fn: CheckpointedFunction, args: readonly unknown[], plan: RecomputePlan) {
    this.fn = fn;
    this.plan = plan;
    this.enclosing = NestedCalls.enter<Recomputation>(this);
    const tensors = tree.tensors(args);
    this.needGrad = tensors.map((t) => t.requiresGrad);
    // Those in instances of classes have no places: the instances themselves are passed again.
    const inPlaces = new Set(tensors);
    const others = tree.tensorsWithin(args).filter((t) => !inPlaces.has(t));
    const kept = new KeptTensors([...tensors, ...others]);
    this.kept = kept;
    // A copy of lists and objects: the program may change its own.
    this.args = tree.map(() => kept.place, args) as readonly unknown[];
  }

  /** Runs the forward pass; its ops save nothing but places. */
  forward<T>(fn: () => T): T {
    const onNested = (): unknown => this.needed++;
    const run = (): T => this.nested.forward(this, onNested, fn);
    let result: T;
    try {
      result = scope(() => autograd.savedTensorsHooks(this.pack, unpack, run, { release }));
    } catch (error) {
      this.end();
      throw error;
    }
    this.isComplete = true;
    if (this.needed === 0) this.end();
    return result;
  }

  unpack(saved: Saved): Tensor {
    if (saved.value === null) this.recompute();
    if (saved.value === null) throw this.differs(this.saved.length, saved.index);
    return saved.value;
  }

  release(saved: Saved): void {
    drop(saved);
    saved.isReleased = true;
    this.needOneLess();
  }

  private needOneLess(): void {
    this.needed--;
    if (this.needed === 0 && this.isComplete) this.end();
  }

  private end(): void {
    this.kept?.release();
    this.kept = null;
    this.args = [];
    this.plan.end();
    this.enclosing?.endNested();
  }

  private endNested(): void {
    this.nested.endOne(() => this.saved.flatMap(({ value }) => value ?? []));
    this.needOneLess();
  }

  private recompute(): void {
    const { saved, nested, plan, isComplete } = this;
    const fn = this.functionNow();
    this.dropAtEnd();
    const { args, ours } = this.arguments();
    let count = 0;
    const stopAtLast = (): void => {
      const isLast = count === saved.length && nested.areAllCalledAgain;
      if (plan.stopsEarly && isLast) throw allRecomputed;
    };
    // The first tensor on each memory owns it, unless gradients with a graph may need it.
    const inOwnMemory = isGradEnabled() || compiler.isCompiling() ? scope : owned;
    const found: (Tensor | null)[] = [];
    // Not a tensor: the graph of this run, which no pass goes through, would keep it.
    const collect = (t: Tensor): { t: Tensor } => {
      const place = saved[count++];
      if (place !== undefined) found.push(place.isReleased ? null : retained(t.detach()));
      stopAtLast();
      return { t };
    };
    const run = (): unknown => enableGrad(() => plan.run(fn, args));
    const again = (): readonly (Tensor | null)[] => {
      try {
        autograd.savedTensorsHooks(collect, ({ t }) => t, run);
      } catch (error) {
        if (error !== allRecomputed) throw withAdvice(error);
      }
      return found;
    };
    try {
      nested.again(inOwnMemory, again, stopAtLast);
    } finally {
      for (const t of found) t?.release();
    }
    nested.keep(ours);
    this.put(found);
    if (count < saved.length || (isComplete && count > saved.length))
      throw this.differs(saved.length, count);
    if (plan.checks) this.check();
  }

  private put(values: readonly (Tensor | null)[]): void {
    const memories = new Map<Storage | null, SharedMemory>();
    for (const [i, value] of values.entries()) {
      if (value === null) continue;
      const place = this.saved[i] as Saved;
      drop(place);
      // `untypedStorage()` would keep an argument's memory as long as the graph lives.
      const { storage } = value;
      const shared = memories.get(storage) ?? { tensors: [], places: 0 };
      memories.set(storage, shared);
      shared.tensors.push(value);
      shared.places++;
      place.value = value;
      place.memory = shared;
    }
  }

  /** The function; a nested one, which closes over tensors, from a recomputation around it. */
  private functionNow(): CheckpointedFunction {
    const { enclosing } = this;
    if (enclosing?.isComplete !== true) return this.fn;
    if (this.fnAgain === null) enclosing.recompute();
    if (this.fnAgain !== null) return this.fnAgain;
    throw new AutogradError(
      'checkpoint: the recomputation of a checkpoint did not call the checkpoint that the ' +
        `forward pass called in it. ${MUST_DO_THE_SAME}`,
      { op: 'checkpoint' },
    );
  }

  /**
   * Values of a graph that is retained, or of a pass that throws, are not kept for the next one.
   * The callback lives until then, and all that the closures of its function share.
   */
  private dropAtEnd(): void {
    const dropAll = (): void => {
      this.saved.forEach(drop);
      this.nested.drop([]);
    };
    autograd.queueCallback(dropAll, dropAll);
  }

  /** The arguments of the forward pass, and tensors that stand for some of them. */
  private arguments(): { args: readonly unknown[]; ours: readonly Tensor[] } {
    const kept = (this.kept as KeptTensors).get();
    const ours: Tensor[] = [];
    let i = 0;
    const args = tree.map(() => {
      const t = kept[i] as Tensor;
      if (t.requiresGrad === this.needGrad[i++]) return t;
      const own = t.detach().requiresGrad_(!t.requiresGrad);
      ours.push(own);
      return own;
    }, this.args);
    return { args, ours };
  }

  private differs(before: number, now: number): AutogradError {
    return new AutogradError(
      'checkpoint: a different number of tensors was saved during the original forward and ' +
        `recomputation. Number of tensors saved during forward: ${before}. Number of tensors ` +
        `saved during recomputation: ${now}. ${MUST_DO_THE_SAME}`,
      { op: 'checkpoint', expected: before, given: now },
    );
  }

  /** @throws AutogradError unless the recomputed tensors are like those of the forward pass */
  private check(): void {
    const others = this.saved.filter(
      (saved) => saved.value !== null && !isLike(saved, saved.value),
    );
    if (others.length === 0) return;
    const lines = others.map(
      (saved) =>
        `tensor at position ${saved.index}: saved ${described(saved)}, recomputed ` +
        described(saved.value as Tensor),
    );
    throw new AutogradError(
      'checkpoint: recomputed values for the following tensors have different metadata than ' +
        `during the forward pass.\n  ${lines.join('\n  ')}\nThe function must do the same each ` +
        "time that it runs. { determinismCheck: 'none' } turns this check off.",
      { op: 'checkpoint' },
    );
  }
}

const MUST_DO_THE_SAME =
  'The function must do the same each time that it runs: it may depend on its arguments and on ' +
  'what does not change between forward and backward.';

/** The program sees no scope that could have ended. */
function withAdvice(error: unknown): unknown {
  if (error instanceof FreedError)
    error.message +=
      '\n  in the recomputation of a checkpoint. Its forward pass freed what its function did not ' +
      'return: pass what is stored for later runs, such as a table in an attribute, to keep().';
  return error;
}

/** Leaves the scopes that the function opens itself. */
function retained(t: Tensor): Tensor {
  t.retain();
  return t;
}

const unpack = (saved: Saved): Tensor => saved.of.unpack(saved);
const release = (saved: Saved): void => saved.of.release(saved);

const owned = <T>(fn: () => T): T => memory.owned(fn, { allowOthers: true });

function drop(saved: Saved): void {
  const { memory: shared } = saved;
  saved.value = null;
  saved.memory = null;
  if (shared !== null && --shared.places === 0) for (const t of shared.tensors) t.dispose();
}

type Metadata = Pick<Tensor, 'shape' | 'dtype' | 'device'>;

function isLike(a: Metadata, b: Metadata): boolean {
  return (
    a.dtype === b.dtype &&
    a.device === b.device &&
    a.shape.length === b.shape.length &&
    a.shape.every((size, dim) => size === b.shape[dim])
  );
}

function described({ shape, dtype, device }: Metadata): string {
  return `${dtype.name}[${shape.join(', ')}] on ${device}`;
}
