/** What a compiled function makes and returns is made anew at each call. */
import assert from 'node:assert/strict';
import { CompileError, compile, type Tensor, tensor } from '../../../lib/index.js';

/** What two calls of a function return beside the tensor. */
function twoResults<T>(make: () => T): readonly [T, T] {
  const compiled = compile((x: Tensor) => [x.mul(2), make()] as const, { fullgraph: true });
  return [compiled(tensor([1]))[1], compiled(tensor([1]))[1]];
}

describe('a compiled function returns at each call', () => {
  it('another typed array, with the values of the capture', () => {
    const [first, second] = twoResults(() => Float32Array.of(1, 2));
    first[0] = 5;
    assert.deepEqual(second, Float32Array.of(1, 2));
  });

  it('another Buffer', () => {
    const [first, second] = twoResults(() => Buffer.from([1, 2]));
    first[0] = 5;
    assert.deepEqual(second, Buffer.from([1, 2]));
  });

  it('views of one buffer as such', () => {
    const [first, second] = twoResults(() => {
      const { buffer } = Uint8Array.of(1, 2, 3, 4);
      return { buffer, view: new DataView(buffer), part: new Uint8Array(buffer, 1, 2) };
    });
    first.view.setUint8(1, 9);
    assert.deepEqual(first.part, Uint8Array.of(9, 3));
    assert.deepEqual(second.part, Uint8Array.of(2, 3));
    assert.equal(second.view.buffer, second.buffer);
  });

  it('another date', () => {
    const [first, second] = twoResults(() => new Date(3));
    first.setTime(5);
    assert.equal(second.getTime(), 3);
  });

  it('another set, with the objects of the call in it', () => {
    const given = { k: 1 };
    const fn = compile((x: Tensor, o: object) => [x.mul(2), new Set([o, 'a'])] as const, {
      fullgraph: true,
    });
    const [, first] = fn(tensor([1]), given);
    first.add('b');
    const other = { k: 1 };
    const [, second] = fn(tensor([1]), other);
    assert.deepEqual([...second], [other, 'a']);
    assert.ok(second.has(other));
  });

  it('one object where the function has one at two places', () => {
    const fn = compile(
      (x: Tensor) => {
        const [list, date] = [[x.mul(2)], new Date(0)];
        return { list, again: list, dates: [date, date] };
      },
      { fullgraph: true },
    );
    const [first, second] = [fn(tensor([1])), fn(tensor([2]))];
    assert.equal(second.list, second.again);
    assert.equal(second.dates[0], second.dates[1]);
    assert.notEqual(first.list, second.list);
    assert.deepEqual(second.again[0]?.tolist(), [4]);
  });

  it('another instance of a class, as it runs uncompiled', () => {
    class Output {
      n = 0;
    }
    const fn = (x: Tensor) => [x.mul(2), new Output()] as const;
    const compiled = compile(fn);
    const [first, second] = [compiled(tensor([1]))[1], compiled(tensor([1]))[1]];
    first.n = 5;
    assert.equal(second.n, 0);
    assert.throws(() => compile(fn, { fullgraph: true })(tensor([1])), CompileError);
  });

  it('the date, the bytes, the set and the instance that it closes over', () => {
    class Settings {
      k = 1;
    }
    const kept = [new Date(0), new Uint8Array(2), new Set([1]), new Settings(), tensor([1]).dtype];
    const large = new Uint8Array(2 ** 17);
    const [first, second] = twoResults(() => [...kept, large]);
    for (const result of [first, second])
      for (const [i, value] of [...kept, large].entries()) assert.equal(result[i], value);
  });
});
