/** Compares random programs with PyTorch: `npm run fuzz -- --peer torch`. */
import { readFileSync, writeFileSync } from 'node:fs';
import { describeError, Rng } from '../rng.js';
import { acceptedHere, difference } from './compare.js';
import { drawProgram } from './draw.js';
import { TorchPeer } from './peer.js';
import type { Answer, Program, Step } from './program.js';
import { runHere, shrink } from './shrink.js';

export interface PeerOptions {
  readonly seconds: number;
  readonly seed: number;
  readonly python: string;
  /** Run only this program. */
  readonly case?: number;
  /** Number of programs, instead of a time. */
  readonly programs?: number;
  /** File for programs with equal answers, and the answers. */
  readonly record?: string;
}

/** A program with the peer's answer; one line of a file. */
export interface Recorded {
  readonly program: Program;
  readonly answer: Answer;
}

interface Counts {
  programs: number;
  steps: number;
  refused: number;
  differ: number;
  /** Programs that crashed the peer. */
  crashed: number;
  /**
   * Programs with a step that only the peer refuses, by the step: see
   * docs/differences-from-pytorch.md.
   */
  readonly accepted: Map<string, number>;
}

const noCounts = (): Counts => ({
  programs: 0,
  steps: 0,
  refused: 0,
  differ: 0,
  crashed: 0,
  accepted: new Map(),
});

/** The comparison of two answers; `accepted` if only the peer refused a step. */
type Verdict =
  | { readonly kind: 'alike' | 'accepted' }
  | { readonly kind: 'differs'; readonly words: string };

/** Runs programs until the time is over. Returns how many differed. */
export async function fuzzBesidePeer(options: PeerOptions): Promise<number> {
  const peer = await TorchPeer.start(options.python);
  console.log(`beside ${peer.name}, seed ${options.seed}`);
  if (peer.name.startsWith('torch 1.'))
    console.log('differences from PyTorch 2, whose semantics these are, count as well');
  const counts = noCounts();
  const alike: Recorded[] = [];
  const deadline = Date.now() + options.seconds * 1000;
  const most = options.case === undefined ? options.programs : 1;
  try {
    while (most === undefined ? Date.now() < deadline : counts.programs + counts.crashed < most) {
      const index = (options.case ?? 0) + counts.programs + counts.crashed;
      const drawn = drawProgram(new Rng(options.seed, index), index);
      const answer = await peer.run(drawn.program);
      if (answer === null) {
        counts.crashed++;
        continue;
      }
      const verdict = count(
        drawn.program,
        drawn.error === undefined ? drawn.machine.answer() : describeError(drawn.error),
        answer,
        counts,
      );
      if (verdict.kind === 'alike') alike.push({ program: drawn.program, answer });
      if (verdict.kind === 'differs')
        console.error(
          `DIFFERS, case ${index}: ${verdict.words}\n${await shrink(drawn.program, peer)}`,
        );
    }
  } finally {
    peer.stop();
  }
  if (options.record !== undefined) writeFileSync(options.record, asLines(alike));
  return summary(counts);
}

/**
 * Draws programs into a file, for a peer on another machine: `python3
 * test/fuzz/peer/torch_machine.py < programs > answers`.
 */
export function writePrograms(file: string, seed: number, programs: number): void {
  writeFileSync(
    file,
    asLines(
      Array.from(
        { length: programs },
        (_, index) => drawProgram(new Rng(seed, index), index).program,
      ),
    ),
  );
}

/**
 * Compares with the answers of a peer on another machine to the programs of a file, and records
 * equal ones.
 */
export function compareAnswers(programs: string, answers: string, record?: string): number {
  const [peer, ...lines] = linesOf(answers) as [{ peer: string }, ...(Answer | null)[]];
  console.log(`beside ${peer.peer}`);
  const counts = noCounts();
  const alike: Recorded[] = [];
  for (const [i, program] of (linesOf(programs) as Program[]).entries()) {
    const answer = lines[i] ?? null;
    if (answer === null) {
      counts.crashed++;
      continue;
    }
    const verdict = count(program, runHere(program), answer, counts);
    if (verdict.kind === 'alike') alike.push({ program, answer });
    if (verdict.kind === 'differs')
      console.error(
        `DIFFERS, program ${i}: ` +
          `${verdict.words}\n${program.steps.map((step, k) => `  ${k}: ${JSON.stringify(step)}`).join('\n')}`,
      );
  }
  if (record !== undefined) writeFileSync(record, asLines(alike));
  return summary(counts);
}

function count(program: Program, ours: Answer | string, answer: Answer, counts: Counts): Verdict {
  counts.programs++;
  counts.steps += program.steps.length;
  counts.refused += answer.refused.length;
  const accepted = typeof ours === 'string' ? null : acceptedHere(ours, answer);
  if (accepted !== null) {
    const step = program.steps[accepted] as Step;
    const label = step.do === 'call' ? step.name : step.do;
    counts.accepted.set(label, (counts.accepted.get(label) ?? 0) + 1);
    return { kind: 'accepted' };
  }
  const words = typeof ours === 'string' ? ours : difference(ours, answer);
  if (words === null) return { kind: 'alike' };
  counts.differ++;
  return { kind: 'differs', words };
}

function summary({ programs, steps, refused, differ, crashed, accepted }: Counts): number {
  console.log(
    `${programs} programs of ${steps} steps, of which ${refused} are refused by the peer; ` +
      `${differ} differ, ${crashed} crash the peer`,
  );
  const sorted = [...accepted].sort(([, a], [, b]) => b - a);
  if (sorted.length > 0)
    console.log(
      'accepted here and refused by the peer: ' +
        `${sorted.map(([label, times]) => `${label} ${times}`).join(', ')}`,
    );
  return differ;
}

const asLines = (list: readonly object[]): string =>
  list.map((each) => `${JSON.stringify(each)}\n`).join('');

/** The lines of a file, from JSON. */
export function linesOf(file: string): unknown[] {
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
}
