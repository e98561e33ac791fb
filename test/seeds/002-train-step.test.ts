/** Seed 002: a whole train step, compiled, distributed and changed by passes over its graph. */
import assert from 'node:assert/strict';
import { Graph, GraphModule } from '../../lib/compile/index.js';
import { CompileError } from '../../lib/index.js';
import {
  clearAppliedPasses,
  graphOptimizationPass,
  IterGraphModule,
} from '../../lib/spmd/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { onRanks } from '../distributed/support/on-ranks.js';
import { CASES, type Scale, scalesOf } from './002-cases.js';
import { writesGraphs } from './002-written-graphs.js';

const WORLD = 2;

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
    onRanks(WORLD, (rank) => writesGraphs('cpu', rank)));

  for (const scale of SCALES)
    for (const [title, run] of Object.entries(CASES))
      it(`${title}, in ${scale.title}`, () => onRanks(WORLD, (rank) => run(rank, scale)));

  it(
    'seed 002: all cases are the same on ranks that are processes',
    withRanks(
      WORLD,
      async (rank) => {
        await writesGraphs('cpu', rank);
        for (const run of Object.values(CASES)) await run(rank, SCALES[0] as Scale);
      },
      PROCESSES,
    ),
  );
});
