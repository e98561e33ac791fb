/**
 * A rank that blocks before it loads the library. Adds its process id to a file, then blocks as its
 * first argument says.
 */
import { execFileSync } from 'node:child_process';
import { appendFileSync } from 'node:fs';

const [kind, file] = process.argv.slice(2) as [string, string];
appendFileSync(file, `${process.pid}\n`);

const blocks: Record<string, () => void> = {
  loop: () => {
    for (;;);
  },
  child: () => execFileSync('sleep', ['120']),
  wait: () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0),
  listeners: () => {
    process.removeAllListeners('disconnect');
    setInterval(() => {}, 1000);
  },
};
blocks[kind]?.();
