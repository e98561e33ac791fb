/** A full disk is an error of all ranks that names the file, and the last checkpoint stays. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { distributedCheckpoint, launch } from '../../../../lib/distributed.js';
import { CheckpointError, full, zeros } from '../../../../lib/index.js';
import { skipBecause } from '../../../skip.js';

const MIB = 2 ** 20;
let folder: string;
let isMounted = false;

describe('a disk that is full', () => {
  before(function () {
    folder = mkdtempSync(path.join(tmpdir(), 'shardwise-full-'));
    try {
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=3m', 'tmpfs', folder], { stdio: 'ignore' });
      isMounted = true;
    } catch {
      skipBecause(this, 'only root can mount a small file system');
    }
  });
  after(() => {
    if (isMounted) execFileSync('umount', [folder]);
    rmSync(folder, { recursive: true, force: true });
  });

  for (const isAsync of [false, true])
    it(`is an error of all ranks, and the last checkpoint stays (async: ${isAsync})`, async () => {
      const save = async (state: { t: ReturnType<typeof zeros> }): Promise<void> => {
        if (isAsync)
          await (await distributedCheckpoint.save(folder, state, { async: true })).wait();
        else await distributedCheckpoint.save(folder, state);
      };
      await launch(2, () => save({ t: full([1000], 5) }));
      const before = readdirSync(folder).sort();
      const messages = await launch(2, () =>
        save({ t: zeros([2 * MIB]) }).then(
          () => 'saved',
          (error: Error) => (error instanceof CheckpointError ? error.message : String(error)),
        ),
      );
      assert.match(
        messages[0] as string,
        /rank \d: .*generation-\d+-rank-\d.*(ENOSPC|no more bytes)/,
      );
      assert.equal(new Set(messages).size, 1, messages.join('\n'));
      assert.deepEqual(readdirSync(folder).sort(), before);
      const state = { t: zeros([1000]) };
      await distributedCheckpoint.load(folder, state);
      assert.equal(state.t.sum().item(), 5000);
    });

  it('without a byte left is an error of all ranks', async () => {
    const save = async (): Promise<void> =>
      (await distributedCheckpoint.save(folder, { t: zeros([1000]) }, { async: true })).wait();
    assert.throws(() => {
      for (;;) appendFileSync(path.join(folder, 'other'), Buffer.alloc(4096));
    }, /ENOSPC/);
    const messages = await launch(2, () => save().catch((error: Error) => error.message));
    for (const message of messages)
      assert.match(message as string, /rank \d.*generation-\d+-\S+: .*(ENOSPC|no more bytes)/);
  });
});
