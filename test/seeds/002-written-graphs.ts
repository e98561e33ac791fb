/** The graphs of a compiled train step as text, pictures and encoded commands. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runAndGetKernelCode } from '../../lib/compile/index.js';
import {
  GraphModuleTransformation,
  type IterGraphModule,
  type StepModule,
} from '../../lib/spmd/index.js';
import { assertTrainsAsDdp, type StepCase } from './002-train-step.js';

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
export async function writesGraphs(device: 'cpu' | 'cuda', rank: number): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'shardwise-spmd-'));
  const seedSize: StepCase = { layers: 2, dim: 100, batchSize: 100, fused: true, device };
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
