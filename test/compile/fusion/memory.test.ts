/** What fused calls hold: no more at the peak of a graph than the calls one by one. */
import assert from 'node:assert/strict';
import { compile, memory, nn, rand, scope, type Tensor, zeros } from '../../../lib/index.js';
import { callsOf, fusedGraph } from './fused.js';

/** The bytes at the peak of a call, after calls that captured it. */
function peakOf(call: () => void): number {
  for (let i = 0; i < 3; i++) scope(call);
  const before = memory.stats().allocatedBytes;
  memory.resetPeak();
  scope(call);
  return memory.stats().peakAllocatedBytes - before;
}

const sumOfProducts = (...factors: Tensor[]): Tensor => {
  const half = factors.length / 2;
  const product = (i: number): Tensor => (factors[i] as Tensor).matmul(factors[half + i] as Tensor);
  let sum = product(0);
  for (let i = 1; i < half; i++) sum = sum.add(product(i));
  return sum;
};

/** A cell that is called for each of 64 steps, so that its weights have as many gradients. */
class Recurrent extends nn.Module {
  readonly input = new nn.Linear(64, 4 * 64);
  readonly state = new nn.Linear(64, 4 * 64);

  forward(x: Tensor): Tensor {
    let [h, c] = [zeros([8, 64]), zeros([8, 64])];
    for (let i = 0; i < 64; i++) {
      const gates = this.input(x.select(0, i)).add(this.state(h)).chunk(4, 1);
      const [a, b, d, e] = gates as [Tensor, Tensor, Tensor, Tensor];
      c = b.sigmoid().mul(c).add(a.sigmoid().mul(d.tanh()));
      h = e.sigmoid().mul(c.tanh());
    }
    return h;
  }
}

describe('the memory of fused calls', () => {
  it('is at most that of calls one by one, for a sum of 20 products', () => {
    const factors = Array.from({ length: 40 }, () => rand([256, 256]));
    const peak = (backend: 'aot_eager' | 'inductor'): number => {
      const fn = compile(sumOfProducts, { backend });
      return peakOf(() => void fn(...factors));
    };
    const [plain, fused] = [peak('aot_eager'), peak('inductor')];
    assert.ok(fused <= plain, `${fused} bytes instead of ${plain}`);
  });

  it('is at most that of uncompiled code and of calls one by one, for 64 steps of a cell', () => {
    const x = rand([64, 8, 64]);
    const peak = (wrap: (cell: Recurrent) => Recurrent): number => {
      const cell = wrap(new Recurrent());
      return peakOf(() => {
        cell(x).sum().backward();
        cell.zeroGrad();
      });
    };
    const uncompiled = peak((cell) => cell);
    const plain = peak((cell) => compile(cell, { backend: 'aot_eager' }));
    const fused = peak((cell) => compile(cell, { backend: 'inductor' }));
    assert.ok(fused <= uncompiled, `${fused} bytes instead of ${uncompiled}`);
    assert.ok(fused <= plain, `${fused} bytes instead of ${plain}`);
  });

  it('leaves a sum of what products leave, each added as it comes', () => {
    const factors = Array.from({ length: 8 }, () => rand([64, 64]));
    const calls = callsOf(fusedGraph((...all) => [sumOfProducts(...all)], factors));
    assert.deepEqual(calls, ['matmul', 'matmul', 'add', 'matmul', 'add', 'matmul', 'add']);
  });

  it('joins a sum of values that are there anyway', () => {
    const given = Array.from({ length: 8 }, () => rand([64, 64]));
    const sum = (...all: Tensor[]): Tensor[] => [all.reduce((a, b) => a.add(b))];
    assert.deepEqual(callsOf(fusedGraph(sum, given)), ['fused 7']);
  });
});
