/**
 * Requires the addon: the local build, the prebuild of this package, or that of a package for
 * another platform, which npm installs as an optional dependency.
 */
import type { NativeAddon } from './addon.js';

/** Platforms with a package of their own, `@shardwise/NAME`; scripts/platforms.cjs builds them. */
export const PLATFORMS: readonly string[] = ['linux-arm64'];

/** The packages that may have the addon for this process. */
export function platformPackages({
  platform,
  arch,
}: {
  platform: string;
  arch: string;
} = process): string[] {
  const system = `${platform}-${arch}`;
  return PLATFORMS.filter((name) => name === system).map((name) => `@shardwise/${name}`);
}

/** @throws Error with the reason of the package's own files, or of the platform's if it is there */
export function requireAddon(require: NodeJS.Require, folder: string): NativeAddon {
  try {
    return require('node-gyp-build')(folder) as NativeAddon;
  } catch (error) {
    const name = platformPackages().find((each) => isInstalled(require, each));
    if (name === undefined) throw error;
    return require(name) as NativeAddon;
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
