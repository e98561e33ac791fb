/** Tracing: runs a function once on fake tensors and writes down every op that reaches the bottom layer. */
import { isGradEnabled } from '../autograd/grad-mode.js';
import { versionOverride } from '../autograd/version.js';
import { swapBackend } from '../core/dispatch.js';
import { CompileError } from '../core/errors.js';
import { keep } from '../core/keep.js';
import type { AnyOp } from '../core/op.js';
import { defaultGenerator } from '../core/random.js';
import { type Storage, storageResize } from '../core/storage.js';
import { storageSwap } from '../core/swap-data.js';
import type { Tensor } from '../core/tensor.js';
import { captureWatch } from '../core/watch.js';
import { installValueAccess } from '../ops/construct.js';
import { fakeLike, runFake } from './fake-backend.js';
import { fakeValues } from './fake-tensor-mode.js';
import { Graph, Node, type Value } from './graph.js';

/** A traced function: its graph, and what it returned on fake tensors. */
export interface Trace<T> {
  graph: Graph;
  result: T;
  /** The value that a fake tensor of the result stands for. */
  valueOf(t: Tensor): Value;
  /** Tensors whose gradient the function looked at, and what it was. */
  gradsRead: ReadonlyMap<Tensor, Tensor | null>;
}

class Tracer {
  readonly graph = new Graph();
  private readonly values = new Map<Tensor, Value>();
  private readonly constants = new Map<Tensor, Tensor>();
  private readonly storages = new Map<Storage, Tensor>();
  private readonly names = new Map<string, number>();

  /** Stand-ins for the arguments: one for each tensor, though every place has a node. */
  placeholders(given: readonly Tensor[]): Tensor[] {
    const fakes = new Map<Tensor, Tensor>();
    return given.map((real) => {
      const fake = fakes.get(real) ?? this.standIn(real);
      const node = new Node({ kind: 'placeholder', name: this.unique('arg'), metas: [describe(fake)] });
      if (fakes.has(real)) this.push(node);
      else this.define(fake, node, 0);
      fakes.set(real, fake);
      return fake;
    });
  }

  run(op: AnyOp, inputs: readonly Tensor[], params: object, into: Tensor | null): Tensor[] {
    const fakes = inputs.map((t) => this.fakeOf(t));
    const target = into === null ? null : this.fakeOf(into);
    const outputs = runFake(op, fakes, params, target);
    const node = new Node({
      kind: 'call',
      name: this.unique(op.name),
      op,
      inputs: fakes.map((t) => this.valueOf(t)),
      params,
      metas: outputs.map(describe),
      recordsGrad: isGradEnabled(),
    });
    if (target !== null) node.into = this.valueOf(target);
    outputs.forEach((t, i) => {
      this.define(t, node, i);
    });
    if (outputs.length === 0 || outputs[0] === target) this.push(node);
    return into === null ? outputs : [into];
  }

  isArgument(t: Tensor): boolean {
    const value = this.values.get(t);
    return value !== undefined && 'node' in value && value.node.kind === 'placeholder';
  }

  /** Values that the function makes from numbers: a constant of the graph, of which each run gets a copy. */
  literal(real: Tensor): Tensor {
    const fake = fakeLike(real);
    this.define(fake, new Node({ kind: 'literal', name: this.unique('literal'), metas: [describe(fake)], tensor: keep(real) }), 0);
    return fake;
  }

  private standIn(real: Tensor): Tensor {
    const fake = fakeLike(real);
    fake.sharedVersion().value = real._version;
    return fake;
  }

  effect(name: string, tensors: readonly Tensor[], effect: (...real: Tensor[]) => void): void {
    this.push(new Node({ kind: 'effect', name, inputs: tensors.map((t) => this.valueOf(this.fakeOf(t))), effect }));
  }

  /** Forgets that a tensor shows its storage, because it is about to show another one. */
  leavesStorage(t: Tensor): void {
    if (t.storage !== null && this.storages.get(t.storage) === t) this.storages.delete(t.storage);
  }

  /** A tensor that views the storage: what an effect on a storage is replayed through. */
  tensorOn(storage: Storage): Tensor {
    const found = this.storages.get(storage);
    if (found === undefined) throw new CompileError('a storage that the traced function did not use was resized');
    return found;
  }

  valueOf(t: Tensor): Value {
    if (t.storage === null) return { number: t };
    const value = this.values.get(t);
    if (value === undefined) throw new CompileError(`a tensor of shape [${t.shape.join(', ')}] reached the graph that no traced op made`);
    return value;
  }

  /** A real tensor from outside becomes a constant of the graph. */
  fakeOf(t: Tensor): Tensor {
    if (t.storage === null || this.values.has(t)) return t;
    if (t.isFake) {
      // A view made outside the dispatcher, or a saved tensor unpacked under another object: found by its storage.
      const known = t.storage === null ? undefined : this.storages.get(t.storage);
      if (known !== undefined && known.shape.join() === t.shape.join()) return known;
    }
    let fake = this.constants.get(t);
    if (fake === undefined) {
      fake = this.standIn(t);
      this.constants.set(t, fake);
      this.define(fake, new Node({ kind: 'constant', name: this.unique('const'), metas: [describe(fake)], tensor: t }), 0);
    }
    return fake;
  }

  private define(t: Tensor, node: Node, output: number): void {
    if (this.values.has(t)) return;
    this.values.set(t, { node, output });
    if (t.storage !== null && !this.storages.has(t.storage)) this.storages.set(t.storage, t);
    if (output === 0) this.push(node);
  }

  private push(node: Node): void {
    this.graph.nodes.push(node);
  }

  private unique(base: string): string {
    const count = this.names.get(base) ?? 0;
    this.names.set(base, count + 1);
    return count === 0 ? base : `${base}_${count}`;
  }
}

function describe(t: Tensor): string {
  return `${t.dtype.name}[${t.shape.join(', ')}]`;
}

/** Traces `fn` on stand-ins for `inputs`. @throws CompileError where it reads a value */
export function trace<T>(inputs: readonly Tensor[], fn: (fakes: readonly Tensor[]) => T): Trace<T> {
  const tracer = new Tracer();
  const backend = swapBackend((op, given, params, into) => tracer.run(op, given, params, into));
  const values = installValueAccess(fakeValues);
  installValueAccess({
    ...fakeValues,
    fromRaw: (...raw) => {
      const tracing = swapBackend(backend);
      try {
        return tracer.literal(values.fromRaw(...raw));
      } finally {
        swapBackend(tracing);
      }
    },
  });
  const random = defaultGenerator.getState();
  const { run: resize } = storageResize;
  const { set: setVersion } = versionOverride;
  const { run: swap } = storageSwap;
  storageSwap.run = (target, source, counts) => {
    const [fake, other] = [tracer.fakeOf(target), tracer.fakeOf(source)];
    tracer.effect('set_', [fake, other], (real, next) => storageSwap.run(real as Tensor, next as Tensor, counts));
    tracer.leavesStorage(fake);
    swap(fake, other, counts);
  };
  storageResize.run = (storage, bytes) => {
    tracer.effect(`resize_${bytes}`, [tracer.tensorOn(storage)], (t) => void (t as Tensor).untypedStorage().resize_(bytes));
    storage.nbytes = bytes;
  };
  versionOverride.set = (t, version) => {
    // By how much: the versions of the tensors of a later run are others.
    const change = version - t._version;
    tracer.effect('setVersion', [t], (real) => versionOverride.set(real as Tensor, (real as Tensor)._version + change));
    t.sharedVersion().value = version;
  };
  captureWatch.effect = (what) => {
    throw new CompileError(`${what} cannot be part of a graph; do it outside of the compiled function`);
  };
  const gradsRead = new Map<Tensor, Tensor | null>();
  captureWatch.gradRead = (t) => {
    if (tracer.isArgument(t))
      throw new CompileError('the .grad of an argument was read, which its stand-in in a capture does not have; pass the gradient as an argument of its own');
    gradsRead.set(t, t.gradTensor);
  };
  try {
    const result = fn(tracer.placeholders(inputs));
    return { graph: tracer.graph, result, valueOf: (t) => tracer.valueOf(tracer.fakeOf(t)), gradsRead };
  } finally {
    captureWatch.effect = null;
    captureWatch.gradRead = null;
    swapBackend(backend);
    installValueAccess(values);
    defaultGenerator.setState(random);
    storageResize.run = resize;
    storageSwap.run = swap;
    versionOverride.set = setVersion;
  }
}
