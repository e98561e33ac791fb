/** Runs mocha on the TypeScript of the tests. Returns its exit code. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const file = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));

export function mocha(args, env) {
  const command = [
    '--import',
    './scripts/typescript.mjs',
    file('node_modules/mocha/bin/mocha.js'),
    ...args,
  ];
  const { status } = spawnSync(process.execPath, command, {
    cwd: file('.'),
    stdio: 'inherit',
    env: { ...process.env, ...env },
  });
  return status ?? 1;
}
