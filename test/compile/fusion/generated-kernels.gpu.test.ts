/** On a GPU: fusedPointwise, whose kernels are compiled at run time, gives what its ops give. */
import assert from 'node:assert/strict';
import { dispatch } from '../../../lib/core/dispatch.js';
import { ComputeType } from '../../../lib/core/dtype.js';
import {
  bfloat16,
  bool,
  cat,
  compile,
  type DType,
  empty,
  float16,
  float32,
  int32,
  int64,
  manualSeed,
  randint,
  randn,
  type Shape,
  silu,
  type Tensor,
  zeros,
} from '../../../lib/index.js';
import {
  type FusedOperand,
  type FusedStep,
  fusedPointwiseOp,
} from '../../../lib/ops/fused-pointwise.js';
import { addon } from '../../../lib/runtime.js';
import { skipBecause, skipWithoutCuda } from '../../skip.js';

const v = (value: number): FusedOperand => ({ value });
const n = (number: number): FusedOperand => ({ number });

/** A step in the compute type of its dtype; `convert` is a conversion. */
function step(
  name: string,
  operands: FusedOperand[],
  dtype: DType,
  params: number[] = [],
  computeType = dtype.computeType,
): FusedStep {
  const kernel = name === 'convert' ? -1 : addon.kernelNames.indexOf(name);
  return { name, kernel, computeType, dtype, operands, params };
}

/** Runs a program; outputs are dense, with the shape of the first input by default. */
function run(
  inputs: readonly Tensor[],
  steps: FusedStep[],
  outputs: readonly number[] = [inputs.length + steps.length - 1],
  shape: Shape = inputs[0]?.shape ?? [],
): readonly Tensor[] {
  const dtypes = [...inputs.map((t) => t.dtype), ...steps.map((each) => each.dtype)];
  const { strides } = empty(shape, { device: 'meta' });
  return dispatch(fusedPointwiseOp, inputs, {
    program: {
      steps,
      outputs: outputs.map((value) => ({
        value,
        shape,
        strides,
        dtype: dtypes[value] as DType,
      })),
    },
  });
}

function assertSame(got: Tensor | undefined, expected: Tensor): void {
  assert.equal(got?.dtype, expected.dtype);
  assert.deepEqual(got.shape, expected.shape);
  assert.deepEqual(got.tolist(), expected.tolist());
}

const on = (dtype: DType) => ({ device: 'cuda', dtype }) as const;

describe('kernels that are generated on a GPU', () => {
  before(function () {
    skipWithoutCuda(this);
    if (!addon.canFuse(1)) skipBecause(this, 'no NVRTC that knows the device');
  });
  beforeEach(() => manualSeed(1));

  for (const dtype of [bfloat16, float16, float32])
    for (const size of [1, 8, 1003, 65536])
      it(`compute silu(a) * b of ${size} elements in ${dtype.name}`, () => {
        const [a, b] = [randn([size], on(dtype)), randn([size], on(dtype))];
        const [got] = run([a, b], [step('silu', [v(0)], dtype), step('mul', [v(2), v(1)], dtype)]);
        assertSame(got, silu(a).mul(b));
      });

  it('round between a product and a sum', () => {
    const [a, b, c] = [0, 1, 2].map(() => randn([10007], on(float32))) as [Tensor, Tensor, Tensor];
    const [sum, product] = run(
      [a, b, c],
      [step('mul', [v(0), v(1)], float32), step('add', [v(3), v(2)], float32, [0.3])],
      [4, 3],
    );
    assertSame(product, a.mul(b));
    assertSame(sum, a.mul(b).add(c, { alpha: 0.3 }));
  });

  it('read rows, columns, single elements and transposed operands', () => {
    const x = randn([130, 72], on(bfloat16));
    const row = randn([72], on(bfloat16));
    const column = randn([130, 1], on(float32));
    const one = randn([], on(float32));
    const transposed = randn([72, 130], on(bfloat16)).t();
    const [got] = run(
      [x, row, column, one, transposed],
      [
        step('add', [v(0), v(1)], bfloat16, [1]),
        step('mul', [v(5), v(2)], float32),
        step('sub', [v(6), v(3)], float32, [1]),
        step('convert', [v(7)], bfloat16),
        step('maximum', [v(8), v(4)], bfloat16),
      ],
    );
    const expected = x.add(row).mul(column).sub(one).to(bfloat16).maximum(transposed);
    assertSame(got, expected);
  });

  it('read slices that no vector fits', () => {
    const x = randn([64, 101], on(float16)).slice(1, 3, 80);
    const y = randn([64, 300], on(float32)).slice(1, 1, 232, 3);
    const [got] = run([x, y], [step('mul', [v(0), v(1)], float32), step('tanh', [v(2)], float32)]);
    assertSame(got, x.mul(y).tanh());
  });

  for (const [dim, size] of [
    [0, 24],
    [1, 24],
    [1, 5],
  ] as const)
    it(`store parts of ${size} columns beside each other in dim ${dim}`, () => {
      const x = randn([130, 48], on(bfloat16)).slice(1, 3, 3 + size);
      const shape = dim === 0 ? [260, size] : [130, 2 * size];
      const steps = [step('exp', [v(0)], bfloat16), step('neg', [v(1)], float32)];
      const { strides } = empty(shape, { device: 'meta' });
      const parts = { value: [1, 0], dim, shape, strides, dtype: bfloat16 };
      const [joined, neg] = dispatch(fusedPointwiseOp, [x], {
        program: {
          steps,
          outputs: [parts, { value: 2, shape: x.shape, strides: [size, 1], dtype: float32 }],
        },
      });
      assertSame(joined, cat([x.exp(), x], dim));
      assertSame(neg, x.exp().float().neg());
    });

  it('read and write halves of rotary positions in place', () => {
    const [cos, sin] = [randn([40, 8], on(float32)), randn([40, 8], on(float32))];
    const body = (t: Tensor): Tensor => {
      const [a, b] = t.transpose(1, 2).chunk(2, -1) as [Tensor, Tensor];
      const halves = [a.mul(cos).sub(b.mul(sin)), b.mul(cos).add(a.mul(sin))];
      return cat(halves, -1).to(bfloat16).mul(2);
    };
    const compiled = compile((t: Tensor) => body(t.mul(2)), { backend: 'inductor' });
    const t = randn([2, 40, 3, 16], on(bfloat16));
    const weight = randn([2, 3, 40, 16], on(bfloat16));
    const [expected, got] = [(x: Tensor) => body(x.mul(2)), compiled].map((fn) => {
      const leaf = t.detach().requiresGrad_();
      const y = fn(leaf);
      y.mul(weight).sum().backward();
      return [y.tolist(), (leaf.grad as Tensor).tolist()];
    });
    assert.deepEqual(got, expected);
  });

  it('compute with integers and bools', () => {
    const i = randint(-9, 9, [1001], on(int32));
    const j = randint(-9, 9, [1001], on(int64));
    const [x, y] = [randn([1001], on(float32)), randn([1001], on(float32))];
    const [mask, chosen, rest] = run(
      [i, j, x, y],
      [
        step('gt', [v(0), v(1)], bool, [], ComputeType.Int64),
        step('where', [v(4), v(2), v(3)], float32),
        step('remainder', [v(1), n(7)], int64),
      ],
      [4, 5, 6],
    );
    assertSame(mask, i.gt(j));
    assertSame(chosen, x.where(i.gt(j), y));
    assertSame(rest, j.remainder(7));
  });

  it('are in order with the kernels around them', () => {
    let [fused, eager] = [randn([300_001], on(float32)), empty([0], on(float32))] as [
      Tensor,
      Tensor,
    ];
    eager = fused;
    for (let i = 0; i < 20; i++) {
      const steps = [step('sin', [v(0)], float32), step('add', [v(1), v(0)], float32, [0.5])];
      fused = (run([fused], steps)[0] as Tensor).mul(1.25);
      eager = eager.sin().add(eager, { alpha: 0.5 }).mul(1.25);
    }
    assertSame(fused, eager);
  });

  it('accept operands without elements', () => {
    const [got] = run([zeros([0, 3], on(float32))], [step('exp', [v(0)], float32)]);
    assertSame(got, zeros([0, 3], on(float32)));
  });

  for (const dtype of [bfloat16, float32])
    it(`run graphs of the backend 'inductor' in ${dtype.name}, forward and backward`, () => {
      const body = (a: Tensor, b: Tensor, bias: Tensor): Tensor =>
        silu(a.add(bias)).mul(b).float().mul(0.5).add(a);
      const compiled = compile(body, { backend: 'inductor' });
      for (let call = 0; call < 3; call++) {
        const given = [
          randn([96, 72], on(dtype)),
          randn([96, 72], on(dtype)),
          randn([72], on(dtype)),
        ];
        const weight = randn([96, 72], on(float32));
        const [expected, got] = [body, compiled].map((fn) => {
          const leaves = given.map((t) => t.detach().requiresGrad_());
          const y = fn(...(leaves as [Tensor, Tensor, Tensor]));
          y.mul(weight).sum().backward();
          return [y, ...leaves.map((t) => t.grad as Tensor)].map((t) => t.tolist());
        });
        assert.deepEqual(got, expected);
      }
    });

  it('refuse programs that are malformed', () => {
    const x = randn([8], on(float32));
    assert.throws(
      () => run([x], [step('exp', [v(1)], float32)])[0]?.tolist(),
      /malformed program of fused_pointwise/,
    );
  });
});
