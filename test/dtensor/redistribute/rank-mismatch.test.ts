/**
 * Ranks with different placements of one tensor, or local shards that do not fit: an error that
 * names both, and no wrong numbers.
 */
import assert from 'node:assert/strict';
import path from 'node:path';
import {
  barrier,
  CollectiveError,
  type DeviceMesh,
  DTensor,
  distributeTensor,
  initDeviceMesh,
  Partial,
  Replicate,
  Shard,
} from '../../../lib/distributed.js';
import { ones, type Tensor, tensor, zeros } from '../../../lib/index.js';
import { describeOverEngines, errorOf, onRanks } from '../../distributed/support/on-ranks.js';

const [R, S0, S1, P] = [Replicate(), Shard(0), Shard(1), Partial()];
const here = `rank-mismatch.test${path.extname(import.meta.url)}`;

/** What the reading of each rank's tensor fails with. */
async function failures(
  call: (rank: number, mesh: DeviceMesh) => Tensor,
  ranks = 2,
): Promise<string[]> {
  return onRanks(ranks, async (rank) => {
    const error = await errorOf(
      call(rank, initDeviceMesh('cpu', [ranks], { meshDimNames: ['tp'] })).read(),
    );
    assert.ok(error instanceof CollectiveError, error.stack);
    return error.message;
  });
}

describeOverEngines('ranks with different placements', () => {
  it('get an error with both placements from a redistribution, even if sizes are equal', async () => {
    const messages = await failures((rank, mesh) =>
      DTensor.fromLocal(ones([2, 2]), mesh, [rank === 0 ? S0 : S1]).fullTensor(),
    );
    for (const [rank, message] of messages.entries()) {
      assert.match(
        message,
        /to redistribute float32\[4, 2\] from \[Shard\(0\)\] to \[Replicate\(\)\] on mesh \(tp: 2\)/,
      );
      assert.match(
        message,
        /to redistribute float32\[2, 4\] from \[Shard\(1\)\] to \[Replicate\(\)\] on mesh \(tp: 2\)/,
      );
      assert.match(
        message,
        // Along dim 1 each row is a block of its own.
        new RegExp(
          `rank ${1 - rank} called allGather of ${rank === 0 ? 4 : 8} float32 at .*${here}`,
        ),
      );
      assert.match(
        message,
        /All ranks of a mesh must have a tensor in the same placements and redistribute it to the same ones\./,
      );
    }
  });

  it('get an error for another shape with as many elements, and for another shard order', async () => {
    const shapes = await failures((rank, mesh) =>
      DTensor.fromLocal(ones(rank === 0 ? [4] : [2, 2]), mesh, [P]).fullTensor(),
    );
    for (const message of shapes)
      assert.match(
        message,
        /float32\[2, 2\] from .*float32\[4\] from|float32\[4\] from .*float32\[2, 2\] from/,
      );
    const errors = await onRanks(4, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      const t = distributeTensor(ones([8]), mesh, [S0, S0], {
        srcDataRank: null,
        shardOrder: rank === 0 ? [[1, 0]] : [[0, 1]],
      });
      return (await t
        .fullTensor()
        .read()
        .then(() => '', String)) as string;
    });
    assert.ok(
      errors.some((text) => /dim 0 sharded by tp, then dp/.test(text)),
      errors.join('\n'),
    );
  });

  it('get an error when an op redistributes its inputs', async () => {
    const messages = await failures((rank, mesh) => {
      const [rows, columns] = [
        DTensor.fromLocal(ones([2, 4]), mesh, [S0]),
        DTensor.fromLocal(ones([4, 2]), mesh, [S1]),
      ];
      return (rank === 0 ? rows.add_(columns) : columns.add_(rows)).toLocal();
    });
    for (const message of messages)
      assert.match(
        message,
        /from \[Shard\(0\)\] to \[Shard\(1\)\].*from \[Shard\(1\)\] to \[Shard\(0\)\]|from \[Shard\(1\)\] to \[Shard\(0\)\].*from \[Shard\(0\)\]/s,
      );
  });

  it('get an error with both placements and advice on a mesh of many dims with long names', async () => {
    const meshDimNames = [
      'pipeline_parallel',
      'data_parallel_replicate',
      'data_parallel_shard',
      'context_parallel',
      'tensor_parallel',
    ];
    const messages = await onRanks(2, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2, 1, 1, 1, 1], { meshDimNames });
      const t = DTensor.fromLocal(ones([2, 2]), mesh, [rank === 0 ? S0 : S1, R, R, R, S1]);
      return (await errorOf(t.fullTensor().read())).message;
    });
    for (const message of messages) {
      for (const first of ['Shard(0)', 'Shard(1)'])
        assert.ok(
          message.includes(
            `from [${first}, Replicate(), Replicate(), Replicate(), Shard(1)] to [Replicate(), `,
          ),
          message,
        );
      assert.match(message, /redistribute it to the same ones\./);
    }
  });

  it('get an error that names distributeTensor when it broadcasts replicas', async () => {
    for (const message of await failures((rank, mesh) =>
      distributeTensor(ones(rank === 0 ? [4] : [2, 2]), mesh, [R]).toLocal(),
    ))
      assert.match(
        message,
        /^read: distributeTensor \(call 1 .* called distributeTensor of 4 float32 from rank 0/,
      );
    for (const message of await failures((rank, mesh) =>
      DTensor.fromLocal(ones(rank === 0 ? [4] : [2, 2]), mesh, [R], { runCheck: true }).toLocal(),
    ))
      assert.match(
        message,
        /^read: DTensor\.fromLocal \(call 1 .* called DTensor\.fromLocal of 4 float32 from rank 0/,
      );
  });

  it('get an error from distributeTensor', async () => {
    const messages = await failures((rank, mesh) =>
      distributeTensor(ones([4, 4]), mesh, [rank === 0 ? S0 : S1]).toLocal(),
    );
    for (const message of messages) {
      assert.match(
        message,
        /distributeTensor of 16 float32 from rank 0 at .* of float32\[4, 4\] as \[Shard\(0\)\] on mesh \(tp: 2\)/,
      );
      assert.match(message, /of float32\[4, 4\] as \[Shard\(1\)\]/);
    }
  });

  it('do not disturb groups of ranks that agree', async () => {
    await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const t = distributeTensor(tensor([1, 2, 3]), mesh, [S0]);
      assert.deepEqual([...(await t.redistribute([R]).toLocal().read())], [1, 2, 3]);
    });
  });
});

describeOverEngines('DTensor.fromLocal with runCheck', () => {
  it('reports the local shape of each rank and what to do', async () => {
    const messages = await failures(
      (rank, mesh) =>
        DTensor.fromLocal(ones([2 + (rank === 2 ? 1 : 0), 2]), mesh, [S0], {
          runCheck: true,
        }).toLocal(),
      3,
    );
    for (const [rank, message] of messages.entries()) {
      assert.match(
        message,
        rank === 2
          ? /ranks 0 and 1 called DTensor\.fromLocal at/
          : /rank 2 called DTensor\.fromLocal at/,
      );
      assert.match(
        message,
        /with a local shard float32\[3, 2\] as \[Shard\(0\)\] on mesh \(tp: 3\)/,
      );
      assert.match(
        message,
        /with a local shard float32\[2, 2\] as \[Shard\(0\)\] on mesh \(tp: 3\)/,
      );
      assert.match(
        message,
        /All ranks need the same placements on the same mesh, and local shards of one shape and dtype\. For shards of different sizes use DTensor\.fromLocalUneven, or pass shape and stride of the whole tensor\./,
      );
    }
  });

  it('compares placements, replicas, dtypes, and the shape of the whole tensor if given', async () => {
    const differ: [string, (rank: number, mesh: DeviceMesh) => Tensor, RegExp][] = [
      [
        'placements',
        (rank, mesh) =>
          DTensor.fromLocal(ones([2, 2]), mesh, [rank === 0 ? S0 : S1], { runCheck: true }),
        /as \[Shard\(1\)\]/,
      ],
      [
        'copies',
        (rank, mesh) =>
          DTensor.fromLocal(ones(rank === 0 ? [4] : [2, 2]), mesh, [R], { runCheck: true }),
        /with a local shard float32\[2, 2\]/,
      ],
      [
        'wholes',
        (rank, mesh) =>
          DTensor.fromLocal(ones([2 - rank]), mesh, [S0], {
            runCheck: true,
            shape: [3],
            stride: [1 + rank],
          }),
        /with a shard of float32\[3\].*strides \[2\]/s,
      ],
    ];
    for (const [what, call, expected] of differ) {
      const messages = await failures((rank, mesh) => call(rank, mesh).toLocal());
      for (const message of messages) assert.match(message, expected, what);
    }
  });

  it('compares along all mesh dims and accepts local shards that fit', async () => {
    const wrong = await onRanks(4, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      const good = DTensor.fromLocal(ones([2, 3]), mesh, [S0, R], { runCheck: true });
      assert.deepEqual([...(await good.fullTensor().read())], Array(12).fill(1));
      const uneven = DTensor.fromLocal(zeros([rank < 2 ? 2 : 1]), mesh, [S0, R], {
        runCheck: true,
        shape: [3],
        stride: [1],
      });
      assert.deepEqual([...(await uneven.fullTensor().read())], [0, 0, 0]);
      await barrier(); // rank 3 aborts only after all have read
      const t = DTensor.fromLocal(ones([2, rank === 3 ? 4 : 3]), mesh, [S0, R], { runCheck: true });
      return (await t
        .toLocal()
        .read()
        .then(() => '', String)) as string;
    });
    assert.ok(
      wrong.filter((text) => /with a local shard float32\[2, 4\]/.test(text)).length >= 2,
      wrong.join('\n'),
    );
  });
});
