/**
 * `nn.utils` and `nn.init`: clipping, parameters as a vector, padded sequences, orthogonal weights.
 */
import assert from 'node:assert/strict';
import { eye, nn, noGrad, ones, ShapeError, type Tensor, tensor, zeros } from '../../lib/index.js';

describe('nn.utils', () => {
  it('accepts one parameter or many', () => {
    const p = new nn.Parameter(ones([2]));
    p.mul(3).sum().backward();
    assert.ok(Math.abs(nn.utils.clipGradNorm_(p, 1).item() - Math.hypot(3, 3)) < 1e-5);
    nn.utils.clipGradValue_(p, 0.1);
    assert.ok(Math.abs((p.grad as Tensor).amax().item() - 0.1) < 1e-6);
    assert.equal(nn.utils.clipGradNorm_([], 1).item(), 0);
  });

  it('writes parameters to a vector and back', () => {
    const layer = new nn.Linear(2, 1);
    const vector = nn.utils.parametersToVector(layer.parameters());
    noGrad(() => nn.utils.vectorToParameters(vector.mul(0).add(4), layer.parameters()));
    assert.deepEqual(layer.weight.tolist(), [[4, 4]]);
    assert.throws(() => nn.utils.vectorToParameters(zeros([9]), layer.parameters()), ShapeError);
  });

  it('pads sequences', () => {
    assert.deepEqual(
      nn.utils.rnn
        .padSequence([tensor([1, 2]), tensor([3])], { batchFirst: true, paddingValue: -1 })
        .tolist(),
      [
        [1, 2],
        [3, -1],
      ],
    );
    assert.deepEqual(nn.utils.rnn.padSequence([ones([2, 3]), ones([1, 3])]).shape, [2, 2, 3]);
  });
});

describe('nn.init.orthogonal_', () => {
  it('makes rows or columns orthogonal, of length gain', () => {
    const wide = nn.init.orthogonal_(zeros([2, 5]), { gain: 2 });
    assert.ok(wide.mm(wide.t()).allclose(eye(2).mul(4), { atol: 1e-5 }));
    const tall = nn.init.orthogonal_(zeros([5, 2]));
    assert.ok(tall.t().mm(tall).allclose(eye(2), { atol: 1e-5 }));
    assert.throws(() => nn.init.orthogonal_(zeros([3])), ShapeError);
  });
});
