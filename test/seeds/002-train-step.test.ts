/** Seed 002: a whole train step, compiled, distributed and changed by passes over its graph. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Graph, GraphModule, runAndGetKernelCode } from '../../lib/compile/index.js';
import { CompileError } from '../../lib/index.js';
import {
  clearAppliedPasses,
  commFusionWithConcat,
  findAllDescendants,
  findNode,
  GraphModuleTransformation,
  getAllCommBlocks,
  getAllFusedOptimizerBlocks,
  graphOptimizationPass,
  IterGraphModule,
  iterMoveGradsAndOptimizers,
  removeCopyFromOptimizer,
  type StepModule,
  scheduleCommWait,
  splitFusedOptimizer,
} from '../../lib/spmd/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { onRanks } from '../distributed/support/on-ranks.js';
import { assertTrainsAsDdp, type StepCase } from './002-train-step.js';

const WORLD = 2;
const small: StepCase = { layers: 2, dim: 64, batchSize: 20 };
const wide: StepCase = { layers: 2, dim: 512, batchSize: 20 };
/** Graphs of five layers of 512 x 512: buckets of 1, 2 and 2 layers at 2 MiB. */
const deep: StepCase = { layers: 5, dim: 512, batchSize: 20, fused: true };
const CAP_MB = 2;

/** Whether the middle bucket has a parameter: it has those of the third layer and the fourth. */
const isMoved = (name: string): boolean => /^[46]\./.test(name);

/** Passes that fuse the collectives of the deep model, and move the middle bucket. */
const moveBucket = (module: StepModule): IterGraphModule => {
  const gm = new IterGraphModule(module);
  commFusionWithConcat(gm, CAP_MB);
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
/** 002.2: all gradients have a collective of their own. */
async function tenLayers(rank: number): Promise<void> {
  let graphs = 0;
  const gmTransformation = (module: StepModule): IterGraphModule => {
    graphs++;
    const blocks = getAllCommBlocks(module.graph, 'allReduce');
    assert.equal(blocks.length, 20);
    assert.ok(blocks.every(({ waitNodes }) => waitNodes.length === 1));
    return GraphModuleTransformation()(module);
  };
  await assertTrainsAsDdp(rank, { gmTransformation }, { layers: 10, dim: 100, batchSize: 100 });
  assert.equal(graphs, 1);
}

/** The same module, whose runs put the commands of their graphs into a list. */
function watched(gm: IterGraphModule, codes: string[]): IterGraphModule {
  const run = gm.run.bind(gm);
  gm.run = (...args) => {
    const [results, ran] = runAndGetKernelCode(run, ...args);
    codes.push(...ran);
    return results;
  };
  return gm;
}

/** 002.3: the main graph is encoded commands, and all graphs are files below a folder of a rank. */
async function dumped(rank: number): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'shardwise-spmd-'));
  const seedSize: StepCase = { layers: 2, dim: 100, batchSize: 100, fused: true };
  try {
    const dumpGraphs = join(folder, String(rank));
    const codes: string[] = [];
    for (const enableInductor of [true, false]) {
      const transform = GraphModuleTransformation({ enableInductor, dumpGraphs });
      const gmTransformation = (module: StepModule) => watched(transform(module), codes);
      await assertTrainsAsDdp(rank, { gmTransformation }, seedSize);
    }
    assert.equal(codes.length, 10);
    for (const [i, code] of codes.entries()) {
      const how =
        i < 5 ? /: [1-9]\d* commands in [1-9]\d* segments?, \d+ calls? one/ : /op by op\n/;
      assert.match(code, how);
      const waits = code.match(/^waitTensor\(buf\d+\)$/gm) ?? [];
      assert.deepEqual([waits.length, code.match(/ = allReduce\(/g)?.length], [4, 4]);
      assert.match(code, /\nadamStepCapturable\(/);
    }
    for (const name of ['before', 'setup', 'main', 'cleanup']) {
      assert.match(readFileSync(join(dumpGraphs, `${name}.txt`), 'utf8'), /allReduce/);
      assert.match(readFileSync(join(dumpGraphs, `${name}.svg`), 'utf8'), /class="collective"/);
      assert.match(readFileSync(join(dumpGraphs, `${name}.dot`), 'utf8'), /allReduce/);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** 002.4 and 002.5. */
async function fusedCollectives(rank: number, fused: boolean): Promise<void> {
  const gmTransformation = (module: StepModule): IterGraphModule => {
    const gm = GraphModuleTransformation({ enableGraphOptimization: true })(module);
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
  await assertTrainsAsDdp(rank, { gmTransformation }, { ...wide, fused });
}

/** 002.6. */
async function splitOptimizer(rank: number): Promise<void> {
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
  await assertTrainsAsDdp(rank, { gmTransformation }, { ...small, fused: true });
}

/** 002.7. */
async function movedBucket(rank: number): Promise<void> {
  await assertTrainsAsDdp(rank, { gmTransformation: moveBucket }, { ...deep, lags: isMoved });
}

/** 002.8. */
async function refusedMoves(rank: number): Promise<void> {
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
  await assertTrainsAsDdp(rank, { gmTransformation }, { ...deep, iterations: 2 });
}

/** What the ranks of each case do. */
const cases: Readonly<Record<string, (rank: number) => Promise<void>>> = {
  'seed 002.2: a step of ten layers trains as DDP does, with one collective a gradient': tenLayers,
  'seed 002.3: the main graph is compiled, and all graphs are written to files': dumped,
  'seed 002.4: collectives are fused, and waited for where they are needed, foreach': (rank) =>
    fusedCollectives(rank, false),
  'seed 002.5: collectives are fused, and waited for where they are needed, fused': (rank) =>
    fusedCollectives(rank, true),
  'seed 002.6: a fused optimizer is divided into two': splitOptimizer,
  'seed 002.7: a bucket of gradients and its part of the optimizer run in the next iteration':
    movedBucket,
  'seed 002.8: edits that would read old parameters have no effect, and are refused when applied':
    refusedMoves,
};

/** Every rank loads the library first, which takes long on a busy machine. */
const PROCESSES = { mode: 'process', timeoutMs: 120_000 } as const;

describe('compiled train steps', function () {
  this.timeout(120_000);

  it('seed 002.1: passes are applied once, after their prerequisites, and in order', () => {
    const gm = new IterGraphModule(new GraphModule(new Graph()));
    const nothing = {
      pass1: (_gm: IterGraphModule): void => {},
      pass2: (_gm: IterGraphModule): void => {},
      pass3: (_gm: IterGraphModule): void => {},
    };
    const pass1 = graphOptimizationPass()(nothing.pass1);
    const pass2 = graphOptimizationPass({ prerequisites: [pass1] })(nothing.pass2);
    const pass3 = graphOptimizationPass({ applyAfter: [pass1] })(nothing.pass3);
    pass1(gm);
    pass3(gm);
    pass2(gm);
    assert.throws(() => pass1(gm), /cannot apply pass1 twice/);
    clearAppliedPasses(gm);
    pass3(gm);
    clearAppliedPasses(gm);
    assert.throws(() => pass2(gm), /pass1 are the prerequisites of pass2/);
    clearAppliedPasses(gm);
    pass3(gm);
    assert.throws(() => pass1(gm), /pass3 must be applied after pass1/);
    const other = new IterGraphModule(new GraphModule(new Graph()));
    pass1(other);
    assert.throws(() => pass1(gm), CompileError);
  });

  for (const [title, run] of Object.entries(cases)) it(title, () => onRanks(WORLD, run));

  it(
    'seed 002: all cases are the same on ranks that are processes',
    withRanks(
      WORLD,
      async (rank) => {
        for (const run of Object.values(cases)) await run(rank);
      },
      PROCESSES,
    ),
  );
});
