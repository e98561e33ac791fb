/** FakeTensorMode: runs a program on shapes alone, for models that are larger than the machine. */
import { swapBackend, type ValueAccess } from '../core/backend.js';
import type { Layer } from '../core/dispatch.js';
import { CompileError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import type { Trait } from '../core/op.js';
import { checkSynchronous } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { reportUse } from '../core/unrepeatable.js';
import { fakeLike, fakeTensor, runFake } from '../eager/fake-backend.js';
import { FakeMemory } from './fake-memory.js';

function noValue(t: Tensor): never {
  throw new CompileError(
    `FakeTensorMode: a value of ${t.dtype.name}[${t.sizes.join(', ')}] was read, and fake ` +
      'tensors have shapes but no values. Inside run(), decide by shapes; read values of real ' +
      'tensors outside of run().',
    { shape: t.sizes, dtype: t.dtype.name },
  );
}

/** Value access under fake tensors: creating is free, reading is an error. @internal */
export const fakeValues: ValueAccess = {
  fromRaw: (_raw, shape, dtype, device) => fakeTensor({ shape, strides: null, dtype, device }),
  adopt: (_array, shape, dtype) => {
    throw new CompileError(
      "fromBlob: under FakeTensorMode no tensor can use an array's memory " +
        `(${dtype.name}[${shape.join(', ')}]). Use tensor(), or call fromBlob outside of run().`,
    );
  },
  readSync: noValue,
  read: noValue,
  readElement: noValue,
};

const runsOnFakes = (trait: Trait): boolean =>
  trait === 'placement' || trait === 'collective' || trait === 'communicates';

/**
 * The backend of a mode. It runs collectives and placement ops themselves, so that traffic is
 * counted and shards get their sizes.
 */
function runCounted(memory: FakeMemory): Layer {
  return (op, inputs, params, into) =>
    memory.during(op.name, inputs, into, () => {
      return op.compute !== null && op.traits.some(runsOnFakes)
        ? op.compute(inputs, params)
        : runFake(op, inputs, params, into);
    });
}

/**
 * Inside `run`, every op computes metadata only: shapes, dtypes, strides and devices. Nothing is
 * allocated, and `memory` counts what would have been. After `initProcessGroup('fake', …)`
 * distributed tensors and collectives work, too.
 *
 * @see PyTorch `torch._subclasses.FakeTensorMode`
 * @example
 * const mode = new FakeTensorMode();
 * const shape = mode.run(() => new nn.Linear(100_000, 100_000)(zeros([64, 100_000])).shape);
 * console.log(mode.memory.stats().peak.total);
 */
export class FakeTensorMode {
  /** The memory that the tensors created in `run` would take. */
  readonly memory: FakeMemory = new FakeMemory();
  private readonly runCounted = runCounted(this.memory);

  /**
   * Runs a synchronous function under the mode.
   *
   * @throws ArgumentError if it returns a promise
   * @example
   * new FakeTensorMode().run(() => ones([1e6, 1e6]).matmul(ones([1e6, 8])).shape); // [1000000, 8]
   */
  run<T>(fn: () => T): T {
    reportUse('FakeTensorMode.run');
    const before = swapBackend({
      ...layers.backend,
      run: this.runCounted,
      sendsCommands: false,
      values: fakeValues,
      observer: this.memory,
    });
    let result: T;
    try {
      result = fn();
    } finally {
      swapBackend(before);
    }
    checkSynchronous('FakeTensorMode.run', result, 'the mode would end at its first await');
    return result;
  }

  /**
   * A fake tensor with the metadata of a real one. A distributed tensor gives one with the same
   * placements on the same mesh, over a fake local shard.
   *
   * @see PyTorch `torch._subclasses.FakeTensorMode.from_tensor`
   */
  fromTensor(t: Tensor): Tensor {
    if (t.sharding === null) return fakeLike(t);
    const fake = t.sharding.withLocal(fakeLike(t.sharding.local));
    fake.strides = t.strides;
    fake.leafRequiresGrad = t.requiresGrad;
    return fake;
  }
}
