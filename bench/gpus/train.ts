/**
 * Trains a job on its ranks and prints a JSON object for each mode. The ranks are processes, a GPU
 * each. peer_train.py does the same in PyTorch.
 *
 *   node build/compiled/bench/gpus/train.js JOB    the job as JSON, see job.ts
 */
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  barrier,
  DTensor,
  destroyProcessGroup,
  getRank,
  initProcessGroup,
  launch,
} from '../../lib/distributed.js';
import { cuda, memory, optim, profiler, scope, type Tensor } from '../../lib/index.js';
import { median } from '../figures.js';
import { runProgram } from '../program.js';
import type { Job, Mode, Trained } from './job.js';
import { type Phases, PhaseTimer } from './phases.js';
import { training } from './sharded.js';

const GIB = 2 ** 30;
/** Steps in which the host runs ahead. */
const AHEAD = 4;
/** Steps whose phases are timed. */
const PHASED = 5;

class Trainer {
  private readonly losses: Tensor[] = [];
  private readonly phases = new PhaseTimer();
  private readonly step: () => Tensor;
  private readonly job: Job;

  constructor(job: Job, mode: Mode) {
    const { loss, parameters } = training(job, mode);
    this.job = job;
    const optimizer = new optim.AdamW(parameters, { lr: job.lr, fused: job.device === 'cuda' });
    const { phases } = this;
    const step = (): Tensor => {
      phases.mark();
      const value = mode.scopes ? scope(loss) : loss();
      phases.mark();
      value.backward();
      phases.mark();
      optimizer.step();
      optimizer.zeroGrad();
      phases.mark();
      return value.detach();
    };
    this.step = mode.scopes ? () => scope(step) : step;
  }

  private async settled(): Promise<void> {
    if (this.job.device === 'cuda') await cuda.synchronize();
    else await this.losses.at(-1)?.read();
  }

  /** Milliseconds of the host, and until the step is done. */
  async timed(): Promise<[host: number, wall: number]> {
    const start = performance.now();
    this.losses.push(this.step());
    const host = performance.now() - start;
    await this.settled();
    return [host, performance.now() - start];
  }

  /** Milliseconds of a step where the host waits for the last one only. */
  async ahead(): Promise<number> {
    const start = performance.now();
    for (let i = 0; i < AHEAD; i++) this.losses.push(this.step());
    await this.settled();
    return (performance.now() - start) / AHEAD;
  }

  /** Times the phases of more steps, by the GPU. */
  async timedPhases(): Promise<Phases> {
    this.phases.isOn = this.job.device === 'cuda';
    if (this.phases.isOn) for (let i = 0; i < PHASED; i++) await this.timed();
    this.phases.isOn = false;
    return this.phases.medians();
  }

  /**
   * Traces a step of rank 0: one with GPUs alone, whose host is as fast as ever, and one with the
   * host and its modules beside it, to look at. Returns the first.
   */
  async traced(name: string): Promise<string | null> {
    const { trace: folder, device } = this.job;
    if (folder === null) return null;
    const step = async (): Promise<void> => void (await this.timed());
    if (getRank() > 0) {
      for (let i = 0; i < 2; i++) await step();
      return null;
    }
    const file = path.join(folder, `ours-${this.job.name}-${name}`.replaceAll(' ', '-'));
    const gpus = await profiler.profile({ activities: [device] }, step);
    gpus.exportChromeTrace(`${file}.json`);
    const activities = device === 'cpu' ? (['cpu'] as const) : (['cpu', 'cuda'] as const);
    const all = await profiler.profile({ activities, withModules: true }, step);
    all.exportChromeTrace(`${file}-with-host.json`);
    return `${file}.json`;
  }

  async read(): Promise<number[]> {
    const plain = this.losses.map((each) => (each instanceof DTensor ? each.toLocal() : each));
    return Promise.all(plain.map(async (each) => Number(await each.itemAsync())));
  }
}

async function trained(job: Job, mode: Mode): Promise<Trained> {
  const begin = performance.now();
  const trainer = new Trainer(job, mode);
  const start = performance.now() - begin;
  const [, first] = await trainer.timed();
  for (let i = 1; i < job.warm; i++) await trainer.timed();
  await barrier();
  if (job.device === 'cuda') memory.resetPeak('cuda');
  const times: [number, number][] = [];
  for (let i = 0; i < job.steps; i++) times.push(await trainer.timed());
  const aheadMs = await trainer.ahead();
  const { peakAllocatedBytes, peakReservedBytes } = memory.stats(job.device);
  const stepMs = median(times.map(([, wall]) => wall));
  return {
    name: job.name,
    mode: mode.name,
    stepMs,
    aheadMs,
    hostMs: median(times.map(([host]) => host)),
    tokensPerSecond: (job.batch * job.model.context * 1e3) / stepMs / job.tensorRanks,
    peakGiB: peakAllocatedBytes / GIB,
    reservedGiB: peakReservedBytes / GIB,
    ...(await trainer.timedPhases()),
    trace: await trainer.traced(mode.name),
    losses: await trainer.read(),
    startSeconds: start / 1e3,
    firstStepSeconds: first / 1e3,
  };
}

/** Prints a line; figures have as many digits as they are good for. */
function print(line: object): void {
  const short = (_: string, value: unknown) =>
    typeof value === 'number' ? +value.toPrecision(6) : value;
  if (getRank() === 0) console.log(JSON.stringify(line, short));
}

await runProgram(async () => {
  const job = JSON.parse(process.argv[2] as string) as Job;
  if (process.env['RANK'] === undefined) {
    const file = fileURLToPath(import.meta.url);
    await launch(job.dataRanks * job.tensorRanks, file, {
      args: process.argv.slice(2),
      prefixOutput: false,
    });
    return;
  }
  await initProcessGroup();
  for (const mode of job.modes) print(await trained(job, mode));
  destroyProcessGroup();
});
