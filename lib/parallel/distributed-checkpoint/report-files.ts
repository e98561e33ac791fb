/** Reports between the ranks of a save, by files of a folder that all of them see. */
import { readFile, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { CheckpointError, saveText } from '../../index.js';

/** What one rank sends to the others: a value, or why it has none. */
export interface Outcome<T> {
  readonly value?: T;
  readonly failure?: string;
  readonly details?: Record<string, unknown>;
}

/** The files by which ranks report to each other; no other save has had them. */
export interface ReportFiles {
  readonly ofRank: (rank: number) => string;
  /** Whether the save is complete, by rank 0. */
  readonly verdict: string;
}

const POLL_MS = 20;
/** A rank that has ended without a report is found by training; this ends the wait in any case. */
const LONGEST_WAIT_MS = 1_800_000;
/** On a full disk, for other ranks to remove what they could not complete. */
const WAIT_FOR_SPACE_MS = 1000;

/**
 * Writes a report. Where the disk stays full it leaves an empty file, which needs no space: without
 * one, others would wait. @throws CheckpointError if the folder takes not even that
 */
export async function writeReport(file: string, outcome: Outcome<unknown>): Promise<void> {
  const text = JSON.stringify(outcome);
  for (const start = performance.now(); ; await sleep(POLL_MS))
    try {
      return await saveText(file, text);
    } catch (error) {
      if (performance.now() - start < WAIT_FOR_SPACE_MS) continue;
      return await writeFile(file, '').catch(() => Promise.reject(error));
    }
}

/** Waits for the report of a rank. @throws CheckpointError if it does not come */
export async function readReport<T extends Outcome<unknown>>(
  op: string,
  file: string,
  rank: number,
): Promise<T | Unwritten> {
  const start = performance.now();
  for (let pause = POLL_MS; ; pause = Math.min(2 * pause, 10 * POLL_MS)) {
    try {
      const text = await readFile(file, 'utf8');
      return text === '' ? unwritten(file, rank) : (JSON.parse(text) as T);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
    const waited = performance.now() - start;
    if (waited > LONGEST_WAIT_MS)
      throw new CheckpointError(
        `${op}: rank ${rank} has not reported within ${LONGEST_WAIT_MS} ms, by ${file}`,
        { op, rank, file },
      );
    await sleep(pause);
  }
}

interface Unwritten extends Outcome<never> {
  readonly rank: number;
}

const unwritten = (file: string, rank: number): Unwritten => ({
  failure: `${file}: this report could not be written; the disk of its rank may be full (ENOSPC)`,
  details: { file },
  rank,
});
