/**
 * Every composition accepts its samples as options: the names in its declaration are parameters of
 * its body.
 */
import assert from 'node:assert/strict';
import { type Declaration, declarationOf, isOptions } from '../../lib/core/signature.js';
import { manualSeed, Tensor } from '../../lib/index.js';
import { allComposites } from '../../lib/ops/composite.js';

/** The sample with all named arguments as options. */
function byName(
  { positionalOnly, positional }: Declaration,
  sample: readonly unknown[],
): unknown[] {
  const last = sample.at(-1);
  const given = sample.length > positionalOnly && isOptions(last) ? last : {};
  const listed = given === last ? sample.slice(0, -1) : sample;
  const named = listed
    .slice(positionalOnly)
    .map((value, i) => [positional[positionalOnly + i], value]);
  return [...listed.slice(0, positionalOnly), { ...Object.fromEntries(named), ...given }];
}

function values(result: unknown): unknown {
  if (result instanceof Tensor) return [result.dtype.name, result.shape, result.detach().tolist()];
  return Array.isArray(result)
    ? result.map(values)
    : typeof result === 'object' && result !== null
      ? Object.entries(result).map(([name, each]) => [name, values(each)])
      : result;
}

describe('every composition with options', () => {
  const declared = allComposites().flatMap(({ name, fn, samples }) => {
    const declaration = declarationOf(fn);
    return declaration === undefined ? [] : [{ name, fn, samples, declaration }];
  });

  it('is in the table', () => assert.ok(declared.length > 70, String(declared.length)));

  for (const { name, fn, samples, declaration } of declared) {
    it(`equals the call by position: ${name}`, () => {
      for (const sample of samples()) {
        manualSeed(5);
        const expected = values(fn(...sample));
        manualSeed(5);
        assert.deepEqual(values(fn(...byName(declaration, sample))), expected);
      }
    });
  }
});
