/**
 * A lazy segment: the ops that a function has called since it last needed a value. Their results
 * have shapes and no memory yet. A flush runs all of them, as the graph that was compiled for the
 * same calls.
 */
import type { Backend } from '../../core/backend.js';
import { callSite } from '../../core/call-site.js';
import { runDeferred } from '../../core/deferred.js';
import { cpu, type Device } from '../../core/device.js';
import type { AnyOp, OutputMeta } from '../../core/op.js';
import type { DrawParams } from '../../core/random.js';
import { innermostScope } from '../../core/scope-stack.js';
import { contiguousStrides } from '../../core/shape.js';
import { PENDING_HANDLE, Storage } from '../../core/storage.js';
import { Tensor } from '../../core/tensor.js';
import { checkInto } from '../../eager/check-into.js';
import type { ValueMeta } from '../graph/node.js';
import type { LazyProgram } from './lazy-program.js';
import { fill, PendingStorage, type Place } from './pending-storages.js';
import { type LazyCall, PLAIN, type TraceNode } from './trace-tree.js';

/** Calls of a segment, at most: results take memory, and a GPU waits for work. */
const MAX_CALLS = 1000;

/** An operand that a segment cannot take. */
const UNFIT = -2;

/** Memory from before the segment. */
interface OuterMemory {
  /** The tensors on it that the segment has met. */
  tensors: number;
  written: boolean;
}

/** The pending ops of one call of a function. */
export class LazySegment {
  /** Whether a flush has something to run: see lazily.ts. */
  isPending = false;
  /** Why an earlier flush failed, until it is thrown. */
  failure: Error | null = null;
  private readonly program: LazyProgram;
  private readonly backend: Backend;
  private path: TraceNode[] = [];
  private place: Place | null = null;
  private readonly numbers = new Map<Tensor, number>();
  /**
   * The tensors from before the segment, by number. They are others on the same memory, which the
   * program cannot free.
   */
  private readonly inputs = new Map<number, Tensor>();
  private readonly outer = new Map<Storage, OuterMemory>();
  private draws: DrawParams[] = [];
  /** Plain numbers that differ from run to run. */
  private plain: Tensor[] = [];
  /** The memory that results will have, and the calls that make it. */
  private made: PendingStorage[] = [];
  private next = 0;

  /** The name of the function, or of the class of the module. */
  get functionName(): string {
    return this.program.name;
  }

  /** `backend`: what runs the ops. */
  constructor(program: LazyProgram, backend: Backend) {
    this.program = program;
    this.backend = backend;
  }

  /**
   * Adds a call, and returns its outputs; null if the call has to run at once.
   *
   * @throws what the shape rule of the op throws
   */
  record(
    op: AnyOp,
    inputs: readonly Tensor[],
    params: object,
    into: Tensor | null,
  ): Tensor[] | null {
    if (op.compute !== null || (op.view !== null && into !== null)) return null;
    const known = this.next;
    let outputs: Tensor[] | null = null;
    try {
      outputs = this.tryToRecord(op, inputs, params, into);
    } finally {
      if (outputs === null) this.forgetFrom(known);
    }
    return outputs ?? this.tryAgain(op, inputs, params, into);
  }

  /** Many calls fit a segment of their own: nothing is pending before them. */
  private tryAgain(
    op: AnyOp,
    inputs: readonly Tensor[],
    params: object,
    into: Tensor | null,
  ): Tensor[] | null {
    this.forget();
    if (this.isPending) runDeferred(this.reasonBefore(op));
    const outputs = this.tryToRecord(op, inputs, params, into);
    if (outputs === null) this.forget();
    return outputs;
  }

  private tryToRecord(
    op: AnyOp,
    inputs: readonly Tensor[],
    params: object,
    into: Tensor | null,
  ): Tensor[] | null {
    if (this.path.length === 0 ? this.program.isFull : this.path.length >= MAX_CALLS) return null;
    const call = this.numbered(op, inputs, params, into);
    if (call === null) return null;
    const { program, path } = this;
    const followers = path.length === 0 ? program.first : (path.at(-1) as TraceNode).followers;
    let node = followers.find(call);
    if (node === undefined) {
      const metas = metasOf(call);
      if (metas === null) return null;
      node = followers.add(call, { metas, origin: { site: callSite(), path: '' } });
      program.grew();
    }
    if (!this.fits(node, inputs)) return null;
    path.push(node);
    if ('seedLow' in params) this.draws.push(params as DrawParams);
    if (node.takesNumbers) for (const t of inputs) if (t.storage === null) this.plain.push(t);
    return this.outputsOf(node, inputs, params, into);
  }

  /** The call with numbers for its values; null if it cannot be part of this segment. */
  private numbered(
    op: AnyOp,
    inputs: readonly Tensor[],
    params: object,
    into: Tensor | null,
  ): LazyCall | null {
    const known = this.next;
    const numbers = new Array<number>(inputs.length);
    for (let i = 0; i < inputs.length; i++) {
      const number = this.numberOf(inputs[i] as Tensor);
      if (number === UNFIT) return null;
      numbers[i] = number;
    }
    const target = into === null ? -1 : this.numberOf(into);
    if (target === UNFIT || (into !== null && !this.mayWrite(into))) return null;
    for (const i of op.mutates?.(inputs, params) ?? [])
      if (!this.mayWrite(inputs[i] as Tensor)) return null;
    return { op, inputs, params, numbers, target: into, into: target, known, first: this.next };
  }

  private numberOf(t: Tensor): number {
    const { storage } = t;
    if (storage === null) return PLAIN;
    const known = this.numbers.get(t);
    if (known !== undefined) return isFreed(t) ? UNFIT : known;
    // The call throws, not the flush.
    if (storage.nbytes === 0 && t.numel() > 0) return UNFIT;
    // Memory of an owner may be freed at any time.
    if (storage.handle < 0 || isFreed(t) || storage.owner !== null) return UNFIT;
    const memory = this.outer.get(storage);
    if (memory === undefined) this.outer.set(storage, { tensors: 1, written: false });
    else if (memory.written) return UNFIT;
    else memory.tensors++;
    const { sizes: shape, strides, storageOffset, dtype, device } = t;
    const number = this.next++;
    const standIn = new Tensor(shape, strides, storageOffset, dtype, device, storage);
    storage.refs--; // it is no owner
    storage.addPendingRead();
    this.inputs.set(number, standIn);
    this.numbers.set(t, number);
    return number;
  }

  /**
   * A graph does not know that its inputs share memory, so only one tensor may be on what changes.
   */
  private mayWrite({ storage }: Tensor): boolean {
    const memory = this.outer.get(storage as Storage);
    if (memory === undefined) return true;
    memory.written = true;
    return memory.tensors === 1;
  }

  /** Why a call ends the segment before it. */
  private reasonBefore(op: AnyOp): string {
    const { path, place } = this;
    if (path.length >= MAX_CALLS) return `${MAX_CALLS} ops were pending`;
    if (place !== null && place.scope !== innermostScope()) return 'a scope began or ended';
    if (place !== null && place.stream !== place.device.currentStream)
      return 'another stream was chosen';
    return `${op.name} does not fit the ops before it: another device, or memory that they write`;
  }

  /** Whether the work of the call goes to where that of the segment does. */
  private fits(node: TraceNode, inputs: readonly Tensor[]): boolean {
    const device = node.metas[0]?.device ?? inputs.find((t) => t.storage !== null)?.device;
    if (device === undefined) return false;
    const { place } = this;
    if (place === null) {
      const { backend } = this;
      this.place = { backend, device, stream: device.currentStream, scope: innermostScope() };
      return true;
    }
    return (
      place.device === device &&
      place.stream === device.currentStream &&
      place.scope === innermostScope()
    );
  }

  private outputsOf(
    node: TraceNode,
    inputs: readonly Tensor[],
    params: object,
    into: Tensor | null,
  ): Tensor[] {
    const { metas, op, bytes } = node;
    const first = this.next;
    this.next += metas.length;
    if (into !== null) return [into];
    if (op.view !== null) {
      const input = inputs[0] as Tensor;
      const { shape, strides, offset, dtype = input.dtype } = op.view(input, params);
      const t = new Tensor(shape, strides, offset, dtype, input.device, input.storage);
      this.numbers.set(t, first);
      return [t];
    }
    const outputs = new Array<Tensor>(metas.length);
    for (let i = 0; i < outputs.length; i++) {
      const meta = metas[i] as ValueMeta;
      const { shape, strides, dtype, device } = meta;
      const storage = this.pendingStorage(device, bytes[i] as number, first + i, meta);
      const t = new Tensor(shape, strides, 0, dtype, device, storage);
      this.numbers.set(t, first + i);
      outputs[i] = t;
    }
    return outputs;
  }

  private pendingStorage(
    device: Device,
    bytes: number,
    number: number,
    meta: ValueMeta,
  ): PendingStorage {
    const storage = new PendingStorage(device, bytes, number, meta);
    this.made.push(storage);
    const scope = innermostScope();
    if (scope !== null) {
      storage.scope = scope;
      scope.storages.push(storage);
    }
    return storage;
  }

  /** The failure of a flush that ran while the function waited; it is thrown once. */
  takeFailure(): Error {
    const { failure } = this;
    this.failure = null;
    return failure as Error;
  }

  /** Runs the pending ops. @throws what they throw, and what the backend throws */
  flush(): void {
    const { path, inputs, draws, plain, place } = this;
    if (path.length === 0) return;
    const pending = this.made.filter(({ handle }) => handle === PENDING_HANDLE);
    const numbers = pending.map(({ number }) => number);
    const given = new Map(inputs);
    const states = [...draws, ...plain];
    this.path = [];
    this.draws = [];
    this.plain = [];
    this.place = null;
    inputs.clear();
    this.forget();
    try {
      fill(place as Place, pending, () => {
        const { outputs, run } = this.program.formOf(path, given, states, numbers);
        const results = run(...given.values(), ...states);
        if (outputs.length === numbers.length) return results;
        return numbers.map((number) => results[outputs.indexOf(number)] as Tensor);
      });
    } finally {
      letGo(given);
    }
  }

  /** Forgets the tensors that a call brought which the segment did not take. */
  private forgetFrom(known: number): void {
    for (const [t, number] of this.numbers) {
      if (number < known) continue;
      this.numbers.delete(t);
      const standIn = this.inputs.get(number) as Tensor;
      const memory = this.outer.get(standIn.storage as Storage) as OuterMemory;
      memory.tensors--;
      letGoOf(standIn);
      this.inputs.delete(number);
    }
    this.next = known;
  }

  /** Forgets the values of a segment that has no calls. */
  private forget(): void {
    if (this.path.length > 0) return;
    letGo(this.inputs);
    this.inputs.clear();
    this.numbers.clear();
    this.outer.clear();
    this.made = [];
    this.next = 0;
  }
}

function letGo(inputs: ReadonlyMap<number, Tensor>): void {
  for (const t of inputs.values()) letGoOf(t);
}

/** A backend may keep the tensor, which then does not keep the memory. */
function letGoOf(standIn: Tensor): void {
  const storage = standIn.storage as Storage;
  standIn.disposed = true;
  standIn.storage = letGoStorage;
  storage.endPendingRead();
}

const letGoStorage = new Storage(cpu, 0);
letGoStorage.freedBy = 'the lazy segment that it was given to has run';

/** Whether a call on the tensor is an error, now or when what is pending has run. */
function isFreed({ storage, disposed }: Tensor): boolean {
  const { handle, pendingReads } = storage as Storage;
  return disposed || handle === 0 || (pendingReads !== null && pendingReads.freedBy !== null);
}

/**
 * The outputs of a call, by its shape rule; null if the call must run at once: on `meta`, and where
 * not all tensors are on one device.
 */
function metasOf({ op, inputs, params, target: into }: LazyCall): ValueMeta[] | null {
  const metas = op.view === null ? op.meta(inputs, params) : [viewMeta(op, inputs, params)];
  if (into !== null) checkInto(op.name, into, metas[0] as OutputMeta);
  const device = metas[0]?.device ?? inputs.find((t) => t.storage !== null)?.device;
  if (device === undefined || device.type === 'meta') return null;
  if (inputs.some((t) => t.storage !== null && t.device !== device)) return null;
  if (metas.some((meta) => meta.device !== device)) return null;
  return metas.map(({ shape, strides, dtype }) => ({
    shape,
    strides: strides ?? contiguousStrides(shape),
    dtype,
    device,
    placements: null,
    requiresGrad: false,
  }));
}

function viewMeta(op: AnyOp, inputs: readonly Tensor[], params: object): OutputMeta {
  const input = inputs[0] as Tensor;
  const rule = op.view as NonNullable<AnyOp['view']>;
  const { shape, strides, dtype = input.dtype } = rule(input, params);
  return { shape, strides, dtype, device: input.device };
}
