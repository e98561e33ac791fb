/**
 * Requires the addon: the local build, the prebuild of this package, or that of a package for
 * another platform, which npm installs as an optional dependency.
 */
import { readFileSync } from 'node:fs';
import type { NativeAddon } from './addon.js';

/** Platforms with a package of their own, `@shardwise/NAME`; scripts/platforms.cjs builds them. */
export const PLATFORMS: readonly string[] = [
  'linux-arm64',
  'linux-x64-musl',
  'darwin-arm64',
  'darwin-x64',
  'win32-x64',
];

/** The package that has the addon for this process; none if its platform has no such package. */
export function platformPackage(
  platform: string = process.platform,
  arch: string = process.arch,
  musl: boolean = isMusl(),
): string | null {
  const name = `${platform}-${arch}${musl ? '-musl' : ''}`;
  return PLATFORMS.includes(name) ? `@shardwise/${name}` : null;
}

/** Whether the C library of this process is musl: on Linux, whether glibc is not loaded. */
function isMusl(): boolean {
  if (process.platform !== 'linux') return false;
  try {
    return !/\/libc(\.so\.6|-2\.\d+\.so)/.test(readFileSync('/proc/self/maps', 'latin1'));
  } catch {
    return false;
  }
}

/** @throws Error with the reason of the package's own files, or of the platform's if it is there */
export function requireAddon(require: NodeJS.Require, folder: string): NativeAddon {
  try {
    return require('node-gyp-build')(folder) as NativeAddon;
  } catch (error) {
    const name = platformPackage();
    if (name === null || !isInstalled(require, name)) throw error;
    return require(name) as NativeAddon;
  }
}

/** The file that {@link requireAddon} loads; null if there is none. */
export function addonFile(require: NodeJS.Require, folder: string): string | null {
  try {
    return require('node-gyp-build').path(folder) as string;
  } catch {
    const name = platformPackage();
    return name !== null && isInstalled(require, name) ? require.resolve(name) : null;
  }
}

function isInstalled(require: NodeJS.Require, name: string): boolean {
  try {
    require.resolve(name);
    return true;
  } catch {
    return false;
  }
}
