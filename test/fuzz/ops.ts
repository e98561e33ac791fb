/**
 * Fuzzes public ops: random calls on random tensors, some of which are freed while work is queued.
 * Each call must return a result or throw an error of the library.
 */
import { dispatch } from '../../lib/core/dispatch.js';
import { type AnyOp, allOps, type Sample } from '../../lib/core/op.js';
import * as library from '../../lib/index.js';
import { ones, ShardwiseError, scope, Tensor } from '../../lib/index.js';
import { makeArguments, type Pool } from './arguments.js';
import { functions, methods } from './calls.js';
import { type FittedCall, fittedCall } from './fitted.js';
import { describeError, Finding, type Rng } from './rng.js';
import { anyTensor } from './tensors.js';

type Callable = (...args: unknown[]) => unknown;
const exported = library as unknown as Readonly<Record<string, Callable | undefined>>;

/** Larger results are dropped: a view of 2^40 elements is valid, but reducing it takes a day. */
const MAX_ELEMENTS = 200_000;

function inspect(value: unknown): string {
  if (value instanceof Tensor) {
    if (value.storage === null) return String(value.scalarValue);
    return `${value.dtype.name}[${value.shape}]/[${value.strides}]+${value.storageOffset}${value.disposed ? ' disposed' : ''}${value.requiresGrad ? ' grad' : ''}`;
  }
  if (Array.isArray(value)) return `(${value.map(inspect).join(', ')})`;
  if (value !== null && typeof value === 'object')
    return `{${Object.entries(value).map(([key, v]) => `${key}: ${inspect(v)}`)}}`;
  return Object.is(value, -0) ? '-0' : String(value);
}

/** One case: a few tensors, a few calls, and the log of the calls. */
class OpCase {
  readonly pool: Pool;
  private readonly trace: (line: string) => void;
  private readonly calls: string[] = [];

  constructor(rng: Rng, trace: (line: string) => void) {
    this.trace = trace;
    this.pool = { rng, tensors: [] };
  }

  /** Runs a step. @throws Finding for an error that is not the library's */
  step(what: string, run: () => unknown): unknown {
    this.calls.push(what);
    this.trace(what);
    try {
      return run();
    } catch (error) {
      if (error instanceof ShardwiseError) return undefined;
      throw new Finding(
        `not an error of the library\n  ${this.calls.join('\n  ')}\n${describeError(error)}`,
      );
    }
  }

  keepResults(value: unknown): void {
    if (value instanceof Tensor) {
      const { shape } = value;
      if (!shape.every((size) => Number.isSafeInteger(size) && size >= 0))
        throw new Finding(`a result of shape [${shape}]\n  ${this.calls.join('\n  ')}`);
      if (value.numel() <= MAX_ELEMENTS) this.pool.tensors.push(value);
    } else if (Array.isArray(value)) value.slice(0, 4).forEach((each) => this.keepResults(each));
    else if (value !== null && typeof value === 'object')
      Object.values(value).forEach((each) => this.keepResults(each));
  }

  call(): void {
    const { rng, tensors } = this.pool;
    if (rng.chance(0.2)) {
      const fitted = this.step('operands', () => fittedCall(rng)) as FittedCall | undefined;
      if (fitted !== undefined) this.keepResults(this.step(fitted.name, fitted.run));
      return;
    }
    if (rng.chance(0.1)) {
      const [name, kinds] = rng.pick(functions);
      const args = makeArguments(kinds, this.pool, null).flatMap((arg) =>
        name === 'einsum' ? arg : [arg],
      );
      this.keepResults(this.step(`${name}${inspect(args)}`, () => exported[name]?.(...args)));
      return;
    }
    const [name, kinds] = rng.pick(methods);
    const receiver = rng.pick(tensors);
    const args = makeArguments(kinds, this.pool, receiver);
    const method = (receiver as unknown as Record<string, Callable | undefined>)[name];
    const run = (): unknown =>
      method ? method.apply(receiver, args) : exported[name]?.(receiver, ...args);
    this.keepResults(this.step(`${inspect(receiver)}.${name}${inspect(args)}`, run));
  }

  /**
   * Runs backward through the results of the case. Freed tensors must give errors of the library.
   */
  backward(): void {
    for (const t of this.pool.tensors.slice(-3)) {
      if (!t.disposed && t.requiresGrad)
        this.step(`${inspect(t)}.sum().backward()`, () => t.sum().backward());
    }
  }

  /** Changes tensors between calls: frees, resizes, replaces data. */
  disturb(): void {
    const { rng, tensors } = this.pool;
    const t = rng.pick(tensors);
    const name = inspect(t);
    switch (rng.int(0, 6)) {
      case 0:
        this.step(`${name}.dispose()`, () => t.dispose());
        return;
      case 1:
        this.step(`${name} storage.resize_(0)`, () => t.untypedStorage().resize_(0));
        return;
      case 2:
        this.step(`${name} storage.resize_`, () =>
          t.untypedStorage().resize_(rng.pick([1, 3, 64, 4096, -1, 2 ** 40, 1.5, Number.NaN])),
        );
        return;
      case 3:
        this.step(`${name}.requiresGrad_()`, () => t.requiresGrad_());
        return;
      case 4:
        this.step(`${name}.backward()`, () => t.backward());
        return;
      case 5:
        this.step('work in a scope that ends', () =>
          scope(
            () =>
              void t
                .add(ones([200, 200]))
                .matmul(ones([200, 3]))
                .sum(),
          ),
        );
        return;
      default:
        this.step('queued work', () => this.keepResults(anyTensor(rng, [200, 200]).mul(2).exp()));
    }
  }
}

/**
 * Dispatches an op of the table without its public function, on tensors unlike its samples: memory
 * must stay intact.
 */
function dispatchCase(rng: Rng, trace: (line: string) => void): void {
  const op = rng.pick(opsWithSamples());
  const sample = rng.pick(op.samples() as Sample<object>[]);
  const inputs = sample.inputs.map((t) =>
    t.storage === null || rng.chance(0.4)
      ? t
      : anyTensor(
          rng,
          rng.chance(0.6) ? [...t.shape] : undefined,
          rng.chance(0.6) ? t.dtype : undefined,
        ),
  );
  trace(`dispatch ${op.name} ${inspect(inputs)} ${inspect(sample.params)}`);
  try {
    dispatch(op, inputs, sample.params, rng.chance(0.2) ? rng.pick(inputs) : null);
  } catch {
    // Below the public functions shapes are not checked with care; not leaving memory is all that
    // is asked.
  }
}

let sampled: AnyOp[] | null = null;
const opsWithSamples = (): AnyOp[] =>
  (sampled ??= allOps().filter((op) => op.samples().length > 0));

/** Waits for deferred failures before the next case. */
function settle(rng: Rng, tensors: readonly Tensor[]): Promise<unknown> | null {
  for (let i = 0; i < 2; i++) {
    try {
      ones([1]).item();
    } catch (error) {
      if (!(error instanceof ShardwiseError))
        throw new Finding(
          `a deferred failure is not an error of the library\n${describeError(error)}`,
        );
    }
  }
  const t = rng.pick(tensors);
  return rng.chance(0.05) && !t.disposed ? t.detach().read() : null;
}

/** Runs one case. @throws Finding */
export async function fuzzOps(rng: Rng, trace: (line: string) => void): Promise<void> {
  if (rng.chance(0.3)) return dispatchCase(rng, trace);
  const run = new OpCase(rng, trace);
  run.pool.tensors.push(...rng.list(rng.int(1, 3), () => anyTensor(rng)));
  const steps = rng.int(2, 8);
  for (let i = 0; i < steps; i++) {
    if (rng.chance(0.12)) run.disturb();
    else run.call();
  }
  try {
    await settle(rng, run.pool.tensors);
  } catch (error) {
    if (!(error instanceof ShardwiseError)) throw error;
  }
  if (rng.chance(0.3)) run.backward();
  for (const t of run.pool.tensors) if (rng.chance(0.7)) t.dispose();
}
