/**
 * Norms under mixed precision write their result in the low precision, too, and the next product
 * reads it: values, gradients and all that can be seen are those of a conversion by an op of its
 * own, as without the cache of conversions.
 */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../lib/compile/index.js';
import { dispatch } from '../../lib/core/dispatch.js';
import { type AnyOp, opByName } from '../../lib/core/op.js';
import {
  checkpoint,
  createSelectiveCheckpointContexts,
  distributeTensor,
  initDeviceMesh,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import {
  addRmsNorm,
  amp,
  autograd,
  bfloat16,
  compile,
  type DType,
  float16,
  float32,
  float64,
  library,
  manualSeed,
  nn,
  noGrad,
  randn,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { callsOfOps } from '../calls-of-ops.js';
import { onRanks, valuesOf } from '../distributed/support/on-ranks.js';

const cached = <T>(fn: () => T, dtype: DType = bfloat16): T =>
  amp.autocast({ deviceType: 'cpu', dtype }, fn);
const uncached = <T>(fn: () => T, dtype: DType = bfloat16): T =>
  amp.autocast({ deviceType: 'cpu', dtype, cacheEnabled: false }, fn);

type Norm = (x: Tensor, weight: Tensor, bias: Tensor) => Tensor;

const norms: Record<string, Norm> = {
  layerNorm: (x, weight, bias) => x.layerNorm([16], weight, bias),
  rmsNorm: (x, weight) => x.rmsNorm([16], weight),
  addRmsNorm: (x, weight) => addRmsNorm(x, x.mul(0.5), [16], weight)[0],
};

const leaves = (): { x: Tensor; weight: Tensor; bias: Tensor; w: Tensor } => ({
  x: randn([3, 5, 16]).requiresGrad_(),
  weight: randn([16]).requiresGrad_(),
  bias: randn([16]).requiresGrad_(),
  w: randn([8, 16]).requiresGrad_(),
});

const same = (actual: Tensor | null | undefined, expected: Tensor | null | undefined): void => {
  assert.equal(actual?.dtype, expected?.dtype);
  assert.ok(actual?.equal(expected as Tensor), `${actual}\n${expected}`);
};

/** The elements as float32, bit for bit. */
function bits(t: Tensor): Uint32Array {
  const { buffer, byteOffset, length } = t.toTypedArray();
  return new Uint32Array(buffer, byteOffset, length);
}

const results = { layerNorm: 3, rmsNorm: 2, addRmsNorm: 3 } as Record<string, number>;

for (const [name, norm] of Object.entries(norms))
  describe(`${name} under autocast`, () => {
    beforeEach(() => manualSeed(3));

    const product = ({ x, weight, bias, w }: ReturnType<typeof leaves>): Tensor =>
      nn.functional.linear(norm(x, weight, bias), w);

    it('writes the conversion that the product reads', () => {
      const given = leaves();
      const seen = callsOfOps(() => cached(() => product(given)));
      assert.ok(seen.includes(`${name} ${(results[name] as number) + 1}`), seen.join());
      assert.equal(seen.filter((call) => call.startsWith('copy')).length, 1, 'the weight');
    });

    for (const dtype of [bfloat16, float16])
      it(`gives the values and gradients of a conversion to ${dtype.name}`, () => {
        const given = leaves();
        const g = randn([3, 5, 8]).to(dtype);
        const [y, expected] = [cached, uncached].map((region) => {
          const out = region(() => product(given), dtype);
          return {
            out,
            grads: autograd.grad(out, Object.values(given), { gradOutputs: g, allowUnused: true }),
          };
        });
        same(y?.out, expected?.out);
        y?.grads.forEach((grad, i) => {
          if (expected?.grads[i] === null) assert.equal(grad, null);
          else same(grad, expected?.grads[i]);
        });
      });

    it('gives its result in float32, and hooks of it see its whole gradient', () => {
      const given = leaves();
      const run = (region: typeof cached): { grad: Tensor; seen: Tensor } => {
        const seen: Tensor[] = [];
        const [y, out] = region(() => {
          const y = norm(given.x, given.weight, given.bias);
          y.retainGrad();
          y.registerHook((g: Tensor) => {
            seen.push(g);
          });
          return [y, nn.functional.linear(y, given.w)];
        });
        assert.equal(y?.dtype, float32);
        out
          ?.float()
          .square()
          .sum()
          .add((y as Tensor).sum())
          .backward();
        assert.equal(seen.length, 1);
        return { grad: y?.grad as Tensor, seen: seen[0] as Tensor };
      };
      const [own, expected] = [run(cached), run(uncached)];
      same(own.grad, expected.grad);
      same(own.seen, expected.seen);
    });

    it('passes on a gradient that a hook changed through data', () => {
      const { x, weight, bias } = leaves();
      const layer = new nn.Linear(16, 16);
      cached(() => {
        const sum = layer(x).add(x);
        sum.registerHook((g) => void g.data.zero_());
        return norm(sum, weight, bias);
      })
        .square()
        .sum()
        .backward();
      assert.equal((layer.bias as nn.Parameter).grad?.abs().sum().item(), 0);
    });

    it('has the second derivatives of a conversion', () => {
      const given = leaves();
      const second = (region: typeof cached): Tensor => {
        const loss = region(() => product(given).float().square().sum());
        const [gx] = autograd.grad(loss, [given.x], { createGraph: true });
        return autograd.grad((gx as Tensor).square().sum(), [given.weight])[0] as Tensor;
      };
      assert.ok(second(cached).allclose(second(uncached), { rtol: 1e-4, atol: 1e-4 }));
    });

    it('is converted again after it changed or got other memory', () => {
      const { x, weight, bias, w } = leaves();
      const linear = (y: Tensor): Tensor => nn.functional.linear(y, w);
      cached(() => {
        const y = norm(x, weight, bias);
        y.mul_(0);
        assert.equal(linear(y).abs().sum().item(), 0);
        const other = norm(x, weight, bias);
        other.data = zeros([3, 5, 16]);
        assert.equal(linear(other).abs().sum().item(), 0);
        const third = norm(x, weight, bias);
        assert.notEqual(linear(third).abs().sum().item(), 0);
        noGrad(() => third.zero_());
        assert.equal(linear(third).abs().sum().item(), 0);
        const fourth = norm(x, weight, bias);
        fourth.data.zero_(); // raises no version
        assert.equal(linear(fourth).abs().sum().item(), 0);
      });
    });

    it('saves for backward what a conversion saves', () => {
      const given = leaves();
      const saved = (region: typeof cached): string[] => {
        const seen: string[] = [];
        autograd.savedTensorsHooks(
          (t: Tensor) => {
            seen.push(`${t.dtype.name}${t.shape}`);
            return t;
          },
          (t: Tensor) => t,
          () => region(() => product(given)),
        );
        return seen;
      };
      assert.deepEqual(saved(cached), saved(uncached));
    });

    it('has the gradients of checkpoints', () => {
      const given = leaves();
      const body = (x: Tensor): Tensor => product({ ...given, x });
      const gradients = (run: (x: Tensor) => Tensor): (Tensor | null)[] => {
        const loss = cached(() => run(given.x.mul(1)).float().square().sum());
        return autograd.grad(loss, [given.x, given.weight, given.w]);
      };
      const expected = gradients(body);
      for (const keep of [null, [], ['copy'], [name]]) {
        const options =
          keep === null ? {} : { contextFn: () => createSelectiveCheckpointContexts(keep) };
        gradients((x) => checkpoint(body, x, options)).forEach((g, i) => {
          same(g, expected[i]);
        });
      }
    });

    it('is not written where nothing would read it, or ops are watched', () => {
      const given = leaves();
      const { x, weight, bias } = given;
      const plain = `${name} ${results[name]}`;
      const inputs = [x, weight, bias].map((t) => t.detach()) as [Tensor, Tensor, Tensor];
      const wide = inputs.map((t) => t.to(float64).requiresGrad_()) as typeof inputs;
      const low = inputs.map((t) => t.to(bfloat16).requiresGrad_()) as typeof inputs;
      const without: Record<string, () => unknown> = {
        'no autocast': () => norm(x, weight, bias),
        'no cache': () => uncached(() => norm(x, weight, bias)),
        'no gradients': () => cached(() => noGrad(() => norm(x, weight, bias))),
        'no input that requires one': () => cached(() => norm(...inputs)),
        float64: () => cached(() => norm(...wide)),
        '16 bits': () => norm(...low),
        'a dispatch mode': () =>
          library.withDispatchMode(
            (call) => call.run(),
            () => cached(() => norm(x, weight, bias)),
          ),
      };
      for (const [why, fn] of Object.entries(without))
        assert.ok(callsOfOps(fn).includes(plain), why);
      const promoted = callsOfOps(() => cached(() => norm(...low)));
      assert.ok(promoted.includes(`${name} ${(results[name] as number) + 1}`), promoted.join());
    });

    it('is left to the product for distributed tensors, and could be sharded like the result', async () => {
      await onRanks(2, async () => {
        const mesh = initDeviceMesh('cpu', [2]);
        const { x, weight } = leaves();
        const [rows, one] = [
          distributeTensor(x.detach(), mesh, [Shard(0)]).requiresGrad_(),
          distributeTensor(weight.detach(), mesh, [Replicate()]),
        ];
        const seen = callsOfOps(() => cached(() => norm(rows, one, one)));
        assert.ok(seen.includes(`${name} ${results[name]}`), seen.join());
        const inputs = { layerNorm: [rows, one, one], rmsNorm: [rows, one] }[name];
        const params = { width: 16, eps: 1e-5, low: bfloat16 };
        const outputs = dispatch(opByName(name) as AnyOp, inputs ?? [rows, rows, one], params);
        const [y, low] = [outputs[0] as Tensor, outputs.at(-1) as Tensor];
        assert.deepEqual(low.placements, y.placements);
        const rounded = y.detach().toLocal().to(bfloat16);
        assert.deepEqual(await valuesOf(low.toLocal()), await valuesOf(rounded));
      });
    });

    it('has the bits of a conversion, of special values too', () => {
      const op = opByName(name) as AnyOp;
      const specials = [1, Infinity, -Infinity, NaN, 3e38, 1e-38, 1e-45, 65519, 65520, 1e-7, 0, -0];
      for (const dtype of [bfloat16, float16])
        for (const [rows, width] of [
          [3, 12],
          [70, 37],
          [2, 1030],
        ] as const) {
          const x = randn([rows, width]);
          const weight = tensor(
            Array.from({ length: width }, (_, i) => specials[i % specials.length] as number),
          );
          const inputs = {
            layerNorm: [x, weight, randn([width])],
            rmsNorm: [x, weight],
            addRmsNorm: [x, randn([rows, width]), weight],
          }[name] as Tensor[];
          const outputs = dispatch(op, inputs, { width, eps: 1e-5, low: dtype });
          const [y, own] = [outputs[0] as Tensor, outputs.at(-1) as Tensor];
          assert.deepEqual(bits(own), bits(y.to(dtype)));
        }
    });

    it('is the same compiled, and its kernel writes the conversion there, too', () => {
      const given = leaves();
      const { x, weight, bias, w } = given;
      const fn = (...[x, weight, bias, w]: Tensor[]): Tensor =>
        cached(() => product({ x, weight, bias, w } as typeof given));
      const run = (each: typeof fn): (Tensor | null)[] => {
        const out = each(x, weight, bias, w);
        return [out, ...autograd.grad(out.float().square().sum(), [x, weight, w])];
      };
      const expected = run(fn);
      for (const backend of ['eager', 'aot_eager'] as const) {
        const compiled = compile(fn, { backend, fullgraph: true });
        for (let i = 0; i < 3; i++)
          run(compiled).forEach((t, k) => {
            same(t, expected[k]);
          });
      }
    });

    it('takes no more memory at the peak than a conversion before the product', () => {
      const peak = (region: typeof cached): number => {
        const mode = new FakeTensorMode();
        mode.run(() => {
          const given = { ...leaves(), w: randn([64, 16]).requiresGrad_() };
          region(() => product(given).float().sum()).backward();
        });
        return mode.memory.stats().peak.total;
      };
      const [own, other] = [peak(cached), peak(uncached)];
      assert.ok(own <= other, `${own} against ${other}`);
    });
  });
