/**
 * Finds and loads the addon and the CUDA backend beside it. Every candidate that fails keeps its
 * reason.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { BackendLoadError } from '../core/errors.js';
import type { Addon, NativeAddon } from './addon.js';
import { guard } from './guard.js';
import { backendLibraries, reasonAlone } from './libraries.js';

const require = createRequire(import.meta.url);
const root = packageRoot(path.dirname(fileURLToPath(import.meta.url)));
const loadedKey = Symbol.for('shardwise.native');
/** Set in processes that a launcher made. */
const childKey = Symbol.for('shardwise.endsWithParent');

type Loaded = { addon: Addon; root: string };

/**
 * @throws BackendLoadError with the files tried and how to repair it; also when a second copy of
 * the package is in the process.
 */
export function loadAddon(): Addon {
  const shared = globalThis as unknown as Record<symbol, Loaded | undefined>;
  const before = shared[loadedKey];
  if (before !== undefined) {
    if (before.root === root) return before.addon;
    throw new BackendLoadError(
      'two copies of shardwise are in one process; tensors of one would not work with the ' +
        `other.\n  loaded first: ${before.root}\n  now: ${root}\n  Run "npm dedupe", or let one ` +
        "package depend on the other's copy.",
      { first: before.root, second: root },
    );
  }
  const addon = loadFrom(root);
  if (process.env['SHARDWISE_BLOCKING'] === '1') addon.setBlocking(true);
  if (shared[childKey] !== undefined) addon.endWithParent();
  shared[loadedKey] = { addon, root };
  return addon;
}

/** The folder of package.json: sources, bundles and chunks lie at different depths below it. */
function packageRoot(folder: string): string {
  const parent = path.dirname(folder);
  return existsSync(path.join(folder, 'package.json')) || parent === folder
    ? folder
    : packageRoot(parent);
}

/** Where the package lies, with the files that it brings. */
export const packageFolder = (): string => root;

function loadFrom(folder: string): Addon {
  try {
    return guard(require('node-gyp-build')(folder) as NativeAddon);
  } catch (error) {
    throw new BackendLoadError(
      'the native addon of shardwise could not be loaded on ' +
        `${process.platform}-${process.arch}, Node ${process.version}.\n  reason: ` +
        `${(error as Error).message.split('\n')[0]}\n  Fix it in one of these ways:\n    - ` +
        'install a release that has a prebuild for this platform (Linux x64 with glibc 2.34 or ' +
        'newer)\n    - build here, with a C++20 compiler and CMake: npx shardwise-build',
      { root: folder },
      { cause: error },
    );
  }
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
  return [
    path.join(root, 'build', 'Release', name),
    path.join(root, 'prebuilds', `${process.platform}-${process.arch}`, name),
  ].filter((file) => existsSync(file));
}
