import assert from 'node:assert/strict';
import {
  type ArgumentsOf,
  allDeclarations,
  declarationOf,
  defineArguments,
  defineFunction,
  methodOf,
} from '../../lib/core/signature.js';
import { ArgumentError, float64, type Tensor, tensor } from '../../lib/index.js';

const scale = defineFunction(
  'scale(input, /, factor, offset, negate, *, label, times)',
  (
    input: string,
    factor: number,
    offset = 0,
    negate = false,
    { label = 'none', times }: { label?: string; times?: number } = {},
  ) => [input, factor, offset, negate, label, times],
);
/** All parameters of a constructor can be named. */
const layer = defineArguments(
  'Layer(inFeatures, outFeatures, bias, *, dtype)',
  (
    inFeatures: number,
    outFeatures: number,
    bias = true,
    { dtype = 'float32' }: { dtype?: string } = {},
  ) => ({
    inFeatures,
    outFeatures,
    bias,
    dtype,
  }),
);
class Layer {
  readonly settings: object;
  constructor(...args: ArgumentsOf<typeof layer>) {
    this.settings = layer(...args);
  }
}
const method = methodOf(scale) as (this: unknown, ...args: unknown[]) => unknown;

describe('a declared function', () => {
  const all = ['x', 2, 3, true, 'a', 4];

  it('takes arguments by position, as options, or the first ones by position and the others as options', () => {
    assert.deepEqual(scale('x', 2, 3, true, { label: 'a', times: 4 }), all);
    assert.deepEqual(scale('x', 2, 3, { negate: true, label: 'a', times: 4 }), all);
    assert.deepEqual(scale('x', 2, { offset: 3, times: 4, negate: true, label: 'a' }), all);
    assert.deepEqual(scale('x', { factor: 2, offset: 3, times: 4, negate: true, label: 'a' }), all);
    assert.deepEqual(scale('x', 2), ['x', 2, 0, false, 'none', undefined]);
    assert.deepEqual(scale('x', 2, undefined, true), ['x', 2, 0, true, 'none', undefined]);
    assert.deepEqual(scale('x', { factor: 2, offset: undefined }), [
      'x',
      2,
      0,
      false,
      'none',
      undefined,
    ]);
    assert.deepEqual(scale('x', 2, {}), ['x', 2, 0, false, 'none', undefined]);
  });

  it('can be a method without the first argument', () => {
    assert.deepEqual(method.call('x', 2, 3, true, { label: 'a', times: 4 }), all);
    assert.deepEqual(
      method.call('x', { factor: 2, offset: 3, times: 4, negate: true, label: 'a' }),
      all,
    );
  });

  it('can be a constructor whose arguments all have names', () => {
    const expected = { inFeatures: 2, outFeatures: 3, bias: false, dtype: 'float32' };
    assert.deepEqual(new Layer(2, 3, false).settings, expected);
    assert.deepEqual(new Layer(2, 3, { bias: false }).settings, expected);
    assert.deepEqual(new Layer({ outFeatures: 3, inFeatures: 2, bias: false }).settings, expected);
    assert.throws(
      // @ts-expect-error
      () => new Layer(2, 3, { biased: false }),
      /Layer: there is no option "biased"; options are inFeatures, outFeatures, bias, dtype/,
    );
  });

  const refusals: [string, () => unknown, RegExp][] = [
    [
      'an unknown name',
      // @ts-expect-error
      () => scale('x', 1, { of: 2 }),
      /^scale: there is no option "of"; options are factor, offset, negate, label, times$/,
    ],
    [
      'an unknown name beside a known one',
      // @ts-expect-error
      () => scale('x', { factor: 1, of: 2 }),
      /^scale: there is no option "of"/,
    ],
    [
      'a name of what is given by position',
      // @ts-expect-error
      () => scale('x', 1, { factor: 2 }),
      /^scale: factor is given twice, by position \(1\) and as an option \(2\)$/,
    ],
    [
      'a positional-only argument by name',
      // @ts-expect-error
      () => scale('x', 1, { input: 2 }),
      /^scale: there is no option "input"/,
    ],
    [
      'an option by position',
      // @ts-expect-error
      () => scale('x', 1, 2, true, 'a'),
      /^scale: expected at most input, factor, offset, negate by position, got 'a' as well; others are options, in an object such as \{ label: … \}$/,
    ],
    [
      'options that are not last',
      // @ts-expect-error
      () => scale('x', { factor: 1 }, 2),
      /^scale: expected options to be the last argument, but 2 comes after them, got an object$/,
    ],
    [
      'options without a required argument',
      // @ts-expect-error
      () => scale('x', { offset: 1 }),
      /^scale: expected factor; it comes after input, or is given as \{ factor: … \}$/,
    ],
  ];
  for (const [what, call, message] of refusals) {
    it(`refuses ${what}`, () => {
      assert.throws(call, (error) => error instanceof ArgumentError && message.test(error.message));
    });
  }

  it('is in the list of declarations', () => {
    assert.equal(declarationOf(scale)?.name, 'scale');
    assert.deepEqual(declarationOf(scale)?.keywordOnly, ['label', 'times']);
    assert.ok(allDeclarations().some(({ name }) => name === 'sum'));
    assert.equal(scale.name, 'scale');
  });

  it('takes tensors, dtypes and arrays for arguments', () => {
    const x = tensor([
      [1, 2],
      [3, 4],
    ]);
    assert.deepEqual(x.sum([0, 1], true).shape, [1, 1]);
    assert.deepEqual(x.sum({ dim: 1, keepdim: true, dtype: float64 }).tolist(), [[3], [7]]);
    assert.deepEqual(x.softmax({ dim: 0 }).shape, [2, 2]);
    const results: Tensor[] = [
      x.sum(),
      x.sum(1),
      x.sum(1, { dtype: float64 }),
      x.cumsum({ dim: 1 }),
      x.cumsum_({ dim: 1 }),
    ];
    assert.equal(results.length, 5);
  });
});
