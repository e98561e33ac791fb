/**
 * Drops file stores without closing them; prints how many of their files are open, and the
 * warnings of Node. Needs --expose-gc.
 */
import { readdirSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { FileStore } from '../../../lib/distributed.js';

const [file] = process.argv.slice(2) as [string];
const warnings: string[] = [];
process.on('warning', (warning) => warnings.push(warning.message));

const targetOf = (descriptor: string): string => {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`);
  } catch {
    return '';
  }
};
const openFiles = (): number =>
  readdirSync('/proc/self/fd').filter((descriptor) => targetOf(descriptor) === file).length;

for (let i = 0; i < 5; i++) await new FileStore(file).set('k', 'v');
for (const end = Date.now() + 5_000; openFiles() > 0 && Date.now() < end; await sleep(20))
  globalThis.gc?.();
console.log(JSON.stringify([openFiles(), warnings]));
