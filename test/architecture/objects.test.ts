/**
 * Objects compiled for an instruction set emit no weak symbols. Otherwise the linker would keep one
 * copy of an inline function, perhaps the one for AVX-512, and the addon would crash on a machine
 * without it.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'mocha';
import { root } from '../../scripts/check-tree.js';
import { skipBecause } from '../skip.js';

function objects(): string[] {
  const folders = ['cmake', 'plain']
    .map((route) => path.join(root, 'build', route, 'CMakeFiles'))
    .filter((folder) => existsSync(folder));
  return folders.flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' }).flatMap((file) =>
      /^isa_\w+\.dir.*\.o$/.test(file) ? [path.join(folder, file)] : [],
    ),
  );
}

describe('object files of one instruction set', function () {
  this.timeout(60_000);

  it('emit no weak symbols', function () {
    const files = objects();
    if (files.length === 0) return skipBecause(this, 'no object files: a prebuild serves');
    for (const file of files) {
      const symbols = execFileSync('nm', ['--demangle', '--defined-only', file], {
        encoding: 'utf8',
        maxBuffer: 2 ** 28,
      });
      const weak = [...symbols.matchAll(/^\S+ [WwVvu] (.+)$/gm)].map(([, name]) => name);
      assert.deepEqual(weak, [], path.relative(root, file));
    }
  });
});
