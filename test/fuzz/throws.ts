/**
 * `npm run fuzz -- throws`: runs throws-body.ts in every context until enough calls have failed or
 * the time is over.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { loader } from '../run-program.js';
import { type Context, contexts } from './throws-contexts.js';

/** Flags that bound V8's young generation; a worker has its own limit. */
const flags: Readonly<Record<Context, readonly string[]>> = {
  timers: ['--max-semi-space-size=1'],
  immediates: ['--max-semi-space-size=2'],
  worker: [],
  commonjs: ['--max-semi-space-size=2'],
};
const MOST_MS = 600_000;
/** Deaths after which a context is no longer run. */
const ENOUGH_DEATHS = 3;

export interface Counts {
  readonly context: Context;
  calls: number;
  processes: number;
  deaths: number;
}

/**
 * Bundles the body and the library as CommonJS. Tests that are compiled to JavaScript have no
 * bundler, so Node requires the module.
 */
async function bundled(folder: string): Promise<string> {
  const body = fileURLToPath(
    new URL(`./throws-body${loader.length > 0 ? '.ts' : '.js'}`, import.meta.url),
  );
  if (loader.length === 0) return body;
  const { build } = await import('esbuild');
  const outfile = path.join(folder, 'throws.cjs');
  await build({
    entryPoints: [body],
    outfile,
    bundle: true,
    platform: 'node',
    target: 'node20',
    format: 'cjs',
    packages: 'external',
    logLevel: 'error',
    define: { 'import.meta.url': 'moduleUrl' },
    banner: { js: 'const moduleUrl = require("node:url").pathToFileURL(__filename).href;' },
  });
  return outfile;
}

/** Runs one process until it dies or enough calls have failed. */
async function runProcess(
  program: string,
  context: Context,
  calls: number,
): Promise<{ calls: number; died: string | null }> {
  const script = `process.argv.splice(1, 0, ${JSON.stringify(program)}); require(${JSON.stringify(program)})`;
  const start = loader.length > 0 ? [program] : ['-e', script];
  const child = spawn(process.execPath, [...flags[context], ...start, context, String(calls)], {
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: MOST_MS,
    killSignal: 'SIGKILL',
  });
  let [output, errors] = ['', ''];
  child.stdout.on('data', (text) => (output += text));
  child.stderr.on('data', (text) => (errors += text));
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  if (code === 0) return { calls: (JSON.parse(output) as { failed: number }).failed, died: null };
  return { calls: 0, died: `${context}: ${signal ?? `exit ${code}`}\n${errors.slice(0, 2000)}` };
}

/** Runs all contexts in turn. `report` receives each death. */
export async function throwsCampaign(
  calls: number,
  callsAProcess: number,
  seconds: number,
  report: (death: string) => void,
): Promise<Record<Context, Counts>> {
  const counts = Object.fromEntries(
    contexts.map((context) => [context, { context, calls: 0, processes: 0, deaths: 0 }]),
  ) as Record<Context, Counts>;
  const parent = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..', 'build');
  mkdirSync(parent, { recursive: true });
  // inside the package, so that the program finds the addon
  const folder = mkdtempSync(path.join(parent, 'throws-'));
  const deadline = Date.now() + seconds * 1000;
  try {
    const program = await bundled(folder);
    for (
      let [failed, left] = [0, [...contexts]];
      failed < calls && left.length > 0 && Date.now() < deadline;
      left = left.filter((each) => counts[each].deaths < ENOUGH_DEATHS)
    ) {
      for (const context of left) {
        const { calls: more, died } = await runProcess(program, context, callsAProcess);
        const count = counts[context];
        count.processes++;
        count.calls += more;
        failed += more;
        if (died === null) continue;
        count.deaths++;
        report(died);
      }
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  return counts;
}
