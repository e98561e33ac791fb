/**
 * Campaigns that attack from outside, each bounded in time: they print what they counted, and the
 * process ends with 1 if they found something.
 */
import { failingAllocations, stepKinds } from '../../test/fuzz/failing-allocations.js';
import { failingSavesCampaign } from '../../test/fuzz/failing-saves.js';
import { countsOf, faultsCampaign, isFault } from '../../test/fuzz/faults.js';
import {
  compareAnswers,
  fuzzBesidePeer,
  type PeerOptions,
  writePrograms,
} from '../../test/fuzz/peer/run.js';
import { storeCampaign } from '../../test/fuzz/store.js';
import { type Counts, throwsCampaign } from '../../test/fuzz/throws.js';

const THROWING_CALLS = 1e7;
const THROWING_CALLS_A_PROCESS = 250_000;

/**
 * Errors that are thrown while V8 collects garbage: test/fuzz/throws.ts. Against the addon as it is
 * built.
 */
export async function failCalls({ seconds }: { seconds: number }): Promise<void> {
  const counts = Object.values(
    await throwsCampaign(THROWING_CALLS, THROWING_CALLS_A_PROCESS, seconds, (death) =>
      console.error(`FOUND: ${death}`),
    ),
  );
  const sum = (count: (of: Counts) => number): number =>
    counts.reduce((total, each) => total + count(each), 0);
  console.log(
    `throws: ${sum((of) => of.calls)} calls failed in ${sum((of) => of.processes)} processes, of which ${sum((of) => of.deaths)} died`,
  );
  for (const { context, calls, processes, deaths } of counts)
    console.log(`  ${context}: ${calls} calls in ${processes} processes, ${deaths} died`);
  if (sum((of) => of.deaths) > 0) process.exitCode = 1;
}

/** Hostile clients of a store: test/fuzz/store.ts. */
export async function attackStore({
  seconds,
  seed,
}: {
  seconds: number;
  seed: number;
}): Promise<void> {
  console.log(`seed ${seed}`);
  const { attacks, rounds, slowestMs, serverBytes, findings } = await storeCampaign(seed, seconds);
  for (const [name, count] of Object.entries(attacks)) console.log(`  ${name}: ${count}`);
  console.log(
    `store: ${rounds} rounds of true ranks, the slowest ${slowestMs} ms; the server had ${serverBytes >> 20} MiB at most`,
  );
  for (const finding of findings) console.error(`FOUND: ${finding}`);
  if (findings.length > 0) process.exitCode = 1;
}

/** Signals for ranks: test/fuzz/faults.ts. */
export async function signalRanks({
  seconds,
  seed,
  trial,
}: {
  seconds: number;
  seed: number;
  trial?: number;
}): Promise<void> {
  console.log(`seed ${seed}`);
  const outcomes = await faultsCampaign(seed, seconds, trial ?? null, console.log);
  for (const line of countsOf(outcomes)) console.log(line);
  if (outcomes.length === 0 || outcomes.some(isFault)) process.exitCode = 1;
}

/** Failing calls of the system in each kind of save: test/fuzz/failing-saves.ts. */
export async function failSaves(): Promise<void> {
  await report('saves', async () => {
    for (const [kind, count] of await failingSavesCampaign())
      console.log(`  ${kind}: ${count} calls of the system failed`);
  });
}

/** Failing allocations in each kind of step: test/fuzz/failing-allocations.ts. */
export async function failAllocations(): Promise<void> {
  for (const kind of stepKinds)
    await report('memory', async () =>
      console.log(`  ${kind}: ${await failingAllocations(kind)} steps failed`),
    );
}

async function report(name: string, campaign: () => Promise<void>): Promise<void> {
  try {
    await campaign();
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: string };
    console.error(`FOUND by ${name}: ${stderr || message}`);
    process.exitCode = 1;
  }
}

/** Where the programs of {@link besidePeer} go, and where a peer's answers come from. */
export interface PeerFiles {
  write?: string;
  read?: string;
  answers?: string;
}

/**
 * Random programs beside PyTorch: test/fuzz/peer. With files the peer may run on another machine.
 */
export async function besidePeer(options: PeerOptions & PeerFiles): Promise<void> {
  const { write, read, answers, seed, programs = 1000, record } = options;
  if (write !== undefined) writePrograms(write, seed, programs);
  else if (
    (read !== undefined && answers !== undefined
      ? compareAnswers(read, answers, record)
      : await fuzzBesidePeer(options)) > 0
  )
    process.exitCode = 1;
}
