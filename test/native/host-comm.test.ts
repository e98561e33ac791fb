/**
 * Builds the self-test of native/comm with the compiler alone, as its header says, and runs it, also
 * between machines over gloo.
 */
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, it } from 'mocha';
import { writer } from '../../lib/eager/submit.js';
import { openGloo } from '../../lib/native/gloo.js';
import { root } from '../../scripts/check-tree.js';
import { skipWithoutGloo } from '../distributed/support/skip-without-gloo.js';
import { compileOnce } from '../packaging/package.js';
import { skipBecause, skipWithoutTools } from '../skip.js';

const sources = (folder: string) =>
  readdirSync(path.join(root, folder)).flatMap((file) =>
    file.endsWith('.cc') ? [`${folder}/${file}`] : [],
  );

const program = path.join(root, 'build', 'selftest', 'comm_selftest');

async function runSelfTest(...args: string[]): Promise<void> {
  const run = promisify(execFile)(program, args, { timeout: 120_000 });
  const { stdout } = await run.catch((error: Error & { stdout: string }) => {
    throw new Error(`${error.message}\n${error.stdout}`);
  });
  assert.match(stdout, /^all passed$/m);
}

describe('collectives of host memory', function () {
  this.timeout(300_000);
  const runs: Promise<void>[] = [];
  before(function () {
    if (!existsSync(path.join(root, 'native/comm')))
      skipBecause(this, 'the tests run without their sources');
    skipWithoutTools(this, 'g++');
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
        'native/platform/posix.cc',
        'native/platform/linux.cc',
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
    // They wait most of the time, so they run beside each other.
    const gloo = openGloo(writer.addon).path;
    runs.push(runSelfTest(), gloo === null ? Promise.resolve() : runSelfTest('remote', gloo));
    void Promise.allSettled(runs); // a test awaits each
  });

  it('pass the self-test of native/comm', () => runs[0]);

  it('pass the self-test over gloo, where hosts compare the calls of devices', function () {
    skipWithoutGloo(this);
    return runs[1];
  });
});
