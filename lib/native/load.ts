/**
 * Finds and loads the addon and the CUDA backend beside it. Every candidate that fails keeps its
 * reason.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { BackendLoadError } from '../core/errors.js';
import type { Addon } from './addon.js';
import { BUNDLED } from './bundled.js';
import { guard } from './guard.js';
import { backendLibraries, reasonAlone } from './libraries.js';
import { missingAddon } from './missing-addon.js';
import { addonFile, platformPackage, requireAddon } from './require-addon.js';

/** This module, or the file that a bundler made; a bundle in CommonJS has no such address. */
const here = import.meta.url as string | undefined;
const root = here?.startsWith('file:') ? packageRoot(path.dirname(fileURLToPath(here))) : null;
const loadedKey = Symbol.for('shardwise.native');

type Loaded = { addon: Addon; root: string };

/** Whether there is no addon for this platform, or no place where it could be. */
let isMissing = root === null;
let absent: Addon | null = null;

/**
 * @throws BackendLoadError with the reason and how to repair it; also when a second copy of the
 * package is in the process
 */
export function loadAddon(): Addon {
  const folder = packageFolder();
  const shared = globalThis as unknown as Record<symbol, Loaded | undefined>;
  const before = shared[loadedKey];
  if (before !== undefined) {
    if (before.root === folder) return before.addon;
    throw new BackendLoadError(
      'two copies of shardwise are in one process; tensors of one would not work with the ' +
        `other.\n  loaded first: ${before.root}\n  now: ${folder}\n  Run "npm dedupe", or let ` +
        "one package depend on the other's copy.",
      { first: before.root, second: folder },
    );
  }
  const addon = loadFrom(folder);
  if (process.env['SHARDWISE_BLOCKING'] === '1') addon.setBlocking(true);
  // Deno finalizes values only when the event loop turns, and a training loop need not turn it.
  if (process.versions['deno'] !== undefined) addon.deferFinalizers();
  shared[loadedKey] = { addon, root: folder };
  return addon;
}

/**
 * The addon, or what stands for it where there is none for the platform. @throws BackendLoadError
 * when a second copy of the package is in the process
 */
export function addonOrStandIn(): Addon {
  if (absent !== null) return absent;
  try {
    return loadAddon();
  } catch (error) {
    if (!isMissing) throw error;
    absent = missingAddon(loadAddon);
    return absent;
  }
}

/**
 * The folder of this package: sources, bundles and chunks lie at different depths below it. Null if
 * a bundler moved the code out of it.
 */
function packageRoot(folder: string): string | null {
  const manifest = path.join(folder, 'package.json');
  if (existsSync(manifest)) {
    const { name } = JSON.parse(readFileSync(manifest, 'utf8')) as { name?: string };
    if (name === 'shardwise') return folder;
  }
  const parent = path.dirname(folder);
  return parent === folder ? null : packageRoot(parent);
}

/** Where the package lies, with the files that it brings. */
export function packageFolder(): string {
  if (root === null) throw bundledError();
  return root;
}

/**
 * The file of a module that another process or thread runs, by its path in lib/: beside this one,
 * or in dist/ if the package is bundled.
 */
export function moduleFile(name: string): string {
  const folder = packageFolder();
  const own = fileURLToPath(here as string);
  const beside = path.resolve(own, '..', '..', `${name}${path.extname(own)}`);
  return existsSync(beside) ? beside : path.join(folder, 'dist', `${name}.js`);
}

/** Where the addon lies, for processes that load it without the library; null if there is none. */
export function findAddon(): string | null {
  const folder = packageFolder();
  return addonFile(requireFrom(folder), folder);
}

function requireFrom(folder: string): NodeJS.Require {
  const require = createRequire(path.join(folder, 'package.json')) as NodeJS.Require | undefined;
  if (require === undefined) throw bundledError(); // webpack takes the function away
  return require;
}

function loadFrom(folder: string): Addon {
  const require = requireFrom(folder);
  try {
    return guard(requireAddon(require, folder));
  } catch (error) {
    isMissing = true;
    throw new BackendLoadError(
      'the native addon of shardwise could not be loaded on ' +
        `${process.platform}-${process.arch}, Node ${process.version}.\n  reason: ` +
        `${(error as Error).message.split('\n')[0]}\n  Without it types, FakeTensorMode and ` +
        'simulation work, and no tensor has values. Fix it in one of these ways:\n    - ' +
        `${howToInstall()}\n    - ` +
        'build here, with a C++20 compiler and CMake: npx shardwise-build',
      { root: folder },
      { cause: error },
    );
  }
}

function howToInstall(): string {
  const name = platformPackage();
  const everywhere =
    'install a release that has a prebuild for this platform (Linux x64 or arm64 with glibc 2.34 ' +
    'or newer, Linux x64 with musl, macOS 11 or newer, Windows x64)';
  return name === null
    ? everywhere
    : `install ${name}, which npm does unless it omits optional dependencies`;
}

function bundledError(): BackendLoadError {
  return new BackendLoadError(BUNDLED, { here });
}

/** Where cuda-backend.so may lie. */
export function cudaBackendCandidates(): string[] {
  return besideAddon('cuda-backend.so', 'SHARDWISE_CUDA_BACKEND');
}

/** Opens one of them; null, or why it cannot be used. */
export function openCudaBackend(addon: Addon, file: string): string | null {
  const reason = addon.openBackend(file, ...backendLibraries());
  return reason === undefined ? null : reasonAlone(file, reason);
}

/** Where gloo-engine.so may lie. */
export function glooEngineCandidates(): string[] {
  return besideAddon('gloo-engine.so', 'SHARDWISE_GLOO_ENGINE');
}

/** In the local build, or in the prebuild; the variable names a file that is then the only one. */
function besideAddon(name: string, variable: string): string[] {
  const given = process.env[variable];
  if (given) return [given];
  if (root === null) return [];
  return [
    path.join(root, 'build', 'Release', name),
    path.join(root, 'prebuilds', `${process.platform}-${process.arch}`, name),
  ].filter((file) => existsSync(file));
}
