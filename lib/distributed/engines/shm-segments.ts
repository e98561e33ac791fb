/**
 * Names of shared-memory segments. A segment is unlinked when all ranks of its group have joined;
 * if a process is killed before, it would leak. So the name contains the process that creates it:
 * the launcher removes the segments of its ranks, and each run those of processes that have ended.
 */
import { readdirSync, statSync, unlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** `shared_folder` of native/platform. */
const FOLDER = { linux: '/dev/shm', darwin: '/tmp' }[process.platform as string] ?? tmpdir();
const PREFIX = 'shardwise';

/** Process ids are unique only within a pid namespace, so names contain it. */
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

/** Removes the segments of these processes; a launcher calls it when its ranks have ended. */
export function removeSegmentsOf(pids: readonly number[]): void {
  removeSegments((creator) => pids.includes(creator));
}

/** Removes the segments of processes that were killed while their groups started. */
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
      // Already removed, or owned by another user.
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

/** Whether a process of this machine is running. @internal */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}
