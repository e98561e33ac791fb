/**
 * Names of temporary files, and the removal of those whose writer was killed. A writer holds the
 * lock of its file, which the system gives back at its end, whatever that is: so no file of a live
 * writer is taken for a leftover, in whichever container it runs.
 */
import { createHash, randomBytes } from 'node:crypto';
import { constants, readFileSync } from 'node:fs';
import { open, opendir, rm } from 'node:fs/promises';
import { loadAddon } from '../native/load.js';

/**
 * Locks of another machine may not be seen here: what it writes counts as left behind when it was
 * not changed for so long.
 */
const FOREIGN_MS = 3600_000;
const LONGEST_NAME = 255;
const suffix = /^([0-9a-f]{8})-[0-9a-f]{16}\.partial$/;
const SUFFIX_LENGTH = 33;

/** Names the running system, which all its containers share: after a reboot it is another. */
const boot = bootName();

function bootName(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').slice(0, 8);
  } catch {
    return randomBytes(4).toString('hex');
  }
}

/** What temporary names of a file begin with. */
function prefixOf(name: string): string {
  const fits = Buffer.byteLength(name) + 1 + SUFFIX_LENGTH <= LONGEST_NAME;
  return `${fits ? name : createHash('sha256').update(name).digest('hex')}.`;
}

/** A name that nobody can guess, for what becomes the file `name` of the same folder. */
export function temporaryName(name: string): string {
  return `${prefixOf(name)}${boot}-${randomBytes(8).toString('hex')}.partial`;
}

/**
 * Removes temporary files of the file `name` whose writers have ended. What cannot be listed or
 * removed stays: it harms nobody.
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
