/**
 * Optimizer steps and gradient clipping of parameters with different placements, or plain, in one
 * list.
 */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  DTensor,
  distributeTensor,
  explicitRedistribution,
  initDeviceMesh,
  Partial,
  type Placement,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import {
  float32,
  float64,
  foreachCopy_,
  manualSeed,
  nn,
  optim,
  randn,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { assertClose } from '../parallel/compare.js';

const dtype = float64;
const shapes = [[5, 3], [4], [3, 4], [2, 2]];
const held: (Placement[] | null)[] = [[Shard(0)], [Replicate()], [Shard(1)], null];

/** Parameters with gradients, whole and as ranks hold them. */
function parameters(mesh: ReturnType<typeof initDeviceMesh>): {
  whole: nn.Parameter[];
  own: nn.Parameter[];
} {
  manualSeed(4);
  const pairs = shapes.map((shape, i) => {
    const [value, grad] = [randn(shape, { dtype }), randn(shape, { dtype })];
    const place = (t: Tensor): Tensor =>
      held[i] ? distributeTensor(t, mesh, held[i] as Placement[]) : t.clone();
    const [whole, own] = [new nn.Parameter(value.clone()), new nn.Parameter(place(value))];
    whole.grad = grad.clone();
    own.grad = place(grad);
    return { whole, own };
  });
  return { whole: pairs.map((pair) => pair.whole), own: pairs.map((pair) => pair.own) };
}

describe('foreach ops on plain and distributed parameters', () => {
  for (const [name, make] of [
    ['SGD', (list: nn.Parameter[]) => new optim.SGD(list, { lr: 0.1, momentum: 0.9 })],
    ['AdamW', (list: nn.Parameter[]) => new optim.AdamW(list, { lr: 0.1 })],
    [
      'AdamW, op by op',
      (list: nn.Parameter[]) => new optim.AdamW(list, { lr: 0.1, foreach: false }),
    ],
    [
      'capturable SGD',
      (list: nn.Parameter[]) =>
        new optim.SGD(list, { lr: tensor(0.1, { dtype }), momentum: 0.9, capturable: true }),
    ],
    [
      'capturable AdamW',
      (list: nn.Parameter[]) => new optim.AdamW(list, { lr: 0.1, capturable: true }),
    ],
    [
      'capturable AdamW, op by op',
      (list: nn.Parameter[]) =>
        new optim.AdamW(list, {
          lr: tensor(0.1, { dtype }),
          capturable: true,
          amsgrad: true,
          foreach: false,
        }),
    ],
  ] as const) {
    it(
      `${name}: a step needs no communication`,
      withRanks(3, async () => {
        const { whole, own } = parameters(initDeviceMesh('cpu', [3]));
        const [a, b] = [make(whole), make(own)];
        const comm = new CommDebugMode();
        for (let step = 0; step < 2; step++) {
          a.step();
          comm.run(() => explicitRedistribution(() => b.step()));
        }
        assert.equal(comm.getTotalCounts(), 0);
        for (const [i, p] of own.entries())
          await assertClose(p, whole[i] as Tensor, `parameter ${i}`);
      }),
    );
  }

  it(
    'a gradient is redistributed to the placements of its parameter; a plain one is refused',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const { whole, own } = parameters(mesh);
      const [p, q] = [own[0] as nn.Parameter, whole[0] as nn.Parameter];
      p.grad = DTensor.fromLocal((q.grad as Tensor).div(2), mesh, [Partial()]);
      const step = (t: nn.Parameter): void => new optim.SGD([t], { lr: 0.1 }).step();
      assert.throws(
        () => explicitRedistribution(() => step(p)),
        /sgdStep: an input would have to be redistributed/,
      );
      const comm = new CommDebugMode();
      comm.run(() => step(p));
      assert.deepEqual(comm.getCommCounts(), { reduceScatter: 1 });
      step(q);
      await assertClose(p, q, 'the parameter');
      assert.throws(() => {
        p.grad = (q.grad as Tensor).clone();
      }, /grad: expected a distributed gradient for a tensor placed as .*, got a plain tensor/);
    }),
  );

  it(
    'foreachCopy_ redistributes each source to the placements of its target, and needs nothing else',
    withRanks(3, async () => {
      const mesh = initDeviceMesh('cpu', [3]);
      manualSeed(5);
      const values = shapes.map((shape) => randn(shape, { dtype }));
      const place = (t: Tensor, at: Placement[] | null | undefined): Tensor =>
        at ? distributeTensor(t, mesh, at) : t.clone();
      const targets = values.map((t, i) => place(t.newZeros(t.shape, { dtype: float32 }), held[i]));
      const alike = values.map((t, i) => place(t, held[i]));
      const replicated = values.map((t, i) => place(t, held[i] && [Replicate()]));
      for (const sources of [alike, replicated]) {
        for (const t of targets) t.zero_();
        const comm = new CommDebugMode();
        comm.run(() => foreachCopy_(targets, sources));
        assert.equal(comm.getTotalCounts(), 0);
        for (const [i, t] of values.entries())
          await assertClose(targets[i] as Tensor, t.float(), `target ${i}`);
      }
      const partial = DTensor.fromLocal(values[0] as Tensor, mesh, [Partial()]);
      const sharded = place((values[0] as Tensor).zerosLike(), [Shard(0)]);
      foreachCopy_([sharded], [partial]);
      await assertClose(sharded, (values[0] as Tensor).mul(3), 'a partial source');
    }),
  );

  for (const normType of [2, 1, 3, 0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
    it(
      `clipGradNorm_ with the ${normType}-norm reduces once for all parameters of equal placements`,
      withRanks(3, async () => {
        const { whole, own } = parameters(initDeviceMesh('cpu', [3]));
        const comm = new CommDebugMode();
        const norm = comm.run(() => nn.utils.clipGradNorm_(own, 0.5, { normType }));
        assert.deepEqual(comm.getCommCounts(), { allReduce: 1 });
        assert.equal(norm.sharding, null);
        await assertClose(norm, nn.utils.clipGradNorm_(whole, 0.5, { normType }), 'the norm');
        for (const [i, p] of own.entries())
          await assertClose(p.grad as Tensor, whole[i]?.grad as Tensor, `gradient ${i}`);
      }),
    );
  }
});
