/** Compares what a caller observes of a compiled function and its gradients, with each backend. */
import assert from 'node:assert/strict';
import { compile, type Tensor, tensor } from '../../../lib/index.js';

export const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const;

export type Fn = (...args: Tensor[]) => readonly Tensor[];
/** What the caller does with the results of a call and its arguments, and sees of them. */
export type Observe = (results: readonly Tensor[], args: readonly Tensor[]) => unknown;

export const leaves = (): Tensor[] =>
  [0.5, 2].map((v) => tensor([v, v + 1], { requiresGrad: true }));

/** The rounded elements of a tensor. */
export const list = (t: Tensor | null | undefined): unknown =>
  (t?.flatten().tolist() as number[] | undefined)?.map((v) => Number(v.toPrecision(5))) ?? null;

/** Observes three calls, compiled and uncompiled. */
export function assertSame(fn: Fn, observe: Observe, make = leaves): void {
  for (const backend of BACKENDS) {
    const compiled = compile(fn, { backend, fullgraph: true });
    for (let call = 0; call < 3; call++) {
      const [seen, expected] = [compiled, fn].map((run) => {
        const args = make();
        const seenBy = observe(run(...args), args);
        return [seenBy, args.map((t) => (t.isLeaf || t.retainsGrad ? list(t.grad) : 'inner'))];
      });
      assert.deepEqual(seen, expected, `${backend}, call ${call}`);
    }
  }
}

/** The sum of what is used of the results. */
export const used = (results: readonly Tensor[], ...at: number[]): Tensor =>
  at.map((i) => (results[i] as Tensor).sum()).reduce((a, b) => a.add(b));
