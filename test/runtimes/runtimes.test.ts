/** The packed package on every runtime that it supports: npm run test:runtimes. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { buildSync } from 'esbuild';
import { tinyConfig, tinyWeights, writeFolder } from '../examples/tiny-llama.js';
import { npm, pack, removeTemporaryFolders, root, temporaryFolder } from '../packaging/package.js';
import { binaryOf, type Runtime, runtimes } from './runtimes.js';

const programs = {
  'modules.mjs': 'computes, imported and required, and compiled',
  'required.cjs': 'computes in CommonJS and in a worker',
  'local.mjs': 'runs ranks in one process, and names the place of a mismatch',
  'processes.mjs': 'runs ranks as processes, and names the one that fails or dies',
  'data.mjs': 'loads batches in worker threads',
  'memory.mjs': 'has flat memory in 20,000 training steps that await nothing',
} as const;

/** Examples of the package: the calls of each, with what makes them short. */
const gpt = '--device cpu --json --batch 2 --text book.txt --out gpt';
const llama =
  'llama --device cpu --json --tokens ids.json --batch 4 --context 8 --lora 2 --out tuned';
const examples: Readonly<Record<string, readonly string[]>> = {
  'own-op': [''],
  images: ['--epochs 1 --images 256'],
  plan: ['--layers 1'],
  'train-gpt': [`${gpt} --steps 1`, `${gpt} --steps 2 --ranks 2 --resume`],
  'finetune-llama': [`${llama} --steps 1 --ranks 4`, `${llama} --steps 2 --ranks 2 --resume`],
};

/** What the examples learn, and a Llama. */
async function writeInputs(folder: string): Promise<void> {
  writeFileSync(path.join(folder, 'book.txt'), 'Call me Ishmael. '.repeat(1000));
  writeFileSync(
    path.join(folder, 'ids.json'),
    JSON.stringify(Array.from({ length: 400 }, (_, i) => (i * 7) % 40)),
  );
  await writeFolder(path.join(folder, 'llama'), tinyConfig, tinyWeights(tinyConfig));
}

/** The examples as `shardwise examples` copies them, each a file of JavaScript. */
function bundleExamples(folder: string): void {
  const copied = path.join(folder, 'examples');
  const main = path.join(folder, 'node_modules', 'shardwise', 'dist', 'cli', 'main.js');
  execFileSync(process.execPath, [main, 'examples', copied], { cwd: folder });
  buildSync({
    entryPoints: Object.keys(examples).map((name) => path.join(copied, `${name}.ts`)),
    outdir: folder,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    packages: 'external',
    platform: 'node',
    target: 'node20',
    format: 'esm',
  });
}

describe('the package on', function () {
  this.timeout(240_000);
  let tarball: string;
  let folder: string;

  before(async () => {
    tarball = pack();
    folder = temporaryFolder('runtimes');
    writeFileSync(path.join(folder, 'package.json'), '{ "name": "consumer", "private": true }\n');
    cpSync(path.join(root, 'test', 'runtimes', 'programs'), folder, { recursive: true });
    npm(folder, ['install', '--ignore-scripts', '--prefer-offline', '--no-audit', tarball]);
    bundleExamples(folder);
    await writeInputs(folder);
  });

  after(removeTemporaryFolders);

  function output(runtime: Runtime, ...program: string[]): string {
    const { status, signal, stdout, stderr } = spawnSync(
      binaryOf(runtime),
      [...runtime.args, ...program],
      { cwd: folder, encoding: 'utf8', timeout: 120_000 },
    );
    assert.equal(status, 0, `${program[0]}: status ${status}, signal ${signal}\n${stderr}`);
    return stdout;
  }

  for (const runtime of runtimes)
    describe(runtime.name, () => {
      before(() => binaryOf(runtime));

      for (const [program, what] of Object.entries(programs))
        it(what, () => output(runtime, program));

      for (const [name, calls] of Object.entries(examples))
        it(`runs the example ${name}`, () => {
          for (const out of ['gpt', 'tuned'])
            rmSync(path.join(folder, out), { recursive: true, force: true });
          for (const call of calls)
            output(runtime, `${name}.mjs`, ...call.split(' ').filter(Boolean));
        });

      if (runtime.name === 'Bun')
        it('is installed by "bun add"', () => {
          const consumer = temporaryFolder('bun');
          writeFileSync(path.join(consumer, 'package.json'), '{ "private": true }\n');
          const program = path.join(consumer, 'local.mjs');
          cpSync(path.join(folder, 'local.mjs'), program);
          output(runtime, 'add', '--cwd', consumer, tarball);
          output(runtime, program);
        });

      it('answers "shardwise doctor"', () => {
        const main = path.join('node_modules', 'shardwise', 'dist', 'cli', 'main.js');
        const report = JSON.parse(output(runtime, main, 'doctor', '--json'));
        assert.equal(report.addon.loaded, true);
        assert.ok(report.cpu.numCores >= 1);
        assert.equal(report.libraries.length, 5);
      });
    });
});
