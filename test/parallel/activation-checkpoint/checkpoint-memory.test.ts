/** What a checkpoint keeps in memory, and when it frees it. */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../../lib/compile/index.js';
import { checkpoint } from '../../../lib/distributed.js';
import { float64, keep, memory, nn, randn, scope, type Tensor } from '../../../lib/index.js';
import { runProgram } from '../../run-program.js';

const leaf = (shape: number[]): Tensor => randn(shape, { dtype: float64 }).requiresGrad_();

describe('the memory of a checkpoint', () => {
  it('frees what it recomputed as soon as backward has used it', () => {
    const wide = 256 * 1024 * 4; // bytes of the activations inside a block
    const blocks = Array.from(
      { length: 12 },
      () => new nn.Sequential(new nn.Linear(64, 1024), new nn.Tanh(), new nn.Linear(1024, 64)),
    );
    scope(() => {
      let h: Tensor = randn([256, 64]);
      for (const block of blocks) h = checkpoint((t: Tensor) => block(t), h);
      const loss = h.sum();
      memory.collect();
      const before = memory.stats('cpu').allocatedBytes;
      memory.resetPeak('cpu');
      loss.backward();
      const growth = memory.stats('cpu').peakAllocatedBytes - before;
      const gradients = blocks.flatMap((block) => [...block.parameters()]);
      const held = growth - gradients.reduce((sum, { nbytes }) => sum + nbytes, 0);
      assert.ok(held < 4 * wide, `${held / wide} of 12 blocks were in memory at a time`);
    });
  });

  it('frees its arguments in backward where the scope of the forward pass has ended', () => {
    const [blocks, numel] = [6, 2 ** 16];
    scope(() => {
      const x = randn([numel], { requiresGrad: true });
      const loss = scope(() => {
        let h: Tensor = x;
        for (let i = 0; i < blocks; i++) h = checkpoint((t: Tensor) => t.sin().mul(t), h);
        return h.sum();
      });
      const before = memory.stats('cpu').allocatedBytes;
      loss.backward();
      // The argument of the first is x, and its gradient is new.
      const freed = before - memory.stats('cpu').allocatedBytes;
      assert.ok(freed >= (blocks - 2) * numel * 4, `${freed / numel / 4} arguments freed`);
    });
  });

  it('keeps what backward needs where the function has scopes of its own', () => {
    const w = leaf([8, 8]);
    const layer = (t: Tensor): Tensor => scope(() => t.matmul(w).exp().sin());
    const gradients = (run: () => Tensor): unknown => {
      w.grad = null;
      run().sum().backward();
      return w.grad;
    };
    const x = leaf([4, 8]);
    const expected = gradients(() => layer(layer(x)));
    for (const whole of [false, true]) {
      const run = (): Tensor => checkpoint((t: Tensor) => layer(layer(t)), x);
      const given = gradients(() => (whole ? scope(run) : run()));
      assert.ok((given as Tensor).equal(expected as Tensor));
    }
  });

  it('lowers the memory of activations to that of arguments, as FakeTensorMode computes it', () => {
    const peak = (through: (block: nn.Module, t: Tensor) => Tensor): number => {
      const mode = new FakeTensorMode();
      mode.run(() => {
        const blocks = Array.from(
          { length: 8 },
          () => new nn.Sequential(new nn.Linear(32, 128), new nn.GELU(), new nn.Linear(128, 32)),
        );
        let h: Tensor = randn([64, 32], { requiresGrad: true });
        for (const block of blocks) h = through(block, h);
        h.square().sum().backward();
      });
      return mode.memory.stats().peak.activations;
    };
    const plain = peak((block, t) => block(t));
    const checkpointed = peak((block, t) => checkpoint((u: Tensor) => block(u), t));
    // Of each block: the argument, 64 x 32. Without a checkpoint also two of 64 x 128.
    const argument = 64 * 32 * 4;
    assert.ok(plain >= 8 * 9 * argument, `${plain}`);
    assert.ok(checkpointed <= 9 * argument, `${checkpointed}`);
  });

  it('leaves no arguments of an earlier step to a full collection, where no scope frees them', async function () {
    this.timeout(120_000);
    const { withScopes, withoutScopes } = await runProgram<Record<string, number>>(
      'parallel/programs/checkpoint-memory',
    );
    // What one step left may wait for the next one.
    const ratio = (withoutScopes as number) / (withScopes as number);
    assert.ok(ratio < 2, `${ratio} of the peak with scopes`);
  });

  it('frees what the function stores elsewhere, unless it is kept', () => {
    const stored: Tensor[] = [];
    const x = leaf([3]);
    const fn = (t: Tensor): Tensor => {
      stored.push(keep(t.add(1).detach()), t.add(2).detach());
      return t.exp().sin().sum();
    };
    checkpoint(fn, x).backward();
    assert.equal(stored.length, 4);
    for (const i of [0, 2]) assert.ok(Number.isFinite((stored[i] as Tensor).sum().item()));
    for (const i of [1, 3])
      assert.throws(() => (stored[i] as Tensor).tolist(), { code: 'ERR_FREED' });
  });
});
