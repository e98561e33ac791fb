/**
 * Errors of ops on distributed tensors, and what they accept.
 */
import assert from 'node:assert/strict';
import {
  barrier,
  CommDebugMode,
  type DeviceMesh,
  DTensor,
  distributeTensor,
  explicitRedistribution,
  getRank,
  initDeviceMesh,
  Partial,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { replicationAdvice } from '../../lib/dtensor/redistribute/policy.js';
import {
  ArgumentError,
  crossEntropy,
  int64,
  l1Loss,
  library,
  nn,
  nonzero,
  nonzeroAsync,
  ones,
  optim,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';

const [R, S0, S1, P] = [Replicate(), Shard(0), Shard(1), Partial()];

describe('ops on distributed tensors', () => {
  const ranks = reusedRanks(2);
  const each = (name: string, fn: (mesh: DeviceMesh) => void | Promise<void>): void => {
    it(
      name,
      async () =>
        void (await ranks.run(() => fn(initDeviceMesh('cpu', [2], { meshDimNames: ['tp'] })))),
    );
  };
  const sharded = (mesh: DeviceMesh): Tensor => distributeTensor(ones([4, 2]), mesh, [S0]);

  each(
    'refuse plain tensors with an error that names op, input, specs, advice and module',
    (mesh) => {
      const expected = [
        'matmul: expected distributed tensors, got a plain one as input 1 (plain float32[2, 3]). Distribute it with distributeTensor(t, mesh, [Replicate(), …])',
        '  input 0: float32[4, 2] on mesh (tp: 2): [Shard(0)]',
        '  input 1: plain float32[2, 3]',
        '  in the module Sequential at 0 (Linear)',
      ];
      const model = new nn.Sequential(new nn.Linear(2, 3));
      assert.throws(
        () => model(sharded(mesh)),
        (error: Error) =>
          expected.every((line) => error.message.includes(line)) || assert.fail(error.message),
      );
      assert.throws(
        () => ones([4, 2]).add_(sharded(mesh)),
        /add_: expected distributed tensors, got a plain one as input 0/,
      );
      assert.throws(
        () => ones([2]).copy_(DTensor.fromLocal(ones([2]), mesh)),
        /copy_: expected distributed tensors, got a plain one as the tensor to write into/,
      );
    },
  );

  each('name the function that the program called if it is made of other ops', (mesh) => {
    const [t, plain] = [sharded(mesh), ones([4, 2])];
    const refused = (call: () => unknown, expected: RegExp): void =>
      assert.throws(
        call,
        (error: Error) =>
          expected.test(error.message) &&
          (error.stack ?? '').includes(error.message.split('\n')[0] as string),
      );
    refused(
      () => l1Loss(t, plain),
      /^l1Loss, in sub: expected distributed tensors, got a plain one as input 1/,
    );
    refused(() => t.logaddexp2(plain), /^logaddexp2, in \w+: expected distributed tensors/);
    refused(() => t.add(plain), /^add: expected distributed tensors/);
    const columns = distributeTensor(ones([4, 2]), mesh, [S1]);
    explicitRedistribution(() =>
      refused(
        () => columns.logSoftmax(1),
        /^logSoftmax, in \w+: an input would have to be redistributed/,
      ),
    );
  });

  each('refuse redistribute with undefined placements', (mesh) => {
    const t = sharded(mesh);
    for (const call of [
      () => t.redistribute(undefined as never),
      () => t.redistribute(mesh, undefined as never),
      () => t.redistribute(mesh, { asyncOp: true } as never),
    ]) {
      assert.throws(
        call,
        (error: Error) =>
          error instanceof ArgumentError &&
          /^redistribute: expected placements/.test(error.message),
      );
    }
  });

  each('take numbers and plain 0-d tensors as replicated', async (mesh) => {
    const t = sharded(mesh).mul(ones([]).mul(3)).add(1);
    assert.deepEqual(t.placements, [S0]);
    assert.deepEqual([...(await t.read())], Array(8).fill(4));
  });

  each(
    'add a number to a Partial tensor once, and multiply each partial value by it',
    async (mesh) => {
      const terms = DTensor.fromLocal(ones([2]), mesh, [P]);
      assert.deepEqual([...(await terms.add(1).read())], [3, 3]);
      assert.deepEqual([terms.mul(3).placements, [...(await terms.mul(3).read())]], [[P], [6, 6]]);
      assert.deepEqual([...(await terms.mul(terms).read())], [4, 4]);
      assert.deepEqual([...(await terms.neg().relu().read())], [0, 0]);
    },
  );

  each('keep placements in place, or throw', (mesh) => {
    const t = sharded(mesh);
    assert.equal(t.add_(distributeTensor(ones([4, 2]), mesh, [S1])), t);
    assert.deepEqual(t.placements, [S0]);
    const terms = DTensor.fromLocal(ones([2]), mesh, [P]);
    assert.throws(
      () => terms.add_(1),
      /add_: the result is written into float32\[2\] on mesh \(tp: 2\): \[Partial\(sum\)\].* An in-place op may not change placements\./s,
    );
    assert.throws(() => terms.relu_(), /may not change placements/);
  });

  each(
    'write through views, and refuse in-place changes of results that are not views',
    async (mesh) => {
      const t = sharded(mesh);
      t.view([8]).add_(1);
      t.select(1, 0).mul_(2);
      assert.deepEqual([...(await t.read())], [4, 2, 4, 2, 4, 2, 4, 2]);
      const columns = distributeTensor(ones([4, 2]), mesh, [S1]);
      for (const view of [
        columns.view([8]),
        columns.view([8]).view([2, 4]),
        columns.view([8]).detach(),
      ]) {
        assert.throws(
          () => view.add_(1),
          /add_: this tensor cannot be changed in place: it is a view of a tensor placed as \[Shard\(1\)\] whose data had to be moved for it/,
        );
      }
      columns.view([8]).clone().add_(1);
      assert.deepEqual([...(await columns.read())], Array(8).fill(1));
    },
  );

  each('throw inside explicitRedistribution where they would redistribute an input', (mesh) => {
    const [rows, columns] = [sharded(mesh), distributeTensor(ones([4, 2]), mesh, [S1])];
    explicitRedistribution(() => {
      assert.throws(
        () => rows.add(columns),
        /add: an input would have to be redistributed, and explicitRedistribution is on.*input 1: float32\[4, 2\].*must become \[Shard\(0\)\]/s,
      );
      assert.throws(() => rows.nonzero(), /nonzero: an input would have to be redistributed/);
      assert.deepEqual(rows.add(columns.redistribute([S0])).placements, [S0]);
    });
    assert.deepEqual(rows.add(columns).placements, [S0]);
  });

  each('may communicate inside explicitRedistribution if no input is redistributed', (mesh) => {
    const logits = distributeTensor(ones([2, 4]), mesh, [S1]);
    const p = new nn.Parameter(sharded(mesh));
    p.grad = sharded(mesh);
    const comm = new CommDebugMode();
    const inside = (fn: () => unknown): unknown => comm.run(() => explicitRedistribution(fn));
    inside(() =>
      crossEntropy(
        logits,
        distributeTensor(tensor([0, 3], { dtype: int64 }), mesh, [R], { srcDataRank: null }),
      ),
    );
    assert.deepEqual(comm.getCommCounts(), { allReduce: 2 });
    inside(() => nn.utils.clipGradNorm_([p], 1));
    assert.deepEqual(comm.getCommCounts(), { allReduce: 3 });
  });

  it('run custom ops on replicated tensors, and warn once', async () => {
    const warnings: string[] = [];
    const listen = (warning: Error): void =>
      void warnings.push(`${warning.name}: ${warning.message}`);
    process.on('warning', listen);
    const doubled = library
      .customOp('test::doubledOnRanks', {}, (x: Tensor) => x.mul(2))
      .registerFake((x) => x);
    await ranks.run(async () => {
      const t = distributeTensor(ones([4]), initDeviceMesh('cpu', [2]), [S0]);
      for (let i = 0; i < 2; i++) {
        const result = doubled(t);
        assert.deepEqual([result.placements, [...(await result.read())]], [[R], [2, 2, 2, 2]]);
      }
    });
    process.off('warning', listen);
    assert.deepEqual(warnings, [
      'ShardingWarning: test::doubledOnRanks has no sharding rule: its inputs are replicated on every rank. registerSharding(op, rule) gives it one. This warning is printed once for each op; explicitRedistribution() makes it an error.',
    ]);
  });

  it('warn of ops of the library that replicate with what helps there', async () => {
    const warnings: string[] = [];
    const listen = (warning: Error): void => void warnings.push(warning.message);
    process.on('warning', listen);
    const refused: string[] = [];
    const attempt = (blocking: () => unknown): void => {
      try {
        blocking();
      } catch (error) {
        refused.push((error as Error).message);
      }
    };
    await ranks.run(async () => {
      const t = distributeTensor(tensor([0, 1, 2, 0]), initDeviceMesh('cpu', [2]), [S0]);
      assert.deepEqual([...(await (await nonzeroAsync(t)).read())].map(Number), [1, 2]);
      for (const blocking of [() => nonzero(t), () => t.equal(t)]) {
        attempt(blocking); // the rank that comes first would have to wait
        await barrier();
      }
      assert.deepEqual(nonzero(t.toLocal()).tolist(), [[1 - getRank()]]);
    });
    process.off('warning', listen);
    assert.equal(refused.length, 2);
    assert.match(refused[0] as string, /Use `await t\.nonzeroAsync\(…\)` instead\.$/);
    assert.match(refused[1] as string, /call fullTensor\(\) of distributed ones before that, and/);
    // An op warns once in a process, perhaps in an earlier test.
    assert.ok(warnings.length <= 1);
    for (const advice of [...warnings, replicationAdvice('nonzero')]) {
      assert.match(advice, /^nonzero replicates its inputs .* call it on toLocal\(\);/);
      assert.doesNotMatch(advice, /registerSharding/);
    }
  });

  each('update plain parameters and those of several meshes in one step', async (mesh) => {
    const params = [
      new nn.Parameter(sharded(mesh)),
      new nn.Parameter(distributeTensor(ones([3]), initDeviceMesh('cpu', [1, 2]), [R, S0])),
      new nn.Parameter(ones([2])),
    ];
    const optimizer = new optim.SGD(params, { lr: 1 });
    for (const p of params) p.mul(2).sum().backward();
    const norm = nn.utils.clipGradNorm_(params, 100);
    assert.equal(norm.sharding, null);
    assert.ok(Math.abs((await norm.itemAsync()) - Math.sqrt(13 * 4)) < 1e-5);
    optimizer.step();
    for (const p of params)
      assert.deepEqual([...(await p.detach().read())], Array(p.numel()).fill(-1));
  });

  each('refuse a step if a state has other placements than its parameter, or is plain', (mesh) => {
    const p = new nn.Parameter(sharded(mesh));
    p.sum().backward();
    const optimizer = new optim.SGD([p], { lr: 1, momentum: 0.9 });
    optimizer.step();
    optimizer.state.set(p, { momentum_buffer: distributeTensor(ones([4, 2]), mesh, [S1]) });
    assert.throws(
      () => optimizer.step(),
      /sgdStep: it overwrites input 2, float32\[4, 2\] on mesh \(tp: 2\): \[Shard\(1\)\], which would have to be redistributed to \[Shard\(0\)\]/,
    );
    optimizer.state.set(p, { momentum_buffer: ones([4, 2]) });
    assert.throws(
      () => optimizer.step(),
      /sgdStep: expected distributed tensors, got a plain one where its parameter is distributed/,
    );
  });
});
