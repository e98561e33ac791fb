/** The cases of compiled train steps as test_transformation.py has them, for any device and width. */
import assert from 'node:assert/strict';
import { CompileError, float32, float64 } from '../../lib/index.js';
import {
  commFusionWithConcat,
  findAllDescendants,
  findNode,
  GraphModuleTransformation,
  getAllCommBlocks,
  getAllFusedOptimizerBlocks,
  IterGraphModule,
  iterMoveGradsAndOptimizers,
  removeCopyFromOptimizer,
  type StepModule,
  scheduleCommWait,
  splitFusedOptimizer,
} from '../../lib/spmd/index.js';
import { assertTrainsAsDdp, type StepCase } from './002-train-step.js';

/** What the cases compute with, and how wide the models of cases 4 to 8 are. */
export interface Scale extends Pick<StepCase, 'device' | 'dtype' | 'sameBatches'> {
  readonly title: string;
  readonly dim: number;
  /** At which buckets of gradients have 1, 2 and 2 of five layers. */
  readonly capMb: number;
  /** Whether code is generated for the main graph of case 5. */
  readonly enableInductor: boolean;
}

/** The dtype and the batches of test_transformation.py, and others, which ask more of a step. */
export function scalesOf(dim: number, device: 'cpu' | 'cuda'): readonly Scale[] {
  const common = { dim, device };
  const capMb = 100 * (dim / 4096) ** 2;
  return [
    {
      ...common,
      title: 'float32',
      dtype: float32,
      sameBatches: true,
      capMb,
      enableInductor: false,
    },
    {
      ...common,
      title: 'float64',
      dtype: float64,
      sameBatches: false,
      capMb: 2 * capMb,
      enableInductor: true,
    },
  ];
}

/** The rows of a batch. */
const batchSize = 100;

/** Whether the middle bucket has a parameter: it has those of the third layer and the fourth. */
const isMoved = (name: string): boolean => /^[46]\./.test(name);

/** 002.2: all gradients have a collective of their own. */
async function tenLayers(rank: number, scale: Scale): Promise<void> {
  let graphs = 0;
  const gmTransformation = (module: StepModule): IterGraphModule => {
    graphs++;
    const blocks = getAllCommBlocks(module.graph, 'allReduce');
    assert.equal(blocks.length, 20);
    assert.ok(blocks.every(({ waitNodes }) => waitNodes.length === 1));
    return GraphModuleTransformation()(module);
  };
  await assertTrainsAsDdp(
    rank,
    { gmTransformation },
    { ...scale, layers: 10, dim: 100, batchSize },
  );
  assert.equal(graphs, 1);
}

/** 002.4 and 002.5. */
async function fusedCollectives(rank: number, scale: Scale, fused: boolean): Promise<void> {
  const transformed = GraphModuleTransformation({
    enableGraphOptimization: true,
    enableInductor: fused && scale.enableInductor,
  });
  const gmTransformation = (module: StepModule): IterGraphModule => {
    const gm = transformed(module);
    const blocks = getAllCommBlocks(gm.graph, 'allReduce');
    assert.deepEqual(
      blocks.map(({ commNode }) => commNode.name),
      ['allReduceFused', 'allReduceFused_1'],
    );
    for (const { waitNodes, nodeList, outputs } of blocks) {
      const wait = gm.graph.nodes.indexOf(waitNodes[0] as never);
      const users = outputs.flatMap((node) => gm.graph.usersOf(node));
      const first = gm.graph.nodes.find((node) => users.includes(node));
      const between = gm.graph.nodes.slice(wait, gm.graph.nodes.indexOf(first as never));
      assert.ok(between.every((node) => blocks.some((b) => b.nodeList.includes(node))));
      assert.ok(nodeList.length > 2);
    }
    return gm;
  };
  await assertTrainsAsDdp(rank, { gmTransformation }, { ...scale, layers: 2, batchSize, fused });
}

/** 002.6. */
async function splitOptimizer(rank: number, scale: Scale): Promise<void> {
  const gmTransformation = (module: StepModule): IterGraphModule => {
    const gm = new IterGraphModule(module);
    removeCopyFromOptimizer(gm);
    const [block] = getAllFusedOptimizerBlocks(gm, 'adamStepCapturable');
    const grads = block!.optim.lists.get('grads')!;
    assert.throws(() => splitFusedOptimizer(gm, block!, []), /got none/);
    assert.throws(() => splitFusedOptimizer(gm, block!, grads), /got all/);
    splitFusedOptimizer(gm, block!, [grads[1]!, grads[2]!]);
    gm.recompile();
    const blocks = getAllFusedOptimizerBlocks(gm, 'adamStepCapturable');
    assert.deepEqual(
      blocks.map(({ optim }) => optim.lists.get('grads')),
      [
        [grads[1], grads[2]],
        [grads[0], grads[3]],
      ],
    );
    const written = blocks.flatMap(({ optim }) => optim.lists.get('params')!);
    assert.equal(new Set(written.map((v) => ('node' in v ? v.node : v))).size, 4);
    gm.finalizeSetup();
    return gm;
  };
  await assertTrainsAsDdp(
    rank,
    { gmTransformation },
    { ...scale, layers: 2, batchSize, fused: true },
  );
}

/** 002.7: fuses the collectives of five layers, and moves the middle bucket. */
async function movedBucket(rank: number, scale: Scale): Promise<void> {
  const gmTransformation = (module: StepModule): IterGraphModule => {
    const gm = new IterGraphModule(module);
    commFusionWithConcat(gm, scale.capMb);
    scheduleCommWait(gm);
    removeCopyFromOptimizer(gm);
    iterMoveGradsAndOptimizers(gm, 'allReduceFused_1', 'relu');
    gm.finalizeSetup();
    const collectives = [gm.setup, gm.main, gm.cleanup].map(
      (graph) => getAllCommBlocks(graph, 'allReduce').length,
    );
    assert.deepEqual(collectives, [2, 3, 4]);
    return gm;
  };
  await assertTrainsAsDdp(
    rank,
    { gmTransformation },
    { ...scale, layers: 5, batchSize, fused: true, lags: isMoved },
  );
}

/** 002.8. */
async function refusedMoves(rank: number, scale: Scale): Promise<void> {
  const gmTransformation = (module: StepModule): IterGraphModule => {
    const gm = new IterGraphModule(module);
    const [reduce] = findNode(gm.graph, ({ name }) => name === 'allReduce');
    const [count] = findNode(gm.graph, ({ name }) => name === 'foreachAddScalar');
    const [relu] = findNode(gm.graph, ({ name }) => name === 'relu');
    const moved = findAllDescendants(gm, [reduce!, count!]);
    assert.deepEqual(
      moved.map(({ name }) => name),
      ['allReduce', 'waitTensor', 'foreachAddScalar', 'adamStepCapturable'],
    );
    gm.graph.moveToNextIterBefore(moved, relu!);
    assert.throws(
      () => gm.recompile(),
      (error: Error) =>
        error instanceof CompileError &&
        /%adamStepCapturable, which writes parameter 0\.\w+, was moved/.test(error.message) &&
        /%matmul.* reads parameter 0\.\w+ before that/.test(error.message),
    );
    return gm;
  };
  await assertTrainsAsDdp(
    rank,
    { gmTransformation },
    { ...scale, layers: 5, batchSize, fused: true, iterations: 2 },
  );
}

/** What the ranks of each case do. */
export const CASES: Readonly<Record<string, (rank: number, scale: Scale) => Promise<void>>> = {
  'seed 002.2: a step of ten layers trains as DDP does, with one collective a gradient': tenLayers,
  'seed 002.4: collectives are fused, and waited for where they are needed, foreach': (
    rank,
    scale,
  ) => fusedCollectives(rank, scale, false),
  'seed 002.5: collectives are fused, and waited for where they are needed, fused': (rank, scale) =>
    fusedCollectives(rank, scale, true),
  'seed 002.6: a fused optimizer is divided into two': splitOptimizer,
  'seed 002.7: a bucket of gradients and its part of the optimizer run in the next iteration':
    movedBucket,
  'seed 002.8: edits that would read old parameters have no effect, and are refused when applied':
    refusedMoves,
};
