/** The native files need few libraries and export only their entry points. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { before, describe, it } from 'mocha';
import { skipWithoutTools } from '../skip.js';
import { binaries } from './package.js';

/** README promises it: RHEL 9, Ubuntu 22.04, Debian 12, Amazon Linux 2023. */
const glibcFloor = [2, 34] as const;
const allowedLibraries = /^(libc|libm|libgcc_s|libdl|libpthread|librt|ld-linux-[\w-]+)\.so/;

const tool = (name: string, ...args: string[]) =>
  execFileSync(name, args, { encoding: 'utf8', maxBuffer: 2 ** 28 });

describe('the native file', function () {
  this.timeout(60_000);
  if (process.platform !== 'linux') return;
  before(function () {
    skipWithoutTools(this, 'nm', 'objdump', 'readelf');
  });
  for (const { file, exports, needs } of binaries()) {
    describe(path.basename(file), () => {
      it(`needs glibc ${glibcFloor.join('.')} or older`, () => {
        const asked = [...tool('objdump', '-T', file).matchAll(/GLIBC_(\d+)\.(\d+)/g)];
        const newer = asked.filter(
          ([, major, minor]) => Number(major) > glibcFloor[0] || Number(minor) > glibcFloor[1],
        );
        assert.ok(asked.length > 0);
        assert.deepEqual([...new Set(newer.map(([version]) => version))], []);
      });

      it(`needs only libraries of every glibc system with Node${needs.length > 0 ? ', and the one it is built for' : ''}`, () => {
        const needed = [...tool('readelf', '-d', file).matchAll(/\(NEEDED\).*\[(.+)\]/g)].map(
          ([, name]) => name as string,
        );
        assert.deepEqual(
          needed.filter((name) => !allowedLibraries.test(name)),
          needs,
        );
      });

      it('has no search path of the machine that built it', () => {
        assert.doesNotMatch(tool('readelf', '-d', file), /RPATH|RUNPATH/);
      });

      it('exports only its entry points', () => {
        const exported = [
          ...tool('nm', '--dynamic', '--defined-only', file).matchAll(/^\S+ \S (\S+)$/gm),
        ].map(([, name]) => name as string);
        assert.deepEqual(exported.sort(), [...exports].sort());
      });

      it('stays loaded until the process ends, because native threads may still run', () => {
        assert.match(tool('readelf', '-d', file), /NODELETE/);
      });
    });
  }
});
