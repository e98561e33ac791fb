/**
 * A save is atomic: the path always names a complete file, whoever else writes, and no other file
 * changes.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Worker } from 'node:worker_threads';
import {
  CheckpointError,
  full,
  loadSafetensors,
  ones,
  saveSafetensors,
  scope,
  tensor,
  zeros,
} from '../../lib/index.js';
import { programArguments } from '../run-program.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-save-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const at = (name: string): string => path.join(folder, name);
const refused = (message: RegExp) => (error: unknown) =>
  error instanceof CheckpointError && message.test(error.message);
const valueOf = async (file: string): Promise<unknown[]> => [
  ...new Set(((await loadSafetensors(file))['w']?.tolist() as number[]) ?? []),
];

describe('saving a checkpoint', () => {
  it('leaves the last file complete if saves to one path overlap', async () => {
    const file = at('m.safetensors');
    for (let trial = 0; trial < 5; trial++) {
      const saves = Array.from({ length: 4 }, (_, i) =>
        saveSafetensors(file, { w: full([1000 * (4 - i)], i) }, { chunkBytes: 512 }),
      );
      await Promise.all(saves);
      assert.deepEqual(await valueOf(file), [3]);
      assert.equal((await loadSafetensors(file))['w']?.numel(), 1000);
    }
    assert.deepEqual(readdirSync(folder), ['m.safetensors']);
  });

  it('continues with the next save to a path after one fails', async () => {
    const file = at('m.safetensors');
    const w = zeros([1000]);
    const first = saveSafetensors(file, { w }, { chunkBytes: 64 });
    const second = saveSafetensors(file, { w: ones([4]) });
    w.add_(1);
    await assert.rejects(first, CheckpointError);
    await second;
    assert.deepEqual(await valueOf(file), [1]);
  });

  it('refuses a tensor that changes during the save, and keeps the old file', async () => {
    const file = at('m.safetensors');
    await saveSafetensors(file, { w: ones([10]) });
    const before = readFileSync(file);
    const [w, other] = [zeros([1000]), zeros([1000])];
    const changed = refused(
      /tensor "w" was changed in place while it was being saved; await saveSafetensors before the next change, or save clones/,
    );
    for (const change of [
      () => w.add_(1),
      () => w.detach().mul_(2),
      () => w.narrow(0, 3, 1).fill_(7),
    ]) {
      const saving = saveSafetensors(file, { w, other }, { chunkBytes: 64 });
      setImmediate(change);
      await assert.rejects(saving, changed);
    }
    assert.deepEqual(readFileSync(file), before);
    assert.deepEqual(readdirSync(folder), ['m.safetensors']);
  });

  it('refuses a tensor that changes after it was written, while another is written', async () => {
    const [w, other] = [zeros([1]), zeros([5000])];
    const saving = saveSafetensors(at('m.safetensors'), { w, other }, { chunkBytes: 64 });
    setTimeout(() => w.add_(1), 2);
    await assert.rejects(saving, refused(/tensor "w" was changed in place/));
  });

  it('writes the values of the start of the save, even if a tensor is disposed of or gets other data', async () => {
    const [disposed, reset] = [full([100], 3), full([100], 4)];
    const saving = scope(() => ({
      promise: saveSafetensors(
        at('m.safetensors'),
        { disposed, reset, scoped: full([100], 5) },
        { chunkBytes: 64 },
      ),
    }));
    disposed.dispose();
    reset.data = zeros([7]);
    await saving.promise;
    const loaded = await loadSafetensors(at('m.safetensors'));
    assert.deepEqual(
      ['disposed', 'reset', 'scoped'].map((name) => loaded[name]?.tolist()),
      [3, 4, 5].map((value) => Array(100).fill(value)),
    );
  });

  it('never writes through a file or link of somebody else', async () => {
    const victim = at('victim');
    writeFileSync(victim, 'precious');
    const file = at('m.safetensors');
    for (const name of [`m.safetensors.${process.pid}.partial`, 'm.safetensors.partial'])
      symlinkSync(victim, at(name));
    await saveSafetensors(file, { w: ones([3]) });
    assert.equal(readFileSync(victim, 'utf8'), 'precious');
    assert.ok(lstatSync(file).isFile());
  });

  it('gives temporary files names that differ from save to save', async () => {
    const seen = new Set<string>();
    for (let i = 0; i < 5; i++) {
      const saving = saveSafetensors(at('m.safetensors'), { w: zeros([2000]) }, { chunkBytes: 64 });
      let own: string | undefined;
      while (own === undefined) {
        await new Promise(setImmediate);
        own = readdirSync(folder).find((name) => name.endsWith('.partial'));
      }
      assert.match(own, /^m\.safetensors\.[0-9a-f]{8}-[0-9a-f]{16}\.partial$/);
      seen.add(own);
      await saving;
    }
    assert.equal(seen.size, 5);
  });

  it('keeps the mode of the file that it replaces, and gives a new file the mode of the umask', async () => {
    const umask = process.umask(0o027);
    try {
      await saveSafetensors(at('new.safetensors'), { w: ones([3]) });
      assert.equal(statSync(at('new.safetensors')).mode & 0o777, 0o640);
      for (const mode of [0o600, 0o664, 0o400]) {
        chmodSync(at('new.safetensors'), mode);
        await saveSafetensors(at('new.safetensors'), { w: ones([3]) });
        assert.equal(statSync(at('new.safetensors')).mode & 0o777, mode);
      }
    } finally {
      process.umask(umask);
    }
  });

  it('replaces the file that a link names, and keeps the link', async () => {
    mkdirSync(at('disk'));
    symlinkSync('disk', at('folder'));
    symlinkSync('folder/../disk/real.safetensors', at('latest.safetensors'));
    symlinkSync(at('latest.safetensors'), at('again.safetensors'));
    for (const value of [1, 2]) {
      // the path may not exist yet
      await saveSafetensors(at('again.safetensors'), { w: full([3], value) });
      assert.deepEqual(await valueOf(at('disk/real.safetensors')), [value]);
    }
    assert.ok(
      lstatSync(at('latest.safetensors')).isSymbolicLink() &&
        lstatSync(at('again.safetensors')).isSymbolicLink(),
    );
    assert.deepEqual(readdirSync(at('disk')), ['real.safetensors']);
    symlinkSync('loop', at('loop'));
    await assert.rejects(saveSafetensors(at('loop'), { w: ones([3]) }), CheckpointError);
  });

  it('accepts names as long as the system does', async () => {
    const name = 'é'.repeat(127);
    await saveSafetensors(at(name), { w: ones([3]) });
    assert.deepEqual(readdirSync(folder), [name]);
    await assert.rejects(saveSafetensors(at('x'.repeat(256)), { w: ones([3]) }), CheckpointError);
  });

  it('refuses to replace a directory, socket or device', async () => {
    mkdirSync(at('taken'));
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(at('socket'), resolve));
    try {
      await assert.rejects(
        saveSafetensors(at('taken'), { w: ones([3]) }),
        refused(/it is a directory, not a regular file/),
      );
      await assert.rejects(
        saveSafetensors(at('socket'), { w: ones([3]) }),
        refused(/it is a socket, not a regular file/),
      );
      await assert.rejects(
        saveSafetensors('/dev/null', { w: ones([3]) }),
        refused(/it is a device, not a regular file/),
      );
      await assert.rejects(
        saveSafetensors(`${at('new')}/`, { w: ones([3]) }),
        refused(/names a folder/),
      );
    } finally {
      server.close();
    }
  });

  it('refuses a header that is too large for readers', async () => {
    await assert.rejects(
      saveSafetensors(
        at('m.safetensors'),
        { w: ones([3]) },
        { metadata: { notes: 'x'.repeat(100_000_000) } },
      ),
      refused(/more than 100000000/),
    );
    assert.deepEqual(readdirSync(folder), []);
  });
});

const writer = programArguments('checkpoint/writer');

/** A process that has written a part of a file of 20,000 times `value`, and writes no more. */
async function startWriter(file: string, value: number): Promise<ChildProcess> {
  const started = fork(writer.at(-1) as string, [file, value, 8, 1].map(String), {
    execArgv: writer.slice(0, -1),
  });
  await new Promise((resolve) => started.once('message', resolve));
  return started;
}

const partials = (): string[] => readdirSync(folder).filter((name) => name.endsWith('.partial'));

describe('saves of several writers', () => {
  it('leave a complete file of one of them, from worker threads', async () => {
    const file = at('m.safetensors');
    const workers = [1, 2, 3].map(
      (value) =>
        new Worker(writer.at(-1) as string, {
          workerData: [file, value, 4096, 10],
          execArgv: writer.slice(0, -1),
        }),
    );
    let running = workers.length;
    for (const worker of workers) worker.once('exit', () => running--);
    const failed = workers.map(
      (worker) =>
        new Promise<void>((resolve, reject) =>
          worker.once('error', reject).once('exit', () => resolve()),
        ),
    );
    for (let reads = 0; running > 0; ) {
      if (existsSync(file)) {
        const values = await valueOf(file);
        assert.equal(
          values.length,
          1,
          `read ${++reads} holds values of several writers: ${values}`,
        );
      }
      await new Promise(setImmediate);
    }
    await Promise.all(failed);
    assert.deepEqual(partials(), []);
  }).timeout(60_000);

  it('remove the files of a killed process, and none of a running one', async () => {
    const file = at('m.safetensors');
    const dead = await startWriter(file, 1);
    const [left] = partials();
    assert.ok(left !== undefined);
    await saveSafetensors(file, { w: ones([3]) });
    assert.deepEqual(partials(), [left]);
    dead.kill('SIGKILL');
    await new Promise((resolve) => dead.once('exit', resolve));
    await saveSafetensors(at('other.safetensors'), { w: ones([3]) });
    assert.deepEqual(partials(), [left]); // this belongs to another file
    await saveSafetensors(file, { w: ones([3]) });
    assert.deepEqual(partials(), []);
  }).timeout(60_000);

  it('remove the files of another machine only if they are old', async () => {
    const foreign = at('m.safetensors.00000000-0123456789abcdef.partial');
    writeFileSync(foreign, 'half');
    writeFileSync(at('m.safetensors.notes.partial'), 'not ours');
    await saveSafetensors(at('m.safetensors'), { w: ones([3]) });
    assert.ok(existsSync(foreign));
    const hours = Date.now() / 1000 - 2 * 3600;
    utimesSync(foreign, hours, hours);
    await saveSafetensors(at('m.safetensors'), { w: ones([3]) });
    assert.deepEqual(partials(), ['m.safetensors.notes.partial']);
  });

  it('keep the old file complete if one writer is killed', async () => {
    const file = at('m.safetensors');
    await saveSafetensors(file, { w: tensor([7]) });
    const killed = await startWriter(file, 1);
    assert.equal(partials().length, 1);
    killed.kill('SIGKILL');
    await new Promise((resolve) => killed.once('exit', resolve));
    assert.deepEqual(await valueOf(file), [7]);
  }).timeout(60_000);
});
