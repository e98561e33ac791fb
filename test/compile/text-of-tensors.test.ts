/** The text of a tensor has its values, so no graph has it. */
import assert from 'node:assert/strict';
import { CompileError, compile, type Tensor, tensor } from '../../lib/index.js';

describe('the text of a tensor in a compiled function', () => {
  const texts: Record<string, (t: Tensor) => string> = {
    'a template': (t) => `${t}`,
    'String()': (t) => String(t),
    'toString()': (t) => t.toString(),
    'a join': (t) => [t, t].join(),
  };
  for (const [name, text] of Object.entries(texts))
    it(`is that of each call, made by ${name}`, () => {
      const outer = tensor([1]);
      const fn = (t: Tensor): [Tensor, string] => [t.mul(2), text(t.add(1)) + text(outer)];
      const compiled = compile(fn);
      for (let i = 0; i < 3; i++) {
        outer.fill_(i);
        const x = tensor([i, -i]);
        const [[y, found], [z, expected]] = [compiled(x), fn(x)];
        assert.deepEqual([y.tolist(), found], [z.tolist(), expected]);
      }
      assert.throws(
        () => compile(fn, { fullgraph: true })(tensor([1, 2])),
        (error: CompileError) =>
          error instanceof CompileError && /the text of a tensor, float32\[2\]/.test(error.message),
      );
    });
});
