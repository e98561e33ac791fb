/** Graphs of train steps as files. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as spmd from '../../lib/spmd/index.js';
import { takeFakeStep } from './support/fake-step.js';

const SMALL = { worldSize: 4, layers: 2, dim: 8, batchSize: 8 } as const;

/** Where the box of a kind is, from the top. */
const topsOf = (svg: string, kind: string): number[] =>
  [
    ...svg.matchAll(
      new RegExp(`<rect class="${kind}" x="[\\d.]+" y="([\\d.]+)" width="\\d{3}`, 'g'),
    ),
  ].map(([, y]) => Number(y));

describe('dumpGraphs', () => {
  it('writes each graph as text, as a picture, and for Graphviz, before the step returns', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'shardwise-dump-'));
    try {
      await takeFakeStep(SMALL, spmd.GraphModuleTransformation({ dumpGraphs: folder }));
      for (const name of ['before', 'setup', 'main', 'cleanup']) {
        const read = (ending: string): string =>
          readFileSync(join(folder, `${name}.${ending}`), 'utf8');
        assert.match(read('txt'), /allReduce/);
        assert.match(read('txt'), /^%parameter_1: float32\[8\] = input {2}\{ name: 0\.bias \}$/m);
        assert.match(read('dot'), /^digraph/);
        assert.match(read('svg'), /input {2}\{ name: 0\.bias \}/);
        assert.match(read('svg'), new RegExp(`^<svg[^]*<title>${name}: \\d+ nodes[^]*</svg>\n$`));
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('draws collectives beside what runs until they are waited for', async () => {
    const pictures: string[] = [];
    await takeFakeStep({ ...SMALL, layers: 4, dim: 1024 }, (module) => {
      const gm = new spmd.IterGraphModule(module);
      spmd.commFusionWithConcat(gm, 4);
      pictures.push(gm.graph.toSvg());
      spmd.scheduleCommWait(gm);
      pictures.push(gm.graph.toSvg());
      gm.finalizeSetup();
      return gm;
    });
    const [before, after] = pictures.map((svg) => {
      const lengths = [...svg.matchAll(/class="flight" d="M[\d.]+ ([\d.]+)H[\d.]+V([\d.]+)/g)];
      assert.equal(lengths.length, 4);
      assert.equal(topsOf(svg, 'wait').length, 4);
      return lengths.reduce((sum, [, from, to]) => sum + Number(to) - Number(from), 0);
    });
    assert.ok((after as number) > 2 * (before as number), `${before} to ${after}`);
  });
});
