/**
 * Finds shared memory that ranks of this test have leaked; other programs of the machine have
 * their own.
 */
import type { ChildProcess } from 'node:child_process';
import { subscribe } from 'node:diagnostics_channel';
import { readdirSync } from 'node:fs';

const started: ChildProcess[] = [];
subscribe(
  'child_process',
  (message) => void started.push((message as { process: ChildProcess }).process),
);

/**
 * Names of the memory that processes of this one have made and that is still there.
 *
 * @param others - numbers of processes that this one has not started itself
 */
export function leakedSegments(others: readonly number[] = []): string[] {
  const makers = new Set([...started.map(({ pid }) => pid), ...others]);
  return readdirSync('/dev/shm').filter((name) =>
    makers.has(Number(/^shardwise-\d+-(\d+)-/.exec(name)?.[1])),
  );
}
