/**
 * Times the import until the first tensor exists, and counts the bytes of an installation. The
 * argument is the entry point.
 */
import { execFileSync } from 'node:child_process';
import { median } from './figures.js';
import { print } from './measure.js';

const entry = process.argv[2] as string;
const program =
  `const t = performance.now(); const { ones } = await import(${JSON.stringify(entry)}); ` +
  'ones([2]).tolist(); console.log(performance.now() - t);';
const times = Array.from({ length: 15 }, () =>
  Number(
    execFileSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' }),
  ),
);
print({ name: 'start', unit: 'ms', value: median(times) });
