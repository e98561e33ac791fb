/**
 * The published package installs into an empty folder without an install script or a compiler, and
 * computes.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { buildSync } from 'esbuild';
import { after, before, describe, it } from 'mocha';
import { blocks } from '../docs/blocks.js';
import { examples } from '../docs/examples.js';
import { skipWithoutTools } from '../skip.js';
import { type Member, offered } from './completions.js';
import {
  barePath,
  bytesBelow,
  npm,
  pack,
  removeTemporaryFolders,
  root,
  temporaryFolder,
} from './package.js';

const consumer = `
import { nn, Tensor, tensor } from 'shardwise';
export const sum: Tensor = tensor([1, 2]).add(1).sum();
// @ts-expect-error a string is no tensor
tensor([1]).matmul('x');
// @ts-expect-error factories construct tensors
new Tensor();
// @ts-expect-error a module has its own hooks, which editors do not offer
export class Net extends nn.Module {
  hooks = 1;
  forward(x: Tensor) {
    return x;
  }
}
`;
/** Every entry point, required by TypeScript. */
const requiring = ['compile', 'data', 'distributed', 'spmd', 'testing', 'train']
  .map((entry) => `import ${entry} = require('shardwise/${entry}');\nvoid ${entry};\n`)
  .join('')
  .concat('export const mesh: distributed.DeviceMesh | null = null;\n');
/** A module that passes its tensors to a file in CommonJS. */
const both = `
import { ones, type Tensor } from 'shardwise';
import { sum } from './consumer.cjs';
export const total: Tensor = sum.add(ones([1]));
`;
/** What works without an addon, and what does not. */
const withoutAddon = `
import { nn, ones, tensor, cuda } from 'shardwise';
import { FakeTensorMode } from 'shardwise/compile';
import { distributeTensor, initDeviceMesh, initProcessGroup, Shard } from 'shardwise/distributed';
await initProcessGroup('fake', { rank: 0, worldSize: 4 });
const mode = new FakeTensorMode();
const shapes = mode.run(() => {
  const model = new nn.Linear(4, 2);
  model(ones([3, 4])).sum().backward();
  const shard = distributeTensor(ones([8, 2]), initDeviceMesh('cpu', [4]), [Shard(0)]).toLocal();
  return [model.weight.grad.shape, shard.shape];
});
console.log(JSON.stringify(shapes), cuda.isAvailable());
try {
  tensor([1]);
} catch (error) {
  console.log(error.code, error.message);
}
`;
/** Those of the documentation, and of the comments that editors show. */
const programs = [...blocks, ...examples];
const consumerConfig = {
  compilerOptions: {
    module: 'nodenext',
    strict: true,
    skipLibCheck: false,
    noEmit: true,
    lib: ['es2023', 'esnext.disposable'],
    target: 'es2022',
    types: ['node'] as string[],
    typeRoots: [path.join(root, 'node_modules', '@types')],
  },
  files: ['consumer.mts', 'consumer.cts', 'requiring.cts', ...programs.map(({ file }) => file)],
};

/** The file of lib/ with the source of an entry point. */
const sourceOf = (entry: string): string => {
  const { name } = path.parse(entry);
  if (name === 'shardwise') return './index.js';
  return name === 'distributed' ? './distributed.js' : `./${name}/index.js`;
};

describe('the packed package', function () {
  this.timeout(240_000);
  let folder: string;
  let installed: string;
  let env: NodeJS.ProcessEnv;

  before(function () {
    skipWithoutTools(this, 'strip');
    const tarball = pack();
    folder = temporaryFolder('consumer');
    installed = path.join(folder, 'node_modules', 'shardwise');
    env = { HOME: process.env['HOME'], PATH: barePath(), PREBUILDS_ONLY: '1' };
    writeFileSync(path.join(folder, 'package.json'), '{ "name": "consumer", "private": true }\n');
    writeFileSync(path.join(folder, 'consumer.mts'), consumer);
    writeFileSync(path.join(folder, 'consumer.cts'), consumer);
    writeFileSync(path.join(folder, 'requiring.cts'), requiring);
    writeFileSync(path.join(folder, 'without-addon.mjs'), withoutAddon);
    for (const { file, code } of programs) writeFileSync(path.join(folder, file), code);
    writeFileSync(path.join(folder, 'tsconfig.json'), JSON.stringify(consumerConfig));
    const node16 = {
      extends: './tsconfig.json',
      compilerOptions: { module: 'node16' },
      files: ['consumer.cts', 'requiring.cts', 'both.mts'],
    };
    writeFileSync(path.join(folder, 'tsconfig.node16.json'), JSON.stringify(node16));
    writeFileSync(path.join(folder, 'both.mts'), both);
    npm(
      folder,
      ['install', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund', tarball],
      env,
    );
    // A page shows the library beside it.
    symlinkSync(
      path.join(root, 'node_modules', 'csv-parse'),
      path.join(installed, '..', 'csv-parse'),
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
      ['CMakeLists.txt', 'dist', 'examples', 'native', 'package.json', 'prebuilds', 'scripts'],
    );
    assert.deepEqual(readdirSync(path.join(installed, 'scripts')).sort(), [
      'build-native.cjs',
      'toolchain.cjs',
    ]);
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

  it('exports what its sources do, with values', async () => {
    const script =
      "const { exports } = require('shardwise/package.json'); const names = {};" +
      "for (const entry of Object.keys(exports)) if (!entry.endsWith('.json')) {" +
      ' const all = require("shardwise" + entry.slice(1));' +
      ' names[entry] = Object.keys(all).filter((name) => all[name] !== undefined); }' +
      'console.log(JSON.stringify(names))';
    const options = { cwd: folder, env, encoding: 'utf8' } as const;
    const found = JSON.parse(execFileSync(process.execPath, ['-e', script], options));
    for (const [entry, names] of Object.entries<string[]>(found)) {
      const file = entry === './distributed' ? 'distributed' : path.join(entry, 'index');
      const source = await import(path.join(root, 'lib', `${file}.ts`));
      assert.deepEqual(names.sort(), Object.keys(source).sort(), entry);
    }
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

  it('loads modules, the compiler and what else a program may not need on use', () => {
    const script =
      "const { compile, nn, ones } = require('shardwise');" +
      'const parts = () => console.log(JSON.stringify(Object.keys(require.cache).flatMap((file) =>' +
      ' file.match(/dist\\/(nn|optim|compile|profiler|amp|checkpoint)\\//)?.[1] ?? [])));' +
      'ones([2]).sum().item(); parts(); new nn.Linear(1, 1); parts();' +
      'compile((x) => x.add(1))(ones([2])); parts();';
    const options = { cwd: folder, env, encoding: 'utf8' } as const;
    const output = execFileSync(process.execPath, ['-e', script], options);
    const [first, second, third] = output
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.deepEqual([first, second], [[], ['nn']]);
    assert.ok(third.includes('compile'), String(third));
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
    const promised = /(\d+) MB, (\d+) with CUDA/.exec(
      readFileSync(path.join(root, 'README.md'), 'utf8'),
    );
    const [withoutCuda, inAll] = [bytes - cudaBytes, bytes].map((n) => n / 1e6) as [number, number];
    assert.ok(Math.abs(Number(promised?.[1]) - withoutCuda) < 1, `${withoutCuda} MB, not README's`);
    const hasAllArchitectures = process.env['SHARDWISE_CUDA_ARCHITECTURES'] === undefined;
    if (cudaBytes > 0 && hasAllArchitectures)
      assert.ok(Math.abs(Number(promised?.[2]) - inAll) < 1, `${inAll} MB, not README's`);
  });

  it('has declarations that type-check, for modules, for CommonJS and for the examples of its documentation', () => {
    assert.equal(typeErrors('tsconfig.json'), '');
  });

  it('has declarations for files in CommonJS that may require no modules', () => {
    assert.equal(typeErrors('tsconfig.node16.json'), '');
  });

  function typeErrors(project: string): string {
    const tsc = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc');
    const args = [tsc, '-p', path.join(folder, project)];
    return spawnSync(process.execPath, args, { encoding: 'utf8' }).stdout;
  }

  it('offers the members of an object that its sources declare as public, and no others', () => {
    const names = (members: readonly Member[] = []): string[] => members.map(({ name }) => name);
    const declared = offered(path.join(root, 'lib'), sourceOf);
    for (const [type, members] of Object.entries(offered(folder))) {
      const isPublic = declared[type]?.filter(({ isInternal }) => !isInternal);
      assert.deepEqual(names(members), names(isPublic), type);
      assert.ok(members.length > 2, `no members of ${type}`);
    }
  });

  it('gives the examples, which run with the packages that it names', () => {
    const main = path.join(installed, 'dist', 'cli', 'main.js');
    const run = (...args: string[]) =>
      spawnSync(process.execPath, args, { cwd: folder, env, encoding: 'utf8' });
    const given = run(main, 'examples', 'mine');
    assert.equal(given.status, 0, given.stderr);
    const [, named = ''] = /npm install (.*)/.exec(given.stdout) ?? [];
    const packages = named.split(' ').map((each) => each.replace(/@[^@]*$/, ''));
    for (const name of packages) {
      const link = path.join(folder, 'node_modules', name);
      mkdirSync(path.dirname(link), { recursive: true });
      symlinkSync(path.join(root, 'node_modules', name), link);
    }
    writeFileSync(path.join(folder, 'text.txt'), 'the whale '.repeat(2000));
    const example = (file: string, ...args: string[]): string => {
      const done = run('--import', 'tsx', path.join('mine', file), ...args);
      assert.equal(done.status, 0, done.stderr);
      return done.stdout;
    };
    const steps = example(
      'train-gpt.ts',
      ...'--json --steps 2 --batch 2 --text text.txt'.split(' '),
    );
    assert.match(steps, /"loss":/);
    assert.match(example('tensor-parallel.ts'), /Shard/);
    assert.match(run(main, 'examples', 'mine').stderr, /mine exists/);
  });

  it('has fake tensors and simulation where no addon fits, and says what to do for real ones', () => {
    const output = execFileSync(process.execPath, ['without-addon.mjs'], {
      cwd: folder,
      env: { ...env, npm_config_arch: 'mips' },
      encoding: 'utf8',
    });
    assert.match(output, /^\[\[2,4\],\[2,2\]\] false\nERR_BACKEND_LOAD/);
    assert.match(output, /npx shardwise-build/);
  });

  it('installs on every system', () => {
    const manifest = JSON.parse(readFileSync(path.join(installed, 'package.json'), 'utf8'));
    assert.deepEqual([manifest.os, manifest.cpu, manifest.libc], [undefined, undefined, undefined]);
  });

  for (const format of ['esm', 'cjs'] as const)
    it(`says, bundled into a file of format ${format}, that it has to be external`, () => {
      const extension = format === 'esm' ? 'mjs' : 'cjs';
      const bundle = (outfile: string, external: string[]): string => {
        const entryPoints = [path.join(folder, `simple.${extension}`)];
        const file = path.join(folder, outfile);
        const options = { bundle: true, platform: 'node', logLevel: 'error' } as const;
        buildSync({ ...options, entryPoints, outfile: file, format, external });
        const run = spawnSync(process.execPath, [file], { cwd: folder, env, encoding: 'utf8' });
        return run.stdout + run.stderr;
      };
      const uses =
        format === 'esm'
          ? "import { ones } from 'shardwise';"
          : "const { ones } = require('shardwise');";
      writeFileSync(
        path.join(folder, `simple.${extension}`),
        `${uses}\nconsole.log(ones([2]).sum().item());\n`,
      );
      assert.match(
        bundle(`bundled.${extension}`, []),
        /shardwise was bundled.*--external:shardwise/s,
      );
      assert.doesNotMatch(bundle(`fine.${extension}`, ['shardwise']), /rror/);
    });
});
