/**
 * Whole training steps on several GPUs beside PyTorch, or on one (`npm run bench:steps`): both
 * sides in turns on the same machine, with equal weights and batches. Prints each result when it is
 * there and a table in the end, and keeps all of it. A row that fails is reported, and the others
 * go on.
 *
 *   npm run bench:gpus -- [--rows a,b] [--rounds N] [--ranks N] [--seconds S]
 *     [--modes default,kept,kind,compile,layers] [--traces FOLDER]
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { Command } from 'commander';
import { cuda } from '../../lib/index.js';
import { commit, keep, store, today, torchVersion } from '../figures.js';
import { requireGpu, runProgram } from '../program.js';
import { type Communication, communicationIn } from './exposed.js';
import type { Job, Mode, Trained } from './job.js';
import { type Compared, ROWS, rowsOf } from './rows.js';
import { ours, type Program, run, theirs } from './side.js';
import { added, newReport, printedReport, type Report, type Side, type Timed } from './table.js';

interface Options {
  readonly rows: string[];
  readonly rounds: number;
  readonly ranks: number;
  readonly seconds: number;
  readonly modes?: string[];
  readonly traces?: string;
}

const list = (text: string): string[] => text.split(',');
const OF_SEVERAL = Object.keys(ROWS).filter((name) => !name.startsWith('one-'));

function options(): Options {
  return new Command('bench:gpus')
    .option('--rows <names>', `of ${Object.keys(ROWS).join(', ')}`, list, OF_SEVERAL)
    .option('--rounds <n>', 'how often each side runs', Number, 2)
    .option('--ranks <n>', 'a GPU each; all of the machine by default', Number)
    .option('--seconds <s>', 'limit of a run of one side', Number, 240)
    .option('--modes <names>', 'only these modes of both sides', list)
    .option('--traces <folder>', 'a trace of a step of each mode', (folder) => path.resolve(folder))
    .parse()
    .opts<Options>();
}

class Harness {
  readonly report: Report;
  private readonly given: Options;

  constructor(given: Options) {
    this.given = given;
    const machine = `${given.ranks}x ${cuda.getDeviceProperties().name}`;
    this.report = newReport({ machine, date: today(), commit: commit(), torch: torchVersion() });
  }

  async row(name: string): Promise<void> {
    const [[, row]] = rowsOf([name]) as [[string, (typeof ROWS)[string]]];
    const jobs = row(this.given.ranks);
    for (const each of jobs === 'product' ? [null] : jobs)
      for (let round = 1; round <= this.given.rounds; round++) {
        if (each === null) await this.product(name);
        else await this.both(each, round === this.given.rounds);
      }
  }

  private async both({ job, ours: own, torch }: Compared, isLast: boolean): Promise<void> {
    const wanted = (modes: readonly Mode[]) =>
      modes.filter(({ name }) => this.given.modes?.includes(name) ?? true);
    const text = (modes: readonly Mode[]): string => {
      const trace = isLast ? (this.given.traces ?? null) : null;
      return JSON.stringify({ ...job, modes, trace } satisfies Job);
    };
    // A process for each mode of ours, which start fast; one for all of PyTorch's.
    for (const mode of wanted(own))
      await this.run(job.name, 'ours', ours('gpus/train', text([mode])));
    if (wanted(torch).length === 0) return;
    const ranks = job.dataRanks * job.tensorRanks;
    await this.run(job.name, 'torch', theirs(ranks, 'gpus/peer_train', text(wanted(torch))));
  }

  private async product(row: string): Promise<void> {
    const ranks = String(this.given.ranks);
    await this.run(row, 'ours', ours('overlap', ranks, 'product'));
    await this.run(row, 'torch', theirs(this.given.ranks, 'peer_overlap', 'product'));
  }

  private async run(row: string, side: Side, program: Program): Promise<void> {
    const begin = performance.now();
    const failure = await run(program, this.given.seconds, (line) => {
      const whole = { ...line, ...communication(line as Partial<Trained>) } as Trained | Timed;
      console.log(side, JSON.stringify(whole));
      added(this.report, row, side, whole);
      this.keep();
    });
    const seconds = ((performance.now() - begin) / 1e3).toFixed(1);
    console.log(`${row}, ${side}: ${seconds} s${failure === null ? '' : `, FAILED: ${failure}`}`);
    if (failure !== null) added(this.report, row, side, { name: row, mode: '', error: failure });
    if (this.given.traces !== undefined) compress(this.given.traces);
    this.keep();
  }

  /** Keeps what is there, also if this process is ended. */
  private keep(): void {
    store(this.report.machine, 'training', this.report);
  }
}

/** What the trace of a step says. */
const communication = ({ trace = null }: Partial<Trained>): Partial<Communication> =>
  trace === null ? {} : communicationIn(trace);

/** Compresses the traces that a program has written. */
function compress(folder: string): void {
  for (const name of readdirSync(folder).filter((each) => each.endsWith('.json'))) {
    const file = path.join(folder, name);
    writeFileSync(`${file}.gz`, gzipSync(readFileSync(file)));
    rmSync(file);
  }
}

await runProgram(async () => {
  requireGpu();
  const given = options();
  const ranks = given.ranks ?? cuda.deviceCount();
  rowsOf(given.rows);
  if (given.traces !== undefined) mkdirSync(given.traces, { recursive: true });
  const harness = new Harness({ ...given, ranks });
  for (const name of given.rows) await harness.row(name);
  console.log(printedReport(harness.report));
  keep(harness.report.machine, 'training', harness.report);
});
