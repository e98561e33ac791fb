/**
 * A captured step on distributed tensors: replicated parameters and a sharded batch give one
 * allReduce for each gradient, and what data parallel training gives.
 */
import assert from 'node:assert/strict';
import { captureStep, type Distribute } from '../../../lib/compile/index.js';
import {
  ColwiseParallel,
  CommDebugMode,
  type DeviceMesh,
  DistributedDataParallel,
  DTensor,
  distributeTensor,
  initDeviceMesh,
  type Placement,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
  Shard,
} from '../../../lib/distributed.js';
import {
  CompileError,
  manualSeed,
  nn,
  optim,
  randn,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

const ranks = 2;
type Optimizer = optim.Optimizer;

class Model extends nn.Module<[x: Tensor], Tensor> {
  readonly first = new nn.Linear(4, 8);
  readonly norm = new nn.LayerNorm(8);
  readonly last = new nn.Linear(8, 2);

  forward(x: Tensor): Tensor {
    return this.last(this.norm(this.first(x)).relu());
  }
}

const optimizers: Record<string, (params: Iterable<Tensor>) => Optimizer> = {
  'Adam, foreach': (params) =>
    new optim.Adam(params, {
      lr: 0.01,
      capturable: true,
      foreach: true,
    }) as unknown as Optimizer,
  'AdamW, fused': (params) =>
    new optim.AdamW(params, {
      lr: tensor(0.01),
      amsgrad: true,
      capturable: true,
      fused: true,
    }) as unknown as Optimizer,
  SGD: (params) =>
    new optim.SGD(params, { lr: 0.1, momentum: 0.9, capturable: true }) as unknown as Optimizer,
};

const modelOf = (): Model => {
  manualSeed(3);
  return new Model();
};

/** The whole batch of a step, equal on all ranks. */
function batchOf(i: number): Tensor {
  manualSeed(20 + i);
  return randn([6, 4]);
}

const stepOf =
  (model: nn.Module<[x: Tensor], Tensor>, optimizer: Optimizer) =>
  (x: Tensor): Tensor => {
    const loss = model(x).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  };

type Values = readonly (readonly (number | bigint)[])[];

/** Parameters and their state on this rank, in order. */
async function valuesOf(model: nn.AnyModule, optimizer: Optimizer): Promise<Values> {
  const tensors = [...model.parameters()].flatMap((p) => [
    p,
    ...Object.values(optimizer.state.get(p) ?? {}),
  ]) as Tensor[];
  return Promise.all(
    tensors.map(async (t) => [
      ...(await (t instanceof DTensor ? t.toLocal() : t).detach().contiguous().read()),
    ]),
  );
}

function assertNear(a: Values, b: Values, what: string): void {
  assert.deepEqual(
    a.map((list) => list.length),
    b.map((list) => list.length),
  );
  a.forEach((list, i) => {
    list.forEach((x, k) => {
      const y = Number(b[i]?.[k]);
      assert.ok(
        Math.abs(Number(x) - y) <= 1e-5 + 1.3e-6 * Math.abs(y),
        `${what}, ${i}: ${x} is not ${y}`,
      );
    });
  });
}

/** What data parallel training gives after each of five steps. */
async function dataParallel(
  makeOptimizer: (params: Iterable<Tensor>) => Optimizer,
  rank: number,
): Promise<Values[]> {
  const model = new DistributedDataParallel(modelOf());
  const optimizer = makeOptimizer(model.parameters());
  const step = stepOf(model, optimizer);
  const after: Values[] = [];
  for (let i = 0; i < 5; i++) {
    step(batchOf(i).chunk(ranks)[rank] as Tensor);
    after.push(await valuesOf(model, optimizer));
  }
  return after;
}

function replicated(model: Model, mesh: DeviceMesh): Model {
  for (const layer of [model.first, model.norm, model.last])
    for (const name of ['weight', 'bias'] as const)
      layer[name] = new nn.Parameter(
        distributeTensor((layer[name] as Tensor).detach(), mesh, [Replicate()]),
      );
  return model;
}

const over =
  (mesh: DeviceMesh, placements: Placement[]): Distribute =>
  (local) =>
    DTensor.fromLocal(local, mesh, placements, { runCheck: false });

const countOf = (names: readonly string[], name: string): number =>
  names.filter((each) => each === name).length;

describe('captureStep on a mesh', () => {
  for (const [name, makeOptimizer] of Object.entries(optimizers)) {
    it(
      `trains distributed parameters as data parallel training does: ${name}`,
      withRanks(ranks, async (rank) => {
        const mesh = initDeviceMesh('cpu', [ranks]);
        const expected = await dataParallel(makeOptimizer, rank);
        const model = replicated(modelOf(), mesh);
        const optimizer = makeOptimizer(model.parameters());
        const batch = (i: number): Tensor => distributeTensor(batchOf(i), mesh, [Shard(0)]);
        const step = captureStep(stepOf(model, optimizer), [batch(0)]);
        const names = step.graph.callNodes.map(({ op }) => op?.name ?? '');
        assert.deepEqual([countOf(names, 'allReduce'), countOf(names, 'waitTensor')], [6, 6]);
        const comm = new CommDebugMode();
        for (let i = 0; i < 5; i++) {
          const x = batch(i);
          const loss = comm.run(() => step.run(x));
          assert.ok(loss instanceof DTensor);
          assertNear(await valuesOf(model, optimizer), expected[i] as Values, `step ${i}`);
        }
        assert.deepEqual(comm.getCommCounts(), { allReduce: 30 });
      }),
    );

    it(
      `trains plain parameters that are distributed for the capture: ${name}`,
      withRanks(ranks, async (rank) => {
        const mesh = initDeviceMesh('cpu', [ranks]);
        const expected = await dataParallel(makeOptimizer, rank);
        const model = modelOf();
        const optimizer = makeOptimizer(model.parameters());
        const train = stepOf(model, optimizer);
        const batch = (i: number): Tensor => batchOf(i).chunk(ranks)[rank] as Tensor;
        const params = [...model.parameters()];
        for (const p of params) p.grad = p.detach().zerosLike();
        optimizer.step();
        optimizer.zeroGrad();
        const again = modelOf();
        params.forEach((p, i) => p.data.copy_([...again.parameters()][i] as Tensor));
        for (const state of optimizer.state.values())
          for (const t of Object.values(state)) (t as Tensor).zero_();
        const first = batch(0);
        const distribute = new Map<Tensor, Distribute>([[first, over(mesh, [Shard(0)])]]);
        for (const p of params) {
          distribute.set(p, over(mesh, [Replicate()]));
          for (const t of Object.values(optimizer.state.get(p) ?? {}))
            distribute.set(t as Tensor, over(mesh, [Replicate()]));
        }
        const step = captureStep(train, [first], { distribute });
        assert.ok(params.every((p) => p.sharding === null && p.grad === null));
        const names = step.graph.callNodes.map(({ op }) => op?.name ?? '');
        assert.equal(countOf(names, 'allReduce'), 6);
        assert.deepEqual(
          step.inputs.filter(({ role }) => role === 'parameter').map(({ tensor }) => tensor),
          params,
        );
        for (let i = 0; i < 5; i++) {
          step.run(batch(i));
          assertNear(await valuesOf(model, optimizer), expected[i] as Values, `step ${i}`);
        }
      }),
    );
  }

  const layouts: Record<string, (model: Model, mesh: DeviceMesh) => void> = {
    'tensor parallel modules': (model, mesh) => {
      const first = new ColwiseParallel({ outputLayouts: Replicate() });
      const last = new RowwiseParallel({ inputLayouts: Replicate() });
      parallelizeModule(model, mesh, { first, last });
    },
    'sharded parameters': (model, mesh) => {
      for (const layer of [model.first, model.norm, model.last])
        for (const name of ['weight', 'bias'] as const)
          layer[name] = new nn.Parameter(
            distributeTensor((layer[name] as Tensor).detach(), mesh, [Shard(0)]),
          );
    },
  };
  for (const [name, layOut] of Object.entries(layouts))
    it(
      `replays a step of ${name} with the collectives of the uncompiled one`,
      withRanks(ranks, async () => {
        const mesh = initDeviceMesh('cpu', [ranks]);
        const train = async (isCaptured: boolean): Promise<unknown> => {
          const model = modelOf();
          layOut(model, mesh);
          const optimizer = optimizers['AdamW, fused']?.(model.parameters()) as Optimizer;
          const step = (x: Tensor): Tensor => {
            optimizer.zeroGrad();
            const loss = model(x).square().mean();
            loss.backward();
            optimizer.step();
            return loss;
          };
          const batch = (i: number): Tensor =>
            name === 'sharded parameters'
              ? distributeTensor(batchOf(i), mesh, [Shard(0)])
              : batchOf(i);
          const made = isCaptured ? captureStep(step, [batch(0)]) : null;
          const comm = new CommDebugMode();
          for (let i = 0; i < 3; i++) {
            const x = batch(i);
            comm.run(() => (made === null ? step(x) : made.run(x)));
          }
          const grads = await Promise.all(
            [...model.parameters()].map(async ({ grad }) => [
              ...(await (grad instanceof DTensor ? grad.toLocal() : (grad as Tensor))
                .contiguous()
                .read()),
            ]),
          );
          return [comm.getCommCounts(), await valuesOf(model, optimizer), grads];
        };
        assert.deepEqual(await train(true), await train(false));
      }),
    );

  it(
    'accumulates into plain gradients, and leaves plain gradients',
    withRanks(ranks, async (rank) => {
      const mesh = initDeviceMesh('cpu', [ranks]);
      const [model, whole] = [modelOf(), modelOf()];
      const params = [...model.parameters()];
      for (const p of [...params, ...whole.parameters()]) p.grad = p.detach().clone();
      const x = batchOf(0).chunk(ranks)[rank] as Tensor;
      const distribute = new Map<Tensor, Distribute>([[x, over(mesh, [Shard(0)])]]);
      for (const p of params) distribute.set(p, over(mesh, [Replicate()]));
      const backward = (of: Model) => (batch: Tensor) => of(batch).square().mean().backward();
      const step = captureStep(backward(model), [x], { distribute });
      for (let i = 0; i < 2; i++) {
        step.run(x);
        backward(whole)(batchOf(0));
      }
      const grads = (of: Model): Promise<Values> =>
        Promise.all(
          [...of.parameters()].map(async ({ grad }) => {
            assert.ok(grad !== null && grad.sharding === null);
            return [...(await grad.contiguous().read())];
          }),
        );
      assertNear(await grads(model), await grads(whole), 'gradients');
    }),
  );

  it(
    'refuses state that would be made for a tensor that is distributed for the capture',
    withRanks(ranks, () => {
      const mesh = initDeviceMesh('cpu', [ranks]);
      const model = modelOf();
      const optimizer = optimizers['AdamW, fused']?.(model.parameters()) as Optimizer;
      const x = batchOf(0);
      const distribute = new Map<Tensor, Distribute>();
      for (const p of model.parameters()) distribute.set(p, over(mesh, [Replicate()]));
      distribute.set(x, over(mesh, [Replicate()]));
      assert.throws(
        () => captureStep(stepOf(model, optimizer), [x], { distribute }),
        (error: Error) =>
          error instanceof CompileError && /pass the optimizer as an argument/.test(error.message),
      );
    }),
  );
});
