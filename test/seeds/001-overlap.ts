/**
 * Models for the order in which compiled tensor-parallel models compute and communicate, as
 * PyTorch's test_dtensor_compile.py requires it.
 */
import assert from 'node:assert/strict';
import { inductor, runAndGetKernelCode } from '../../lib/compile/index.js';
import {
  ColwiseParallel,
  type DeviceMesh,
  initDeviceMesh,
  PrepareModuleInput,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
  Shard,
} from '../../lib/distributed.js';
import {
  compile,
  manualSeed,
  nn,
  noGrad,
  rand,
  randn,
  type Tensor,
  withDevice,
} from '../../lib/index.js';
import { CompileCounterWithBackend, FileCheck } from '../../lib/testing/index.js';
import { assertAsEager, FULL, factsOf } from './compiled.js';

type Device = 'cpu' | 'cuda';

class FakeAttention extends nn.Module {
  wq = new nn.Linear(16, 16);
  wk = new nn.Linear(16, 16);
  wv = new nn.Linear(16, 16);
  wo = new nn.Linear(16, 16);
  forward(x: Tensor): Tensor {
    const [q, k, v] = [this.wq(x), this.wk(x), this.wv(x)];
    return this.wo(q.add(k).add(v));
  }
}

/** The same, with a product behind the first three that needs no other rank. */
class AttentionWithProduct extends FakeAttention {
  own = randn([64, 64]);
  override forward(x: Tensor): Tensor {
    const [q, k, v] = [this.wq(x), this.wk(x), this.wv(x)];
    return this.wo(q.add(k).add(v).mul(this.own.matmul(this.own).sum()));
  }
}

class FakeTransformerBlock extends nn.Module {
  readonly attn: FakeAttention;
  constructor(attn: FakeAttention) {
    super();
    this.attn = attn;
  }
  forward(x: Tensor): Tensor {
    return this.attn(x);
  }
}

class FakeTransformer extends nn.Module<[x: Tensor], Tensor> {
  readonly block: FakeTransformerBlock;
  constructor(attn = new FakeAttention()) {
    super();
    this.block = new FakeTransformerBlock(attn);
  }
  override forward(x: Tensor): Tensor {
    return this.block(x);
  }
}

function parallelized(model: FakeTransformer, mesh: DeviceMesh): FakeTransformer {
  parallelizeModule(model.block, mesh, {
    attn: PrepareModuleInput({ inputLayouts: Shard(0), desiredInputLayouts: Replicate() }),
    'attn.wq': ColwiseParallel(),
    'attn.wk': ColwiseParallel(),
    'attn.wv': ColwiseParallel(),
    'attn.wo': RowwiseParallel({ outputLayouts: Shard(0) }),
  });
  return model;
}

/** Runs `fn` with the setting, which captures read; `fn` must not await before they are made. */
function withReorder<T>(value: boolean, fn: () => T): T {
  const { config } = inductor;
  const before = config.reorderForComputeCommOverlap;
  config.reorderForComputeCommOverlap = value;
  try {
    return fn();
  } finally {
    config.reorderForComputeCommOverlap = before;
  }
}

/** The lines of collectives and waits. */
const communication = (code: string): string[] =>
  code.split('\n').filter((line) => /allGather|reduceScatter|allReduce|waitTensor\(/.test(line));

/** The ops of lines, by the names before their operands. */
const opsIn = (code: string): string[] =>
  code.split('\n').flatMap((line) => /^(?:[\w, ]+ = )?(\w+)\(/.exec(line)?.[1] ?? []);

/** Trains a step, compiled and not; the commands of the forward and the backward graph. */
export async function compareOrder(
  device: Device,
  rank: number,
  reorders: boolean,
): Promise<readonly string[]> {
  const mesh = initDeviceMesh(device, [2], { meshDimNames: ['tp'] });
  manualSeed(1);
  const model = parallelized(
    withDevice(device, () => new FakeTransformer()),
    mesh,
  );
  const counter = CompileCounterWithBackend('inductor');
  const compiled = compile(model, { ...FULL, backend: counter });
  let codes: readonly string[] = [];
  await assertAsEager<(x: Tensor) => Tensor>(model, compiled, async (run) => {
    manualSeed(rank);
    model.zeroGrad();
    const x = rand([20, 16], { device }).requiresGrad_();
    const [out, ran] = withReorder(reorders, () =>
      runAndGetKernelCode(() => {
        const result = run(x);
        result.sum().backward();
        return result;
      }),
    );
    codes = ran;
    assert.deepEqual(out.shape, [20, 16]);
    return factsOf([out, x.grad, ...[...model.parameters()].map((p) => p.grad)]);
  });
  assert.equal(counter.frameCount, 1);
  assert.equal(codes.length, 2);
  FileCheck()
    .check('buf0 = allGather(primal')
    .check('waitTensor(buf0)')
    .check('matmul(buf0,')
    .check('reduceScatter(')
    .run(codes[0] as string);
  const backward = opsIn(codes[1] as string);
  const beside = backward.slice(backward.indexOf('reduceScatter') + 1, -1);
  // The gradients of four layers can be computed while that of the input is reduced; on a GPU those
  // of one take as long as the reduction.
  const layers = reorders ? (device === 'cpu' ? 4 : 1) : 0;
  assert.deepEqual(beside, new Array(layers).fill(['matmul', 'sum']).flat(), codes[1]);
  return codes.map((code) => communication(code).join('\n'));
}

/** The product that needs no other rank stands between the gather and its wait. */
export async function compareOrderWithProduct(
  device: Device,
  rank: number,
  reorders: boolean,
): Promise<readonly string[]> {
  const mesh = initDeviceMesh(device, [2], { meshDimNames: ['tp'] });
  manualSeed(1);
  const model = parallelized(
    withDevice(device, () => new FakeTransformer(new AttentionWithProduct())),
    mesh,
  );
  const compiled = compile(model, { ...FULL, backend: 'inductor' });
  manualSeed(rank);
  const x = rand([20, 16], { device });
  const expected = await factsOf([noGrad(() => model(x))]);
  const [found, [code = '']] = withReorder(reorders, () =>
    noGrad(() => runAndGetKernelCode(compiled, x)),
  );
  assert.deepEqual(await factsOf([found]), expected);
  const ops = opsIn(code);
  const between = ops.slice(ops.indexOf('allGather') + 1, ops.indexOf('waitTensor'));
  assert.deepEqual(between, reorders ? ['matmul', 'sum'] : [], code);
  return communication(code);
}
