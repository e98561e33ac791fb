/** Programs cannot change the arrays of the library, nor does it keep theirs. */
import assert from 'node:assert/strict';
import { initDeviceMesh, launch, newGroup, Shard, worldGroup } from '../../lib/distributed.js';
import { DTensor } from '../../lib/dtensor/index.js';
import { arange, compile, float32, ones, type Tensor, tensor } from '../../lib/index.js';

/** The ways in which JavaScript edits an array. */
const edits: Record<string, (array: number[]) => unknown> = {
  'an element': (array) => (array[0] = 2),
  length: (array) => (array.length = 1),
  pop: (array) => array.pop(),
  push: (array) => array.push(3),
  reverse: (array) => array.reverse(),
  splice: (array) => array.splice(0, 1),
  sort: (array) => array.sort(),
};

describe('the shape of a tensor', () => {
  for (const [name, edit] of Object.entries(edits))
    it(`cannot be edited (${name}), so that no tensor changes`, () => {
      const x = ones([4, 8]);
      const [sum, view] = [x.add(1), x.detach()];
      for (const array of [x.shape, x.stride(), x.size(), view.shape, x.t().stride()])
        assert.throws(() => edit(array as number[]), TypeError);
      for (const t of [x, sum, view]) {
        assert.deepEqual(
          [t.shape, t.stride()],
          [
            [4, 8],
            [8, 1],
          ],
        );
        assert.equal(t.numel(), 32);
      }
      assert.equal(x.sum().item(), 32);
    });

  it('cannot be replaced', () => {
    const x = ones([4, 8]);
    assert.throws(() => {
      (x as { shape: readonly number[] }).shape = [2];
    }, TypeError);
    assert.equal(x.sum().item(), 32);
  });

  it('follows what changes the tensor itself', () => {
    const x = ones([4, 8]);
    x.set_(arange(3, { dtype: float32 }));
    assert.deepEqual([x.shape, x.stride()], [[3], [1]]);
  });

  it('is an array that can be copied, compared and given to the library', () => {
    const { shape } = ones([2, 3]);
    assert.deepEqual([...shape, 4], [2, 3, 4]);
    assert.deepEqual(
      shape.map((size) => size + 1),
      [3, 4],
    );
    assert.equal(JSON.stringify(shape), '[2,3]');
    assert.deepEqual(arange(6).view(shape).tolist(), [
      [0, 1, 2],
      [3, 4, 5],
    ]);
    assert.deepEqual(compile((t: Tensor) => t.view(shape).add(1))(arange(6)).shape, [2, 3]);
  });

  it('is right for any number of shapes, however large', () => {
    for (let n = 0; n < 10_000; n++) {
      const t = ones([1]).expand([n, 3, (n * 7919) % 100_003]);
      assert.deepEqual(t.shape, [n, 3, (n * 7919) % 100_003]);
    }
    assert.deepEqual(ones([1]).expand([2 ** 40, 2]).shape, [2 ** 40, 2]);
  });
});

describe('an array that a program gives as a shape', () => {
  const calls: Record<string, (size: number[]) => Tensor> = {
    ones: (size) => ones(size),
    view: (size) => arange(6).view(size),
    reshape: (size) => arange(6).reshape(size),
    'reshape of the same shape': (size) => ones([2, 3]).reshape(size),
    expand: (size) => tensor([[1], [2]]).expand(size),
    sumToSize: (size) => ones([4, 2, 3]).sumToSize(size),
    asStrided: (size) => arange(6).asStrided(size, [3, 1]),
    newZeros: (size) => ones([1]).newZeros(size),
  };
  for (const [name, call] of Object.entries(calls))
    it(`may change afterwards: ${name}`, () => {
      const size = [2, 3];
      const t = call(size);
      size.push(9);
      size[0] = 5;
      assert.deepEqual(t.shape, [2, 3]);
      assert.equal((t.contiguous().tolist() as unknown[]).length, 2);
    });
});

describe('arrays of groups, meshes and placements', () => {
  it('cannot be edited', () =>
    launch(2, async () => {
      const mesh = initDeviceMesh('cpu', [2], { meshDimNames: ['dp'] });
      const t = DTensor.fromLocal(ones([2]), mesh, [Shard(0)]);
      const arrays = [
        worldGroup().ranks,
        newGroup([0, 1]).ranks,
        mesh.getGroup().ranks,
        mesh.shape,
        mesh.meshDimNames,
        mesh.getCoordinate(),
        t.placements,
        t.shape,
      ];
      for (const array of arrays)
        assert.throws(() => (array as unknown[]).pop(), TypeError, String(array));
      (mesh.mesh as number[]).pop();
      assert.deepEqual(mesh.mesh, [0, 1]);
      assert.deepEqual((await t.fullTensor().read()).length, 4);
    }).then(() => {}));
});
