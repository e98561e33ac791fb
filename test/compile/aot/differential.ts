/** Compares a compiled function with the same function run eagerly: values, gradients, versions. */
import assert from 'node:assert/strict';
import { aotAutograd, type CompileOptions, type GraphModule } from '../../../lib/compile/index.js';
import { compile, manualSeed, rand, Tensor } from '../../../lib/index.js';

type Fn = (...args: Tensor[]) => Tensor | readonly Tensor[];

/** A leaf of random values that requires a gradient. */
export const leaf = (...shape: number[]): Tensor => rand(shape).requiresGrad_();

/** Everything that a program sees of a call. */
function observed(fn: Fn, make: () => Tensor[], seed: number): unknown {
  manualSeed(seed);
  const args = make();
  const result = fn(...args);
  const results = result instanceof Tensor ? [result] : result;
  for (const t of results) if (t.requiresGrad) t.mul(t).sum().backward({ retainGraph: true });
  return {
    values: results.map((t) => t.tolist()),
    layouts: results.map((t) => [t.dtype.name, t.shape, t.strides, t.requiresGrad, t.isLeaf]),
    sameObjects: results.map((t) => args.indexOf(t)),
    arguments: args.map((t) => [t.tolist(), t._version, t.grad?.tolist() ?? null]),
  };
}

/** Runs the function eagerly and compiled, at the capture and at two replays. */
export function assertEqualRuns(
  fn: Fn,
  make: () => Tensor[],
  backend: NonNullable<CompileOptions['backend']>,
): void {
  const compiled = compile(fn, { backend, fullgraph: true });
  for (const seed of [1, 2, 3])
    assert.deepEqual(observed(compiled, make, seed), observed(fn, make, seed));
}

/** A backend that lists the graphs that it compiles. */
export function recording(): { backend: ReturnType<typeof aotAutograd>; graphs: string[] } {
  const graphs: string[] = [];
  const keep = (part: string) => (module: GraphModule) => {
    graphs.push(`${part}\n${module.code}`);
    return module.forward.bind(module);
  };
  const backend = aotAutograd({ fwCompiler: keep('forward'), bwCompiler: keep('backward') });
  return { backend, graphs };
}
