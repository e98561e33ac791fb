/** Seed 002: a whole train step, compiled, distributed and changed by passes over its graph. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Graph, GraphModule, runAndGetKernelCode } from '../../lib/compile/index.js';
import { CompileError } from '../../lib/index.js';
import {
  clearAppliedPasses,
  GraphModuleTransformation,
  graphOptimizationPass,
  IterGraphModule,
  type StepModule,
} from '../../lib/spmd/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { onRanks } from '../distributed/support/on-ranks.js';
import { CASES, type Scale, scalesOf } from './002-cases.js';
import { assertTrainsAsDdp, type StepCase } from './002-train-step.js';

const WORLD = 2;

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

/** Every rank loads the library first, which takes long on a busy machine. */
const PROCESSES = { mode: 'process', timeoutMs: 120_000 } as const;
/** In the memory of the CPU; the GPU has the width of test_transformation.py, 4096. */
const SCALES = scalesOf(512, 'cpu');

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

  it('seed 002.3: the main graph is compiled, and all graphs are written to files', () =>
    onRanks(WORLD, dumped));

  for (const scale of SCALES)
    for (const [title, run] of Object.entries(CASES))
      it(`${title}, in ${scale.title}`, () => onRanks(WORLD, (rank) => run(rank, scale)));

  it(
    'seed 002: all cases are the same on ranks that are processes',
    withRanks(
      WORLD,
      async (rank) => {
        await dumped(rank);
        for (const run of Object.values(CASES)) await run(rank, SCALES[0] as Scale);
      },
      PROCESSES,
    ),
  );
});
