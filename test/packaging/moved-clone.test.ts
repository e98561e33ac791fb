/** A clone that was moved or copied after its native build builds again, with the choices of before. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'mocha';
import { skipWithoutTools } from '../skip.js';
import { binaries, removeTemporaryFolders, root, temporaryFolder } from './package.js';

/** Copies an addon in place of building one. */
const description = `
cmake_minimum_required(VERSION 3.22)
project(shardwise LANGUAGES NONE)
option(SHARDWISE_GLOO "" ON)
option(SHARDWISE_CUDA "" ON)
set(OUTPUT "\${CMAKE_CURRENT_SOURCE_DIR}/build" CACHE PATH "")
add_custom_target(addon ALL
  COMMAND \${CMAKE_COMMAND} -E copy addon.node \${OUTPUT}/Release/shardwise.node
  WORKING_DIRECTORY \${CMAKE_CURRENT_SOURCE_DIR})
`;

function makeClone(): string {
  const clone = path.join(temporaryFolder('moved'), 'clone');
  mkdirSync(path.join(clone, 'scripts'), { recursive: true });
  writeFileSync(path.join(clone, 'CMakeLists.txt'), description);
  for (const script of ['build-native.cjs', 'toolchain.cjs'])
    cpSync(path.join(root, 'scripts', script), path.join(clone, 'scripts', script));
  cpSync(binaries()[0]?.file as string, path.join(clone, 'addon.node'));
  return clone;
}

function build(clone: string, choices: NodeJS.ProcessEnv = {}): void {
  const script = path.join(clone, 'scripts', 'build-native.cjs');
  const env = { PATH: process.env['PATH'], ...choices };
  const { status, stderr } = spawnSync(process.execPath, [script], { env, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  assert.ok(existsSync(path.join(clone, 'build', 'Release', 'shardwise.node')));
}

const cacheOf = (clone: string): string =>
  readFileSync(path.join(clone, 'build', 'cmake', 'CMakeCache.txt'), 'utf8');

describe('a clone with a native build', function () {
  this.timeout(60_000);
  before(function () {
    skipWithoutTools(this, 'cmake');
  });
  after(removeTemporaryFolders);

  it('builds again after it was moved', () => {
    const clone = makeClone();
    build(clone, { SHARDWISE_GLOO: 'OFF' });
    renameSync(clone, `${clone}-moved`);
    build(`${clone}-moved`);
    assert.match(cacheOf(`${clone}-moved`), /^SHARDWISE_GLOO:\w+=OFF$/m);
  });

  it('builds for itself after it was copied', () => {
    const clone = makeClone();
    build(clone);
    cpSync(clone, `${clone}-copy`, { recursive: true });
    build(`${clone}-copy`);
    assert.ok(!cacheOf(`${clone}-copy`).includes(`${clone}/`));
  });
});
