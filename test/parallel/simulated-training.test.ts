/**
 * Fake worlds of thousands of ranks: traffic and memory of a rank against formulas and real ranks.
 */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../lib/compile/index.js';
import {
  CommDebugMode,
  type DeviceMesh,
  DTensor,
  destroyProcessGroup,
  distributeTensor,
  dtensorRandn,
  initDeviceMesh,
  initProcessGroup,
  launch,
  Replicate,
  Shard,
  type TotalTraffic,
} from '../../lib/distributed.js';
import { memory, nn, ones, optim, randn, type Tensor, zeros } from '../../lib/index.js';
import {
  activationBytes,
  expectedTraffic,
  parallelBlock,
  parameterCount,
  type Sizes,
  trainingStep,
} from './simulated-gpt.js';

const LARGE: Sizes = { batch: 2, time: 1024, features: 4096, heads: 32 };
const SMALL: Sizes = { batch: 2, time: 6, features: 8, heads: 4 };
const FLOAT = 4;

const meshOf = (dp: number, tp: number): DeviceMesh =>
  initDeviceMesh('cpu', [dp, tp], { meshDimNames: ['dp', 'tp'] });

/** Runs `fn` as one rank of a world that is not there, on shapes alone. */
async function simulated<T>(
  rank: number,
  worldSize: number,
  fn: (mode: FakeTensorMode) => T,
): Promise<T> {
  await initProcessGroup('fake', { rank, worldSize });
  try {
    const mode = new FakeTensorMode();
    return mode.run(() => fn(mode));
  } finally {
    destroyProcessGroup();
  }
}

const sizeOf = (t: Tensor | null): number =>
  t === null ? 0 : (t instanceof DTensor ? t.toLocal() : t).nbytes;
const sum = (numbers: Iterable<number>): number => [...numbers].reduce((a, b) => a + b, 0);

describe('a training step of 4096 ranks, simulated on one', () => {
  for (const rank of [0, 77, 4095]) {
    it(`has the traffic and memory of the formulas, as rank ${rank}`, async () => {
      const before = memory.stats().allocatedBytes;
      await simulated(rank, 4096, (mode) => {
        const mesh = meshOf(512, 8);
        const model = parallelBlock(LARGE, mesh);
        const optimizer = new optim.AdamW(model.parameters());
        const parameters = parameterCount(LARGE, 8) * FLOAT;
        assert.equal(mode.memory.stats().current.total, parameters);

        const { byMeshDim, calls } = trainingStep(model, optimizer, mesh, LARGE).getTraffic();
        const expected = expectedTraffic(LARGE, 512, 8);
        assert.deepEqual(Object.keys(byMeshDim), ['tp', 'dp']);
        assert.deepEqual(byMeshDim.tp?.byKind, {
          allReduce: { calls: 4, sentBytes: expected.tp, receivedBytes: expected.tp },
        });
        assert.deepEqual([byMeshDim.dp?.calls, byMeshDim.dp?.sentBytes], [16, expected.dp]);
        assert.equal(calls, 4 + 16);

        const { current } = mode.memory.stats();
        assert.deepEqual(
          [current.parameters, current.gradients, current.optimizerState, current.activations],
          [parameters, 0, 2 * parameters, 0],
        );
      });
      assert.ok(memory.stats().allocatedBytes <= before);
    });
  }

  it('holds saved tensors after forward, and all gradients after backward', async () => {
    await simulated(1, 4096, (mode) => {
      const model = parallelBlock(LARGE, meshOf(512, 8));
      const parameters = parameterCount(LARGE, 8) * FLOAT;
      mode.memory.resetPeak();
      const out = model(randn([LARGE.batch, LARGE.time, LARGE.features]));
      const forward = mode.memory.stats();
      assert.equal(forward.current.activations, activationBytes(LARGE, 8));
      // The last sum: a term that nothing has saved, and its result.
      assert.deepEqual(
        [forward.peak.activations, forward.peak.temporaries],
        [forward.current.activations, 2 * out.nbytes],
      );
      out.sum().backward();
      const { current } = mode.memory.stats();
      assert.deepEqual(
        [current.parameters, current.gradients, current.activations],
        [parameters, parameters, 0],
      );
    });
  });

  it('equals a real step of four ranks, call by call and byte by byte', async () => {
    const real = await launch(4, async (): Promise<[TotalTraffic, number, number]> => {
      const mesh = meshOf(2, 2);
      const model = parallelBlock(SMALL, mesh);
      const optimizer = new optim.AdamW(model.parameters());
      const traffic = trainingStep(model, optimizer, mesh, SMALL).getTraffic();
      const state = [...optimizer.state.values()].flatMap((values) => Object.values(values));
      return [
        traffic,
        sum([...model.parameters()].map(sizeOf)),
        sum(state.map((t) => (typeof t === 'number' ? 0 : sizeOf(t)))),
      ];
    });
    for (const [rank, seen] of real.entries()) {
      const fake = await simulated(rank, 4, (mode): [TotalTraffic, number, number] => {
        const mesh = meshOf(2, 2);
        const model = parallelBlock(SMALL, mesh);
        const optimizer = new optim.AdamW(model.parameters());
        const traffic = trainingStep(model, optimizer, mesh, SMALL).getTraffic();
        const { parameters, optimizerState } = mode.memory.stats().current;
        return [traffic, parameters, optimizerState];
      });
      assert.deepEqual(fake, seen);
      assert.deepEqual(
        [seen[0].byMeshDim.tp?.sentBytes, seen[0].byMeshDim.dp?.sentBytes],
        Object.values(expectedTraffic(SMALL, 2, 2)),
      );
    }
  });

  it('knows the shards and traffic of each rank of an uneven tensor', async () => {
    const row = 5 * FLOAT;
    for (const [rank, rows] of [3, 3, 3, 1].entries()) {
      await simulated(rank, 4, (mode) => {
        const mesh = initDeviceMesh('cpu', [4], { meshDimNames: ['tp'] });
        const weight = new nn.Parameter(dtensorRandn([10, 5], { mesh, placements: [Shard(0)] }));
        assert.equal(mode.memory.stats().current.parameters, rows * row);
        const comm = new CommDebugMode();
        comm.run(() => weight.redistribute([Replicate()]));
        const next = rank === 2 ? 1 : 3;
        assert.deepEqual(comm.getTraffic().byMeshDim.tp?.byKind, {
          allGather: { calls: 1, sentBytes: (10 - next) * row, receivedBytes: (10 - rows) * row },
        });
      });
    }
  });

  it('works with meshes of absent GPUs, and with tensors created outside', async () => {
    const plain = ones([4, 4]);
    await simulated(3, 8, (mode) => {
      const mesh = initDeviceMesh('cuda', [2, 4], { meshDimNames: ['dp', 'tp'] });
      const t = distributeTensor(zeros([64, 16]), mesh, [Shard(0), Shard(1)]);
      assert.deepEqual([t.device.type, t.toLocal().shape], ['cuda', [32, 4]]);
      assert.match(String(t), /^DTensor\(tensor\(\.\.\., size=\[32, 4\], device='cuda:0'\)/);
      const product = DTensor.fromLocal(ones([4, 4], { device: 'cuda' }), mesh, [
        Shard(0),
        Replicate(),
      ]).matmul(distributeTensor(plain, mesh));
      assert.deepEqual(product.shape, [8, 4]);
      assert.equal(mode.memory.stats('cuda').peak.total > 0, true);
    });
  });

  for (const make of [
    (params: Iterable<nn.Parameter>): optim.Optimizer => new optim.SGD(params, { lr: 0.1 }),
    (params: Iterable<nn.Parameter>): optim.Optimizer =>
      new optim.SGD(params, { lr: 0.1, momentum: 0.9 }),
    (params: Iterable<nn.Parameter>): optim.Optimizer =>
      new optim.AdamW(params, { foreach: false }),
  ]) {
    it('runs a step of any optimizer', async () => {
      await simulated(5, 64, (mode) => {
        const mesh = meshOf(16, 4);
        const model = parallelBlock(SMALL, mesh);
        const optimizer = make(model.parameters());
        for (let i = 0; i < 2; i++) trainingStep(model, optimizer, mesh, SMALL);
        const state = [...optimizer.state.values()].flatMap((values) => Object.values(values));
        assert.equal(
          mode.memory.stats().current.optimizerState,
          sum(state.map((t) => (typeof t === 'number' ? 0 : sizeOf(t)))),
        );
      });
    });
  }
});

describe('the memory of a FakeTensorMode', () => {
  it('counts results until their last use', () => {
    const mode = new FakeTensorMode();
    mode.run(() => {
      const x = zeros([100]); // 400 bytes
      x.add(1).mul(2).sub(3).sum(); // two at a time, and x no more
    });
    assert.deepEqual(mode.memory.stats().peak, {
      parameters: 0,
      buffers: 0,
      gradients: 0,
      optimizerState: 0,
      activations: 0,
      temporaries: 800,
      total: 800,
    });
    assert.equal(mode.memory.stats().current.total, 0);
    mode.memory.resetPeak();
    assert.equal(mode.memory.stats().peak.total, 0);
  });

  it('counts parameters, buffers, gradients and saved tensors by role', () => {
    const mode = new FakeTensorMode();
    mode.run(() => {
      const model = new nn.Linear(10, 10, { bias: false });
      model.registerBuffer('scale', ones([10]));
      assert.deepEqual(mode.memory.stats().current, {
        parameters: 400,
        buffers: 40,
        gradients: 0,
        optimizerState: 0,
        activations: 0,
        temporaries: 0,
        total: 440,
      });
      const x = ones([5, 10]);
      const y = model(x).square();
      const saved = mode.memory.stats().current;
      assert.equal(saved.activations, 200 + 200); // x, and what is squared
      y.sum().backward();
      assert.deepEqual(
        [mode.memory.stats().current.gradients, mode.memory.stats().current.activations],
        [400, 0],
      );
      model.zeroGrad();
      assert.equal(mode.memory.stats().current.gradients, 0);
      assert.equal(mode.memory.holders()[0]?.role, 'parameter');
      model.weight.data = zeros([10, 10]).add(1); // takes the old one's place
      assert.equal(mode.memory.stats().current.parameters, 400);
    });
  });

  it('counts storages that are resized', () => {
    const mode = new FakeTensorMode();
    mode.run(() => {
      const weight = new nn.Parameter(zeros([100]), false);
      weight.untypedStorage().resize_(0);
      assert.equal(mode.memory.stats().current.total, 0);
      assert.equal(mode.memory.stats().peak.total, 400);
      weight.untypedStorage().resize_(400);
      assert.equal(mode.memory.stats().current.parameters, 400);
    });
  });
});
