/**
 * Ops that run as their decomposition, and their gradients, on tensors that one mesh dimension
 * shards and another has as Partial: how often the partial values are reduced.
 */
import assert from 'node:assert/strict';
import { dispatch } from '../../../lib/core/dispatch.js';
import { type AnyOp, allOps, type Sample } from '../../../lib/core/op.js';
import { contiguousStrides } from '../../../lib/core/shape.js';
import {
  CommDebugMode,
  type DeviceMesh,
  DTensorSpec,
  explicitRedistribution,
  initDeviceMesh,
  Partial,
  type Placement,
  Replicate,
  Shard,
} from '../../../lib/distributed.js';
import { autograd, float64, layerNorm, rmsNorm, type Tensor } from '../../../lib/index.js';
import { sampleTensor } from '../../../lib/ops/samples.js';
import { reusedRanks } from '../../distributed/support/reused-ranks.js';
import { assertWhole, placed } from '../random-placements.js';

const [R, P] = [Replicate(), Partial()];
const meshOf = (): DeviceMesh => initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
const specOf = (mesh: DeviceMesh, t: Tensor, placements: readonly Placement[]): DTensorSpec =>
  DTensorSpec(mesh, placements, {
    tensorMeta: { shape: t.shape, strides: contiguousStrides(t.shape), dtype: t.dtype },
  });

/** The number of reductions along a mesh dimension. */
const reductions = (comm: CommDebugMode, meshDim: string): number =>
  comm.events.filter(
    (event) =>
      /^(allReduce|reduceScatter)$/.test(event.kind) && event.meshDim?.split('_').includes(meshDim),
  ).length;

/**
 * A call of an op with one input that is Partial on one mesh dimension and sharded on the other.
 */
interface TermsCall {
  readonly op: AnyOp;
  readonly sample: Sample<object>;
  readonly input: number;
  readonly meshDim: 'dp' | 'tp';
  readonly cut: Placement;
}

function* termsCalls(op: AnyOp, samples = Number.POSITIVE_INFINITY): Iterable<TermsCall> {
  for (const sample of (op.samples() as readonly Sample<object>[]).slice(0, samples)) {
    for (const [input, t] of sample.inputs.entries()) {
      if (t.storage === null || !t.dtype.isFloatingPoint) continue;
      for (const cut of [R, ...t.shape.map((_, dim) => Shard(dim))])
        for (const meshDim of ['dp', 'tp'] as const) yield { op, sample, input, meshDim, cut };
    }
  }
}

function inputsOf(
  { sample, input, meshDim, cut }: TermsCall,
  mesh: DeviceMesh,
  requiresGrad: boolean,
): Tensor[] {
  return sample.inputs.map((t, i) => {
    if (t.storage === null) return t;
    const placements = i !== input ? [R, R] : meshDim === 'dp' ? [P, cut] : [cut, P];
    return placed(t, specOf(mesh, t, placements), requiresGrad && t.dtype.isFloatingPoint);
  });
}

/** With gradients, those of the results are whole on every rank. */
async function checkCall(call: TermsCall, mesh: DeviceMesh, requiresGrad: boolean): Promise<void> {
  const { op, sample, input, meshDim, cut } = call;
  const what = `${op.name}, input ${input} of [${sample.inputs[input]?.shape}] in terms along ${meshDim}, else ${cut}`;
  const inputs = inputsOf(call, mesh, requiresGrad);
  const comm = new CommDebugMode();
  const outputs = comm.run(() => dispatch(op, inputs, sample.params));
  assert.ok(reductions(comm, meshDim) <= 1, `${what}\n${comm}`);
  for (const [i, expected] of dispatch(op, sample.inputs, sample.params).entries())
    await assertWhole(outputs[i] as Tensor, expected, what);
  if (op.vjp === null || !requiresGrad) return;
  comm.reset();
  const roots = outputs.filter((t) => t.requiresGrad);
  assert.equal(
    roots.length > 0,
    inputs.some((t) => t.requiresGrad),
    `backward of ${what} begins somewhere`,
  );
  const ones = roots.map((t) =>
    placed(t.detach().newOnes(t.shape).fullTensor(), specOf(mesh, t, [R, R])),
  );
  comm.run(() => autograd.backward(roots, ones));
  assert.ok(reductions(comm, meshDim) <= 1, `backward of ${what}\n${comm}`);
}

const ops = allOps().filter(
  (op) =>
    !op.name.includes('::') &&
    !op.traits.some((trait) => trait === 'collective' || trait === 'placement'),
);
const decomposing = ops.filter((op) => op.sharding?.decomposes);
/** The others with a gradient rule, which may read an input more than once. */
const differentiable = ops.filter((op) => op.vjp !== null && !decomposing.includes(op));
/** Gradients, which are recorded as what they decompose into. */
const recordedDecomposed = ops.filter((op) => op.vjp === null && op.decompose !== null);

describe('an op that runs as its decomposition', function () {
  this.timeout(60_000);
  const ranks = reusedRanks(4);
  const each = (name: string, fn: (mesh: DeviceMesh) => void | Promise<void>): void => {
    it(name, async () => void (await ranks.run(() => fn(meshOf()))));
  };

  for (const op of decomposing) {
    each(
      `reduces a Partial input at most once in forward and once in backward: ${op.name}`,
      async (mesh) => {
        for (const call of termsCalls(op))
          for (const requiresGrad of op.vjp === null ? [false] : [false, true])
            await checkCall(call, mesh, requiresGrad);
      },
    );
  }

  for (const op of recordedDecomposed) {
    each(
      `reduces a Partial input at most once if recorded for a second derivative: ${op.name}`,
      async (mesh) => {
        for (const call of termsCalls(op)) await checkCall(call, mesh, true);
      },
    );
  }

  for (const op of differentiable) {
    each(`reduces a Partial input at most once in backward: ${op.name}`, async (mesh) => {
      for (const call of termsCalls(op, 1)) await checkCall(call, mesh, true);
    });
  }

  const counts: [name: string, run: (t: Tensor) => Tensor, ofTerms: number, ofPieces: number][] = [
    ['softmax', (t) => t.softmax(1), 1, 2],
    ['logSoftmax', (t) => t.logSoftmax(1), 1, 2],
    ['logsumexp', (t) => t.logsumexp(1), 1, 2],
    ['layerNorm', (t) => layerNorm(t, [5]), 1, 2],
    ['rmsNorm', (t) => rmsNorm(t, [5]), 1, 1],
    ['std', (t) => t.std(1), 1, 2],
    ['norm', (t) => t.norm(2, 1), 1, 1],
  ];
  for (const [name, run, ofTerms, ofPieces] of counts) {
    each(`reduces its Partial input once, and each row statistic once: ${name}`, async (mesh) => {
      const whole = sampleTensor([3, 5], { dtype: float64 });
      const comm = new CommDebugMode();
      const result = comm.run(() => run(placed(whole, specOf(mesh, whole, [P, Shard(1)]), true)));
      assert.deepEqual(
        [reductions(comm, 'dp'), reductions(comm, 'tp'), comm.getTotalCounts()],
        [ofTerms, ofPieces, ofTerms + ofPieces],
        String(comm),
      );
      await assertWhole(result, run(whole), name);
    });
  }

  each('keeps an input Partial if it is linear in it', async (mesh) => {
    const [g, x] = [
      sampleTensor([3, 5], { dtype: float64 }),
      sampleTensor([3, 5], { dtype: float64, seed: 2 }),
    ];
    for (const run of [(t: Tensor) => t.softmax(1), (t: Tensor) => t.logSoftmax(1)]) {
      const [leaf, whole] = [
        placed(x, specOf(mesh, x, [R, Shard(1)]), true),
        x.clone().requiresGrad_(),
      ];
      const gradient = placed(g, specOf(mesh, g, [P, Shard(1)]));
      const comm = new CommDebugMode();
      const result = run(leaf);
      const hooked: string[] = [];
      leaf.registerHook((grad) => void hooked.push(grad.placements.join()));
      comm.run(() => result.backward(gradient));
      run(whole).backward(g);
      // Once, for the gradient of a tensor that is not Partial.
      assert.deepEqual(
        [reductions(comm, 'dp'), hooked],
        [1, ['Partial(sum),Shard(1)']],
        String(comm),
      );
      await assertWhole(leaf.grad as Tensor, whole.grad as Tensor, 'gradient');
    }
  });

  each(
    'names the Partial input that it would have to reduce inside explicitRedistribution',
    (mesh) => {
      const whole = sampleTensor([3, 5]);
      const t = placed(whole, specOf(mesh, whole, [P, Shard(1)]));
      explicitRedistribution(() =>
        assert.throws(
          () => t.softmax(1),
          /^ShardingError.*: softmax: an input would have to be redistributed.*input 0: .*must become \[Replicate\(\), Shard\(1\)\]/s,
        ),
      );
    },
  );
});
