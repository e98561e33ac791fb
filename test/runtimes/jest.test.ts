/** The packed package in jest, as docs/runtimes.md says: npm run test:runtimes. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { npm, pack, removeTemporaryFolders, root, temporaryFolder } from '../packaging/package.js';

describe('the package in jest', function () {
  this.timeout(240_000);
  let tarball: string;

  before(() => {
    tarball = pack();
  });

  after(removeTemporaryFolders);

  for (const version of ['29', '30'])
    it(`is imported by CommonJS and by ES modules of jest ${version}`, () => {
      const folder = temporaryFolder(`jest-${version}`);
      const settings = { private: true, jest: { testMatch: ['**/*.test.{js,mjs}'] } };
      writeFileSync(path.join(folder, 'package.json'), JSON.stringify(settings));
      cpSync(path.join(root, 'test', 'runtimes', 'jest'), folder, { recursive: true });
      const options = ['--ignore-scripts', '--prefer-offline', '--no-audit'];
      npm(folder, ['install', ...options, tarball, `jest@${version}`]);
      const jest = path.join('node_modules', 'jest', 'bin', 'jest.js');
      const flags = ['--experimental-vm-modules', jest, '--runInBand'];
      const { status, stderr } = spawnSync(process.execPath, flags, {
        cwd: folder,
        encoding: 'utf8',
        timeout: 120_000,
      });
      assert.equal(status, 0, stderr);
      assert.match(stderr, /Tests: +3 passed, 3 total/);
    });
});
