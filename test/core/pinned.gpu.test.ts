/** Pinned host memory and asynchronous copies: the op toDevice. */
import assert from 'node:assert/strict';
import {
  arange,
  cuda,
  DeviceError,
  empty,
  float64,
  memory,
  ones,
  rand,
  scope,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

/**
 * Work that keeps the GPU busy for some milliseconds, so that copies after it are still to come
 * when the next lines run.
 */
function keepBusy(): Tensor {
  let x = ones([2048, 2048], { device: 'cuda' });
  for (let i = 0; i < 20; i++) x = x.matmul(x).mul(1 / 2048);
  return x;
}

describe('pinned memory on CUDA', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  it('holds the same values, in the same layout', () => {
    const x = arange(12).reshape([3, 4]).t();
    const pinned = x.pinMemory();
    assert.ok(pinned.isPinned() && pinned.isCpu && !x.isPinned());
    assert.equal(pinned.pinMemory(), pinned);
    assert.deepEqual(pinned.stride(), x.stride());
    assert.deepEqual(pinned.tolist(), x.tolist());
    assert.ok(pinned.select(0, 1).isPinned(), 'a view of it is pinned too');
    assert.deepEqual(x.slice(0, 0, 4, 2).pinMemory().tolist(), x.slice(0, 0, 4, 2).tolist());
  });

  it('can be requested when a tensor is created', () => {
    const made = [
      empty([3], { pinMemory: true }),
      zeros([0], { pinMemory: true }),
      tensor([1, 2], { pinMemory: true }),
      rand([3], { pinMemory: true, requiresGrad: true }),
    ];
    for (const t of made) assert.ok(t.isPinned());
    assert.ok(made[3]?.isLeaf && made[3].requiresGrad);
  });

  it('is host memory, so a tensor on the GPU is refused', () => {
    const message = /pinMemory: expected a CPU tensor, got float32\[3\] on cuda:0/;
    for (const make of [
      () => ones([3], { device: 'cuda' }).pinMemory(),
      () => ones([3], { device: 'cuda', pinMemory: true }),
    ]) {
      assert.throws(
        make,
        (error: unknown) => error instanceof DeviceError && message.test(error.message),
      );
    }
    assert.equal(ones([3], { device: 'cuda' }).isPinned(), false);
  });

  it('is copied to the GPU before later changes of the source', () => {
    const source = zeros([100_000], { pinMemory: true });
    const busy = keepBusy();
    const copies: Tensor[] = [];
    for (let i = 0; i < 20; i++) {
      source.fill_(i);
      copies.push(source.to('cuda', { nonBlocking: true }));
    }
    copies.forEach((copy, i) => assert.equal(copy.sum().item(), i * 100_000));
    assert.ok(busy.isCuda);
  });

  it('is not reused while the GPU still reads it', () => {
    const busy = keepBusy();
    const copies = Array.from({ length: 50 }, (_, i) =>
      scope(() => ones([50_000]).mul(i).pinMemory().to('cuda', { nonBlocking: true })),
    );
    copies.forEach((copy, i) => assert.equal(copy.sum().item(), i * 50_000));
    assert.ok(busy.isCuda);
  });

  it('is the target of nonBlocking copies from the GPU, which reads wait for', () => {
    const x = keepBusy().sum(0);
    const landed = x.to('cpu', { nonBlocking: true });
    assert.ok(landed.isPinned());
    assert.deepEqual(landed.tolist(), x.tolist());
    assert.equal(x.to('cpu').isPinned(), false);
    const wide = x.to({ device: 'cpu', dtype: float64, nonBlocking: true });
    assert.ok(wide.isPinned() && wide.dtype === float64);
    assert.deepEqual(wide.tolist(), x.tolist());
  });

  it('supports copy_ in both directions', () => {
    const [host, device] = [zeros([1000], { pinMemory: true }), zeros([1000], { device: 'cuda' })];
    device.copy_(host.fill_(3), { nonBlocking: true });
    device.add_(1);
    host.copy_(device, { nonBlocking: true });
    assert.equal(host.sum().item(), 4000);
    assert.ok(host.isPinned());
    host.slice(0, 100, 200).copy_(device.slice(0, 0, 100).mul(2), { nonBlocking: true });
    assert.equal(host.sum().item(), 4400);
    assert.equal(
      zeros([1000], { dtype: float64 }).copy_(device, { nonBlocking: true }).sum().item(),
      4000,
    );
    assert.deepEqual(
      zeros([2, 3], { device: 'cuda' })
        .copy_(ones([3], { pinMemory: true }))
        .sum()
        .item(),
      6,
    );
  });

  it('passes gradients on', () => {
    const x = ones([4]).requiresGrad_();
    x.pinMemory()
      .to('cuda', { nonBlocking: true })
      .mul(3)
      .to('cpu', { nonBlocking: true })
      .sum()
      .backward();
    assert.deepEqual(x.grad?.tolist(), [3, 3, 3, 3]);
    const y = ones([4], { device: 'cuda' }).requiresGrad_();
    zeros([4], { pinMemory: true }).copy_(y.mul(2), { nonBlocking: true }).sum().backward();
    assert.deepEqual(y.grad?.tolist(), [2, 2, 2, 2]);
  });

  it('is counted, is freed, and stays pinned when it is resized', () => {
    memory.collect();
    cuda.synchronize(); // what the GPU still used is back
    const before = memory.stats('cpu').pinnedBytes;
    const t = zeros([1 << 20], { pinMemory: true });
    assert.equal(memory.stats('cpu').pinnedBytes - before, 4 << 20);
    assert.ok(
      memory.snapshot('cpu').storages.some((s) => s.memory === 'pinned' && s.bytes === 4 << 20),
    );
    t.to('cuda', { nonBlocking: true }).dispose();
    t.untypedStorage().resize_(8 << 20);
    assert.ok(t.isPinned());
    t.dispose();
    cuda.synchronize();
    ones([1]).item(); // the CPU's stream is done too
    const { pinnedBytes, pinnedReservedBytes } = memory.stats('cpu');
    assert.equal(pinnedBytes, before);
    memory.emptyCache('cpu');
    assert.ok(pinnedReservedBytes - memory.stats('cpu').pinnedReservedBytes >= 8 << 20);
  });
});
