import assert from 'node:assert/strict';
import { type CapturedStep, captureStep, type Graph, type Node } from '../../lib/compile/index.js';
import { functional } from '../../lib/distributed.js';
import { CompileError, float64, full, ones, type Tensor, zeros } from '../../lib/index.js';
import * as spmd from '../../lib/spmd/index.js';
import { onRanks, valuesOf } from '../distributed/support/on-ranks.js';
import { takeFakeStep } from './support/fake-step.js';

const names = (graph: Graph): string[] => graph.callNodes.map(({ name }) => name);
const named = (graph: Graph, name: string): Node => {
  const found = graph.nodes.find((node) => node.name === name);
  assert.ok(found, `${name} of ${names(graph).join(', ')}`);
  return found;
};
const sum = (t: Tensor): Tensor => functional.allReduce(t, 'sum');

describe('mergeEqualCollectives', () => {
  it('leaves one of the collectives of a value that does not change', async () => {
    await onRanks(2, async (rank) => {
      const step = captureStep(
        (x: Tensor) =>
          sum(x)
            .add(sum(x))
            .mul(sum(x.mul(1))),
        [ones([2])],
      );
      assert.equal(spmd.mergeEqualCollectives(step.graph), 1);
      step.module.recompile();
      const [result] = [step.run(full([2], rank + 1))];
      assert.deepEqual(await valuesOf(result), [18, 18]);
    });
  });

  it('keeps those between which the value changes', async () => {
    await onRanks(2, async () => {
      const step = captureStep(
        (x: Tensor) => {
          const y = x.mul(1);
          const first = sum(y);
          y.add_(1);
          return first.add(sum(y));
        },
        [ones([2])],
      );
      assert.equal(spmd.mergeEqualCollectives(step.graph), 0);
    });
  });
});

describe('equal collectives', () => {
  it('are merged where the later one is waited for first, and where one is left from another', async () => {
    await onRanks(2, async (rank) => {
      const step = captureStep(
        (x: Tensor) => {
          const [first, second] = [sum(x), sum(x)];
          return sum(second.mul(2))
            .add(sum(first.mul(2)))
            .add(sum(sum(x)))
            .add(sum(sum(x)));
        },
        [ones([2])],
      );
      assert.equal(spmd.mergeEqualCollectives(step.graph), 4);
      step.module.recompile();
      assert.deepEqual(await valuesOf(step.run(full([2], rank + 1))), [36, 36]);
    });
  });

  it('are kept where the result of either is written in place', async () => {
    await onRanks(2, async (rank) => {
      for (const changed of [0, 1]) {
        const step = captureStep(
          (x: Tensor) => {
            const sums = [sum(x), sum(x)] as const;
            sums[changed]!.add_(1);
            return sums[0].mul(10).add(sums[1]);
          },
          [ones([2])],
        );
        assert.equal(spmd.mergeEqualCollectives(step.graph), 0);
        step.module.recompile();
        const expected = changed === 0 ? 43 : 34;
        assert.deepEqual(await valuesOf(step.run(full([2], rank + 1))), [expected, expected]);
      }
    });
  });
});

describe('commFusionWithConcat', () => {
  it('joins independent tensors of one dtype, and moves what uses the first results behind the last input', async () => {
    await onRanks(2, async (rank) => {
      const fn = (x: Tensor): Tensor[] => {
        const first = sum(x).mul(2);
        const wide = sum(x.to(float64).add(1)).mul(3);
        const second = sum(x.add(3).t()).mul(4);
        const other = sum(x.to(float64)).mul(5);
        return [first, wide, second, other, sum(second).mul(x.sum())];
      };
      const run = async (
        change: (step: CapturedStep) => (t: Tensor) => Tensor[],
      ): Promise<unknown> => {
        const step = captureStep(fn, [ones([2, 3])]);
        const results = change(step as never)(ones([2, 3]).mul(rank + 1));
        return Promise.all(results.map(async (t) => [t.shape, t.dtype.name, await valuesOf(t)]));
      };
      const plain = await run((step) => (t) => step.run(t) as never);
      const fused = await run((step) => {
        const gm = new spmd.IterGraphModule(new spmd.StepModule(step));
        spmd.commFusionWithConcat(gm, 1);
        const blocks = spmd.getAllCommBlocks(gm.graph);
        assert.deepEqual(
          blocks.map(({ commNode }) => commNode.name),
          ['allReduceFused', 'allReduceFused_1', 'allReduce_4'],
        );
        spmd.scheduleCommWait(gm);
        return (t) => step.runWith((...values) => gm.run(values), t) as never;
      });
      assert.deepEqual(fused, plain);
    });
  });
});

describe('moves to the next iteration', () => {
  const total = zeros([2]);
  const later = zeros([2]);
  /** Sums batches into `total`, and what `total` was into `later`. */
  const stepOf = (): CapturedStep<[Tensor], Tensor> => {
    total.zero_();
    later.zero_();
    return captureStep(
      (x: Tensor) => {
        later.add_(x.mul(3));
        total.add_(x.mul(2));
        return x.sum();
      },
      [ones([2])],
    );
  };
  const moduleOf = (step: CapturedStep<[Tensor], Tensor>, options = {}): spmd.IterGraphModule =>
    new spmd.IterGraphModule(new spmd.StepModule(step as never), options);

  it('keep what moved nodes read, also arguments that the program overwrites', () => {
    const step = stepOf();
    const gm = moduleOf(step, { maxIters: 3 });
    const moved = spmd.findAllDescendants(gm, [named(gm.graph, 'mul_1')]);
    assert.deepEqual(
      moved.map(({ name }) => name),
      ['mul_1', 'add_1'],
    );
    gm.graph.moveToNextIterBefore(moved, named(gm.graph, 'mul'));
    gm.finalizeSetup();
    assert.deepEqual([gm.setup, gm.main, gm.cleanup].map(names), [
      ['mul', 'add', 'copy', 'sum'],
      ['mul_1_earlier', 'add_1_earlier', 'mul', 'add', 'copy', 'sum'],
      ['mul_1_earlier', 'add_1_earlier', 'mul', 'add', 'mul_1', 'add_1', 'sum'],
    ]);
    const batch = zeros([2]);
    for (let round = 0; round < 2; round++) {
      total.zero_();
      const seen: unknown[] = [];
      for (let i = 1; i <= 3; i++) {
        batch.fill_(i);
        const result = step.runWith((...values) => gm.run(values), batch);
        seen.push(result.item(), (total.tolist() as number[])[0]);
      }
      assert.deepEqual(seen, [2, 0, 4, 2, 6, 12]);
    }
  });

  it('put each node before the one that a function returns, in an order that can run', () => {
    const step = stepOf();
    const gm = moduleOf(step);
    const { graph } = gm;
    const [mul, add] = [named(graph, 'mul_1'), named(graph, 'add_1')];
    const [first, last] = [named(graph, 'mul'), named(graph, 'sum')];
    graph.moveToNextIterBefore([mul, add], (node) => (node === mul ? first : last));
    gm.recompile();
    const order = ['mul_1_earlier', 'mul', 'add', 'add_1_earlier', 'copy', 'sum'];
    assert.deepEqual(names(gm.main), order);
    const wrong = moduleOf(step);
    const at = (name: string): Node => named(wrong.graph, name);
    wrong.graph.moveToNextIterBefore([at('mul_1'), at('add_1')], (node) =>
      node.name === 'mul_1' ? at('sum') : at('mul'),
    );
    assert.throws(
      () => wrong.recompile(),
      /%add_1 was moved before %mul, and %mul_1, whose value it uses, before %sum, which is later/,
    );
  });

  it('are refused for nodes that others use, for results, and when the graph is frozen', () => {
    const gm = moduleOf(stepOf());
    const { graph } = gm;
    const refused = (nodes: Node[], target: Node, reason: RegExp): void =>
      assert.throws(
        () => graph.moveToNextIterBefore(nodes, target),
        (error: Error) => error instanceof CompileError && reason.test(error.message),
      );
    refused([named(graph, 'mul')], named(graph, 'sum'), /%add uses %mul/);
    refused([named(graph, 'sum')], named(graph, 'mul'), /%sum is a result/);
    refused([named(graph, 'arg')], named(graph, 'mul'), /an input/);
    refused([], named(graph, 'mul'), /at least one/);
    refused([named(graph, 'add')], named(graph, 'add'), /one of the moved/);
    graph.freezeCrossIterMovement();
    refused([named(graph, 'add')], named(graph, 'mul'), /frozen/);
  });

  it('are refused at recompile() if memory would be read or written too early', () => {
    total.zero_();
    const step = captureStep(
      (x: Tensor) => {
        const before = total.mul(x);
        total.add_(1);
        return before;
      },
      [ones([2])],
    );
    const gm = moduleOf(step as never);
    gm.graph.moveToNextIterBefore([named(gm.graph, 'add')], named(gm.graph, 'mul'));
    gm.recompile(); // before the first read, as in the iteration before
    const late = moduleOf(step as never);
    late.graph.moveToNextIterBefore(
      [named(late.graph, 'add')],
      late.graph.add({ kind: 'effect', name: 'end', effect: 'setGrad', inputs: [] }),
    );
    assert.throws(() => late.recompile(), /%add, which writes .*, was moved.*%mul.* reads/);
    const argument = captureStep((x: Tensor) => void x.add_(1), [ones([2])]);
    const written = moduleOf(argument as never);
    const [add] = written.graph.callNodes as [Node];
    written.graph.moveToNextIterBefore(
      [add],
      written.graph.add({ kind: 'effect', name: 'end', effect: 'setGrad', inputs: [] }),
    );
    assert.throws(() => written.recompile(), /whose argument is another tensor/);
  });
});

describe('iterMoveGradsAndOptimizers', () => {
  it('starts the collective first, waits before the first read, and divides the rest of the step', async () => {
    const step = { worldSize: 2, layers: 4, dim: 512, batchSize: 4 };
    await takeFakeStep(step, (module) => {
      const gm = new spmd.IterGraphModule(module);
      spmd.commFusionWithConcat(gm, 1);
      spmd.scheduleCommWait(gm);
      spmd.removeCopyFromOptimizer(gm);
      spmd.iterMoveGradsAndOptimizers(gm, 'allReduceFused_1', 'relu');
      gm.finalizeSetup();
      const main = names(gm.main);
      const at = (pattern: RegExp): number => main.findIndex((name) => pattern.test(name));
      assert.equal(main[0], 'allReduceFused_1_earlier');
      // The bucket has the gradients of the third layer, which the third product reads.
      const moved = at(/adamStep.*_earlier/);
      assert.ok(at(/waitTensor.*_earlier/) < moved);
      assert.equal(main[moved + 1], 'matmul_2');
      const steps = main.flatMap((name, i) => (/^adamStep(?!.*_earlier)/.test(name) ? [i] : []));
      const wait = main.findLastIndex((name) => /^waitTensor/.test(name));
      assert.equal(steps.length, 2);
      assert.ok(steps[0]! < wait && wait < steps[1]!, main.join(' '));
      return gm;
    });
  });
});
