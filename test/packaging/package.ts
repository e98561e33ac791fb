/** Packs what `npm publish` would ship with the current addon. */
import { execFileSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
/** Runs the compiler given as its arguments, unless it compiled the same before. */
export const compileOnce = path.join(root, 'test', 'packaging', 'compile-once');
const platform = `${process.platform}-${process.arch}`;
const libc = process.platform === 'linux' ? '.glibc' : '';

export interface Binary {
  file: string;
  /** The symbols that it may export. */
  exports: readonly string[];
  /** The libraries that it needs beside those of every system with Node. */
  needs: readonly string[];
}

/**
 * The local build or, without one, the prebuild. cuda-backend.so and gloo-engine.so only where they
 * were built.
 */
export function binaries(): Binary[] {
  const addon = [
    path.join(root, 'build', 'Release', 'shardwise.node'),
    path.join(root, 'prebuilds', platform, `shardwise.napi${libc}.node`),
  ].find((file) => existsSync(file));
  if (addon === undefined) throw new Error('no addon is built: npm run build:native');
  const [cuda, gloo] = [
    path.join(path.dirname(addon), 'cuda-backend.so'),
    path.join(path.dirname(addon), 'gloo-engine.so'),
  ];
  const found: Binary[] = [
    {
      file: addon,
      exports: ['napi_register_module_v1', 'node_api_module_get_api_version_v1'],
      needs: [],
    },
  ];
  if (existsSync(cuda))
    found.push({ file: cuda, exports: ['shardwise_backend_v1', 'shardwise_can_fuse'], needs: [] });
  // The engine is of use where libgloo0 is installed, which brings its own standard library.
  if (existsSync(gloo))
    found.push({
      file: gloo,
      exports: ['shardwise_gloo_v1'],
      needs: ['libgloo.so.0', 'libstdc++.so.6'],
    });
  return found;
}

const temporary: string[] = [];

export function temporaryFolder(purpose: string): string {
  const folder = mkdtempSync(path.join(tmpdir(), `shardwise-${purpose}-`));
  temporary.push(folder);
  return folder;
}

export function removeTemporaryFolders(): void {
  for (const folder of temporary.splice(0)) rmSync(folder, { recursive: true, force: true });
}

/** Runs npm of the Node that runs the tests. */
export function npm(
  cwd: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): string {
  return execFileSync('npm', args, {
    cwd,
    env,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

/** The path of a tarball like the published one. */
export function pack(): string {
  npm(root, ['run', '--silent', 'build:ts']);
  const stage = temporaryFolder('pack');
  for (const entry of [
    'package.json',
    'README.md',
    'LICENSE',
    'CMakeLists.txt',
    'dist',
    'examples',
    'native',
    'scripts',
    'lib',
    'test/packaging',
  ]) {
    if (existsSync(path.join(root, entry)))
      cpSync(path.join(root, entry), path.join(stage, entry), { recursive: true });
  }
  stagePrebuilds(path.join(stage, 'prebuilds', platform));
  const [packed] = JSON.parse(npm(stage, ['pack', '--json', '--ignore-scripts'])) as [
    { filename: string },
  ];
  return path.join(stage, packed.filename);
}

/**
 * Stages the prebuilds of `npm run prebuild`, as in CI, or the stripped local build if it is newer.
 */
function stagePrebuilds(folder: string): void {
  const made = path.join(root, 'prebuilds', platform);
  const modified = (file: string): number => (existsSync(file) ? statSync(file).mtimeMs : 0);
  if (
    modified(path.join(made, `shardwise.napi${libc}.node`)) >
    modified(path.join(root, 'build', 'Release', 'shardwise.node'))
  ) {
    cpSync(made, folder, { recursive: true });
    return;
  }
  mkdirSync(folder, { recursive: true });
  for (const { file } of binaries()) {
    const copy = path.join(
      folder,
      file.endsWith('.so') ? path.basename(file) : `shardwise.napi${libc}.node`,
    );
    cpSync(file, copy);
    if (process.platform === 'linux') execFileSync('strip', ['--strip-all', copy]);
  }
}

/** A PATH with Node and a shell but no compiler. */
export function barePath(): string {
  const folder = temporaryFolder('path');
  symlinkSync(process.execPath, path.join(folder, 'node'));
  symlinkSync('/bin/sh', path.join(folder, 'sh'));
  const npmScript = execFileSync('npm', ['root', '--global'], { encoding: 'utf8' }).trim();
  writeFileSync(
    path.join(folder, 'npm'),
    `#!/bin/sh\nexec node ${path.join(npmScript, 'npm', 'bin', 'npm-cli.js')} "$@"\n`,
    { mode: 0o755 },
  );
  return folder;
}

export function bytesBelow(folder: string): number {
  return readdirSync(folder, { recursive: true, withFileTypes: true }).reduce(
    (sum, entry) =>
      sum + (entry.isFile() ? statSync(path.join(entry.parentPath, entry.name)).size : 0),
    0,
  );
}
