/** Kept code of GPUs is run: files that others could have written do not count. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { root } from '../../scripts/check-tree.js';
import { compileOnce } from '../packaging/package.js';
import { skipBecause, skipWithoutTools } from '../skip.js';

const program = path.join(root, 'build', 'selftest', 'code-files');
const sources = ['native/cuda/fused/code_files.cc', 'test/native/programs/code-files.cc'];
const CODE = 'code of a kernel';

describe('kept code', () => {
  let folder: string;

  const run = (...args: string[]) =>
    spawnSync(program, args, {
      encoding: 'utf8',
      timeout: 10_000,
      env: { ...process.env, SHARDWISE_TUNE_CACHE: path.join(folder, 'made', 'here') },
    });
  const fileOf = (name: string): string => path.join(folder, 'made', 'here', 'kernels', name);
  const kept = (name: string): string | null => {
    const { status, stdout } = run('read', name);
    return status === 0 ? stdout : null;
  };

  before(function () {
    this.timeout(120_000);
    if (!existsSync(path.join(root, 'native/cuda')))
      skipBecause(this, 'the tests run without their sources');
    skipWithoutTools(this, 'g++');
    mkdirSync(path.dirname(program), { recursive: true });
    execFileSync(compileOnce, ['g++', '-std=c++20', '-O1', ...sources, '-o', program], {
      cwd: root,
    });
  });

  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'shardwise-code-'));
    assert.equal(run('write', 'a.cubin', CODE).status, 0);
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  it('is read back, from folders and files that only this user may enter', () => {
    assert.equal(kept('a.cubin'), CODE);
    const mode = (file: string): number => statSync(file).mode & 0o777;
    assert.equal(mode(path.join(folder, 'made')), 0o700);
    assert.equal(mode(path.dirname(fileOf('a.cubin'))), 0o700);
    assert.equal(mode(fileOf('a.cubin')), 0o600);
  });

  it('does not count if others may write its file', () => {
    chmodSync(fileOf('a.cubin'), 0o620);
    assert.equal(kept('a.cubin'), null);
    chmodSync(fileOf('a.cubin'), 0o602);
    assert.equal(kept('a.cubin'), null);
    chmodSync(fileOf('a.cubin'), 0o644);
    assert.equal(kept('a.cubin'), CODE);
  });

  it('does not count behind a symbolic link', () => {
    renameSync(fileOf('a.cubin'), path.join(folder, 'elsewhere'));
    symlinkSync(path.join(folder, 'elsewhere'), fileOf('a.cubin'));
    assert.equal(kept('a.cubin'), null);
  });

  it('does not wait for a FIFO of its name', () => {
    execFileSync('mkfifo', ['-m', '600', fileOf('b.cubin')]);
    const { status, signal } = run('read', 'b.cubin');
    assert.deepEqual([status, signal], [1, null]);
  });

  it('of another user does not count', function () {
    if (process.geteuid?.() !== 0) skipBecause(this, 'only root can give files away');
    copyFileSync(fileOf('a.cubin'), fileOf('b.cubin'));
    execFileSync('chown', ['12345', fileOf('b.cubin')]);
    assert.equal(kept('b.cubin'), null);
  });
});
