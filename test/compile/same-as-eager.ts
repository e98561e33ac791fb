/**
 * Compares a compiled function with the function itself: at its capture and at two replays, by the
 * backend that runs op by op and by the one that traces backward, too.
 */
import assert from 'node:assert/strict';
import { compile, Tensor, tensor } from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';

type Fn = (...args: Tensor[]) => unknown;

/** A new function over state of its own; `state` is compared after every call. */
export interface Program {
  readonly fn: Fn;
  readonly state?: () => unknown;
}

export interface Comparison {
  /** The arguments of a call. By default one leaf of two elements. */
  inputs?: (call: number) => Tensor[];
  /** Graphs that three calls make for the first backend. */
  frames?: number;
  /** Whether backward runs through the sum of the results. */
  backward?: boolean;
}

const CALLS = 3;

const leafOf = (call: number): Tensor[] => [
  tensor([1.5 + call, -2.5 * (call + 1)], { requiresGrad: true }),
];

/** Runs the program eagerly and compiled, and compares all that a caller can see. */
export function assertSameAsEager(
  make: () => Program | Fn,
  { inputs = leafOf, frames = 1, backward = true }: Comparison = {},
): void {
  const program = (): Program => {
    const made = make();
    return typeof made === 'function' ? { fn: made } : made;
  };
  const eager = program();
  const counter = CompileCounter();
  const others = [counter, 'aot_eager' as const].map((backend) => {
    const { fn, state } = program();
    return { fn: compile(fn, { fullgraph: true, backend }), state, backend };
  });
  for (let call = 0; call < CALLS; call++) {
    const expected = observe(eager.fn, inputs(call), backward, eager.state);
    for (const { fn, state, backend } of others) {
      const seen = observe(fn, inputs(call), backward, state);
      // A function compiled with its backward is one node.
      if (backend === 'aot_eager') seen.nodes = expected.nodes;
      assert.deepEqual(seen, expected, `call ${call}, ${backend === counter ? 'eager' : backend}`);
    }
  }
  assert.equal(counter.frameCount, frames);
}

function observe(
  fn: Fn,
  args: readonly Tensor[],
  backward: boolean,
  state: Program['state'],
): { nodes: unknown; [fact: string]: unknown } {
  const result = fn(...args);
  const results = [result].flat().filter((t) => t instanceof Tensor) as Tensor[];
  const others = [result].flat().filter((t) => !(t instanceof Tensor));
  const seen = [results, args].map((list) => list.map((t) => facts(t, [...args, ...results])));
  const nodes = [...results, ...args].map((t) => t.gradFn?.name ?? null);
  const tracked = results.filter((t) => t.requiresGrad);
  if (backward && tracked.length > 0)
    tracked
      .map((t) => t.sum())
      .reduce((sum, t) => sum.add(t))
      .backward();
  const grads = [...args, ...results].map((t) => (t.isLeaf ? (t.grad?.tolist() ?? null) : 'inner'));
  return {
    seen,
    nodes,
    others,
    grads,
    after: args.map((t) => t.tolist()),
    state: state?.() ?? null,
  };
}

function facts(t: Tensor, all: readonly Tensor[]): unknown {
  return {
    kind: t.constructor.name,
    values: t.tolist(),
    requiresGrad: t.requiresGrad,
    leaf: t.isLeaf,
    version: t._version,
    first: all.indexOf(t),
    memory: all.findIndex((other) => other.untypedStorage() === t.untypedStorage()),
  };
}
