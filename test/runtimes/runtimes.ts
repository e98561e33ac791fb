/** The JavaScript runtimes that the package is tested on, from npm packages with their binaries. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { npm, root } from '../packaging/package.js';

/** A runtime of the registry. */
export interface Runtime {
  name: string;
  /** What its `--version` begins with. */
  version: string;
  package: string;
  /** The place of the binary in the package. */
  binary: string;
  /** What runs a program. */
  args: readonly string[];
}

const arm = process.arch === 'arm64';

export const runtimes: readonly Runtime[] = [
  node('20.20.2'),
  node('22.23.3'),
  node('24.21.0'),
  node('26.10.0'),
  {
    name: 'Bun',
    version: '1.4.5',
    package: `@oven/bun-linux-${arm ? 'aarch64' : 'x64'}@1.4.5`,
    binary: 'bin/bun',
    args: [],
  },
  {
    name: 'Deno',
    version: 'deno 2.9.6',
    package: `@deno/linux-${arm ? 'arm64' : 'x64'}-glibc@2.9.6`,
    binary: 'deno',
    args: ['run', '--allow-all'],
  },
];

function node(version: string): Runtime {
  const name = `Node ${version.split('.')[0]}`;
  const found = `node-linux-${process.arch}@${version}`;
  return { name, version: `v${version}`, package: found, binary: 'bin/node', args: [] };
}

/** The path of the binary, which npm has installed. @throws Error if it is not that version */
export function binaryOf(runtime: Runtime): string {
  const binary = installed(runtime.package, runtime.binary);
  const printed = execFileSync(binary, ['--version'], { encoding: 'utf8' });
  if (printed.startsWith(runtime.version)) return binary;
  throw new Error(`${runtime.package}: expected version ${runtime.version}, got ${printed}`);
}

/** The path of a file of a package. npm installs the package, whatever platform it is for. */
export function installed(what: string, file: string): string {
  const folder = path.join(root, 'build', 'runtimes', what.replaceAll('/', '-'));
  const name = what.slice(0, what.lastIndexOf('@'));
  const found = path.join(folder, 'node_modules', name, file);
  if (!existsSync(found)) install(folder, what);
  return found;
}

/** In a folder of its own: npm takes away what an earlier installation in the same one brought. */
function install(folder: string, what: string): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'package.json'), '{ "private": true }\n');
  const quiet = ['--no-audit', '--no-fund', '--no-package-lock', '--prefer-offline'];
  npm(folder, ['install', '--ignore-scripts', '--no-save', '--force', ...quiet, what]);
}
