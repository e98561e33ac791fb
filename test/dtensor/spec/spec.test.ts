/**
 * DTensorSpec and TensorMeta: equal specs are one object, and malformed ones are refused.
 */
import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import { describe, it } from 'mocha';
import { bfloat16 } from '../../../lib/core/dtype.js';
import { ArgumentError, IndexError, ShardingError } from '../../../lib/core/errors.js';
import { Partial, type Placement, Replicate, Shard } from '../../../lib/core/placement.js';
import {
  DTensorSpec,
  gradientSpec,
  placeSpec,
  replicateSpec,
  TensorMeta,
} from '../../../lib/dtensor/spec/spec.js';
import { fakeMesh, metaOf, specOf } from '../fake-mesh.js';

const mesh = fakeMesh([2, 4], ['dp', 'tp']);

describe('a spec', () => {
  it('is one object for equal arguments, with and without new', () => {
    const spec = specOf(mesh, [16, 10], [Shard(0), Replicate()]);
    assert.equal(specOf(mesh, [16, 10], [Shard(0), Replicate()]), spec);
    assert.equal(
      new DTensorSpec(mesh, [Shard(-2), Replicate()], { tensorMeta: metaOf([16, 10]) }),
      spec,
    );
    assert.ok(spec instanceof DTensorSpec);
    assert.equal(new Shard(0), Shard(0));
  });

  it('is another object for another shape, dtype, strides, placement, shard order or mesh', () => {
    const specs = [
      specOf(mesh, [16, 10], [Shard(0), Shard(0)]),
      specOf(mesh, [16, 11], [Shard(0), Shard(0)]),
      specOf(mesh, [16, 10], [Shard(0), Shard(1)]),
      specOf(mesh, [16, 10], [Shard(0), Shard(0)], [[1, 0]]),
      specOf(fakeMesh([2, 4]), [16, 10], [Shard(0), Shard(0)]),
      DTensorSpec(mesh, [Shard(0), Shard(0)], { tensorMeta: metaOf([16, 10], bfloat16) }),
      DTensorSpec(mesh, [Shard(0), Shard(0)], {
        tensorMeta: { ...metaOf([16, 10]), strides: [1, 16] },
      }),
    ];
    assert.equal(new Set(specs).size, specs.length);
    assert.equal(new Set(specs.map(({ id }) => id)).size, specs.length);
  });

  it('is the same object on another mesh object with the same id', () => {
    const [one, two] = [fakeMesh([2], null, 9001), fakeMesh([2], null, 9001)];
    assert.equal(specOf(two, [4], [Shard(0)]), specOf(one, [4], [Shard(0)]));
    assert.equal(specOf(two, [8], [Shard(0)]).mesh, specOf(one, [4], [Shard(0)]).mesh);
  });

  it('has a shard order only where several mesh dims shard a tensor dim', () => {
    assert.deepEqual(specOf(mesh, [16, 10], [Shard(0), Shard(1)], [[0], [1]]).order, [[0], [1]]);
    assert.equal(
      specOf(mesh, [16, 10], [Shard(0), Shard(0)], [[0, 1]]),
      specOf(mesh, [16, 10], [Shard(0), Shard(0)]),
    );
  });

  it('ignores the position of mesh dims of one rank in the shard order', () => {
    const single = fakeMesh([2, 1]);
    assert.equal(
      specOf(single, [8], [Shard(0), Shard(0)], [[0, 1]]),
      specOf(single, [8], [Shard(0), Shard(0)], [[1, 0]]),
    );
  });

  it('prints tensor, mesh, placements and shard order', () => {
    assert.equal(
      String(specOf(mesh, [16, 10], [Shard(0), Replicate()])),
      'float32[16, 10] on mesh (dp: 2, tp: 4): [Shard(0), Replicate()]',
    );
    assert.equal(
      String(specOf(mesh, [16, 10], [Shard(0), Shard(0)], [[1, 0]])),
      'float32[16, 10] on mesh (dp: 2, tp: 4): [Shard(0), Shard(0)], dim 0 sharded by tp, then dp',
    );
    assert.equal(
      String(specOf(fakeMesh([2, 4]), [16], [Shard(0), Shard(0)], [[1, 0]])),
      'float32[16] on mesh (2, 4): [Shard(0), Shard(0)], dim 0 sharded by mesh dim 1, then mesh dim 0',
    );
  });

  it('cannot be changed', () => {
    const spec = specOf(mesh, [16, 10], [Shard(0), Replicate()]);
    assert.ok([spec.placements, spec.order, spec.shape, spec.tensorMeta].every(Object.isFrozen));
  });

  it('keeps its shard order in other placements, with new mesh dims last', () => {
    const cube = fakeMesh([2, 2, 2]);
    const spec = specOf(cube, [16], [Shard(0), Replicate(), Shard(0)], [[2, 0]]);
    assert.deepEqual(placeSpec(spec, [Shard(0), Shard(0), Shard(0)]).order, [[2, 0, 1]]);
    assert.deepEqual(placeSpec(spec, [Shard(0), Shard(0), Replicate()]).order, [[0, 1]]);
    assert.deepEqual(
      gradientSpec(specOf(cube, [16], [Partial(), Shard(0), Shard(0)], [[2, 1]])).order,
      [[2, 1]],
    );
    assert.ok(replicateSpec(spec).isReplicated());
  });
});

describe('TensorMeta', () => {
  const meta = TensorMeta([16, 10], [10, 1], bfloat16);

  it('can be created with or without new, and a spec takes it like a plain object', () => {
    const spec = DTensorSpec(mesh, [Shard(0), Replicate()], { tensorMeta: meta });
    assert.equal(
      DTensorSpec(mesh, [Shard(0), Replicate()], {
        tensorMeta: { shape: [16, 10], strides: [10, 1], dtype: bfloat16 },
      }),
      spec,
    );
    assert.deepEqual(new TensorMeta([16, 10], [10, 1], bfloat16), meta);
    for (const each of [
      meta,
      spec.tensorMeta,
      specOf(mesh, [4], [Shard(0), Replicate()]).tensorMeta,
    ])
      assert.ok(each instanceof TensorMeta);
    assert.deepEqual(
      [
        spec.tensorMeta.shape,
        spec.tensorMeta.stride,
        spec.tensorMeta.strides,
        spec.tensorMeta.dtype,
      ],
      [[16, 10], [10, 1], [10, 1], bfloat16],
    );
  });

  it('cannot be changed, not even through the arrays of the caller', () => {
    const shape = [2];
    const made = TensorMeta(shape, [1], bfloat16);
    shape.push(3);
    assert.deepEqual(made.shape, [2]);
    assert.ok([made, made.shape, made.stride].every(Object.isFrozen));
  });

  it('prints in one line', () => {
    assert.equal(inspect(meta), 'TensorMeta(bfloat16[16, 10], strides [10, 1])');
  });

  it('refuses malformed metadata', () => {
    const refused = (args: unknown[], text: RegExp): void =>
      assert.throws(
        () => TensorMeta(...(args as [number[], number[], typeof bfloat16])),
        (error: Error) => error instanceof ArgumentError && text.test(error.message),
      );
    refused([3, [1], bfloat16], /^TensorMeta: expected a shape such as \[2, 3\], got 3/);
    refused([[-1], [1], bfloat16], /^TensorMeta: sizes must be non-negative integers/);
    for (const stride of [[1], [1, 2, 3], [1, -1]])
      refused(
        [[2, 3], stride, bfloat16],
        /^TensorMeta: expected stride to be 2 strides, one for each dim, got \[/,
      );
    for (const stride of [undefined, 3, ['a', 1]])
      refused(
        [[2, 3], stride, bfloat16],
        /^TensorMeta: expected stride to be an array of whole numbers, got /,
      );
    refused(
      [[2], [1], 'float32'],
      /^TensorMeta: expected dtype to be a dtype such as float32, got 'float32'/,
    );
    const strange = { shape: [2, 3], strides: [1, 'a'], dtype: bfloat16 };
    assert.throws(
      () => DTensorSpec(mesh, [Shard(0), Replicate()], { tensorMeta: strange as never }),
      /^ArgumentError.*DTensorSpec: expected tensorMeta\.strides to be an array/,
    );
  });
});

describe('a spec is refused if it', () => {
  const make = (
    placements: readonly Placement[],
    shape = [16, 10],
    shardOrder: number[][] | null = null,
  ) => specOf(mesh, shape, placements, shardOrder);

  it('has too few placements', () =>
    assert.throws(
      () => make([Shard(0)]),
      /expected 2 placements, one for each dim of the mesh \(dp: 2, tp: 4\), got 1: \[Shard\(0\)\]/,
    ));
  it('shards a dim that does not exist', () => {
    assert.throws(() => make([Shard(2), Replicate()]), IndexError);
    assert.throws(
      () => make([Shard(-3), Replicate()]),
      /Shard\(-3\) does not fit a tensor of 2 dims: expected a dim from -2 to 1/,
    );
    assert.throws(
      () => make([Shard(0), Replicate()], []),
      /a 0-d tensor cannot be sharded, use Replicate\(\)/,
    );
  });
  it('has a placement that is not one', () => {
    assert.throws(() => make([0 as never, Replicate()]), ArgumentError);
    assert.throws(
      () => make('Shard' as never),
      /expected placements to be an array of Shard\(dim\)/,
    );
    assert.throws(
      () => DTensorSpec(mesh, [Shard(0), Shard(0)], {} as never),
      /expected tensorMeta to be an object of shape, strides and dtype/,
    );
    assert.throws(
      () => DTensorSpec(null as never, [], { tensorMeta: metaOf([]) }),
      /expected mesh to be a DeviceMesh, got null/,
    );
  });
  it('has a shard order of other mesh dims than those that shard', () => {
    for (const order of [[[0]], [[0, 0]], [[0, 1, 1]], [[], [0, 1]]])
      assert.throws(() => make([Shard(0), Shard(0)], [16, 10], order), ShardingError);
    assert.throws(
      () => make([Shard(0), Shard(0)], [16, 10], [[1, 1]]),
      /expected shardOrder\[0\] to name the mesh dims that shard tensor dim 0, each once: 0 \(dp\), 1 \(tp\); got \[1, 1\]/,
    );
  });
  it('has Partial of reductions that do not commute', () => {
    assert.throws(
      () => make([Partial(), Partial('max')]),
      /Partial\(sum\) on one mesh dim and Partial\(max\) on another have no defined value/,
    );
    assert.ok(make([Partial(), Partial('avg')]));
  });
});
