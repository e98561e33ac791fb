/** Expressions of sizes that are found from numbers at several sizes. */
import assert from 'node:assert/strict';
import { fitted } from '../../../lib/compile/graph/size-expression.js';

/** Two symbols, each of them changed. */
const sizes = [
  [2, 3],
  [4, 15],
] as const;

const text = (f: (a: number, b: number) => number): string =>
  String(
    fitted(
      sizes.map(([a, b]) => f(a, b)),
      sizes,
    ),
  );

describe('an expression of sizes', () => {
  it('is the simplest that gives the numbers', () => {
    assert.equal(
      text((a) => a),
      's0',
    );
    assert.equal(
      text((_a, b) => 2 * b),
      '2*s1',
    );
    assert.equal(
      text((a) => a / 2),
      's0/2',
    );
    assert.equal(
      text((a, b) => a * b),
      's0*s1',
    );
    assert.equal(
      text((a, b) => a + b),
      '(s0 + s1)',
    );
    assert.equal(
      text((a) => a - 1),
      's0 - 1',
    );
    assert.equal(
      text((a) => 7 - a),
      '-1*s0 + 7',
    );
    assert.equal(
      text((a) => 1 / a),
      '1/s0',
    );
    assert.equal(
      text((_a, b) => 1 / Math.sqrt(b)),
      '1/sqrt(s1)',
    );
    assert.equal(
      text((a) => 3 * a + 5),
      '3*s0 + 5',
    );
  });

  it('gives the number of a program at other sizes, to the last bit', () => {
    for (const f of [
      (a: number, b: number) => 1 / (a * b),
      (a: number) => 1 / Math.sqrt(a),
      (a: number) => a / 2,
      (a: number, b: number) => (a + b) * 4,
    ]) {
      const found = fitted(
        sizes.map(([a, b]) => f(a, b)),
        sizes,
      );
      for (const [a, b] of [
        [6, 7],
        [49, 11],
      ] as const)
        assert.equal(found?.at([a, b]), f(a, b), String(found));
    }
  });

  it('is none for numbers that nothing simple gives', () => {
    assert.equal(fitted([0.3, 0.7, 0.2], [[2], [3], [4]]), null);
    assert.equal(fitted([5, 5, 6], [[2], [3], [4]]), null);
  });
});
