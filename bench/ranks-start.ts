/**
 * From `launch` until four ranks have done their first collective, as functions and as processes,
 * beside four processes of PyTorch that are started without torchrun. The folder of the bundled
 * package is the argument.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import getPort from 'get-port';
import { median, python, torchVersion } from './figures.js';
import { print } from './measure.js';

const dist = path.resolve(process.argv[2] ?? 'dist');
const entry = (name: string): string => pathToFileURL(path.join(dist, `${name}.js`)).href;
const { launch, allReduce } = (await import(
  entry('distributed')
)) as typeof import('../lib/distributed.js');
const { ones } = (await import(entry('index'))) as typeof import('../lib/index.js');

process.execArgv = []; // else the loader of TypeScript is timed with each rank
const RANKS = 4;
const REPEATS = 7;
const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-bench-'));
const program = path.join(folder, 'first-collective.mjs');
writeFileSync(
  program,
  `import { allReduce, initProcessGroup } from ${JSON.stringify(entry('distributed'))};
import { ones } from ${JSON.stringify(entry('index'))};
await initProcessGroup();
const t = ones([1024]);
allReduce(t);
await t.read();
process.stdout.write(String(performance.timeOrigin + performance.now()));
`,
);

/** The time that each rank prints when it is done; the end of the process does not count. */
async function processes(): Promise<number> {
  const write = process.stdout.write;
  let text = '';
  process.stdout.write = ((chunk: string) => {
    text += chunk;
    return true;
  }) as typeof write;
  const start = performance.timeOrigin + performance.now();
  try {
    await launch(RANKS, program);
  } finally {
    process.stdout.write = write;
  }
  const done = [...text.matchAll(/\] ([\d.]+)/g)].map((match) => Number(match[1]));
  return Math.max(...done) - start;
}

async function functions(): Promise<number> {
  const start = performance.now();
  const done = await launch(RANKS, async () => {
    const t = ones([1024]);
    allReduce(t);
    await t.read();
    return performance.now();
  });
  return Math.max(...done) - start;
}

async function peers(interpreter: string): Promise<number> {
  const peer = fileURLToPath(new URL('peer_ranks_start.py', import.meta.url));
  const env = {
    ...process.env,
    MASTER_ADDR: '127.0.0.1',
    MASTER_PORT: String(await getPort({ host: '127.0.0.1' })),
    WORLD_SIZE: String(RANKS),
  };
  const start = performance.timeOrigin + performance.now();
  const others = new AbortController(); // of a rank that fails
  const rank = (number: number): Promise<{ stdout: string }> =>
    promisify(execFile)(interpreter, [peer], {
      env: { ...env, RANK: String(number) },
      signal: others.signal,
    });
  const done = await Promise.all(
    Array.from({ length: RANKS }, (_, number) => rank(number)),
  ).finally(() => others.abort());
  // libraries print as well
  const last = Math.max(...done.map(({ stdout }) => Number(stdout.trim().split('\n').pop())));
  if (!Number.isFinite(last))
    throw new Error(
      `a rank of PyTorch said ${JSON.stringify(done.map(({ stdout }) => stdout))} in place of ` +
        'when it was done',
    );
  return last - start;
}

async function row(name: string, once: () => Promise<number>): Promise<void> {
  const times: number[] = [];
  for (let i = 0; i < REPEATS; i++) times.push(await once());
  print({ name, unit: 'ms', value: median(times) });
}

// The first of a program: what comes later finds code and streams ready.
print({
  name: `${RANKS} local ranks until their first collective, first launch`,
  unit: 'ms',
  value: await functions(),
});
await row(`${RANKS} local ranks until their first collective`, functions);
await row(`${RANKS} processes until their first collective`, processes);
const interpreter = python();
if (interpreter !== null)
  await row(`${RANKS} processes of PyTorch ${torchVersion()} until their first collective`, () =>
    peers(interpreter),
  );
rmSync(folder, { recursive: true });
