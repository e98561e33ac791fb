/** Builds of the native part with sanitizers, each in a folder of its own: the usual build stays. */
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');

function run(command: string, args: string[]): void {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit' });
  if (status !== 0) throw new Error(`${command} failed${error ? `: ${error.message}` : ''}`);
}

/** Builds one target, or what CMake builds by default. Outputs are in `build` below the folder. */
export function buildIn(
  folder: string,
  options: readonly string[],
  jobs: number,
  target?: string,
): void {
  const all = [
    ...options,
    'SHARDWISE_CUDA=OFF',
    'CMAKE_BUILD_TYPE=Release',
    `SHARDWISE_OUTPUT=${path.join(folder, 'build')}`,
  ];
  run('cmake', ['-S', '.', '-B', folder, '-G', 'Ninja', ...all.map((option) => `-D${option}`)]);
  const only = target === undefined ? [] : ['--target', target];
  run('cmake', ['--build', folder, '--parallel', String(jobs), ...only]);
}
