/**
 * Values of several ranks, for assertions: local ranks must not wait for a value without giving the
 * others their turn.
 */
import assert from 'node:assert/strict';
import { CommDebugMode, DTensor } from '../../lib/distributed.js';
import type { nn, Tensor } from '../../lib/index.js';

/** What a wrapper adds to the paths of parameters. */
const WRAPPER = /_fsdp_wrapped_module\./g;

/** The largest difference of two tensors of one shape, as plain values. */
export async function difference(a: Tensor, b: Tensor): Promise<number> {
  const [x, y] = [a, b].map((t) => (t instanceof DTensor ? t.fullTensor() : t).detach()) as [
    Tensor,
    Tensor,
  ];
  assert.deepEqual(x.shape, y.shape);
  if (x.numel() === 0) return 0;
  return x.sub(y).abs().amax().itemAsync();
}

/** @throws AssertionError if any element differs by more than `tolerance` */
export async function assertClose(
  actual: Tensor,
  expected: Tensor,
  what: string,
  tolerance = 1e-12,
): Promise<void> {
  const largest = await difference(actual, expected);
  assert.ok(
    largest <= tolerance,
    `${what}: expected a difference of at most ${tolerance}, got ${largest}`,
  );
}

/**
 * All parameters of two modules of one kind, or their gradients. The first may have wrappers in it.
 */
export async function assertAlike(
  actual: nn.AnyModule,
  expected: nn.AnyModule,
  of: 'values' | 'gradients',
  tolerance = 1e-12,
): Promise<void> {
  const others = new Map(expected.namedParameters());
  for (const [name, parameter] of actual.namedParameters()) {
    const other = others.get(name.replaceAll(WRAPPER, '')) as nn.Parameter;
    const [a, b] = of === 'values' ? [parameter, other] : [parameter.grad, other.grad];
    assert.ok(a !== null && b !== null, `${name} has a gradient`);
    await assertClose(a, b, `${of} of ${name}`, tolerance);
  }
}

/** `[Shard(0)]` of a distributed tensor, `plain` of another one. */
export function placementsOf(t: Tensor | null): string {
  return t instanceof DTensor ? `[${t.placements.join(', ')}]` : 'plain';
}

/** How often each collective was called in `fn`, on this rank. */
export function commCounts(fn: () => unknown): Readonly<Record<string, number>> {
  const mode = new CommDebugMode();
  mode.run(fn);
  return mode.getCommCounts();
}
