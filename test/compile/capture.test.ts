/**
 * A captured function computes what the function computes, or is refused. Results are never stale
 * or partial.
 */
import assert from 'node:assert/strict';
import {
  compile,
  enableGrad,
  inferenceMode,
  nn,
  noGrad,
  ones,
  type Tensor,
  tensor,
} from '../../lib/index.js';

const leaf = (values: number[]): Tensor => tensor(values, { requiresGrad: true });

/**
 * The result, its requiresGrad and the gradient of the argument, eagerly and at the first and
 * second call of a capture.
 */
function assertFaithful(fn: (w: Tensor) => Tensor): void {
  const compiled = compile(fn, { fullgraph: true });
  const [expected, ...others] = [fn, compiled, compiled].map((each) => {
    const w = leaf([1, 2, 3]);
    const y = each(w);
    if (y.requiresGrad) y.sum().backward();
    return [y.tolist(), y.requiresGrad, w.grad === null ? null : w.grad.tolist()];
  });
  for (const other of others) assert.deepEqual(other, expected);
}

describe('a captured function', () => {
  const functions: Record<string, (w: Tensor) => Tensor> = {
    'without gradients in a part': (w) => noGrad(() => w.mul(2)).mul(w),
    'wholly without gradients': (w) => noGrad(() => w.mul(2)),
    'in inference mode': (w) => inferenceMode(() => w.mul(2)),
    'with gradients again inside': (w) => noGrad(() => enableGrad(() => w.mul(w))),
    'that detaches': (w) => w.detach().mul(w),
    'that changes a leaf in place without gradients': (w) => {
      noGrad(() => w.mul_(2));
      return w.mul(w);
    },
    'with values of its own': (w) => w.mul(tensor([1, 2, 3])).add(tensor(4)),
    'with values of its own that it changes': (w) => tensor([1, 1, 1]).add_(w.detach()).mul(w),
  };
  for (const [what, fn] of Object.entries(functions))
    it(`${what} gives the results and gradients of the uncompiled function`, () =>
      assertFaithful(fn));
});

describe('the guards of a capture', () => {
  const x = ones([1]);
  const run = (fn: (...args: never[]) => Tensor, ...args: unknown[]): unknown =>
    (fn as (...given: unknown[]) => Tensor)(...args).item();

  it('distinguish strings from lists of strings', () => {
    const fn = compile((t: Tensor, ...words: string[]) => t.mul(words.length), { fullgraph: true });
    assert.deepEqual(
      [fn(x, 'a|string:b').item(), fn(x, 'a', 'b').item(), fn(x, '"a"|"b"').item()],
      [1, 2, 1],
    );
  });

  it('compare the contents of objects, maps and sets', () => {
    class Scale {
      by = 2;
    }
    const scale = new Scale();
    const map = new Map([['k', { by: 2 }]]);
    const fn = compile(
      (t: Tensor, s: Scale, m: Map<string, { by: number }>) => t.mul(s.by).mul(m.get('k')?.by ?? 0),
      { fullgraph: true },
    );
    assert.equal(run(fn, x, scale, map), 4);
    scale.by = 3;
    assert.equal(run(fn, x, scale, map), 6);
    map.set('k', { by: 5 });
    assert.equal(run(fn, x, scale, map), 15);
  });

  it('see whether two arguments are one tensor', () => {
    const fn = compile((a: Tensor, b: Tensor) => (a === b ? a.mul(10) : a.add(b)), {
      fullgraph: true,
    });
    const [p, q] = [tensor(1), tensor(2)];
    assert.deepEqual([run(fn, p, q), run(fn, p, p), run(fn, q, p)], [3, 10, 3]);
  });

  it('see nested attributes of modules and reassigned parameters', () => {
    class Net extends nn.Module {
      cfg = { s: 2, list: [1, 2] };
      w = new nn.Parameter(tensor(1));
      forward(t: Tensor): Tensor {
        return t
          .mul(this.cfg.s)
          .mul(this.cfg.list[0] as number)
          .mul(this.w);
      }
    }
    const net = new Net();
    const fn = compile((t: Tensor) => net(t), { fullgraph: true });
    assert.equal(run(fn, x), 2);
    net.cfg.s = 3;
    assert.equal(run(fn, x), 3);
    net.cfg.list[0] = 4;
    assert.equal(run(fn, x), 12);
    net.w = new nn.Parameter(tensor(2));
    assert.equal(run(fn, x), 24);
  });

  it('are made only for known options', () => {
    assert.throws(
      () => compile((t: Tensor) => t, { dynamic: 'yes' } as object),
      /dynamic can be true or false, got yes/,
    );
  });
});
