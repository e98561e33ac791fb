/**
 * The ranks of bench/checkpoint.ts: `save <folder>` trains 124 million parameters with AdamW and saves
 * them, `load <folder>` loads them. Rank 0 writes what it measured to `<folder>/<form>.json`.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import {
  barrier,
  type CheckpointState,
  distributedCheckpoint,
  fullyShard,
  getRank,
  initProcessGroup,
} from '../lib/distributed.js';
import { nn, optim, randn } from '../lib/index.js';
import { median } from './figures.js';

const [form, folder] = process.argv.slice(2) as ['save' | 'load', string];
const LAYERS = 21;
const WIDTH = 2432; // 21 layers of 5.9 million parameters are those of GPT-2 with 124 million
const ROWS = 64;

await initProcessGroup();
const layers = Array.from({ length: LAYERS }, () => fullyShard(new nn.Linear(WIDTH, WIDTH)));
const model = fullyShard(new nn.Sequential(...layers));
const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-4 });
const state = { model, optimizer, step: 0 } as unknown as CheckpointState;

async function step(): Promise<void> {
  const loss = model(randn([ROWS, WIDTH]))
    .square()
    .mean();
  loss.backward();
  optimizer.step();
  optimizer.zeroGrad();
  await loss.read();
  await barrier();
}

async function millisecondsOf(work: () => Promise<unknown>): Promise<number> {
  await barrier();
  const start = performance.now();
  await work();
  return performance.now() - start;
}

const results: Record<string, number> = {};
if (form === 'save') {
  await step();
  const steps = [];
  for (let i = 0; i < 3; i++) steps.push(await millisecondsOf(step));
  results['stepMs'] = median(steps);
  for (const name of ['saveFirstMs', 'saveMs'])
    results[name] = await millisecondsOf(() => distributedCheckpoint.save(folder, state));
  for (const name of ['First', '']) {
    const start = performance.now();
    const saving = await distributedCheckpoint.save(folder, state, { async: true });
    results[`async${name}StallMs`] = performance.now() - start;
    results[`async${name}StepMs`] = await millisecondsOf(step);
    await saving.wait();
    results[`async${name}CompleteMs`] = performance.now() - start;
  }
} else {
  results['loadMs'] = await millisecondsOf(async () => {
    const { bytes, bytesRead } = await distributedCheckpoint.load(folder, state);
    Object.assign(results, { bytes, bytesRead });
  });
  results['loadCachedMs'] = await millisecondsOf(() => distributedCheckpoint.load(folder, state));
  results['loadCachedUnverifiedMs'] = await millisecondsOf(() =>
    distributedCheckpoint.load(folder, state, { verify: false }),
  );
}
if (getRank() === 0) writeFileSync(path.join(folder, `${form}.json`), JSON.stringify(results));
