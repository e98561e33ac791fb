/** Every feature of the table in docs/compile.md gives, compiled, what it gives eagerly. */
import { compile, manualSeed, type Tensor, tensor, tree } from '../../lib/index.js';
import { assertSame, backends } from '../compile/backends.js';
import { features } from './feature-list.js';
import { functionOf, type Program } from './features.js';

type Fn = (x: Tensor) => unknown;

/** What a caller sees of three calls. */
async function observed(program: Program, compiled: (fn: Fn) => Fn): Promise<unknown[]> {
  manualSeed(4);
  const run = compiled(functionOf(program));
  const seen: unknown[] = [];
  for (let call = 0; call < 3; call++) {
    manualSeed(call);
    const x = tensor([1.5 + call, -2], { requiresGrad: true });
    const returned = run(x);
    const isGenerator = Object.prototype.toString.call(returned) === '[object Generator]';
    const result = isGenerator ? [...(returned as Iterable<unknown>)] : await returned;
    const results = tree.tensors(result);
    const tracked = results.filter((t) => t.requiresGrad).map((t) => t.sum());
    if (tracked.length > 0) tracked.reduce((sum, t) => sum.add(t)).backward();
    seen.push({
      results: results.map((t) => t.detach().tolist()),
      facts: results.map((t) => [t.dtype.name, t.shape, t.requiresGrad, t.isLeaf]),
      gradient: x.grad?.tolist() ?? null,
      argument: [x.detach().tolist(), x._version],
    });
  }
  return seen;
}

describe('a compiled function with', () => {
  for (const { what, programs } of features)
    for (const backend of backends)
      it(`${what} equals the function run eagerly, with ${backend}`, async () => {
        for (const [i, program] of programs.entries()) {
          const expected = await observed(program, (fn) => fn);
          const found = await observed(program, (fn) => compile(fn, { backend }));
          assertSame(found, expected, backend, `program ${i}`);
        }
      });
});
