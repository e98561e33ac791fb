/**
 * The default secret of a store on 127.0.0.1. The server writes a random secret into a file that
 * only its user can read, and clients of the same user find it there, so other users of the machine
 * are refused.
 *
 * The file name ends in random digits and the owner is checked, so nobody can replace the file. It
 * is written after the server has the port and before it greets a client: every greeted client
 * finds it, and the newest file wins over one that an earlier run left.
 */
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { StoreError } from '../../core/errors.js';

const { O_CREAT, O_EXCL, O_NOFOLLOW = 0, O_NONBLOCK = 0, O_RDONLY, O_WRONLY } = fs.constants;
const MOST_BYTES = 256;
const published = new Set<string>();

/** A secret that the user's other processes find until it is withdrawn. */
export interface OwnSecret {
  readonly secret: string;
  withdraw(): void;
}

/**
 * Publishes a new secret for the server on the port. Null if no folder takes the file: then the
 * store is open to all users of the machine.
 */
export function publishSecret(port: number): OwnSecret | null {
  const name = prefixOf(port);
  if (name === null) return null;
  const secret = randomBytes(16).toString('hex');
  for (const folder of folders()) {
    const file = path.join(folder, `${name}${randomBytes(8).toString('hex')}`);
    try {
      removeLeft(folder);
      writeNew(file, `${process.pid} ${namespaceOf('pid')} ${secret}`);
    } catch {
      continue;
    }
    if (published.size === 0) process.on('exit', withdrawAll);
    published.add(file);
    return { secret, withdraw: () => withdraw(file) };
  }
  return null;
}

/**
 * Finds the secret of the server on the port, for a client that was greeted. Empty if no folder
 * could take the file.
 *
 * @throws StoreError if no secret was published for this user although a folder could take it
 */
export function findSecret(port: number): string {
  const prefix = prefixOf(port);
  if (prefix === null) return '';
  const found = folders()
    .flatMap((folder) => filesOf(folder, prefix))
    .sort((a, b) => b.writtenAt - a.writtenAt)[0];
  if (found !== undefined) return found.text.split(' ')[2] ?? '';
  if (!folders().some(isWritable)) return '';
  throw new StoreError(
    `TCPStore: found no secret of this user for the store on port ${port} of this machine. ` +
      'Another user or another container runs the store, or it was given a secret. Set the same ' +
      'SHARDWISE_STORE_SECRET for all processes, or pass { secret }; if another run uses the ' +
      'port, choose a different one.',
    { port },
  );
}

/**
 * Prefix of the file names of this user's stores, on one port or on all (null). Null where the
 * system has no user ids.
 */
function prefixOf(port: number | null): string | null {
  const user = process.getuid?.();
  if (user === undefined) return null;
  return `shardwise-store-${user}-${port === null ? '' : `${namespaceOf('net')}-${port}-`}`;
}

/** Containers may share a folder but not ports or process ids, so both are kept apart. */
function namespaceOf(kind: 'net' | 'pid'): string {
  try {
    return /\d+/.exec(fs.readlinkSync(`/proc/self/ns/${kind}`))?.[0] ?? '0';
  } catch {
    return '0';
  }
}

/**
 * Candidate folders. The server uses the first that takes the file. Processes of one run may have
 * different environments, so clients look into all of them.
 */
function folders(): string[] {
  const given = [
    process.env['XDG_RUNTIME_DIR'],
    `/run/user/${process.getuid?.()}`,
    tmpdir(),
    '/tmp',
  ];
  return [...new Set(given)].filter(
    (folder): folder is string => folder !== undefined && path.isAbsolute(folder),
  );
}

function isWritable(folder: string): boolean {
  try {
    fs.accessSync(folder, fs.constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

function writeNew(file: string, text: string): void {
  const descriptor = fs.openSync(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    fs.writeSync(descriptor, text);
  } catch (error) {
    fs.unlinkSync(file);
    throw error;
  } finally {
    fs.closeSync(descriptor);
  }
}

interface SecretFile {
  readonly file: string;
  readonly text: string;
  readonly writtenAt: number;
}

function filesOf(folder: string, prefix: string): SecretFile[] {
  try {
    return fs
      .readdirSync(folder)
      .flatMap((name) => (name.startsWith(prefix) ? (readOwn(path.join(folder, name)) ?? []) : []));
  } catch {
    return [];
  }
}

/** Null unless this user owns the file and nobody else could have written it. */
function readOwn(file: string): SecretFile | null {
  let descriptor: number | null = null;
  try {
    descriptor = fs.openSync(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    const { uid, mode, mtimeMs } = fs.fstatSync(descriptor);
    if (
      (mode & fs.constants.S_IFMT) !== fs.constants.S_IFREG ||
      uid !== process.getuid?.() ||
      (mode & 0o077) !== 0
    )
      return null;
    const text = Buffer.alloc(MOST_BYTES);
    return {
      file,
      text: text.toString('utf8', 0, fs.readSync(descriptor, text)),
      writtenAt: mtimeMs,
    };
  } catch {
    return null;
  } finally {
    if (descriptor !== null) fs.closeSync(descriptor);
  }
}

/** Removes the files of processes that were killed. */
function removeLeft(folder: string): void {
  const own = namespaceOf('pid');
  for (const { file, text } of filesOf(folder, prefixOf(null) as string)) {
    const [pid, namespace] = text.split(' ');
    if (namespace === own && hasEnded(Number(pid))) fs.rmSync(file, { force: true });
  }
}

function hasEnded(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
}

function withdraw(file: string): void {
  if (!published.delete(file)) return;
  fs.rmSync(file, { force: true });
  if (published.size === 0) process.off('exit', withdrawAll);
}

function withdrawAll(): void {
  for (const file of published) withdraw(file);
}
