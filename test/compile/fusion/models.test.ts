/** Models compiled with the backend `'inductor'` train as uncompiled ones, to the bit. */
import assert from 'node:assert/strict';
import {
  amp,
  bfloat16,
  compile,
  manualSeed,
  nn,
  optim,
  randn,
  type Tensor,
  zeros,
} from '../../../lib/index.js';

class SwiGlu extends nn.Module {
  gate = new nn.Linear(8, 16, { bias: false });
  up = new nn.Linear(8, 16, { bias: false });
  down = new nn.Linear(16, 8, { bias: false });
  norm = new nn.RMSNorm([8]);
  forward(x: Tensor): Tensor {
    const h = this.norm(x);
    return x.add(this.down(this.gate(h).silu().mul(this.up(h))));
  }
}

class Scaled extends nn.Module {
  scale = new nn.Parameter(randn([8]));
  offset = new nn.Parameter(zeros([3, 1]));
  forward(x: Tensor): Tensor {
    const y = x.mul(this.scale).add(this.offset).gelu({ approximate: 'tanh' });
    y.mul_(2).add_(x);
    return y.where(y.gt(0), y.mul(0.1)).sub(y.mean({ dim: -1, keepdim: true }));
  }
}

const models: Record<string, () => nn.Module> = {
  'a transformer block with dropout': () =>
    new nn.TransformerEncoderLayer(8, 2, { dimFeedforward: 16, dropout: 0.1, batchFirst: true }),
  'a SwiGLU block': () => new nn.Sequential(new SwiGlu(), new SwiGlu()),
  'pointwise ops that broadcast, in place and out of place': () => new Scaled(),
};

/** Losses, and parameters and buffers after some steps. */
function train(make: () => nn.Module, compiled: boolean, autocast: boolean): unknown {
  manualSeed(7);
  const model = make();
  const run = (compiled ? compile(model, { backend: 'inductor' }) : model) as never as (
    x: Tensor,
  ) => Tensor;
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
  const losses: unknown[] = [];
  for (let step = 0; step < 3; step++) {
    const x = randn([2, 3, 8]).requiresGrad_();
    const y = autocast
      ? amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, () => run(x))
      : run(x);
    const loss = y.float().square().sum();
    loss.backward();
    losses.push(loss.item(), x.grad?.tolist());
    optimizer.step();
    optimizer.zeroGrad();
  }
  return [losses, [...model.parameters()].map((p) => p.tolist())];
}

describe("the backend 'inductor'", () => {
  for (const [name, make] of Object.entries(models))
    for (const autocast of [false, true])
      it(`trains ${name} as uncompiled code does${autocast ? ', under autocast' : ''}`, () =>
        assert.deepEqual(train(make, true, autocast), train(make, false, autocast)));
});
