/**
 * Runs the cases of one target in its own process, which a crash may end: `child.ts <target> <seed>
 * <first> <count> <seconds>`. The file SHARDWISE_FUZZ_PROGRESS holds the number of the current
 * case. With SHARDWISE_FUZZ_TRACE every step is printed before it runs. The process ends after
 * SHARDWISE_FUZZ_FINDINGS findings, 1 by default.
 */
import { openSync, writeSync } from 'node:fs';
import { Finding, Rng } from './rng.js';

type Target = (rng: Rng, trace: (line: string) => void) => Promise<void> | void;

/**
 * Maximal time of a case. With the sanitizer and another process running, a common one takes
 * milliseconds.
 */
const SLOW_MS = 20_000;

const load: Readonly<Record<string, () => Promise<Target>>> = {
  ops: async () => (await import('./ops.js')).fuzzOps,
  addon: async () => (await import('./addon.js')).fuzzAddon,
  workers: async () => (await import('./workers.js')).fuzzWorkers,
  checkpoint: async () => (await import('./checkpoint.js')).fuzzCheckpoint,
  compile: async () => (await import('./compiled/compiled.js')).fuzzCompiled,
};
/** Reports of the cases of a target, for targets that count them. */
const reports: Readonly<Record<string, () => Promise<string>>> = {
  checkpoint: async () => (await import('./checkpoint.js')).reportCheckpoint(),
};

async function main(): Promise<void> {
  const [name, seed, first, count, seconds] = process.argv.slice(2) as [string, ...string[]];
  const target = await (load[name] as () => Promise<Target>)();
  const progress = process.env['SHARDWISE_FUZZ_PROGRESS'];
  const file = progress === undefined ? null : openSync(progress, 'w');
  const trace = process.env['SHARDWISE_FUZZ_TRACE']
    ? (line: string) => void writeSync(2, `  ${line.slice(0, 2000)}\n`)
    : () => {};
  const deadline = Date.now() + Number(seconds) * 1000;
  const enough = Number(process.env['SHARDWISE_FUZZ_FINDINGS'] ?? 1);
  let [done, findings] = [0, 0];
  for (let index = Number(first); done < Number(count) && Date.now() < deadline; index++, done++) {
    if (file !== null) writeSync(file, String(index).padEnd(16), 0);
    const start = Date.now();
    try {
      await target(new Rng(Number(seed), index), trace);
    } catch (error) {
      console.error(
        `case ${index}: ` +
          `${error instanceof Finding ? error.message : ((error as Error).stack ?? String(error))}`,
      );
      process.exitCode = 1;
      if (++findings >= enough) return;
    }
    if (Date.now() - start > SLOW_MS) {
      console.error(`case ${index}: took ${Date.now() - start} ms`);
      process.exitCode = 1;
      return;
    }
  }
  const report = await reports[name]?.();
  console.log(`${name}: ${done} cases${report ? `: ${report}` : ''}`);
}

process.on('unhandledRejection', (error) => {
  console.error(`unhandled rejection: ${(error as Error)?.stack ?? String(error)}`);
  process.exit(1);
});
await main();
