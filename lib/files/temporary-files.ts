/**
 * Names temporary files, and removes those whose writer was killed. A writer holds a lock on its
 * file, which the system releases when the process ends for any reason. So the file of a running
 * writer is never removed, even if it runs in another container.
 */
import { createHash, randomBytes } from 'node:crypto';
import { constants, readFileSync } from 'node:fs';
import { open, opendir, rm } from 'node:fs/promises';
import { loadAddon } from '../native/load.js';

/**
 * Locks of another machine may be invisible here. Its file counts as a leftover when it has not
 * changed for this time.
 */
const FOREIGN_MS = 3600_000;
const LONGEST_NAME = 255;
const suffix = /^([0-9a-f]{8})-[0-9a-f]{16}\.partial$/;
const SUFFIX_LENGTH = 33;

/** The id of this boot of the system, which all its containers share. */
const boot = bootName();

function bootName(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').slice(0, 8);
  } catch {
    return randomBytes(4).toString('hex');
  }
}

/** The prefix of the temporary names of a file. */
function prefixOf(name: string): string {
  const fits = Buffer.byteLength(name) + 1 + SUFFIX_LENGTH <= LONGEST_NAME;
  return `${fits ? name : createHash('sha256').update(name).digest('hex')}.`;
}

/** A temporary name that nobody can guess, for a file that will be renamed to `name`. */
export function temporaryName(name: string): string {
  return `${prefixOf(name)}${boot}-${randomBytes(8).toString('hex')}.partial`;
}

/**
 * Removes the temporary files of `name` whose writers have ended. Files that cannot be listed or
 * removed stay, which is harmless.
 */
export async function removeLeftovers(folder: string, name: string): Promise<void> {
  const prefix = prefixOf(name);
  try {
    for await (const entry of await opendir(folder, { bufferSize: 1024 })) {
      if (!entry.name.startsWith(prefix)) continue;
      const writer = suffix.exec(entry.name.slice(prefix.length))?.[1];
      if (writer !== undefined)
        await removeUnlocked(`${folder}/${entry.name}`, writer === boot ? 0 : FOREIGN_MS).catch(
          () => {},
        );
    }
  } catch {}
}

async function removeUnlocked(temporary: string, least: number): Promise<void> {
  const file = await open(
    temporary,
    constants.O_WRONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK,
  );
  try {
    const stats = await file.stat();
    if (!stats.isFile() || Date.now() - stats.mtimeMs < least) return;
    if (loadAddon().lockFile(file.fd) === 0) await rm(temporary);
  } finally {
    await file.close();
  }
}
