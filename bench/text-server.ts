/**
 * The delay of the event loop of an HTTP server that generates text on the CPU, with a model of 34
 * million parameters: beside no request, beside one, and beside two at once. Prints one JSON object.
 * The client is a process of its own.
 *
 *   node build/compiled/bench/text-server.js [seconds]
 */
import { spawn } from 'node:child_process';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { monitorEventLoopDelay, performance, type RecordableHistogram } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Gpt, type GptConfig } from '../examples/gpt/model.js';
import {
  int64,
  manualSeed,
  multinomial,
  noGrad,
  scope,
  type Tensor,
  tensor,
} from '../lib/index.js';
import { runProgram } from './program.js';

const config: GptConfig = {
  vocabSize: 2048,
  contextLength: 128,
  numLayers: 10,
  numHeads: 8,
  dModel: 512,
};
const PROMPT = 32;
const TOKENS = 32;
/** Finer than the delays to be measured; a delay of the histogram includes it. */
const RESOLUTION_MS = 1;

/** Draws one token after those of the row. */
function next(model: Gpt, ids: readonly number[]): Tensor {
  return noGrad(() =>
    scope(() => {
      const logits = model(tensor([ids], { dtype: int64 })).select(1, ids.length - 1);
      return multinomial(logits.softmax(-1), 1);
    }),
  );
}

/** Answers each request with the tokens of a row, as they are drawn. */
async function answer(model: Gpt, response: ServerResponse, counts: Counts): Promise<void> {
  const ids = Array.from({ length: PROMPT }, (_, i) => (i * 37) % config.vocabSize);
  for (let i = 0; i < TOKENS; i++) {
    const start = performance.now();
    const drawn = next(model, ids);
    counts.inCalls += performance.now() - start;
    ids.push(await drawn.itemAsync());
    drawn.dispose();
    counts.tokens++;
    response.write(`${ids.at(-1)}\n`);
  }
  response.end();
}

interface Counts {
  tokens: number;
  /** Milliseconds that JavaScript spent in calls of the model. */
  inCalls: number;
}

interface Delay extends Counts {
  clients: number;
  p50Ms: number;
  p99Ms: number;
  p999Ms: number;
  maxMs: number;
}

const milliseconds = (
  histogram: Pick<RecordableHistogram, 'percentile'>,
  percent: number,
): number => histogram.percentile(percent) / 1e6;

/** Keeps so many requests running for a while, and measures the delays meanwhile. */
async function measured(
  clients: number,
  seconds: number,
  port: number,
  counts: Counts,
): Promise<Delay> {
  const file = fileURLToPath(import.meta.url);
  const args = [...process.execArgv, file, 'client', String(port)];
  const running = Array.from({ length: clients }, () =>
    spawn(process.execPath, args, { stdio: 'inherit' }),
  );
  await sleep(clients > 0 ? 3000 : 500); // start of the clients, first tokens
  Object.assign(counts, { tokens: 0, inCalls: 0 });
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  histogram.enable();
  await sleep(seconds * 1000);
  histogram.disable();
  const delay = {
    clients,
    p50Ms: milliseconds(histogram, 50),
    p99Ms: milliseconds(histogram, 99),
    p999Ms: milliseconds(histogram, 99.9),
    maxMs: histogram.max / 1e6,
    ...counts,
  };
  for (const client of running) client.kill();
  await sleep(1000); // the requests in flight
  return delay;
}

async function serve(seconds: number): Promise<void> {
  manualSeed(0);
  const model = new Gpt(config);
  model.eval();
  const parameters = [...model.parameters()].reduce((sum, p) => sum + p.numel(), 0);
  const counts: Counts = { tokens: 0, inCalls: 0 };
  const server = createServer((_: IncomingMessage, response) => {
    void answer(model, response, counts);
  });
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  const { port } = server.address() as AddressInfo;
  const delays: Delay[] = [];
  for (const clients of [0, 1, 0, 2, 0])
    delays.push(await measured(clients, seconds, port, counts));
  server.close();
  const rounded = delays.map((delay) =>
    Object.fromEntries(Object.entries(delay).map(([name, v]) => [name, +v.toPrecision(4)])),
  );
  console.log(JSON.stringify({ parameters, seconds, resolutionMs: RESOLUTION_MS, rows: rounded }));
}

/** Asks for one text after another. */
async function ask(port: string): Promise<void> {
  for (;;) await (await fetch(`http://127.0.0.1:${port}/`)).text();
}

await runProgram(() =>
  process.argv[2] === 'client'
    ? ask(process.argv[3] as string)
    : serve(Number(process.argv[2] ?? 10)),
);
