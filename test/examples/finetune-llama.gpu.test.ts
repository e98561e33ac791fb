/** The Llama example on a GPU, which ranks share if there are more of them. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseOptions } from '../../examples/llama/options.js';
import { finetune, type RunReport } from '../../examples/llama/training.js';
import { skipWithoutCuda } from '../skip.js';
import { tinyConfig, tinyWeights, writeFolder } from './tiny-llama.js';

const top = mkdtempSync(path.join(tmpdir(), 'shardwise-llama-gpu-'));
after(() => rmSync(top, { recursive: true, force: true }));

const run = (source: string, out: string, ...args: string[]): Promise<RunReport> => {
  const ids = path.join(top, 'ids.json');
  const common = `--tokens ${ids} --batch 4 --context 16 --lr 0.02 --steps 4`.split(' ');
  const folder = path.join(top, out);
  return finetune(parseOptions(['node', 'program', source, ...common, '--out', folder, ...args]));
};

describe('examples/finetune-llama on a GPU', function () {
  this.timeout(120_000);
  before(function () {
    skipWithoutCuda(this);
  });

  for (const lora of [[], ['--lora', '3']])
    it(`gives the losses of the CPU on one rank and on two, ${lora[0] ?? 'in full'}`, async () => {
      const source = path.join(top, 'tiny');
      await writeFolder(source, tinyConfig, tinyWeights(tinyConfig));
      const ids = Array.from({ length: 2000 }, (_, i) => ((i * i) % 7) + (i % 3) * 7);
      writeFileSync(path.join(top, 'ids.json'), JSON.stringify(ids));
      const name = `run${lora.length}`;
      const expected = await run(source, `${name}-cpu`, ...lora, '--device', 'cpu');
      for (const ranks of ['1', '2']) {
        const args = ['--device', 'cuda', '--ranks', ranks];
        const actual = await run(source, `${name}-${ranks}`, ...lora, ...args);
        [...actual.losses, actual.lossAfter].forEach((loss, i) => {
          const other = [...expected.losses, expected.lossAfter][i] as number;
          assert.ok(Math.abs(loss - other) < 1e-3 * other, `step ${i}: ${loss}, ${other}`);
        });
        const exported = await run(actual.exported, `${name}-${ranks}-again`, ...args);
        assert.ok(Math.abs(exported.lossBefore - actual.lossAfter) < 1e-3 * actual.lossAfter);
      }
    });
});
