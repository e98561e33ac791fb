/**
 * Replaces files atomically: a reader finds either the old file or the new one, complete, also
 * after a crash.
 */
import { constants, type Stats } from 'node:fs';
import {
  type FileHandle,
  lstat,
  open,
  readlink,
  realpath,
  rename,
  rm,
  stat,
} from 'node:fs/promises';
import { constants as system } from 'node:os';
import path from 'node:path';
import { loadAddon } from '../native/load.js';
import { describeKind } from './regular-file.js';
import { removeLeftovers, temporaryName } from './temporary-files.js';

/** The folder and name of a file, with links resolved. */
interface Target {
  readonly folder: string;
  readonly name: string;
  /** The existing file. */
  readonly before: Stats | null;
}

/** The last call for each absolute path, which the next one waits for. */
const queues = new Map<string, Promise<void>>();

/**
 * Writes a file under a temporary name in the same folder, flushes it, and renames it. Calls of one
 * process for one path run in order; among threads and processes the last rename wins. A symbolic
 * link is followed, as by `open`, and the file that it names is replaced. The mode of an existing
 * file is kept, and its owner if the system allows it. A failed call leaves nothing behind; the
 * next call for the same file removes the temporary file of a killed process.
 *
 * @throws the system's errors, the errors of `write`, and an Error if the path does not name a
 * regular file
 */
export function replaceFile(
  file: string,
  write: (file: FileHandle) => Promise<void>,
): Promise<void> {
  // Not normalized: the system resolves `..` after a link.
  const absolute = path.isAbsolute(file) ? file : `${process.cwd()}/${file}`;
  const key = path.resolve(file);
  const turn = (queues.get(key) ?? Promise.resolve()).then(() => replaceNow(absolute, write));
  const settled = turn.then(
    () => {},
    () => {},
  );
  queues.set(key, settled);
  void settled.then(() => {
    if (queues.get(key) === settled) queues.delete(key);
  });
  return turn;
}

async function replaceNow(
  absolute: string,
  write: (file: FileHandle) => Promise<void>,
): Promise<void> {
  const { folder, name, before } = await findTarget(absolute);
  await removeLeftovers(folder, name);
  const { file, temporary } = await createTemporary(folder, name, before === null ? 0o666 : 0o600);
  try {
    await write(file);
    if (before !== null) await keepAccess(file, before);
    await file.sync();
    await rename(temporary, `${folder}/${name}`);
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {});
    await file.close().catch(() => {});
    throw error;
  }
  await file.close(); // after the rename, because its lock marks the writer as alive until then
  await syncFolder(folder);
}

async function findTarget(absolute: string): Promise<Target> {
  if (absolute.endsWith('/')) throw new Error('the path names a folder, not a file');
  // stat follows links, so the system's rules for links of other users (protected_symlinks) apply.
  const before = await stat(absolute).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw error;
  });
  if (before !== null && !before.isFile())
    throw new Error(`it is ${describeKind(before)}, not a regular file`);
  let [folder, name] = [await realpath(path.dirname(absolute)), path.basename(absolute)];
  for (let links = 0; links < 40; links++) {
    const link = await readlink(`${folder}/${name}`).catch(() => null);
    if (link === null) return { folder, name, before };
    folder = await realpath(
      path.isAbsolute(link) ? path.dirname(link) : `${folder}/${path.dirname(link)}`,
    );
    name = path.basename(link);
  }
  throw new Error('too many symbolic links');
}

/** Creates a temporary file and locks it while this process writes it. */
async function createTemporary(
  folder: string,
  name: string,
  mode: number,
): Promise<{ file: FileHandle; temporary: string }> {
  for (let tries = 0; tries < 20; tries++) {
    const temporary = `${folder}/${temporaryName(name)}`;
    const file = await open(
      temporary,
      constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
      mode,
    );
    const taken = loadAddon().lockFile(file.fd) === system.errno.EWOULDBLOCK;
    const there = await lstat(temporary).catch(() => null);
    if (!taken && there !== null) return { file, temporary };
    // Another process, which removes leftovers, found the file before it was locked.
    await file.close();
    await rm(temporary, { force: true });
  }
  throw new Error('other processes take the lock of each temporary file');
}

/** Gives a file the owner, where the system allows it, and the mode of the one it replaces. */
async function keepAccess(file: FileHandle, { uid, gid, mode }: Stats): Promise<void> {
  const own = await file.stat();
  if (own.uid !== uid || own.gid !== gid) {
    await file
      .chown(uid, gid)
      .catch(() => file.chown(-1, gid))
      .catch(() => {});
  }
  const permissions = mode & 0o777;
  const sameGroup = (await file.stat()).gid === gid;
  // Another group gets the permissions of everyone.
  await file.chmod(sameGroup ? permissions : permissions & (0o707 | ((permissions & 0o7) << 3)));
}

/** Makes a rename survive a loss of power, if the file system can. */
async function syncFolder(folder: string): Promise<void> {
  const opened = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY).catch(() => null);
  if (opened === null) return;
  try {
    await opened.sync();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EIO') throw error;
  } finally {
    await opened.close();
  }
}
