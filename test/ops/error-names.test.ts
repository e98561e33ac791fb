/** Errors name the function that the program called, not an op that it runs. */
import assert from 'node:assert/strict';
import { absenceOf } from '../../lib/core/absent.js';
import {
  add,
  bernoulli,
  FreedError,
  int64,
  KernelError,
  multinomial,
  ones,
  ShardwiseError,
  Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

/** Arguments of methods in place; each takes some of them. */
const ids = tensor([0], { dtype: int64 });
const calls: readonly (readonly unknown[])[] = [
  [],
  [2],
  [ones([2])],
  [0, ids, ones([1])],
  [0, ids, 1],
  [ones([2]), 0.5],
  [ones([2, 2]), ones([2, 2])],
  [[ids], ones([1])],
  [{ min: 1 }],
  ['text'],
];

const methods = Object.entries(Object.getOwnPropertyDescriptors(Tensor.prototype)).flatMap(
  ([name, { value }]) => (/\w_$/.test(name) && absenceOf(value) === undefined ? [name] : []),
);

/** Other names of a method, whose errors have its first name, and one that reads no memory. */
const others = /^(detach|absolute|clip|divide|trueDivide|multiply|negative|subtract)_$/;

/** The first words of what a method throws for a tensor whose memory was freed. */
function refusals(method: string): string[] {
  return calls.flatMap((args) => {
    const target = ones([2, 2]);
    target.dispose();
    try {
      (target as unknown as Record<string, (...args: unknown[]) => unknown>)[method]?.(...args);
      return [];
    } catch (error) {
      assert.ok(error instanceof ShardwiseError, `${method} throws ${error}`);
      return [`${error.message.split(' ', 1)} ${error.details['op'] ?? ''}`.trim()];
    }
  });
}

describe('an error of a method in place', () => {
  for (const method of methods.filter((name) => !others.test(name)))
    it(`names ${method}, whatever op finds the fault`, () => {
      const names = new Set(refusals(method).map((words) => words.split(' ')[0]));
      assert.deepEqual([...names], [`${method}:`]);
    });

  it('names the method in its details too, and keeps its class', () => {
    assert.throws(() => ones([2]).mul_(ones([3])), {
      code: 'ERR_SHAPE',
      message: /^mul_: shapes \[2\] and \[3\] do not broadcast/,
      details: { op: 'mul_', shapes: [[2], [3]], dim: 0 },
    });
  });

  it('is not thought to be one where a function writes into its first operand', () => {
    const x = zeros([2], { dtype: int64 });
    assert.throws(() => add(x, ones([2]), { out: x }), /^DtypeError.*: add: /s);
  });
});

describe('an error of a read', () => {
  const freed = ones([2]);
  const one = ones([1]);
  before(() => {
    freed.dispose();
    one.dispose();
  });

  it('names the method that the program called', async () => {
    const named = (name: string) => (error: unknown) =>
      error instanceof FreedError &&
      error.message.startsWith(`${name}: `) &&
      error.details['op'] === name;
    assert.throws(() => freed.tolist(), named('tolist'));
    assert.throws(() => freed.toTypedArray(), named('toTypedArray'));
    assert.throws(() => one.item(), named('item'));
    await assert.rejects(freed.read(), named('read'));
    await assert.rejects(one.itemAsync(), named('itemAsync'));
  });
});

describe('an error of a draw', () => {
  it('names multinomial or bernoulli, also after it was queued', () => {
    const named = (name: string) => (error: unknown) =>
      error instanceof KernelError &&
      error.message.includes(name) &&
      !/Weights|Probabilities|_weights|_probabilities/.test(error.message);
    const busy = ones([300, 300]);
    for (const queue of [() => busy, () => busy.matmul(busy)]) {
      queue();
      assert.throws(() => multinomial(tensor([-1, 2]), 1).tolist(), named('multinomial'));
      queue();
      assert.throws(() => bernoulli(tensor([2])).tolist(), named('bernoulli'));
    }
    const weights = ones([2]);
    weights.dispose();
    assert.throws(
      () => multinomial(weights, 1),
      /multinomial: the memory of this tensor was freed/,
    );
  });
});
