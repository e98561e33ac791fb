/** Errors of ops that the library runs for a call of the program name that call. */
import assert from 'node:assert/strict';
import { fullyShard } from '../../lib/distributed.js';
import { amp, nn, ones, optim, type ShardwiseError, type Tensor, tensor } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

const names = (op: string, message: RegExp) => (error: ShardwiseError) => {
  assert.equal(error.details['op'], op);
  assert.match(error.message, message);
  assert.match(String(error.stack), message, 'the stack has the same message');
  return true;
};

/** An optimizer whose step runs an op that fails. */
class Failing extends optim.Optimizer {
  protected stepGroup({ params }: { params: Tensor[] }): void {
    params[0]?.add_(ones([3]));
  }
}

describe('an error of an op that the library runs', () => {
  it('names the step of the optimizer', () => {
    const optimizer = new Failing([ones([2], { requiresGrad: true })], { lr: 1 });
    assert.throws(() => optimizer.step(), names('Failing.step', /Failing\.step, in add_?: /));
  });

  it('names the method of the scaler, for a loss that was made outside of the ranks', async () => {
    const loss = tensor(1);
    await withRanks(2, async () => {
      const scaler = new amp.GradScaler({ device: 'cpu' });
      assert.throws(
        () => scaler.scale(loss),
        names('GradScaler.scale', /GradScaler\.scale, in mul: expected tensors on one device/),
      );
    })();
  });

  it('says what to call before what waits for gradients of other ranks', async () => {
    const step = (use: (scaler: amp.GradScaler, module: nn.Linear) => unknown) =>
      withRanks(2, async () => {
        const module = fullyShard(new nn.Linear(2, 2));
        const optimizer = new optim.SGD(module.parameters(), { lr: 0.1 });
        const scaler = new amp.GradScaler({ device: 'cpu' });
        scaler.scale(module(ones([1, 2])).sum()).backward();
        await scaler.stepAsync(optimizer);
        module(ones([1, 2]))
          .sum()
          .backward();
        scaler.update();
        await use(scaler, module);
      })();
    const clip = (_: unknown, module: nn.Linear): unknown =>
      nn.utils.clipGradNorm_(module.parameters(), 1, { errorIfNonfinite: true });
    await assert.rejects(step(clip), /Leave out errorIfNonfinite, and read the norm/);
    await step(async (scaler, module) => {
      const norm = nn.utils.clipGradNorm_(module.parameters(), 1);
      assert.ok(Number.isFinite(await norm.itemAsync()));
      assert.equal(await scaler.getScaleAsync(), scaler.stateDict()['scale']);
    });
    const stateOf = withRanks(2, () => {
      const module = fullyShard(new nn.Linear(2, 2));
      const scaler = new amp.GradScaler({ device: 'cpu' });
      scaler.scale(module(ones([1, 2])).sum()).backward();
      scaler.step(new optim.SGD(module.parameters(), { lr: 0.1, fused: true }));
      scaler.update();
      scaler.stateDict();
    });
    await assert.rejects(stateOf(), /Call `await scaler\.getScaleAsync\(\)` before it/);
  });

  it('says what a norm of gradients is that is not finite', () => {
    const w = ones([1], { requiresGrad: true });
    w.mul(Number.NaN).sum().backward();
    assert.throws(
      () => nn.utils.clipGradNorm_([w], 1, { errorIfNonfinite: true }),
      names('clipGradNorm_', /expected gradients of a finite norm, got NaN\. autograd\.setDetectA/),
    );
  });

  it('names the leaf and the op of backward, for a loss of outside of the ranks', async () => {
    const x = ones([2, 2], { requiresGrad: true });
    await withRanks(2, async () => {
      const told: Record<string, RegExp> = {
        sum: /^backward of a leaf, in grad: expected float32\[2, 2\] on cpu of the main program/,
        matmul: /^backward of matmul\(.*\), in matmul: expected tensors on one device/,
      };
      assert.throws(() => x.sum().backward(), { message: told['sum'] });
      assert.throws(() => x.matmul(x).sum().backward(), { message: told['matmul'] });
    })();
  });
});
