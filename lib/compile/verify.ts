/**
 * `compile(fn, { verify: n })`: runs a function uncompiled, on copies, beside its graph, and
 * compares what both give.
 */

import { noGrad } from '../autograd/grad-mode.js';
import { unsafeSetVersionCounter } from '../autograd/version.js';
import { CompileError } from '../core/errors.js';
import { forkRng } from '../core/random.js';
import { formatShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { map as mapTensors, tensors as tensorsIn } from '../core/tree.js';
import { isclose } from '../ops/comparison.js';
import { withoutCompiled } from './disabled.js';

/** Those of PyTorch's `assert_close`; other dtypes must be equal. */
const TOLERANCES: Readonly<Record<string, readonly [relative: number, absolute: number]>> = {
  float64: [1e-7, 1e-7],
  float32: [1.3e-6, 1e-5],
  float16: [1e-3, 1e-5],
  bfloat16: [1.6e-2, 1e-5],
};

/** What an uncompiled run gave: its result and the arguments after it. */
type Expected = readonly [result: unknown, args: readonly unknown[]];

/** Compares the graphs of one function with uncompiled runs. */
export class Verifier {
  private readonly name: string;
  private readonly every: number;
  private calls = 0;

  /** `every`: compares each such call. */
  constructor(name: string, every: number) {
    this.name = name;
    this.every = every;
  }

  /**
   * Runs `fn` on copies of the arguments, if this call is to be compared. `outer`: tensors that it
   * uses beside its arguments; those that it changes are put back.
   */
  expect(
    fn: (...args: unknown[]) => unknown,
    args: readonly unknown[],
    outer: Iterable<Tensor>,
  ): Expected | null {
    if (++this.calls % this.every !== 0) return null;
    const copies = copiesOf(args);
    const restore = remembering(outer);
    try {
      return [forkRng(() => withoutCompiled(() => fn(...copies))), copies];
    } finally {
      restore();
    }
  }

  /** @throws CompileError if a result, or what became of an argument, differs */
  check([result, after]: Expected, found: unknown, args: readonly unknown[]): void {
    this.compare('result', tensorsIn(found), tensorsIn(result));
    this.compare('argument', tensorsIn(args), tensorsIn(after));
  }

  private compare(what: string, found: readonly Tensor[], expected: readonly Tensor[]): void {
    const { length } = expected;
    if (found.length !== length) this.fail(`${what}s`, `${length} tensors`, `${found.length}`);
    for (const [i, wanted] of expected.entries()) {
      const difference = differenceOf(found[i] as Tensor, wanted);
      if (difference !== null) this.fail(`tensor ${i} of the ${what}s`, ...difference);
    }
  }

  private fail(what: string, expected: string, given: string): never {
    throw new CompileError(
      `compile: verify: ${what} of ${this.name} differs from the uncompiled run: expected ` +
        `${expected}, got ${given} from the graph`,
      { function: this.name, expected, given },
    );
  }
}

/** Copies of arguments; a tensor that occurs twice has one copy. */
function copiesOf(args: readonly unknown[]): unknown[] {
  const copies = new Map<Tensor, Tensor>();
  return noGrad(
    () =>
      mapTensors((t) => {
        const copy = copies.get(t) ?? t.detach().clone().requiresGrad_(t.requiresGrad);
        copies.set(t, copy);
        return copy;
      }, args) as unknown[],
  );
}

/** Puts back the tensors without gradients that are changed until then. */
function remembering(outer: Iterable<Tensor>): () => void {
  const before = noGrad(() =>
    [...outer]
      .filter((t) => !t.requiresGrad && t.storage !== null)
      .map((t) => [t, t.currentVersion, t.detach().clone()] as const),
  );
  return () =>
    noGrad(() => {
      for (const [t, version, values] of before) {
        if (t.currentVersion === version) continue;
        t.copy_(values);
        unsafeSetVersionCounter(t, version);
      }
    });
}

/** Reads the values that a rank has. */
function differenceOf(given: Tensor, wanted: Tensor): readonly [string, string] | null {
  const facts = [wanted, given].map(
    (t) => `${t.dtype.name}${formatShape(t.sizes)}${t.requiresGrad ? ' with a gradient' : ''}`,
  ) as [string, string];
  if (facts[0] !== facts[1]) return facts;
  const [a, b] = [given, wanted].map((t) => (t.sharding?.local ?? t).detach()) as [Tensor, Tensor];
  const [relative, absolute] = TOLERANCES[wanted.dtype.name] ?? [0, 0];
  const close = noGrad(() => isclose(a, b, relative, absolute, true));
  if (close.all().item()) return null;
  const elements = (t: Tensor): number[] => (t.flatten().tolist() as number[]).map(Number);
  const at = elements(close).indexOf(0);
  return [`${elements(b)[at]} at element ${at}`, `${elements(a)[at]} at element ${at}`];
}
