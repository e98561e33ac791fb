/**
 * The packages of other platforms: their files, and that the packed package computes with them.
 * Processors of other kinds are emulated by qemu: npm run test:platforms.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, cpSync, existsSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { PLATFORMS, platformPackage } from '../../lib/native/require-addon.js';
import { npm, pack, removeTemporaryFolders, root, temporaryFolder } from '../packaging/package.js';
import { skipBecause } from '../skip.js';
import { readBinary } from './binary.js';
import { emulated, type Platform } from './emulated.js';

const { platforms, chosen, withPlatforms } = createRequire(import.meta.url)(
  path.join(root, 'scripts', 'platforms.cjs'),
) as {
  platforms: Platform[];
  /** The names of those that this machine builds. */
  chosen(): string[];
  withPlatforms(manifest: object): Manifest;
};

interface Manifest {
  name: string;
  version: string;
  os: string[];
  cpu: string[];
  libc?: string[];
  optionalDependencies: Record<string, string>;
}

const folderOf = (name: string): string => path.join(root, 'build', 'platforms', name);
const manifestIn = (folder: string): Manifest =>
  JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8'));

/** The libraries that every process of the platform has, and the oldest system. */
const systems: Record<string, { libraries: RegExp; oldest: string | null }> = {
  glibc: { libraries: /^(libc|libm|libgcc_s|ld-linux-aarch64)\.so/, oldest: '2.34' },
  musl: { libraries: /^libc\.so$/, oldest: null },
  darwin: { libraries: /^\/usr\/lib\/libSystem\.B\.dylib$/, oldest: '11.0' },
  win32: {
    libraries: /^(KERNEL32|msvcrt|api-ms-win-core-synch-l1-2-0)\.dll$/i,
    oldest: null,
  },
};
/** What zig's unwinder exports on Windows, whose programs look up names in one library. */
const unwinder = /^_?unw_|^_Unwind_|^_GCC_/;

describe('the platforms', () => {
  it('are those that the loader looks for', () => {
    assert.deepEqual(
      platforms.map(({ name }) => name),
      PLATFORMS,
    );
    assert.equal(platformPackage('linux', 'arm64', false), '@shardwise/linux-arm64');
    assert.equal(platformPackage('linux', 'x64', true), '@shardwise/linux-x64-musl');
    assert.equal(platformPackage('darwin', 'arm64', false), '@shardwise/darwin-arm64');
    assert.equal(platformPackage('win32', 'x64', false), '@shardwise/win32-x64');
    for (const [system, arch, musl] of [
      ['linux', 'x64', false],
      ['linux', 'arm64', true],
      ['darwin', 'ia32', false],
      ['win32', 'arm64', false],
    ] as const)
      assert.equal(platformPackage(system, arch, musl), null);
  });

  it('are optional dependencies of the published package, of its version', () => {
    const manifest = manifestIn(root);
    assert.equal(manifest.optionalDependencies, undefined);
    const missing = PLATFORMS.find((name) => !existsSync(folderOf(name)));
    if (missing !== undefined) {
      assert.throws(
        () => withPlatforms(manifest),
        new RegExp(`^Error: ${missing} is not built for`),
      );
      return;
    }
    const { optionalDependencies } = withPlatforms(manifest);
    assert.deepEqual(
      optionalDependencies,
      Object.fromEntries(PLATFORMS.map((name) => [`@shardwise/${name}`, manifest.version])),
    );
  });
});

describe('the package for', function () {
  this.timeout(600_000);
  let tarball: string;

  before(() => {
    tarball = pack();
  });
  after(removeTemporaryFolders);

  for (const platform of platforms)
    describe(platform.name, () => {
      const folder = folderOf(platform.name);
      const addon = path.join(folder, 'shardwise.node');

      before(function () {
        if (chosen().includes(platform.name) || existsSync(folder)) return;
        skipBecause(this, `not built: npm run prebuild:platforms -- ${platform.name}`);
      });

      it('is installed on its platform only', () => {
        const { name, version, os, cpu, libc } = manifestIn(folder);
        assert.deepEqual(
          [name, version, os, cpu, libc],
          [
            `@shardwise/${platform.name}`,
            manifestIn(root).version,
            [platform.os],
            [platform.cpu],
            platform.libc && [platform.libc],
          ],
        );
      });

      it('exports only its entry points, and needs only libraries that every process has', () => {
        const { exports, needs, oldest, signed } = readBinary(addon);
        const { libraries, oldest: promised } = systems[platform.libc ?? platform.os] ?? {};
        assert.deepEqual(
          exports.filter((name) => platform.os !== 'win32' || !unwinder.test(name)),
          ['napi_register_module_v1', 'node_api_module_get_api_version_v1'],
        );
        assert.deepEqual(
          needs.filter((name) => !libraries?.test(name)),
          [],
        );
        assert.equal(oldest, promised);
        assert.equal(signed, platform.os === 'darwin');
      });

      if (platform.os === 'darwin') return; // nothing here runs it

      it('is what the loader asks for where it is missing', () => {
        const { status, stderr } = run(platform, 'modules.mjs', install(tarball));
        assert.notEqual(status, 0);
        assert.match(stderr, new RegExp(`- install @shardwise/${platform.name}, which npm does`));
      });

      describe('beside the packed package', () => {
        let consumer: string;
        before(() => {
          consumer = install(tarball, folder);
        });

        for (const program of programsOn(platform))
          it(`runs ${program}`, () => {
            const { status, signal, stderr } = run(platform, program, consumer);
            assert.equal(status, 0, `${signal} ${stderr}`);
          });
      });
    });
});

/** qemu takes minutes for the large training steps, and for 20,000 small ones. */
function programsOn({ cpu }: Platform): string[] {
  const everywhere = ['modules.mjs', 'required.cjs', 'local.mjs', 'processes.mjs'];
  const native = ['steps.mjs', 'memory.mjs'];
  return cpu === process.arch ? [...everywhere, ...native] : everywhere;
}

/** A folder with the programs and the given packages. */
function install(...packages: string[]): string {
  const consumer = temporaryFolder('platforms');
  writeFileSync(path.join(consumer, 'package.json'), '{ "private": true }\n');
  cpSync(path.join(root, 'test', 'runtimes', 'programs'), consumer, { recursive: true });
  const flags = ['--ignore-scripts', '--prefer-offline', '--no-audit', '--force'];
  npm(consumer, ['install', ...flags, ...packages]);
  return consumer;
}

/** Output goes to a file: programs of Windows cannot write to a pipe of Linux. */
function run(platform: Platform, program: string, consumer: string) {
  const { command, env } = emulated(platform);
  const [name = '', ...args] = [...command, path.join(consumer, program)];
  const log = path.join(consumer, 'stderr.txt');
  const file = openSync(log, 'w');
  const { status, signal } = spawnSync(name, args, {
    cwd: consumer,
    env,
    stdio: ['ignore', 'inherit', file],
  });
  closeSync(file);
  return { status, signal, stderr: readFileSync(log, 'utf8') };
}
