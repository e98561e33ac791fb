/**
 * Gradients of queries, keys and values that are parts of one tensor: attention writes them into
 * one tensor, and what joins gradients of parts takes it as it is.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { checkpoint } from '../../lib/distributed.js';
import {
  amp,
  autograd,
  bfloat16,
  type DType,
  float32,
  float64,
  manualSeed,
  memory,
  nn,
  rand,
  randn,
  type Tensor,
} from '../../lib/index.js';
import type { Operands } from './attention-operands.js';
import { type AttentionSizes, assertJoined, opsOf, packings } from './attention-packings.js';

const { scaledDotProductAttention } = nn.functional;

const SIZES: AttentionSizes = { batch: 2, length: 5, heads: 4, kvHeads: 4, depth: 8 };
const GROUPED: AttentionSizes = { ...SIZES, kvHeads: 2 };

const attend = ([q, k, v]: Operands): Tensor =>
  scaledDotProductAttention(q, k, v, { isCausal: true, enableGqa: true });

/** Copies, whose gradients have memory of their own. */
const apart = (operands: Operands): Operands => operands.map((t) => t.clone()) as Operands;

/** Queries, keys and values of one layer, as most models take them. */
const thirds = (packed: Tensor): Operands =>
  packed.chunk(3, -1).map((t) => t.view([2, 5, 4, 8]).transpose(1, 2)) as Operands;

/** The gradient of values, packed by `mul`, for a program of the operands. */
function gradientOf(
  values: Tensor,
  split: (packed: Tensor) => Operands,
  program: (operands: Operands) => Tensor,
): Tensor {
  const x = values.detach().clone().requiresGrad_();
  program(split(x.mul(1)))
    .square()
    .sum()
    .backward();
  return x.grad as Tensor;
}

const assertEqual = (actual: Tensor, expected: Tensor, what = ''): void => {
  assert.ok(actual.equal(expected), `${what}: ${actual.sub(expected).abs().max().item()}`);
  assert.deepEqual(actual.strides, expected.strides);
};

describe('gradients of queries, keys and values that are parts of one tensor', () => {
  for (const [name, { isGrouped, shape, split }] of Object.entries(packings))
    it(`are written into one tensor, without a copy: ${name}`, () => {
      const sizes = isGrouped ? GROUPED : SIZES;
      const x = randn(shape(sizes)).requiresGrad_();
      const loss = attend(split(x.mul(1), sizes))
        .square()
        .sum();
      assertJoined(opsOf(() => loss.backward()));
      const grad = x.grad as Tensor;
      assert.ok(grad.isContiguous());
      assert.equal(grad.untypedStorage().nbytes, x.nbytes);
    });

  it('are those of separate tensors, bit by bit, in any sizes', () => {
    const cases = fc.record({
      name: fc.constantFrom(...Object.keys(packings)),
      batch: fc.integer({ min: 1, max: 2 }),
      length: fc.constantFrom(1, 3, 70),
      kvHeads: fc.integer({ min: 1, max: 3 }),
      group: fc.integer({ min: 1, max: 2 }),
      depth: fc.constantFrom(1, 4, 9),
      dtype: fc.constantFrom<DType>(float32, float64, bfloat16),
      isCausal: fc.boolean(),
      seed: fc.nat(1000),
    });
    fc.assert(
      fc.property(cases, ({ name, group, dtype, isCausal, seed, ...rest }) => {
        const { isGrouped, shape, split } = packings[name] as (typeof packings)[string];
        const sizes = { ...rest, heads: rest.kvHeads * (isGrouped ? group : 1) };
        manualSeed(seed);
        const values = rand(shape(sizes), { dtype });
        const program = ([q, k, v]: Operands): Tensor =>
          scaledDotProductAttention(q, k, v, { isCausal, enableGqa: true });
        const packed = (t: Tensor): Operands => split(t, sizes);
        assertEqual(
          gradientOf(values, packed, program),
          gradientOf(values, packed, (operands) => program(apart(operands))),
          name,
        );
      }),
      { numRuns: 40 },
    );
  });

  it('are joined for keys and values alone', () => {
    const [values, other] = [randn([2, 7, 64]), randn([2, 4, 5, 8])];
    const gradients = (copies: boolean): Tensor[] => {
      const x = values.clone().requiresGrad_();
      const q = other.clone().requiresGrad_();
      const [k, v] = x
        .mul(1)
        .chunk(2, -1)
        .map((t) => t.view([2, 7, 4, 8]).transpose(1, 2)) as [Tensor, Tensor];
      const operands: Operands = [q, k, v];
      const loss = scaledDotProductAttention(...(copies ? apart(operands) : operands)).sum();
      const ops = opsOf(() => loss.backward());
      if (!copies) assertJoined(ops);
      return [x.grad as Tensor, q.grad as Tensor];
    };
    const [joined, separate] = [gradients(false), gradients(true)];
    for (const [i, grad] of joined.entries()) assertEqual(grad, separate[i] as Tensor, `${i}`);
  });

  const programs: Readonly<Record<string, (operands: Operands) => Tensor>> = {
    'with dropout': ([q, k, v]) => {
      manualSeed(4);
      return scaledDotProductAttention(q, k, v, { dropoutP: 0.3 });
    },
    'with a mask': ([q, k, v]) =>
      scaledDotProductAttention(q, k, v, { attnMask: rand([5, 5]).gt(2).logicalNot() }),
    'if one of them is used again': ([q, k, v]) => attend([q, k, v]).add(k.mul(3)),
    'if all are used again': ([q, k, v]) => attend([q, k, v]).add(attend([q, k, v.mul(2)])),
    'if queries are keys': ([q, , v]) => attend([q, q, v]),
    'if queries have no gradient': ([q, k, v]) => attend([q.detach(), k, v]),
    'if a hook changes one of them': ([q, k, v]) => {
      k.registerHook((g) => g.mul(2));
      return attend([q, k, v]);
    },
    'if hooks see all of them': (operands) => {
      for (const each of operands) each.registerHook(() => undefined);
      return attend(operands);
    },
    'if a hook of the attention sees them': (operands) => {
      const out = attend(operands);
      out.gradFn?.registerHook((grads) => grads.map((g) => (g === null ? null : g.mul(2))));
      return out;
    },
    'if they are rotated before': ([q, k, v]) => attend([q.roll(1, -1), k.roll(1, -1), v]),
    'if their gradients are retained': (operands) => {
      for (const each of operands) each.retainGrad();
      return attend(operands);
    },
    'of a checkpoint': (operands) => checkpoint((...each) => attend(each as Operands), ...operands),
    'saved by hooks as copies': (operands) =>
      autograd.savedTensorsHooks(
        (t) => t.clone(),
        (t) => t as Tensor,
        () => attend(operands),
      ),
  };
  for (const [what, program] of Object.entries(programs))
    it(`are those of separate tensors ${what}`, () => {
      const values = randn([2, 5, 96]);
      assertEqual(
        gradientOf(values, thirds, program),
        gradientOf(values, thirds, (operands) => program(apart(operands))),
      );
    });

  it('leave a gap where the tensor has a part that attention does not use', () => {
    const values = randn([2, 5, 128]);
    const split = (x: Tensor): Operands =>
      x
        .chunk(4, -1)
        .slice(0, 3)
        .map((t) => t.view([2, 5, 4, 8]).transpose(1, 2)) as Operands;
    const grad = gradientOf(values, split, attend);
    assertEqual(
      grad,
      gradientOf(values, split, (operands) => attend(apart(operands))),
    );
    assert.ok(grad.chunk(4, -1)[3]?.eq(0).all().item());
  });

  it('belong to the caller, who may change one and keep another', () => {
    const x = randn([2, 5, 96]).requiresGrad_();
    const packed = x.mul(1);
    const [q, k, v] = thirds(packed);
    k.retainGrad();
    const [gx, gk] = autograd.grad(attend([q, k, v]).square().sum(), [packed, k]) as [
      Tensor,
      Tensor,
    ];
    const [before, kept] = [gk.clone(), (k.grad as Tensor).clone()];
    gx.zero_();
    assertEqual(gk, before);
    assertEqual(k.grad as Tensor, kept);
  });

  it('are separate where nothing joins them', () => {
    const operands = thirds(randn([2, 5, 96])).map((t) => t.detach().requiresGrad_()) as Operands;
    const loss = attend(operands).sum();
    const ops = opsOf(() => loss.backward());
    assert.equal(ops.get('attentionBackward'), 1, [...ops].join(' '));
    const storages = new Set(operands.map((t) => (t.grad as Tensor).untypedStorage()));
    assert.equal(storages.size, 3);
  });

  it('add up over two passes', () => {
    const x = randn([2, 5, 96]).requiresGrad_();
    const loss = attend(thirds(x.mul(1)))
      .square()
      .sum();
    loss.backward({ retainGraph: true });
    const once = (x.grad as Tensor).clone();
    loss.backward();
    assertEqual(x.grad as Tensor, once.mul(2));
  });

  it('have second derivatives', () => {
    const x = randn([1, 3, 12], { dtype: float64 }).requiresGrad_();
    const program = (t: Tensor): Tensor => {
      const [q, k, v] = t.chunk(3, -1).map((each) => each.view([1, 3, 2, 2]).transpose(1, 2)) as [
        Tensor,
        Tensor,
        Tensor,
      ];
      return scaledDotProductAttention(q, k, v, { isCausal: true });
    };
    assert.ok(autograd.gradgradcheck(program, [x]));
  });

  it('are checked for NaN under anomaly detection', () => {
    const values = randn([2, 5, 96]);
    const expected = gradientOf(values, thirds, attend);
    autograd.setDetectAnomaly(true);
    try {
      assertEqual(gradientOf(values, thirds, attend), expected);
    } finally {
      autograd.setDetectAnomaly(false);
    }
  });

  it('are joined under mixed precision', () => {
    const layer = new nn.Linear(16, 96, { bias: false });
    const input = randn([2, 5, 16]).requiresGrad_();
    const run = (copies: boolean): Tensor[] => {
      layer.zeroGrad();
      input.grad = null;
      const loss = amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, () => {
        const operands = thirds(layer(input));
        return attend(copies ? apart(operands) : operands);
      });
      const ops = opsOf(() => loss.backward(loss.detach()));
      if (!copies) assertJoined(ops);
      return [layer.weight.grad as Tensor, input.grad as unknown as Tensor];
    };
    const [joined, separate] = [run(false), run(true)];
    for (const [i, grad] of joined.entries()) assertEqual(grad, separate[i] as Tensor, `${i}`);
  });

  it('take no memory beside the gradient of the tensor', () => {
    const x = rand([2, 64, 3 * 64]).requiresGrad_();
    const split = (t: Tensor): Operands =>
      t.chunk(3, -1).map((each) => each.view([2, 64, 4, 16]).transpose(1, 2)) as Operands;
    const run = (): number => {
      x.grad = null;
      const out = attend(split(x.mul(1)));
      const g = out.detach();
      memory.collect();
      memory.resetPeak('cpu');
      const before = memory.stats('cpu').allocatedBytes;
      out.backward(g);
      return memory.stats('cpu').peakAllocatedBytes - before;
    };
    run();
    assert.ok(run() <= 2 * x.nbytes, 'that of the packed tensor, and that of the leaf');
  });
});
