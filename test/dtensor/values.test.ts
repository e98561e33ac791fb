/**
 * Values of distributed tensors: read, printed, loaded, saved and freed.
 */
import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import {
  barrier,
  DeviceMesh,
  DTensor,
  DTensorSpec,
  distributeTensor,
  initDeviceMesh,
  Partial,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import {
  arange,
  float32,
  float64,
  memory,
  nn,
  ones,
  optim,
  rand,
  saveSafetensors,
  scope,
  type Tensor,
} from '../../lib/index.js';
import { onRanks } from '../distributed/support/on-ranks.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';

const [R, S0, S1, P] = [Replicate(), Shard(0), Shard(1), Partial()];
const WORLD = 2;

describe('distributed tensors', () => {
  const ranks = reusedRanks(WORLD);
  const each = (
    name: string,
    fn: (mesh: DeviceMesh, rank: number) => void | Promise<void>,
  ): void => {
    it(
      name,
      async () =>
        void (await ranks.run((rank) =>
          fn(initDeviceMesh('cpu', [WORLD], { meshDimNames: ['tp'] }), rank),
        )),
    );
  };
  const matrix = (): Tensor => arange(6, { dtype: float32 }).reshape([3, 2]).clone();

  each('are read as a whole, any number of times', async (mesh) => {
    for (const placement of [R, S0, S1]) {
      const t = distributeTensor(matrix(), mesh, [placement]);
      for (let i = 0; i < 2; i++) assert.deepEqual([...(await t.read())], [0, 1, 2, 3, 4, 5]);
      assert.equal(await t.sum().itemAsync(), 15);
      assert.deepEqual([...(await t.add(1).read())], [1, 2, 3, 4, 5, 6]);
    }
    const terms = DTensor.fromLocal(ones([2]), mesh, [P]);
    assert.deepEqual([...(await terms.read())], [2, 2]);
    assert.deepEqual(terms.placements, [P]);
  });

  each('are read synchronously if no other rank is needed', async (mesh) => {
    const copies = DTensor.fromLocal(matrix(), mesh, [R]);
    assert.deepEqual(copies.tolist(), [
      [0, 1],
      [2, 3],
      [4, 5],
    ]);
    assert.equal(copies.sum().item(), 15);
    assert.deepEqual([...copies.toTypedArray()], [0, 1, 2, 3, 4, 5]);
    assert.equal(JSON.stringify(copies), '[[0,1],[2,3],[4,5]]');
    assert.ok(copies.allclose(copies));
  });

  it('have no values on a rank outside of their mesh, which gets an error', async () => {
    await onRanks(3, async (rank) => {
      const t = distributeTensor(matrix(), new DeviceMesh('cpu', [0, 2]), [S0]);
      const total = t.sum();
      if (rank !== 1)
        return assert.deepEqual(
          [[...(await t.read())], await total.itemAsync()],
          [[0, 1, 2, 3, 4, 5], 15],
        );
      assert.deepEqual([(await t.read()).length, t.tolist()], [0, []]);
      const said = /this rank is not in the mesh of the tensor, and has no value of it/;
      assert.throws(() => total.item(), said);
      await assert.rejects(total.itemAsync(), said);
    });
  });

  it('refuse to block for ranks that have not arrived', async () => {
    const outcomes = await ranks.run(async (rank) => {
      const mesh = initDeviceMesh('cpu', [WORLD]);
      const t = DTensor.fromLocal(ones([2]), mesh, [P]);
      try {
        t.sum().item();
        return 'read';
      } catch (error) {
        return `${rank}: ${(error as Error).message}`;
      }
    });
    // Whoever comes last can wait: the others have called.
    assert.deepEqual(outcomes.filter((outcome) => outcome === 'read').length, 1);
    assert.match(
      outcomes.find((outcome) => outcome !== 'read') as string,
      /: item: waiting here would block ranks .* Use `await t\.read\(\)`/,
    );
  });

  each('are printed with the local shard, placements and mesh', (mesh, rank) => {
    const t = DTensor.fromLocal(ones([1, 2]).mul(rank), mesh, [S0]);
    assert.equal(
      inspect(t),
      `DTensor(tensor([[${rank}., ${rank}.]]), float32[2, 2] on mesh (tp: 2): [Shard(0)])`,
    );
    assert.match(inspect(t.requiresGrad_().mul(2)), /gradFn=<mul>\)$/);
    assert.equal(String(t._spec), 'float32[2, 2] on mesh (tp: 2): [Shard(0)]');
    assert.equal(inspect([...t.placements, P]), '[ Shard(0), Partial(sum) ]');
    assert.equal(inspect(t._spec), 'DTensorSpec(float32[2, 2] on mesh (tp: 2): [Shard(0)])');
    const freed = t.detach().clone();
    freed.dispose();
    assert.match(inspect(freed), /^DTensor\(tensor\(\(freed\)\)/);
  });

  it('are printed before other ranks have computed', async () => {
    const texts = await ranks.run(async () => {
      const t = distributeTensor(matrix(), initDeviceMesh('cpu', [WORLD]), [R]);
      const text = inspect(t);
      await t.read();
      return text;
    });
    assert.ok(
      texts.some((text) =>
        text.startsWith(
          'DTensor(tensor(..., size=[3, 2], await read() for its values), float32[3, 2] on mesh',
        ),
      ),
    );
  });

  each('keep placements when their dtype changes, in modules too', async (mesh) => {
    const layer = new nn.Linear(2, 3, { bias: false });
    layer.weight = new nn.Parameter(distributeTensor(layer.weight.detach(), mesh, [S0]));
    const before = layer.weight;
    layer.double();
    assert.equal(layer.weight, before);
    assert.deepEqual(
      [layer.weight.dtype, layer.weight._localTensor.dtype, layer.weight.placements],
      [float64, float64, [S0]],
    );
    assert.deepEqual(layer.weight.to(float32).placements, [S0]);
  });

  each('load state from plain and from distributed tensors', async (mesh) => {
    const make = (): nn.Linear => {
      const layer = new nn.Linear(2, 3);
      layer.weight = new nn.Parameter(distributeTensor(layer.weight.detach(), mesh, [S0]));
      return layer;
    };
    const [one, other] = [make(), make()];
    one.loadStateDict({ weight: matrix(), bias: ones([3]) });
    assert.deepEqual([...(await one.weight.read())], [0, 1, 2, 3, 4, 5]);
    other.loadStateDict(one.stateDict());
    assert.deepEqual([...(await other.weight.read())], [0, 1, 2, 3, 4, 5]);
    const whole = new nn.Linear(2, 3);
    whole.loadStateDict(one.stateDict());
    assert.equal(whole.weight.sharding, null);
    assert.deepEqual([...(await whole.weight.read())], [0, 1, 2, 3, 4, 5]);
  });

  each('refuse to be saved by every rank', async (mesh) => {
    const w = distributeTensor(matrix(), mesh, [S0]);
    await assert.rejects(
      saveSafetensors('never-written.safetensors', { w }),
      /saveSafetensors: "w" is held by several ranks: .* Take fullTensor\(\)/,
    );
  });

  each('have gradients in their own placements', (mesh) => {
    const t = distributeTensor(matrix().requiresGrad_(), mesh, [S0]);
    assert.throws(() => {
      t.grad = ones([3, 2]);
    }, /grad: expected a distributed gradient for a tensor placed as float32\[3, 2\] on mesh \(tp: 2\): \[Shard\(0\)\], got a plain tensor/);
    t.mul(DTensor.fromLocal(matrix(), mesh, [R]))
      .redistribute([S1])
      .sum()
      .backward();
    assert.equal(t.grad?._spec, t._spec);
    t.mul(2).sum().backward();
    assert.equal(t.grad?._spec, t._spec);
  });
});

describe('the memory of distributed tensors', function () {
  this.timeout(60_000);
  const ranks = reusedRanks(WORLD);

  it('is freed to the byte by dispose, using and scopes', async () => {
    await ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [WORLD]);
      const spec = DTensorSpec(mesh, [S0], {
        tensorMeta: { shape: [2000], strides: [1], dtype: float32 },
      });
      const grown = (fn: () => void): number => {
        memory.collect();
        const before = memory.stats().allocatedBytes;
        fn();
        return memory.stats().allocatedBytes - before;
      };
      assert.equal(
        grown(() => DTensor.fromLocal(ones([1000]), mesh, [S0]).dispose()),
        4032,
        'the local tensor is still there',
      );
      assert.equal(
        grown(() => {
          using t = new DTensor(
            scope(() => ones([1000])),
            spec,
          ) as Tensor;
          t.toLocal().dispose();
          t.detach().dispose();
          t._localTensor.dispose();
        }),
        0,
      );
      assert.equal(
        grown(() => {
          scope(() => {
            const t = new DTensor(ones([1000]), spec);
            t.add(1).mul(t).toLocal();
          });
        }),
        0,
      );
      let kept: Tensor | null = null;
      assert.equal(
        grown(() => {
          kept = scope(() => new DTensor(ones([1000]), spec).add(1));
        }),
        4032,
      );
      assert.deepEqual((kept as unknown as Tensor).toLocal().sum().item(), 2000);
    });
  });

  it('stays flat in a training loop', async () => {
    await ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [WORLD]);
      const make = (shape: number[], placement: typeof R | typeof S0): nn.Parameter =>
        new nn.Parameter(distributeTensor(rand(shape), mesh, [placement]));
      const [first, second] = [make([16, 8], S0), make([4, 16], S1)];
      const optimizer = new optim.AdamW([first, second], { lr: 1e-3 });
      const x = distributeTensor(rand([6, 8]), mesh, [R]);
      const peaks: number[] = [];
      for (let step = 0; step < 300; step++) {
        const loss = scope(() => {
          const value = x.linear(first).relu().linear(second).square().mean();
          value.backward();
          nn.utils.clipGradNorm_([first, second], 1);
          return value.detach();
        });
        optimizer.step();
        optimizer.zeroGrad();
        await loss.read();
        loss.dispose();
        // The other rank may be in the middle of a step.
        if (step % 100 === 99) {
          await barrier();
          memory.collect();
          peaks.push(memory.stats().allocatedBytes);
          await barrier();
        }
      }
      assert.ok(
        (peaks[2] as number) <= (peaks[0] as number),
        `bytes after 100, 200 and 300 steps: ${peaks.join(', ')}`,
      );
    });
  });
});
