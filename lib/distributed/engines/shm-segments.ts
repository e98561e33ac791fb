/**
 * Names of the memory that the processes of a group share. A name goes when all have joined; where
 * a process is killed before, it would stay with its memory. So names say who makes them: the
 * launcher takes away those of its ranks, and every run those of the dead.
 */
import { readdirSync, statSync, unlinkSync } from 'node:fs';
import path from 'node:path';

const FOLDER = '/dev/shm';
const PREFIX = 'shardwise';

/** Numbers of processes mean something among those that see each other. */
function pidNamespace(): number {
  try {
    return statSync('/proc/self/ns/pid').ino;
  } catch {
    return 0;
  }
}

/** @param creator - the process of the group's first rank */
export function segmentName(creator: number, run: string, group: string): string {
  return `${PREFIX}-${pidNamespace()}-${creator}-${run}-${group}`;
}

/** What these processes have left: of a launcher, when they have ended. */
export function removeSegmentsOf(pids: readonly number[]): void {
  removeSegments((creator) => pids.includes(creator));
}

/** What processes have left that were killed while their groups began. */
export function removeStaleSegments(): void {
  removeSegments((creator) => !isRunning(creator));
}

function removeSegments(leftBehind: (creator: number) => boolean): void {
  const own = pidNamespace();
  for (const name of segments()) {
    const [, namespace, creator] = new RegExp(`^${PREFIX}-(\\d+)-(\\d+)-`).exec(name) ?? [];
    if (Number(namespace) !== own || !leftBehind(Number(creator))) continue;
    try {
      unlinkSync(path.join(FOLDER, name));
    } catch {
      // gone already, or another user's
    }
  }
}

function segments(): string[] {
  try {
    return readdirSync(FOLDER);
  } catch {
    return [];
  }
}

/** Of a process of this machine. @internal */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}
