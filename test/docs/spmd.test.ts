/** The figures of docs/spmd.md are those that the code computes. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import type { Graph } from '../../lib/compile/index.js';
import { timeline } from '../../lib/spmd/index.js';
import { timelinesOf } from '../spmd/support/passes.js';

describe('docs/spmd.md', () => {
  it('shows the exposed times that timelines find', async () => {
    const step = { worldSize: 8, layers: 5, dim: 4096, batchSize: 4096, device: 'cuda' } as const;
    const shown = (graph: Graph): string =>
      [8, 64, 512, 4096]
        .map((worldSize) => `${(timeline(graph, { worldSize }).exposed * 1e3).toFixed(2)} ms`)
        .join(' | ');
    const rows = await timelinesOf(step, shown, 'allReduceFused_1');
    const text = readFileSync('docs/spmd.md', 'utf8');
    for (const row of rows) assert.ok(text.includes(`| ${row} |`), `no row with ${row}`);
  });
});
