/** `assertClose` and `assertCloseAsync` of tensors of one rank. */
import assert, { AssertionError } from 'node:assert/strict';
import {
  ArgumentError,
  bfloat16,
  bool,
  type DTypeLike,
  float16,
  float64,
  int64,
  meshgrid,
  ones,
  tensor,
  zeros,
} from '../../lib/index.js';
import { assertClose, assertCloseAsync, type CloseOptions } from '../../lib/testing/index.js';

/** The error of the synchronous one, which the asynchronous one must have, too. */
async function failure(actual: unknown, expected: unknown, options?: CloseOptions) {
  let thrown: unknown;
  try {
    assertClose(actual, expected, options);
  } catch (error) {
    thrown = error;
  }
  assert.ok(thrown instanceof AssertionError, String(thrown));
  const { message, actual: got, expected: wanted } = thrown;
  await assert.rejects(assertCloseAsync(actual, expected, options), {
    name: 'AssertionError',
    message: message.replace('assertClose', 'assertCloseAsync'),
    actual: got,
    expected: wanted,
  });
  return { message, actual: got, expected: wanted };
}

async function passes(actual: unknown, expected: unknown, options?: CloseOptions): Promise<void> {
  assertClose(actual, expected, options);
  await assertCloseAsync(actual, expected, options);
}

describe('assertClose', () => {
  // 1 + difference is at the limit of rtol + atol of the dtype
  const limits: readonly [DTypeLike, number, number][] = [
    [float64, 1.9e-7, 2.1e-7],
    ['float32', 1.1e-5, 1.2e-5],
    [float16, 0.0009765625, 0.001953125],
    [bfloat16, 0.015625, 0.0234375],
    [int64, 0, 1],
  ];
  for (const [dtype, within, beyond] of limits)
    it(`has PyTorch's default tolerances for ${dtype}`, async () => {
      const one = ones([3], { dtype });
      await passes(one.add(within), one);
      const { message } = await failure(one.add(beyond), one);
      assert.match(message, /3 of 3 elements differ \(100\.0%\)/);
    });

  it('names how many elements differ, and the greatest differences with their places', async () => {
    const expected = tensor([
      [1, 2],
      [4, 100],
    ]);
    const actual = expected.add(
      tensor([
        [0.5, 0],
        [0, 3],
      ]),
    );
    const found = await failure(actual, expected);
    assert.equal(
      found.message,
      'assertClose: 2 of 4 elements differ (50.0%)\n' +
        '  greatest absolute difference: 3 at [1, 1], atol 0.00001\n' +
        '  greatest relative difference: 0.5 at [0, 0], rtol 0.0000013\n' +
        '  float32[2, 2]',
    );
    assert.deepEqual(found.actual, { '[0, 0]': 1.5, '[1, 1]': 103 });
    assert.deepEqual(found.expected, { '[0, 0]': 1, '[1, 1]': 100 });
  });

  it('compares to given tolerances, of which both or none are given', async () => {
    await passes(tensor([1.1]), tensor([1]), { rtol: 0, atol: 0.11 });
    await passes(tensor([11]), tensor([10]), { rtol: 0.1, atol: 0 });
    await failure(tensor([11]), tensor([10]), { rtol: 0, atol: 0.5 });
    assert.throws(() => assertClose(ones([1]), ones([1]), { rtol: 1 }), /rtol and atol or neither/);
    assert.throws(() => assertClose(1, 1, { rtol: -1, atol: 0 }), ArgumentError);
    assert.throws(() => assertClose(1, 1, { atoll: 1 } as CloseOptions), ArgumentError);
  });

  it('takes NaN as close to NaN on request alone, and infinities as close to themselves', async () => {
    const special = tensor([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]);
    await passes(special, special.clone(), { equalNan: true });
    const { message } = await failure(special, special.clone());
    assert.match(message, /1 of 3 elements .*\n.* difference: NaN at \[0\]/);
    await failure(special, special.neg(), { equalNan: true, rtol: 1, atol: 1 });
    await failure(tensor([1]), tensor([Number.NaN]), { equalNan: true });
  });

  it('compares 64-bit integers exactly, and bool', async () => {
    const large = tensor([2n ** 60n], { dtype: int64 });
    const { actual, expected } = await failure(large.add(1), large);
    assert.deepEqual([actual, expected], [{ '[0]': 2n ** 60n + 1n }, { '[0]': 2n ** 60n }]);
    await passes(tensor([true, false]), ones([2], { dtype: bool }).logicalXor(tensor([0, 1])));
    await failure(tensor([true, false]), tensor([true, true]));
  });

  it('compares shapes, dtypes, devices and, if asked, strides', async () => {
    const x = ones([2, 3]);
    const found = await failure(x, x.t());
    assert.equal(found.message, 'assertClose: expected shape [3, 2], got [2, 3]');
    assert.deepEqual([found.actual, found.expected], [x.shape, x.t().shape]);
    assert.match((await failure(x, x.double())).message, /expected dtype float64, got float32$/);
    await passes(x.bfloat16(), x.add(0.01), { checkDtype: false });
    await failure(x.bfloat16(), x.add(0.02), { checkDtype: false });
    const fake = ones([2, 3], { device: 'meta' });
    assert.match((await failure(x, fake)).message, /expected device meta, got cpu$/);
    await passes(fake, ones([2, 3], { device: 'meta' }));
    const across = ones([3, 2]).t();
    await passes(x, across);
    const options = { checkStride: true };
    assert.match((await failure(x, across, options)).message, /stride \[1, 2\], got \[3, 1\]/);
  });

  it('reads views, tensors without dims, and those that require gradients', async () => {
    const [rows] = meshgrid([tensor([1, 2]), tensor([0, 0])]);
    await passes(
      rows,
      tensor([
        [1, 1],
        [2, 2],
      ]),
    );
    await passes(ones([2]).requiresGrad_().sum(), tensor(2));
    await passes(zeros([0, 3]), zeros([0, 3]));
    const { message, actual, expected } = await failure(tensor(2), tensor(3));
    assert.match(message, /^assertClose: values differ\n/);
    assert.deepEqual([actual, expected], [2, 3]);
  });

  it('compares arrays, objects, Maps, typed arrays and numbers, and names the place', async () => {
    const value = (loss: number, weight: number) => ({
      loss,
      name: 'mlp',
      state: new Map<string, unknown>([['w', [tensor([weight])]]]),
      raw: Float32Array.of(weight),
      top: tensor([3, weight]).topk(1),
    });
    await passes(value(0.5, 1), value(0.5 + 1e-8, 1 + 1e-6));
    assert.match((await failure(value(0.5, 1), value(0.6, 1))).message, /^assertClose at \.loss: /);
    const { message } = await failure(value(0.5, 1), value(0.5, 2));
    assert.match(message, /^assertClose at \.state\.get\('w'\)\[0\]: 1 of 1 elements differ/);
    assert.match((await failure(Float32Array.of(1), Float32Array.of(2))).message, /Float32Array/);
    assert.match((await failure([1], [1, 2])).message, /expected 2 elements, got 1 elements/);
    assert.match((await failure({ a: 1 }, { b: 1 })).message, /the keys 'b', got the keys 'a'/);
    assert.match((await failure({ a: 'x' }, { a: 'y' })).message, /at \.a: expected 'y', got 'x'/);
    assert.match((await failure(ones([1]), [1])).message, /expected an array, got a tensor/);
    await failure(1n, 1);
    await failure([undefined], [null]);
  });

  it('refuses what it cannot look into', () => {
    const within: unknown[] = [];
    within.push(within);
    assert.throws(() => assertClose(within, within), /the value at \[0\] contains itself/);
    assert.throws(() => assertClose({ a: new Set() }, { a: new Set() }), /got a Set at \.a/);
  });

  it('begins with the message of the program, and its stack with the program', () => {
    const expected = {
      message: /^after one step\nassertClose: values differ/,
      stack: /assert-close/,
    };
    assert.throws(() => assertClose(1, 2, { message: 'after one step' }), expected);
    try {
      assertClose(1, 2);
    } catch (error) {
      assert.match(String((error as Error).stack), /\n {4}at .*assert-close\.test\.ts/);
      assert.doesNotMatch(String((error as Error).stack), /lib\/testing/);
    }
  });
});
