/** Errors of ops that the library runs for a call of the program name that call. */
import assert from 'node:assert/strict';
import { amp, ones, optim, type ShardwiseError, type Tensor, tensor } from '../../lib/index.js';
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
});
