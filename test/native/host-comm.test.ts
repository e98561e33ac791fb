/**
 * Builds the self-test of native/comm with the compiler alone, as its header says, and runs it, also
 * between machines over gloo.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'mocha';
import { writer } from '../../lib/eager/submit.js';
import { openGloo } from '../../lib/native/gloo.js';
import { root } from '../../scripts/check-tree.js';
import { skipWithoutGloo } from '../distributed/support/skip-without-gloo.js';
import { compileOnce } from '../packaging/package.js';
import { skipBecause } from '../skip.js';

const sources = (folder: string) =>
  readdirSync(path.join(root, folder)).flatMap((file) =>
    file.endsWith('.cc') ? [`${folder}/${file}`] : [],
  );

const program = path.join(root, 'build', 'selftest', 'comm_selftest');

function runSelfTest(...args: string[]): void {
  const run = spawnSync(program, args, { encoding: 'utf8', timeout: 120_000 });
  assert.equal(run.status, 0, `${run.stdout}${run.stderr}`);
  assert.match(run.stdout, /^all passed$/m);
}

describe('collectives of host memory', function () {
  this.timeout(300_000);
  before(function () {
    if (!existsSync(path.join(root, 'native/comm')))
      skipBecause(this, 'the tests run without their sources');
    if (spawnSync('g++', ['--version']).status !== 0) {
      assert.ok(
        process.env.CI !== 'true',
        'CI has to have g++: the self-test of native/comm would not run',
      );
      skipBecause(this, 'no g++');
    }
    mkdirSync(path.join(root, 'build', 'selftest'), { recursive: true });
    execFileSync(
      compileOnce,
      [
        'g++',
        '-std=c++20',
        '-O1',
        '-pthread',
        ...sources('native/comm'),
        ...sources('native/comm/selftest'),
        '-rdynamic',
        '-ldl',
        '-o',
        program,
      ],
      {
        cwd: root,
        stdio: 'inherit',
      },
    );
  });

  it('pass the self-test of native/comm', () => runSelfTest());

  it('pass the self-test over gloo, where hosts compare the calls of devices', function () {
    skipWithoutGloo(this);
    runSelfTest('remote', openGloo(writer.addon).path as string);
  });
});
