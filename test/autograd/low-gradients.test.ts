/**
 * The gradient of a residual stream under mixed precision: norms write it in 16 bits, too, where
 * the next rule converts it. Gradients are those of a conversion by an op of its own.
 */
import assert from 'node:assert/strict';
import { checkpoint } from '../../lib/distributed.js';
import {
  addRmsNorm,
  amp,
  autograd,
  bfloat16,
  compile,
  type DType,
  float16,
  library,
  manualSeed,
  nn,
  randn,
  type Tensor,
} from '../../lib/index.js';
import { callsOfOps } from '../calls-of-ops.js';

const { linear } = nn.functional;

interface Leaves {
  x: Tensor;
  first: Tensor;
  second: Tensor;
  gain: Tensor;
}

const leaves = (): Leaves => ({
  x: randn([6, 16]).requiresGrad_(),
  first: randn([16, 16]).requiresGrad_(),
  second: randn([16, 16]).requiresGrad_(),
  gain: randn([16]).requiresGrad_(),
});

/** A projection whose result is added to the stream, which a norm and the next addition read. */
const streams: Record<string, (given: Leaves) => Tensor> = {
  layerNorm: ({ x, first, second, gain }) => {
    const h = x.add(linear(x, first));
    return h.add(linear(h.layerNorm([16], gain), second));
  },
  rmsNorm: ({ x, first, second, gain }) => {
    const h = x.add(linear(x, first));
    return h.add(linear(h.rmsNorm([16], gain), second));
  },
  addRmsNorm: ({ x, first, second, gain }) => {
    const [y, h] = addRmsNorm(linear(x, first), x, [16], gain);
    return h.add(linear(y, second));
  },
};
const backwardOf: Record<string, string> = {
  layerNorm: 'layerNormBackward 4',
  rmsNorm: 'rmsNormBackward 3',
  addRmsNorm: 'rmsNormBackward 3',
};

const region = <T>(fn: () => T, dtype: DType = bfloat16): T =>
  amp.autocast({ deviceType: 'cpu', dtype }, fn);

/** Runs `fn` where dispatch modes see every op, so that conversions are ops of their own. */
const apart = <T>(fn: () => T): T => {
  let result!: T;
  library.withDispatchMode(
    (call) => call.run(),
    () => {
      result = fn();
    },
  );
  return result;
};

for (const [name, stream] of Object.entries(streams))
  describe(`the gradient of a residual stream with ${name}`, () => {
    beforeEach(() => manualSeed(5));

    const gradients = (given: Leaves, out: Tensor): Tensor[] =>
      autograd.grad(out.square().sum(), Object.values(given), { retainGraph: true }) as Tensor[];
    const same = (actual: readonly Tensor[], expected: readonly Tensor[]): void =>
      actual.forEach((g, i) => {
        assert.equal(g.dtype, expected[i]?.dtype);
        assert.ok(g.equal(expected[i] as Tensor), `${i}: ${g}\n${expected[i]}`);
      });

    for (const dtype of [bfloat16, float16])
      it(`is written in ${dtype.name} by the norm's backward, bit for bit`, () => {
        const given = leaves();
        const out = region(() => stream(given), dtype);
        const expected = apart(() => gradients(given, out));
        same(gradients(given, out), expected);
        const [own, other] = [
          callsOfOps(() => gradients(given, out)),
          callsOfOps(() => apart(() => gradients(given, out))),
        ];
        assert.ok(own.includes(backwardOf[name] as string), own.join());
        const copies = (seen: string[]): number => seen.filter((c) => c === 'copy 1').length;
        assert.equal(copies(own), copies(other) - 1);
      });

    it('is the same with a hook that replaces or changes it', () => {
      for (const hook of [(g: Tensor) => g.mul(2), (g: Tensor) => void g.mul_(2)]) {
        const given = leaves();
        const out = region(() => {
          const { x, first, second, gain } = given;
          const h = x.add(linear(x, first));
          h.registerHook(hook);
          return h.add(linear(h.rmsNorm([16], gain), second));
        });
        const expected = apart(() => gradients(given, out));
        same(gradients(given, out), expected);
      }
    });

    it('is the same where the norm gives only a part of it', () => {
      const given = leaves();
      const { x, first, second, gain } = given;
      const out = region(() => {
        const h = x.add(linear(x, first));
        const late = h.mul(3);
        const y = h.layerNorm([16], gain);
        return late.add(linear(y, second)).add(h.rmsNorm([16], gain));
      });
      same(
        gradients(given, out),
        apart(() => gradients(given, out)),
      );
    });

    it('is the same in a checkpoint, and compiled', () => {
      const given = leaves();
      const expected = gradients(
        given,
        region(() => stream(given)),
      );
      const recomputed = region(() => checkpoint((x: Tensor) => stream({ ...given, x }), given.x));
      same(gradients(given, recomputed), expected);
      for (const backend of ['eager', 'aot_eager'] as const) {
        const fn = compile(
          (x: Tensor, first: Tensor, second: Tensor, gain: Tensor) =>
            region(() => stream({ x, first, second, gain })),
          { backend, fullgraph: true },
        );
        for (let i = 0; i < 3; i++) {
          const { x, first, second, gain } = given;
          same(gradients(given, fn(x, first, second, gain)), expected);
        }
      }
    });

    it('has second derivatives', () => {
      const given = leaves();
      const out = region(() => stream(given));
      const [gx] = autograd.grad(out.square().sum(), [given.x], { createGraph: true });
      const [gg] = autograd.grad((gx as Tensor).square().sum(), [given.gain]);
      assert.ok(gg?.isfinite().all().item());
    });
  });
