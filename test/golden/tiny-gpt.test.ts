/** A GPT of two layers has PyTorch's logits, gradients, and losses of ten AdamW steps. */
import { describe, it } from 'mocha';
import * as sw from '../../lib/index.js';
import { assertClose, assertNear, type Slack } from './compare.js';
import { devices } from './devices.js';

import { type Fixture, withFixture } from './read-fixture.js';
import { type Described, seededWeights } from './seeded-weights.js';
import { type DeviceName, expected, makeTensor, snapshot, type Tensor } from './tensors.js';

interface Case {
  name: string;
  sizes: { vocab: number; length: number; size: number; heads: number; layers: number };
  seed: number;
  params: Described;
  /** [2, batch, length]: two batches that take turns. */
  tokens: string;
  targets: string;
  logits: string;
  grads: Record<string, string>;
  tolerance: Slack;
  losses: number[];
  lossTolerance: number;
}

function tinyGptSuite(device: DeviceName): void {
  describe(`a tiny GPT on ${device}`, () => {
    withFixture<Case>('tiny-gpt', (fixture) => {
      const c = fixture.cases[0] as Case;
      it('has the logits of PyTorch', () => {
        const model = new TinyGpt(c, device);
        const logits = model.logits(batch(fixture, c.tokens, 0, device));
        assertClose(snapshot(logits), expected(fixture.entry(c.logits)), 'logits', c.tolerance);
      });
      it('has the gradients of PyTorch', () => {
        const model = new TinyGpt(c, device);
        model
          .loss(batch(fixture, c.tokens, 0, device), batch(fixture, c.targets, 0, device))
          .backward();
        for (const [name, key] of Object.entries(c.grads)) {
          assertClose(
            snapshot(model.at(name).grad as Tensor),
            expected(fixture.entry(key)),
            `gradient of ${name}`,
            c.tolerance,
          );
        }
      });
      it('has the losses of PyTorch in ten AdamW steps', () => checkTraining(fixture, c, device));
    });
  });
}

function batch(fixture: Fixture<Case>, key: string, index: number, device: DeviceName): Tensor {
  return makeTensor(fixture.entry(key), device).select(0, index);
}

function checkTraining(fixture: Fixture<Case>, c: Case, device: DeviceName): void {
  const model = new TinyGpt(c, device);
  const params = [...model.params.values()];
  const groups = [
    { params: params.filter((p) => p.dim() > 1), weightDecay: 0.1 },
    { params: params.filter((p) => p.dim() === 1), weightDecay: 0 },
  ];
  const optimizer = new sw.optim.AdamW(groups, { lr: 1e-2, betas: [0.9, 0.95] });
  c.losses.forEach((wanted, step) => {
    optimizer.zeroGrad();
    const loss = model.loss(
      batch(fixture, c.tokens, step % 2, device),
      batch(fixture, c.targets, step % 2, device),
    );
    loss.backward();
    sw.nn.utils.clipGradNorm_(params, 1);
    optimizer.step();
    assertNear(Number(loss.item()), wanted, 1.3e-6, c.lossTolerance, `loss of step ${step}`);
  });
}

class TinyGpt {
  readonly params: Map<string, Tensor>;

  private readonly c: Case;

  constructor(c: Case, device: DeviceName) {
    this.c = c;
    this.params = seededWeights(c.params, c.seed, device);
    for (const param of this.params.values()) param.requiresGrad_();
  }

  at(name: string): Tensor {
    const param = this.params.get(name);
    if (!param) throw new Error(`no parameter "${name}"`);
    return param;
  }

  /** [batch, length] -> [batch, length, vocab] */
  logits(tokens: Tensor): Tensor {
    let x = sw.embedding(tokens, this.at('wte')).add(this.at('wpe').narrow(0, 0, tokens.size(1)));
    for (let i = 0; i < this.c.sizes.layers; i++) {
      x = x.add(this.attention(`h${i}`, this.norm(`h${i}.norm1`, x)));
      const up = sw.linear(
        this.norm(`h${i}.norm2`, x),
        this.at(`h${i}.up`),
        this.at(`h${i}.upBias`),
      );
      x = x.add(
        sw.linear(
          sw.gelu(up, { approximate: 'tanh' }),
          this.at(`h${i}.down`),
          this.at(`h${i}.downBias`),
        ),
      );
    }
    return sw.linear(this.norm('norm', x), this.at('wte'));
  }

  loss(tokens: Tensor, targets: Tensor): Tensor {
    return sw.crossEntropy(this.logits(tokens).flatten(0, 1), targets.flatten(), {
      ignoreIndex: -1,
    });
  }

  private norm(name: string, x: Tensor): Tensor {
    return sw.layerNorm(x, [this.c.sizes.size], this.at(`${name}.weight`), this.at(`${name}.bias`));
  }

  private attention(block: string, x: Tensor): Tensor {
    const { heads, size } = this.c.sizes;
    const [rows, length] = [x.size(0), x.size(1)];
    const split = (t: Tensor): Tensor =>
      t.reshape([rows, length, heads, size / heads]).transpose(1, 2); // [B, H, T, D]
    const [q, k, v] = sw.linear(x, this.at(`${block}.qkv`)).chunk(3, -1) as [
      Tensor,
      Tensor,
      Tensor,
    ];
    const y = sw.scaledDotProductAttention(split(q), split(k), split(v), { isCausal: true });
    return sw.linear(y.transpose(1, 2).reshape([rows, length, size]), this.at(`${block}.proj`));
  }
}

for (const device of devices) tinyGptSuite(device);
