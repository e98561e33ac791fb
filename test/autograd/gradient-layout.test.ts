/**
 * `.grad` has the memory layout of its parameter, so that optimizers and buckets walk both in one
 * order.
 */
import assert from 'node:assert/strict';
import {
  amp,
  autograd,
  bfloat16,
  compile,
  nn,
  ones,
  randn,
  type Tensor,
  zeros,
} from '../../lib/index.js';

describe('the layout of .grad', () => {
  it('is that of the weight for a linear layer', () => {
    const layer = new nn.Linear(3, 5);
    for (let pass = 0; pass < 2; pass++)
      layer(ones([4, 3]))
        .sum()
        .backward();
    assert.deepEqual(layer.weight.grad?.stride(), [3, 1]);
  });

  it('is that of both operands of every product, compiled, and in mixed precision', () => {
    const rows = (...shape: number[]): Tensor => randn(shape, { requiresGrad: true });
    const columns = (m: number, n: number): Tensor => randn([n, m]).t().detach().requiresGrad_();
    const layer = new nn.Linear(4, 6);
    const embedding = new nn.Embedding(7, 4);
    const x = randn([2, 3, 8]);
    const attention = new nn.MultiheadAttention(8, 2, { batchFirst: true });
    const products: [Tensor[], (...operands: Tensor[]) => Tensor][] = [
      [[rows(3, 4), rows(4, 5)], (a, b) => a.mm(b)],
      [[columns(3, 4), columns(4, 5)], (a, b) => a.mm(b)],
      [[rows(2, 3, 4), rows(2, 4, 5)], (a, b) => a.bmm(b)],
      [[rows(2, 3, 4), rows(2, 5, 4)], (a, b) => a.bmm(b.transpose(1, 2))],
      [[rows(2, 3, 4), columns(4, 5)], (a, b) => a.matmul(b)],
      [[rows(3, 4), rows(2, 4, 5)], (a, b) => a.matmul(b)],
      [[rows(5), rows(3, 4), columns(4, 5)], (c, a, b) => c.addmm(a, b, { alpha: 2 })],
      [[...layer.parameters()], () => layer(randn([2, 3, 4]))],
      [[embedding.weight], (w) => nn.functional.linear(embedding(ones([2, 3]).long()), w)],
      [[...attention.parameters()], () => attention(x, x, x)[0]],
    ];
    const lower = <T>(fn: () => T): T => amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, fn);
    for (const [i, [operands, fn]] of products.entries())
      for (const run of [fn, compile(fn), (...all: Tensor[]) => lower(() => fn(...all))]) {
        for (const p of operands) p.grad = null;
        const y = run(...operands);
        y.mul(randn(y.shape)).sum().backward();
        for (const p of operands)
          assert.deepEqual([i, p.grad?.stride()], [i, p.stride()], `product ${i}: ${p.shape}`);
      }
  });

  it('is that of a dense parameter in any order of dims', () => {
    const w = zeros([3, 5, 2]).permute([2, 0, 1]).clone().requiresGrad_();
    assert.deepEqual(w.stride(), [1, 10, 2]);
    w.mul(randn([2, 3, 5]))
      .sum()
      .backward();
    assert.deepEqual(w.grad?.stride(), [1, 10, 2]);
    assert.deepEqual(w.grad?.shape, [2, 3, 5]);
    const [g] = autograd.grad(w.mul(w).sum(), w, { createGraph: true });
    w.grad = null;
    (g as Tensor).sum().backward();
    assert.deepEqual((w.grad as Tensor | null)?.stride(), [1, 10, 2]);
  });

  it('is row-major for a parameter with gaps', () => {
    const w = zeros([3, 4]).narrow(1, 0, 2).detach().requiresGrad_();
    w.t()
      .mul(randn([2, 3]))
      .t()
      .sum()
      .backward();
    assert.deepEqual(w.grad?.stride(), [2, 1]);
  });
});
