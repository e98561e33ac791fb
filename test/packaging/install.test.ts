/**
 * The published package installs into an empty folder without an install script or a compiler, and
 * computes.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'mocha';
import {
  barePath,
  bytesBelow,
  nodeBinary,
  npm,
  pack,
  removeTemporaryFolders,
  root,
  temporaryFolder,
} from './package.js';

const program = `
import { createRequire } from 'node:module';
import { nn, Tensor, tensor } from 'shardwise';
const required = createRequire(import.meta.url)('shardwise');
const x = tensor([[1, 2], [3, 4]], { requiresGrad: true });
const y = x.matmul(x);
const names = [Tensor, nn.Embedding, nn.Module, nn.TransformerEncoderLayer].map(({ name }) => name).join(' ');
y.sum().backward();
const read = Array.from(await y.detach().read());
console.log(JSON.stringify({ read, gradient: x.grad.tolist(), names, sameClass: required.Tensor === Tensor }));
`;
const consumer =
  "import { tensor, type Tensor } from 'shardwise';\nexport const sum: Tensor = tensor([1, " +
  "2]).add(1).sum();\n// @ts-expect-error a string is no tensor\ntensor([1]).matmul('x');\n";
const consumerConfig = {
  compilerOptions: {
    module: 'nodenext',
    strict: true,
    noEmit: true,
    lib: ['es2023', 'esnext.disposable'],
    target: 'es2022',
    types: ['node'] as string[],
    typeRoots: [path.join(root, 'node_modules', '@types')],
  },
  files: ['consumer.mts', 'consumer.cts', ...blocks.map(({ file }) => file)],
};

import { blocks } from '../docs/blocks.js';
import { skipBecause } from '../skip.js';

describe('the packed package', function () {
  this.timeout(240_000);
  let folder: string;
  let installed: string;
  let env: NodeJS.ProcessEnv;

  before(() => {
    const tarball = pack();
    folder = temporaryFolder('consumer');
    installed = path.join(folder, 'node_modules', 'shardwise');
    env = { HOME: process.env['HOME'], PATH: barePath(), PREBUILDS_ONLY: '1' };
    writeFileSync(path.join(folder, 'package.json'), '{ "name": "consumer", "private": true }\n');
    writeFileSync(path.join(folder, 'program.mjs'), program);
    writeFileSync(path.join(folder, 'consumer.mts'), consumer);
    writeFileSync(path.join(folder, 'consumer.cts'), consumer);
    for (const { file, code } of blocks) writeFileSync(path.join(folder, file), code);
    writeFileSync(path.join(folder, 'tsconfig.json'), JSON.stringify(consumerConfig));
    npm(
      folder,
      ['install', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund', tarball],
      env,
    );
  });

  after(removeTemporaryFolders);

  it('has no script that an installation would run, and no file that makes npm guess one', () => {
    const manifest = JSON.parse(readFileSync(path.join(installed, 'package.json'), 'utf8'));
    for (const script of ['preinstall', 'install', 'postinstall', 'prepare'])
      assert.equal(manifest.scripts[script], undefined, script);
    assert.equal(manifest.gypfile, false);
    assert.equal(existsSync(path.join(installed, 'binding.gyp')), false);
  });

  it('contains what it needs and no tests', () => {
    assert.deepEqual(
      readdirSync(installed)
        .filter((name) => !/^(README|LICENSE)/.test(name))
        .sort(),
      ['CMakeLists.txt', 'dist', 'native', 'package.json', 'prebuilds', 'scripts'],
    );
    assert.deepEqual(readdirSync(path.join(installed, 'scripts')), ['build-native.cjs']);
    assert.equal(existsSync(path.join(installed, 'native', 'cuda', 'selftest')), false);
  });

  it('exports only files that exist', () => {
    const { exports } = JSON.parse(readFileSync(path.join(installed, 'package.json'), 'utf8'));
    const targets = (entry: unknown): string[] =>
      typeof entry === 'string' ? [entry] : Object.values(entry as object).flatMap(targets);
    assert.deepEqual(
      targets(exports).filter((target) => !existsSync(path.join(installed, target))),
      [],
    );
  });

  it('refuses a second copy in one process', () => {
    const copy = path.join(folder, 'other', 'node_modules', 'shardwise');
    cpSync(path.join(folder, 'node_modules'), path.dirname(copy), { recursive: true });
    const script =
      "await import('shardwise'); await " +
      `import(${JSON.stringify(path.join(copy, 'dist', 'index.js'))}).catch((error) => ` +
      'console.log(error.message))';
    const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], {
      cwd: folder,
      env,
      encoding: 'utf8',
    });
    assert.match(output, /two copies of shardwise/);
    assert.ok(output.includes(copy), output);
  });

  it('stays small: 10 MB without CUDA, 40 MB with it', () => {
    const cuda = path.join(
      installed,
      'prebuilds',
      `${process.platform}-${process.arch}`,
      'cuda-backend.so',
    );
    const cudaBytes = existsSync(cuda) ? statSync(cuda).size : 0;
    const bytes = bytesBelow(installed);
    assert.ok(bytes - cudaBytes <= 10e6, `${bytes - cudaBytes} bytes without CUDA`);
    assert.ok(bytes <= 40e6, `${bytes} bytes in all`);
  });

  it('has declarations that type-check, for modules, for CommonJS and for the examples of its documentation', () => {
    execFileSync(
      process.execPath,
      [path.join(root, 'node_modules', 'typescript', 'bin', 'tsc'), '-p', folder],
      { encoding: 'utf8' },
    );
  });

  for (const major of [20, 22, 24]) {
    it(`computes on Node ${major}, imported and required`, function () {
      const node = nodeBinary(major);
      if (node === null) return skipBecause(this, 'the registry cannot be reached');
      const output = execFileSync(node, ['program.mjs'], {
        cwd: folder,
        env,
        encoding: 'utf8',
        timeout: 60_000,
      });
      assert.deepEqual(JSON.parse(output), {
        read: [7, 10, 15, 22],
        gradient: [
          [7, 11],
          [9, 13],
        ],
        names: 'Tensor Embedding Module TransformerEncoderLayer',
        sameClass: true,
      });
    });

    it(`answers "shardwise doctor" on Node ${major}`, function () {
      const node = nodeBinary(major);
      if (node === null) return skipBecause(this, 'the registry cannot be reached');
      const main = path.join(installed, 'dist', 'cli', 'main.js');
      const report = JSON.parse(
        execFileSync(node, [main, 'doctor', '--json'], {
          cwd: folder,
          env,
          encoding: 'utf8',
          timeout: 60_000,
        }),
      );
      assert.equal(report.addon.loaded, true);
      assert.ok(report.cpu.numCores >= 1);
      assert.equal(report.libraries.length, 4);
    });
  }

  it('says what to do if no prebuilt addon fits', () => {
    const script = "import('shardwise').catch((error) => console.log(error.code, error.message))";
    const noPrebuild = { ...env, npm_config_arch: 'mips' };
    const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], {
      cwd: folder,
      env: noPrebuild,
      encoding: 'utf8',
    });
    assert.match(output, /^ERR_BACKEND_LOAD/);
    assert.match(output, /npx shardwise-build/);
  });
});
