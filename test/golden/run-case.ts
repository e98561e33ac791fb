/** Replays one recorded call and compares outputs, strides, memory and gradients. */
import assert from 'node:assert/strict';
import * as sw from '../../lib/index.js';
import { assertClose, formatShape, type Slack } from './compare.js';
import type { Fixture } from './read-fixture.js';
import {
  type DeviceName,
  dtypeOf,
  expected,
  makeTensor,
  snapshot,
  type Tensor,
} from './tensors.js';

/**
 * An argument as make.py writes it: a literal, a tensor, a view of a tensor's memory, a dtype, a
 * number that JSON cannot represent, or a list.
 */
export type Encoded =
  | null
  | boolean
  | number
  | string
  | { tensor: string }
  | { view: { tensor: string; shape: number[]; stride: number[]; offset: number } }
  | { dtype: string }
  | { number: 'NaN' | 'Infinity' | '-Infinity' }
  | Encoded[];

type Output = string | { tensor: string; stride: number[]; view: boolean | null };

export interface Case {
  name: string;
  op: string;
  call?: 'function' | 'method';
  args: Encoded[];
  options?: Record<string, Encoded>;
  /** The call is a factory, so it needs the device as an argument. */
  factory?: boolean;
  outputs: Output[];
  /** The whole memory of an in-place op's first argument afterwards. */
  memory?: string;
  /** Argument path (`0`, `2.1`, `weight`) to its gradient. */
  grads?: Record<string, string>;
  cotangents?: (string | null)[];
  tolerance?: Slack;
}

/** Decodes arguments. Keeps every tensor by its path, and the memory of views. */
export class Decoder {
  readonly tensors = new Map<string, Tensor>();
  readonly memories = new Map<string, Tensor>();

  private readonly fixture: Fixture<unknown>;
  private readonly device: DeviceName;
  private readonly needsGrad: (path: string) => boolean;

  constructor(
    fixture: Fixture<unknown>,
    device: DeviceName,
    needsGrad: (path: string) => boolean = () => false,
  ) {
    this.fixture = fixture;
    this.device = device;
    this.needsGrad = needsGrad;
  }

  value(encoded: Encoded, path: string): unknown {
    if (encoded === null || typeof encoded !== 'object') return encoded;
    if (Array.isArray(encoded)) return encoded.map((item, i) => this.value(item, `${path}.${i}`));
    if ('number' in encoded) return Number(encoded.number);
    if ('dtype' in encoded) return dtypeOf(encoded.dtype);
    const memory = makeTensor(
      this.fixture.entry('view' in encoded ? encoded.view.tensor : encoded.tensor),
      this.device,
    );
    let tensor = memory;
    if ('view' in encoded) {
      const { shape, stride, offset } = encoded.view;
      tensor = sw.asStrided(memory, shape, stride, offset);
    }
    if (this.needsGrad(path)) tensor.requiresGrad_();
    this.tensors.set(path, tensor);
    this.memories.set(path, memory);
    return tensor;
  }

  list(encoded: readonly Encoded[]): unknown[] {
    return encoded.map((item, i) => this.value(item, String(i)));
  }

  options(encoded: Record<string, Encoded>): Record<string, unknown> {
    return Object.fromEntries(
      Object.entries(encoded).map(([key, item]) => [key, this.value(item, key)]),
    );
  }
}

function isTensor(value: unknown): value is Tensor {
  return typeof value === 'object' && value !== null && 'dtype' in value && 'shape' in value;
}

/** One tensor, a list of tensors, or `{ values, indices }`. */
export function tensorsOf(result: unknown): (Tensor | null)[] {
  if (isTensor(result)) return [result];
  if (Array.isArray(result)) return result as (Tensor | null)[];
  const { values, indices } = (result ?? {}) as { values?: unknown; indices?: unknown };
  if (isTensor(values) && isTensor(indices)) return [values, indices];
  throw new assert.AssertionError({ message: `expected tensors, got ${String(result)}` });
}

function invoke(c: Case, decoder: Decoder, device: DeviceName): unknown {
  const args = decoder.list(c.args);
  const options = {
    ...(c.factory ? { device } : {}),
    ...(c.options ? decoder.options(c.options) : {}),
  };
  const tail = Object.keys(options).length > 0 ? [options] : [];
  const home = (c.call === 'method' ? args[0] : sw) as Record<string, unknown>;
  const callee = home[c.op];
  assert.ok(
    typeof callee === 'function',
    `the library has no ${c.call === 'method' ? 'method' : 'function'} "${c.op}"`,
  );
  return c.call === 'method'
    ? callee.call(args[0], ...args.slice(1), ...tail)
    : callee(...args, ...tail);
}

/** @throws AssertionError at the first difference from PyTorch. */
export function runCase(fixture: Fixture<Case>, c: Case, device: DeviceName): void {
  const grads = c.grads ?? {};
  const decoder = new Decoder(fixture, device, (path) => path in grads);
  const outputs = tensorsOf(invoke(c, decoder, device));
  assert.equal(
    outputs.length,
    c.outputs.length,
    `${outputs.length} outputs, PyTorch has ${c.outputs.length}`,
  );
  c.outputs.forEach((wanted, i) => {
    const what = c.outputs.length === 1 ? 'output' : `output ${i}`;
    const output = outputs[i] as Tensor;
    const key = typeof wanted === 'string' ? wanted : wanted.tensor;
    assertClose(snapshot(output), expected(fixture.entry(key)), what, c.tolerance);
    if (typeof wanted !== 'string') checkLayout(output, wanted.stride, wanted.view, decoder, what);
  });
  if (c.memory !== undefined) {
    const memory = (decoder.memories.get('0') as Tensor).reshape([-1]);
    assertClose(
      snapshot(memory),
      expected(fixture.entry(c.memory)),
      'the memory written to',
      c.tolerance,
    );
  }
  if (c.grads) checkGradients(fixture, c, decoder, outputs as Tensor[], device);
}

/** Strides of dims of one element may be anything, and so may all of an empty tensor. */
function checkLayout(
  output: Tensor,
  stride: number[],
  view: boolean | null,
  decoder: Decoder,
  what: string,
): void {
  if (view === null) return;
  const matter = (strides: readonly number[]): string =>
    formatShape(strides.map((s, dim) => ((output.shape[dim] as number) > 1 ? s : 0)));
  const [got, want] = [matter(output.stride()), matter(stride)];
  assert.equal(
    got,
    want,
    `${what}: strides are ${got}, PyTorch has ${want} (0 for dims of one element)`,
  );
  const shares = [...decoder.memories.values()].some(
    (memory) => memory.untypedStorage() === output.untypedStorage(),
  );
  assert.equal(
    shares,
    view,
    `${what}: ${shares ? 'shares' : 'does not share'} memory with an input; in PyTorch it ` +
      `${view ? 'does' : 'does not'}`,
  );
}

function checkGradients(
  fixture: Fixture<Case>,
  c: Case,
  decoder: Decoder,
  outputs: Tensor[],
  device: DeviceName,
): void {
  const paths = Object.keys(c.grads ?? {});
  const used: Tensor[] = [];
  const gradOutputs: Tensor[] = [];
  (c.cotangents ?? []).forEach((key, i) => {
    if (key === null) return;
    used.push(outputs[i] as Tensor);
    gradOutputs.push(makeTensor(fixture.entry(key), device));
  });
  const inputs = paths.map((path) => decoder.tensors.get(path) as Tensor);
  const grads = sw.autograd.grad(used, inputs, { gradOutputs });
  paths.forEach((path, i) => {
    const wanted = expected(fixture.entry((c.grads as Record<string, string>)[path] as string));
    const grad = grads[i];
    assert.ok(grad, `gradient of argument ${path}: none`);
    assertClose(snapshot(grad), wanted, `gradient of argument ${path}`, c.tolerance);
  });
}
