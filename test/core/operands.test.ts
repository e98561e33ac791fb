/** The notation for the operands that the kernel of an op requires. */
import assert from 'node:assert/strict';
import { allOps } from '../../lib/core/op.js';
import { formatOperands, type Operand, parseOperands, relations } from '../../lib/core/operands.js';
import { ShardwiseError } from '../../lib/index.js';

const read = (text: string) => parseOperands(text, 'example');

describe('the notation of operands', () => {
  it('names dims, optional operands and dtypes that are equal', () => {
    const { inputs, outputs, relations } = read(
      '(a: T[b, m], bias?: float|bool T[m]) -> (y: dense [m, 2])',
    );
    assert.deepEqual(inputs[0], {
      name: 'a',
      count: null,
      optional: false,
      layout: 'strided',
      indices: false,
      classes: null,
      letter: 'T',
      accumulated: false,
      shape: { kind: 'dims', rest: null, dims: ['b', 'm'] },
    });
    assert.deepEqual(inputs[1]?.classes, ['float', 'bool']);
    assert.equal(inputs[1]?.optional, true);
    assert.equal(outputs[0]?.layout, 'dense');
    assert.deepEqual(outputs[0]?.shape, { kind: 'dims', rest: null, dims: ['m', 2] });
    assert.deepEqual(relations, []);
  });

  it('names shapes of any rank, numbers of elements, dtypes of accumulation and indices', () => {
    const { inputs } = read(
      '(x: T[...s, n], at: indexView [...], w: acc(T) numel(n), i: dense indices int64 [n]) -> ()',
    );
    assert.deepEqual(
      inputs.map(({ shape }) => shape),
      [
        { kind: 'dims', rest: 's', dims: ['n'] },
        { kind: 'dims', rest: '', dims: [] },
        { kind: 'numel', of: 'n' },
        { kind: 'dims', rest: null, dims: ['n'] },
      ],
    );
    assert.equal(inputs[1]?.layout, 'indexView');
    assert.deepEqual([inputs[2]?.letter, inputs[2]?.accumulated], ['T', true]);
    const { layout, indices, classes } = inputs[3] as Operand;
    assert.deepEqual([layout, indices, classes], ['dense', true, ['int64']]);
  });

  it('names lists of operands, and relations', () => {
    const { inputs, relations } = read(
      '(x[count]: [...], g[count]?: numel(x[i])) -> (y: numel(count)) where below(mode, 5)',
    );
    assert.deepEqual(
      inputs.map(({ count }) => count),
      ['count', 'count'],
    );
    assert.deepEqual(inputs[1]?.shape, { kind: 'numelOfList', list: 'x' });
    assert.deepEqual(relations, [{ name: 'below', args: ['mode', 5] }]);
  });

  for (const [what, text, message] of [
    ['a text without outputs', '(x: [n])', /expected "\(inputs\) -> \(outputs\)"/],
    ['an operand without a shape', '(x: float) -> ()', /got "x: float"/],
    ['an unknown dtype', '(x: quaternion [n]) -> ()', /got "x: quaternion \[n\]"/],
    ['a dim that is not a name', '(x: [n + 1]) -> ()', /expected a name or a number, got "n \+ 1"/],
    [
      'an unknown relation',
      '(x: [n]) -> () where similar(x, n)',
      /is no relation; there are below/,
    ],
    [
      'a relation with wrong arguments',
      '(x: [n]) -> () where within(x)',
      /within\(operand, operand\)/,
    ],
    ['a name used twice', '(x: [n], x: [n]) -> ()', /two operands are named x/],
    ['a list before an operand', '(x[k]: [n], y: [n]) -> ()', /lists come last/],
    ['a list among the outputs', '() -> (y[k]: [n])', /outputs are no lists/],
    [
      'a reference to an operand that is not a list',
      '(x: [n], y: numel(x[i])) -> ()',
      /x, which is no list/,
    ],
  ] as const)
    it(`refuses ${what}`, () => {
      assert.throws(
        () => read(text),
        (error) =>
          error instanceof ShardwiseError &&
          error.message.startsWith('operands of example: ') &&
          message.test(error.message),
      );
    });
});

describe('the operands of entries', () => {
  it('exist for every kernel that is not pointwise', () => {
    const without = allOps().filter(
      ({ kernel, pointwise, operands }) =>
        kernel !== null && (pointwise === null) !== (operands !== null),
    );
    assert.deepEqual(
      without.map(({ name }) => name),
      [],
    );
  });

  it('are written in the normal form of the notation and use every relation', () => {
    const used = new Set<string>();
    for (const { name, operands } of allOps()) {
      if (operands === null || operands === 'any') continue;
      const contract = parseOperands(operands, name);
      assert.equal(formatOperands(contract), operands);
      for (const relation of contract.relations) used.add(relation.name);
    }
    assert.deepEqual([...used].sort(), Object.keys(relations).sort());
  });
});
