/** Parts of tensors that fused calls read and write in place. */
import assert from 'node:assert/strict';
import { bfloat16, cat, compile, float32, randn, type Tensor, tensor } from '../../../lib/index.js';
import { callsOf, fusedGraph } from './fused.js';

const x = (...shape: number[]): Tensor => randn(shape);
const calls = (fn: (...inputs: Tensor[]) => Tensor[], ...inputs: Tensor[]): string[] =>
  callsOf(fusedGraph(fn, inputs));

/** Rotary positions of halves of the features. */
function rotated(t: Tensor, cos: Tensor, sin: Tensor): Tensor {
  const [first, second] = t.chunk(2, -1) as [Tensor, Tensor];
  return cat([first.mul(cos).sub(second.mul(sin)), second.mul(cos).add(first.mul(sin))], -1);
}

describe('fused calls and parts of tensors', () => {
  it('write what is joined into its windows, and print which values', () => {
    const graph = fusedGraph((a, b) => [cat([a.exp(), a.mul(b)], -1)], [x(3, 4, 8), x(8)]);
    assert.deepEqual(callsOf(graph), ['fused 2']);
    assert.match(String(graph), /exp\(i0\); t1 = mul\(i0, i1\) -> cat\(t0, t1\)/);
    for (const dim of [0, 1, 2])
      assert.deepEqual(
        calls((a) => [cat([a.exp(), a.sin(), a], dim)], x(3, 4, 8)),
        ['fused 2'],
      );
  });

  it('keep parts that something else reads, and read parts that they do not compute', () => {
    const got = calls(
      (a, b) => {
        const y = a.exp();
        return [cat([y, b, y.neg()], 0), y.matmul(b)];
      },
      x(8, 8),
      x(8, 8),
    );
    assert.deepEqual(got, ['fused 2', 'matmul']);
  });

  it('round what is joined before they store it', () => {
    const [cos, sin] = [x(16, 8), x(16, 8)];
    const got = calls(
      (t, c, s) => [rotated(t.transpose(1, 2), c, s).to(bfloat16)],
      x(2, 16, 3, 16).to(bfloat16),
      cos,
      sin,
    );
    assert.deepEqual(got, ['transpose', 'slice', 'slice', 'fused 8']);
  });

  it('convert slices that they read', () => {
    const got = calls((t) => {
      const [first, second] = t.float().chunk(2, -1) as [Tensor, Tensor];
      return [first.mul(second)];
    }, x(4, 16).to(bfloat16));
    assert.deepEqual(got, ['slice', 'slice', 'fused 3']);
  });

  it('convert slices only of what nothing changed since', () => {
    const got = calls((t) => {
      const whole = t.to(float32, { copy: true });
      t.add_(1);
      return [whole.narrow(1, 0, 8).exp().neg(), t];
    }, x(4, 16).to(bfloat16));
    assert.deepEqual(got, ['copy', 'add', 'slice', 'fused 2']);
  });

  it('write into all parts of new memory, whatever the order of its dims', () => {
    const got = calls(
      (a, b) => {
        const whole = a.newEmpty([2, 16, 3, 8]).permute([0, 2, 1, 3]);
        whole.narrow(3, 4, 4).copy_(a.mul(b));
        whole.narrow(3, 0, 4).copy_(a.sub(b));
        return [whole.transpose(1, 2).reshape([2, 16, 24]).sum()];
      },
      x(2, 3, 16, 4),
      x(4),
    );
    assert.deepEqual(got, ['fused 2', 'transpose', 'view', 'sum']);
  });

  const partial: Record<string, (whole: Tensor, y: Tensor) => void> = {
    'of which a part is missing': (whole, y) => {
      whole.narrow(1, 0, 4).copy_(y);
      whole.narrow(1, 4, 3).copy_(y.narrow(1, 0, 3));
      whole.narrow(1, 7, 1).fill_(2);
    },
    'of which parts overlap': (whole, y) => {
      whole.narrow(1, 0, 4).copy_(y);
      whole.narrow(1, 3, 4).copy_(y);
      whole.narrow(1, 4, 4).copy_(y);
    },
    'whose parts change what they read': (whole, y) => {
      whole.narrow(1, 0, 4).copy_(y);
      y.neg_();
      whole.narrow(1, 4, 4).copy_(y);
    },
    'that is read between': (whole, y) => {
      whole.narrow(1, 0, 4).copy_(y);
      whole.narrow(1, 4, 4).copy_(whole.narrow(1, 0, 4).mul(2));
    },
    'of parts of several sizes': (whole, y) => {
      whole.narrow(1, 0, 4).copy_(y);
      whole.narrow(1, 4, 1).copy_(y.narrow(1, 0, 1));
      whole.narrow(1, 5, 3).copy_(y.narrow(1, 1, 3));
    },
  };
  for (const [what, fill] of Object.entries(partial))
    it(`compute the same for memory ${what}`, () => {
      fusedGraph(
        (a) => {
          const y = a.exp().neg();
          const whole = a.newEmpty([3, 8]);
          fill(whole, y);
          return [whole.mul(2)];
        },
        [x(3, 4)],
      );
    });

  it('leave writes into memory of results, whose versions count them', () => {
    const got = calls(
      (a) => {
        const whole = a.newEmpty([3, 8]);
        whole.narrow(1, 0, 4).copy_(a);
        whole.narrow(1, 4, 4).copy_(a);
        return [whole.view([-1])];
      },
      x(3, 4),
    );
    assert.equal(got.filter((name) => name === 'copy').length, 2);
  });

  it('leave joins of unequal parts, of views alone, and of elements between each other', () => {
    assert.deepEqual(
      calls((a, b) => [cat([a.exp(), b.exp()], 0)], x(3, 8), x(1, 8)),
      ['exp', 'exp', 'cat'],
    );
    assert.deepEqual(
      calls((a) => [cat([a, a], 0), cat([a, a], 1)], x(4, 8)),
      ['cat', 'cat'],
    );
    assert.deepEqual(
      calls((a) => [cat([a.exp(), a.sin()], 1)], x(64, 1)),
      ['fused 2', 'cat'],
    );
    assert.deepEqual(
      calls(
        (a) => [
          cat([a, tensor([])], 0)
            .exp()
            .neg(),
        ],
        x(8),
      ).at(-1),
      'fused 2',
    );
  });

  it('train rotary positions as uncompiled code does, in one kernel each', () => {
    const [cos, sin, g] = [x(16, 8), x(16, 8), x(2, 3, 16, 16)];
    const body = (t: Tensor): Tensor => rotated(t.transpose(1, 2), cos, sin).to(bfloat16);
    const t = x(2, 16, 3, 16).to(bfloat16);
    const [expected, got] = [body, compile(body, { backend: 'inductor' })].map((fn) => {
      const leaf = t.detach().requiresGrad_();
      const y = fn(leaf);
      y.backward(g.to(bfloat16));
      return [y.tolist(), (leaf.grad as Tensor).tolist()];
    });
    assert.deepEqual(got, expected);
  });
});
