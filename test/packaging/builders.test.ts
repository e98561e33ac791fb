/** The script, node-gyp (binding.gyp) and prebuildify build the same addon from one description. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'mocha';
import { skipWithoutTools } from '../skip.js';
import { compileOnce, npm, removeTemporaryFolders, root, temporaryFolder } from './package.js';

// The CPU part alone, and each object once: whoever builds it, the same text and options give the
// same. That leaves some 90 seconds on two slow cores, or 20 where an earlier run had the same
// sources.
const environment = {
  ...process.env,
  SHARDWISE_CUDA: 'OFF',
  CMAKE_CXX_COMPILER_LAUNCHER: compileOnce,
};
const tool = (name: string, ...args: string[]) =>
  execFileSync(name, args, { encoding: 'utf8', maxBuffer: 2 ** 28 });

/** Names and sizes of the sections that are loaded into memory. */
function sections(file: string): Map<string, string> {
  const rows = tool('size', '-A', file).matchAll(/^(\.\S+)\s+(\d+)/gm);
  return new Map(
    [...rows]
      .map(([, name, bytes]) => [name, bytes] as [string, string])
      .filter(([name]) => /^\.(text|rodata|data|data\.rel\.ro|bss|dynsym|init_array)$/.test(name)),
  );
}

/** Names and sizes; addresses follow the order in which the generator links. */
const symbols = (file: string): string[] =>
  tool('nm', '-S', '--defined-only', file)
    .split('\n')
    .map((line) => line.split(' ').slice(1).join(' '))
    .sort();

describe('the addon built from the sources', function () {
  this.timeout(600_000);
  if (process.platform !== 'linux') return;
  const built: Record<'script' | 'nodeGyp' | 'prebuildify', string> = {
    script: '',
    nodeGyp: '',
    prebuildify: '',
  };

  before(function () {
    skipWithoutTools(this, 'cmake', 'g++', 'make', 'nm', 'python3');
    const checkout = temporaryFolder('builders');
    for (const entry of ['CMakeLists.txt', 'binding.gyp', 'package.json', 'native', 'scripts'])
      cpSync(path.join(root, entry), path.join(checkout, entry), { recursive: true });
    symlinkSync(path.join(root, 'node_modules'), path.join(checkout, 'node_modules'));
    const keep = (from: string, name: keyof typeof built): void => {
      built[name] = path.join(checkout, 'kept', `${name}.node`);
      cpSync(path.join(checkout, from), built[name]);
    };
    mkdirSync(path.join(checkout, 'kept'));
    npm(checkout, ['run', 'build:gyp'], environment);
    keep('build/Release/shardwise.node', 'nodeGyp');
    npm(checkout, ['run', 'build:native'], environment);
    keep('build/Release/shardwise.node', 'script');
    npm(checkout, ['run', 'prebuild'], environment);
    const folder = `prebuilds/${process.platform}-${process.arch}`;
    const [file] = readdirSync(path.join(checkout, folder)).filter((name) =>
      name.endsWith('.node'),
    );
    keep(path.join(folder, String(file)), 'prebuildify');
  });
  after(removeTemporaryFolders);

  it('has the same functions of the same sizes by the script and by node-gyp', () => {
    const [first, second] = [symbols(built.script), symbols(built.nodeGyp)];
    assert.ok(first.length > 1000, `${first.length} symbols`);
    assert.deepEqual(first, second);
  });

  it('has the same code and data by prebuildify', () => {
    assert.ok(Number(sections(built.prebuildify).get('.text')) > 1e6);
    assert.deepEqual(sections(built.prebuildify), sections(built.script));
  });

  it('loads from every builder', () => {
    for (const file of Object.values(built)) {
      const program = `const addon = require(${JSON.stringify(file)}); console.log(addon.kernelNames.length)`;
      assert.ok(Number(tool(process.execPath, '-e', program)) > 100, file);
    }
  });
});
