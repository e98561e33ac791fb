import assert from 'node:assert/strict';
import type { Graph } from '../../lib/compile/index.js';
import { DTensor, initDeviceMesh, Replicate, Shard } from '../../lib/distributed.js';
import {
  ArgumentError,
  CompileError,
  type DType,
  dropout,
  float32,
  float64,
  manualSeed,
  nn,
  ones,
  optim,
  randn,
  type Tensor,
  zeros,
} from '../../lib/index.js';
import { checkpoint } from '../../lib/parallel/index.js';
import * as spmd from '../../lib/spmd/index.js';
import { warningsOf } from '../compile/warnings.js';
import { onRanks, valuesOf } from '../distributed/support/on-ranks.js';
import { inFakeWorld } from './support/fake-step.js';

const modelOf = (): nn.Sequential =>
  new nn.Sequential(new nn.Linear(4, 8), new nn.ReLU(), new nn.Linear(8, 2));
const adamOf = (params: Iterable<Tensor>): optim.Adam =>
  new optim.Adam(params, { lr: 0.01, capturable: true });

const trainStep = (model: nn.Sequential, optimizer: optim.Adam, batch: Tensor): Tensor => {
  const loss = (model(batch) as Tensor).square().sum();
  loss.backward();
  optimizer.step();
  optimizer.zeroGrad();
  return loss;
};

const copyOf = (model: nn.Sequential): nn.Sequential => {
  const copy = modelOf();
  copy.loadStateDict(model.stateDict());
  return copy;
};

describe('spmd.compile', () => {
  it('takes the steps of an uncompiled program without ranks, and returns their results', () => {
    const model = modelOf();
    const other = copyOf(model);
    const [adam, otherAdam] = [adamOf(model.parameters()), adamOf(other.parameters())];
    const step = spmd.compile()(trainStep);
    for (let i = 0; i < 4; i++) {
      const batch = randn([3, 4]);
      assert.deepEqual(
        step(model, adam, batch).tolist(),
        trainStep(other, otherAdam, batch).tolist(),
      );
    }
    for (const [i, p] of [...model.parameters()].entries())
      assert.deepEqual(p.tolist(), [...other.parameters()][i]!.tolist());
  });

  it('captures a batch of another shape again, and says why', async () => {
    const model = modelOf();
    const adam = adamOf(model.parameters());
    let captures = 0;
    const gmTransformation = (module: spmd.StepModule): spmd.IterGraphModule => {
      captures++;
      return spmd.GraphModuleTransformation()(module);
    };
    const step = spmd.compile({ gmTransformation })(trainStep);
    const warnings = await warningsOf(() => {
      for (const n of [3, 3, 5, 3, 5]) step(model, adam, randn([n, 4]));
    });
    assert.equal(captures, 2);
    assert.equal(warnings.length, 1);
    assert.match(warnings[0]!, /captured again: .*float32\[3, 4\].* and is float32\[5, 4\]/);
  });

  it('names parameters that are in no optimizer, or in two', () => {
    const model = modelOf();
    const [first, , last] = [...model] as nn.Linear[];
    const step = spmd.compile()(trainStep);
    assert.throws(
      () => step(model, adamOf(first!.parameters()), ones([1, 4])),
      (error: Error) =>
        error instanceof ArgumentError && /2\.weight, 2\.bias require/.test(error.message),
    );
    const two = spmd.compile()((m: nn.Sequential, a: optim.Adam, b: optim.Adam, x: Tensor) => {
      trainStep(m, a, x);
      b.step();
    });
    assert.throws(
      () => two(model, adamOf(model.parameters()), adamOf(last!.parameters()), ones([1, 4])),
      /2\.weight, 2\.bias are in two optimizers/,
    );
  });

  it('refuses an optimizer that takes no step, or is not capturable, and values that are read', () => {
    const model = modelOf();
    const dropped = spmd.compile()((m: nn.Sequential, _adam: optim.Adam, x: Tensor) => {
      (m(x) as Tensor).sum().backward();
      m.zeroGrad();
    });
    assert.throws(
      () => dropped(model, adamOf(model.parameters()), ones([1, 4])),
      /does not call its step/,
    );
    const plain = new optim.Adam(model.parameters());
    assert.throws(() => spmd.compile()(trainStep)(model, plain, ones([1, 4])), /capturable: true/);
    const reads = spmd.compile()((m: nn.Sequential, adam: optim.Adam, x: Tensor) =>
      trainStep(m, adam, x).item(),
    );
    assert.throws(
      () => reads(model, adamOf(model.parameters()), ones([1, 4])),
      (error: Error) =>
        error instanceof CompileError && /a value of a tensor.*compile\.test/.test(error.message),
    );
    for (const p of model.parameters()) assert.ok(!p.isFake && p.grad === null);
  });

  it('names the batches of ranks that differ, at the first call and at later ones', async () => {
    type Rows = readonly (readonly [rows: number, dtype: DType])[];
    const rows = (...counts: number[]): Rows => counts.map((n) => [n, float32]);
    const batches: readonly (readonly [first: Rows, second: Rows, message: RegExp])[] = [
      [rows(3), rows(4), /float32\[3, 4\][\s\S]*float32\[4, 4\]/],
      [rows(2), [[2, float64]], /float32\[2, 4\][\s\S]*float64\[2, 4\]/],
      // The second shape is known when one rank only has it again.
      [rows(3, 2, 3, 3), rows(3, 2, 3, 2), /allReduce[\s\S]*float32\[2, 4\]/],
    ];
    for (const [first, second, message] of batches) {
      const texts: string[] = [];
      const ranks = onRanks(2, async (rank) => {
        const model = modelOf();
        const adam = adamOf(model.parameters());
        const step = spmd.compile()(trainStep);
        try {
          for (const [count, dtype] of rank === 0 ? first : second)
            step(model.to(dtype), adam, ones([count, 4], { dtype }));
          await valuesOf([...model.parameters()][0]!.detach());
        } catch (error) {
          texts.push(String(error));
          throw error;
        }
      });
      await assert.rejects(ranks);
      assert.equal(texts.length, 2);
      for (const text of texts) {
        assert.match(text, /rank [01] called spmd\.compile|this rank spmd\.compile/);
        assert.match(text, /equal shapes and dtypes on all ranks/);
      }
      assert.ok(
        texts.some((text) => message.test(text)),
        texts.join('\n'),
      );
    }
  });

  it('checks its options, the flags of a step and what a transformation returns', () => {
    assert.throws(() => spmd.compile({ gmTransformation: 1 as never }), ArgumentError);
    assert.throws(() => spmd.compile({ parallelMode: { ranks: 2 } as never }), ArgumentError);
    assert.throws(
      () => spmd.compile({ parallelMode: { mesh: 5 } as never }),
      /a DeviceMesh as mesh and a function/,
    );
    assert.throws(() => spmd.compile()(1 as never), ArgumentError);
    const model = modelOf();
    const adam = adamOf(model.parameters());
    const step = spmd.compile({ gmTransformation: (() => null) as never })(trainStep);
    assert.throws(() => step(model, adam, ones([1, 4])), /return an IterGraphModule/);
    assert.throws(
      () => step(model, adam, ones([1, 4]), { lastTrainStep: 1 as never }),
      ArgumentError,
    );
  });

  it('refuses another batch while a part of the step before waits for the next one', async () => {
    await onRanks(2, async () => {
      const model = modelOf();
      const adam = adamOf(model.parameters());
      const gmTransformation = (module: spmd.StepModule): spmd.IterGraphModule => {
        const gm = new spmd.IterGraphModule(module);
        spmd.removeCopyFromOptimizer(gm);
        // The bias of the last layer is read by its product, after the first relu.
        spmd.iterMoveGradsAndOptimizers(gm, 'allReduce', 'relu');
        gm.finalizeSetup();
        return gm;
      };
      const step = spmd.compile({ gmTransformation })(trainStep);
      step(model, adam, ones([2, 4]));
      assert.throws(() => step(model, adam, ones([3, 4])), /lastTrainStep: true/);
      step(model, adam, ones([2, 4]), { lastTrainStep: true });
      step(model, adam, ones([3, 4]), { lastTrainStep: true });
    });
  });

  it('keeps the placements of distributed parameters, and takes those of a batch', async () => {
    await onRanks(2, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2]);
      manualSeed(0);
      const model = modelOf();
      const expected = copyOf(model);
      for (const layer of [...model] as nn.Linear[])
        for (const [name, p] of [...layer.namedParameters()])
          (layer as unknown as Record<string, unknown>)[name] = new nn.Parameter(
            DTensor.fromLocal(p.detach().clone(), mesh, [Replicate()]),
          );
      const adam = adamOf(model.parameters());
      const adamExpected = adamOf(expected.parameters());
      const step = spmd.compile({ parallelMode: { mesh, batch: () => [Shard(0)] } })(trainStep);
      for (let i = 0; i < 3; i++) {
        const whole = ones([4, 4])
          .mul(i + 1)
          .cumsum(0);
        step(model, adam, whole.narrow(0, 2 * rank, 2).clone());
        trainStep(expected, adamExpected, whole);
      }
      for (const [i, p] of [...model.parameters()].entries()) {
        assert.ok(p instanceof DTensor);
        const [seen, wanted] = [
          await valuesOf(p._localTensor.detach()),
          await valuesOf([...expected.parameters()][i]!.detach()),
        ];
        seen.forEach((value, k) => assert.ok(Math.abs(Number(value) - Number(wanted[k])) < 1e-5));
      }
    });
  });

  it('captures checkpoints, also of layers that draw, and merges no collective of them', async () => {
    const stepOf =
      (isCheckpoint: boolean) =>
      (model: nn.Sequential, adam: optim.Adam, x: Tensor): Tensor => {
        const [first, relu, last] = [...model] as nn.Module<[Tensor], Tensor>[];
        const half = (t: Tensor): Tensor => dropout(relu!.forward(first!.forward(t)), 0.4);
        const loss = last!
          .forward(isCheckpoint ? checkpoint(half, x) : half(x))
          .square()
          .sum();
        loss.backward();
        adam.step();
        adam.zeroGrad();
        return loss;
      };
    await onRanks(2, async (rank) => {
      const trained = async (isCheckpoint: boolean): Promise<unknown[]> => {
        manualSeed(0);
        const model = modelOf();
        const adam = adamOf(model.parameters());
        const step = spmd.compile()(stepOf(isCheckpoint));
        for (let i = 0; i < 3; i++) step(model, adam, ones([2, 4]).mul(rank + i));
        return Promise.all([...model.parameters()].map((p) => valuesOf(p.detach())));
      };
      assert.deepEqual(await trained(true), await trained(false));
    });
  });

  it('gathers no gradient of the parts of a sharded batch', async () => {
    let graph: Graph | undefined;
    const gmTransformation = (module: spmd.StepModule): spmd.IterGraphModule => {
      const made = spmd.GraphModuleTransformation()(module);
      graph = made.main;
      return made;
    };
    const attend = (model: nn.Linear, adam: optim.Adam, batch: Tensor): void => {
      const heads = model.forward(batch).view([8, 2, 3, 4]).permute([2, 0, 1, 3]);
      const [q, k, v] = heads.unbind(0) as [Tensor, Tensor, Tensor];
      q.mul(k).add(v).square().sum().backward();
      adam.step();
    };
    const step = spmd.compile({ gmTransformation })(attend);
    await inFakeWorld(4, () => {
      const model = new nn.Linear(4, 24);
      step(model, adamOf(model.parameters()), randn([2, 4]));
    });
    const collectives = graph?.nodes.filter(({ op }) => op?.traits.includes('collective'));
    assert.deepEqual(
      collectives?.map(({ op }) => op?.name),
      ['allReduce', 'allReduce'],
    );
  });

  it('does not change gradients that are there, but adds to them', () => {
    const model = modelOf();
    const adam = adamOf(model.parameters());
    const accumulate = spmd.compile()((m: nn.Sequential, x: Tensor) => {
      (m(x) as Tensor).sum().backward();
    });
    for (const p of model.parameters()) p.grad = zeros(p.shape);
    accumulate(model, ones([1, 4]));
    const once = [...model.parameters()].map((p) => p.grad!.tolist());
    accumulate(model, ones([1, 4]));
    for (const [i, p] of [...model.parameters()].entries())
      assert.deepEqual(p.grad!.tolist(), doubled(once[i]) as never);
    assert.ok(adam.state.size === 0);
  });
});

const doubled = (value: unknown): unknown =>
  Array.isArray(value) ? value.map(doubled) : Number(value) * 2;
