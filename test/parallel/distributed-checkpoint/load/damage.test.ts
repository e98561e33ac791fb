/** What does not fit or is damaged is an error that all ranks report alike, and never a hang. */
import assert from 'node:assert/strict';
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  distributedCheckpoint,
  distributeTensor,
  getWorldSize,
  initDeviceMesh,
  launch,
  Shard,
} from '../../../../lib/distributed.js';
import { arange, CheckpointError, float32, type Tensor, zeros } from '../../../../lib/index.js';

let folder: string;
beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-damage-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const INDEX = 'checkpoint.index.json';
const at = (name: string): string => path.join(folder, name);
const shardFiles = (): string[] =>
  readdirSync(folder).filter((name) => name.endsWith('.safetensors'));

const sharded = (t: Tensor): Tensor =>
  distributeTensor(t, initDeviceMesh('cpu', [getWorldSize()]), [Shard(0)]);

const counted = (count: number): Tensor => arange(count, { dtype: float32 });

/** Saves two tensors and a value on some ranks. */
async function saveOn(ranks: number): Promise<void> {
  await launch(ranks, () =>
    distributedCheckpoint.save(folder, {
      model: { weight: sharded(counted(60).reshape([12, 5])), bias: sharded(counted(12)) },
      step: 3,
    }),
  );
}

/** The messages with which the ranks refuse to load. */
async function refusals(
  ranks: number,
  state: () => object = () => ({
    model: { weight: sharded(zeros([12, 5])), bias: sharded(zeros([12])) },
    step: 0,
  }),
): Promise<string[]> {
  return launch(ranks, async () => {
    try {
      await distributedCheckpoint.load(folder, state() as never);
    } catch (error) {
      assert.ok(error instanceof CheckpointError, String(error));
      return error.message;
    }
    return 'loaded';
  });
}

/** All ranks report the same, and it says this. */
function assertRefused(messages: readonly string[], pattern: RegExp): void {
  assert.match(messages[0] as string, pattern);
  assert.deepEqual(new Set(messages).size, 1, messages.join('\n'));
}

function flipBit(file: string, position: number): void {
  const opened = openSync(file, 'r+');
  const byte = Buffer.alloc(1);
  readSync(opened, byte, 0, 1, position);
  byte[0] = (byte[0] as number) ^ 4;
  writeSync(opened, byte, 0, 1, position);
  closeSync(opened);
}

describe('loading a distributed checkpoint', () => {
  it('finds each flipped bit of each shard file, and names tensor, file and rank', async () => {
    await saveOn(4);
    for (const file of shardFiles()) {
      const { size } = statSync(at(file));
      const header = 8 + Number(readFileSync(at(file)).readBigUInt64LE(0));
      for (let position = header; position < size; position += 13) {
        flipBit(at(file), position);
        assertRefused(
          await refusals(3),
          /generation-1-rank-\d.safetensors: the bytes of "model.(weight|bias)\[.*", a part of "model.*", that rank .* are not those that were saved/,
        );
        flipBit(at(file), position);
      }
    }
    assertRefused(await refusals(3), /^loaded$/);
  });

  it('finds flipped bits in headers', async () => {
    await saveOn(2);
    const [file] = shardFiles() as [string];
    const header = 8 + Number(readFileSync(at(file)).readBigUInt64LE(0));
    for (let position = 0; position < header - 8; position += 9) {
      flipBit(at(file), position);
      const messages = await refusals(2);
      if (messages[0] !== 'loaded') assertRefused(messages, /generation-1-rank-\d.safetensors/);
      flipBit(at(file), position);
    }
  });

  it('names a truncated file', async () => {
    await saveOn(3);
    const [file] = shardFiles() as [string];
    truncateSync(at(file), statSync(at(file)).size - 3);
    assertRefused(
      await refusals(2),
      /rank \d: .*generation-1-rank-0.safetensors.* It has values of "model.weight", "model.bias"/,
    );
  });

  it('names a missing shard file', async () => {
    await saveOn(3);
    rmSync(at('generation-1-rank-1.safetensors'));
    assertRefused(
      await refusals(2),
      /rank \d: .*generation-1-rank-1.safetensors: cannot be opened: ENOENT.* It has values of "model.weight", "model.bias"/,
    );
  });

  it('names a shard file of another checkpoint', async () => {
    await saveOn(3);
    const files = shardFiles() as [string, string, string];
    writeFileSync(at(files[0]), readFileSync(at(files[2])));
    assertRefused(await refusals(3), /generation-1-rank-0.safetensors: there is no tensor/);
  });

  it('says that a folder has no checkpoint', async () => {
    mkdirSync(at('empty'));
    folder = at('empty');
    assertRefused(await refusals(2), /there is no checkpoint in this folder/);
  });

  it('refuses an index that is damaged, of another version, or names other files', async () => {
    await saveOn(2);
    const text = readFileSync(at(INDEX), 'utf8');
    const changes: [string | RegExp, string, RegExp][] = [
      ['{', '[', /not a valid index/],
      ['"version":1', '"version":2', /its version is 2/],
      [/generation-1-rank-0/g, '../generation-1-rank-0', /is not the name of a shard file/],
      ['"offsets":[0', '"offsets":[1', /its chunks are not the whole tensor|not within the tensor/],
      ['float32', 'float31', /there is no dtype "float31"/],
      ['"value":3', '"value":2', /its text is not the one that was saved/],
    ];
    for (const [from, to, message] of changes) {
      writeFileSync(at(INDEX), text.replace(from, to));
      assertRefused(await refusals(2), message);
    }
  });

  it('loads an index of an earlier version, which has no checksum', async () => {
    await saveOn(2);
    const text = readFileSync(at(INDEX), 'utf8');
    const { checksum, ...index } = JSON.parse(text);
    assert.match(checksum, /^[0-9a-f]{8}$/);
    writeFileSync(at(INDEX), `${JSON.stringify(index)}\n`);
    assertRefused(await refusals(2), /^loaded$/);
  });

  it('lists what is missing, unexpected or of another shape and dtype', async () => {
    await saveOn(2);
    const messages = await refusals(2, () => ({
      model: { weight: sharded(zeros([12, 6])), other: zeros([2]) },
      step: 0,
    }));
    assertRefused(
      messages,
      /"model.weight" is float32\[12, 5\] in the checkpoint and float32\[12, 6\] in the state\n {2}the checkpoint lacks "model.other"\n {2}the state lacks "model.bias"/,
    );
  });

  it('says which rank lacks what others have', async () => {
    await saveOn(2);
    const messages = await launch(2, async (rank) => {
      const state = {
        model: { weight: sharded(zeros([12, 5])), bias: sharded(zeros([12])) },
        step: 0,
        ...(rank === 1 ? { extra: 1 } : {}),
      };
      return distributedCheckpoint.load(folder, state).then(
        () => 'loaded',
        (error: Error) => error.message,
      );
    });
    assertRefused(messages, /the checkpoint lacks "extra" \(rank 1\)/);
  });

  it('loads what fits if strict is false, and returns the rest', async () => {
    await saveOn(2);
    await launch(2, async () => {
      const bias = sharded(zeros([12]));
      const state = { model: { bias, other: zeros([1]) } };
      const { missing, unexpected } = await distributedCheckpoint.load(folder, state, {
        strict: false,
      });
      assert.deepEqual(missing, ['model.other']);
      assert.deepEqual(unexpected, ['model.weight', 'step']);
      assert.equal((await bias.fullTensor().read())[11], 11);
    });
  });

  it('refuses a value that differs between ranks for another number of ranks', async () => {
    await launch(2, (rank) => distributedCheckpoint.save(folder, { position: rank }));
    assertRefused(
      await refusals(3, () => ({ position: 0 })),
      /"position" differs between the 2 ranks that saved it, and 3 load it/,
    );
    await launch(2, async (rank) => {
      const state = { position: 5 };
      await distributedCheckpoint.load(folder, state);
      assert.equal(state.position, rank);
    });
  });
});

describe('saving a distributed checkpoint', () => {
  it('fails on all ranks for one cause, and leaves the last checkpoint as it was', async () => {
    await saveOn(2);
    const before = readdirSync(folder).map((name) => [name, readFileSync(at(name), 'hex')]);
    mkdirSync(at('generation-2-rank-1.safetensors')); // which rank 1 cannot replace
    const messages = await launch(2, async () => {
      return distributedCheckpoint.save(folder, { t: sharded(zeros([8])) }).then(
        () => 'saved',
        (error: Error) => error.message,
      );
    });
    assertRefused(messages, /rank 1: .*generation-2-rank-1.safetensors: cannot be written/);
    rmSync(at('generation-2-rank-1.safetensors'), { recursive: true });
    assert.deepEqual(
      readdirSync(folder).map((name) => [name, readFileSync(at(name), 'hex')]),
      before,
    );
  });

  it('refuses tensors of one path that differ between ranks', async () => {
    const messages = await launch(2, (rank) =>
      distributedCheckpoint.save(folder, { t: zeros([2 + rank]) }).then(
        () => 'saved',
        (error: Error) => error.message,
      ),
    );
    assertRefused(messages, /"t" is float32\[2\] on rank 0 and float32\[3\] on rank 1/);
  });

  it('refuses functions, names that mean one path, and tensors without memory', async () => {
    const save = (state: object) => distributedCheckpoint.save(folder, state as never);
    await assert.rejects(save({ f: () => 1 }), /expected f to be a tensor, a plain value/);
    await assert.rejects(save({ 'a.b': 1, a: { b: 2 } }), /the state has "a.b" twice/);
    await assert.rejects(save({ t: zeros([2], { device: 'meta' }) }), /"t" is on meta/);
    const endless: Record<string, unknown> = {};
    endless['self'] = endless;
    await assert.rejects(save(endless), /nested too deep/);
    await assert.rejects(distributedCheckpoint.save('', {}), /expected folder to be the name/);
    await assert.rejects(distributedCheckpoint.save(folder, null as never), /expected state/);
  });

  it('keeps only the files of the last checkpoint', async () => {
    await saveOn(4);
    await saveOn(2);
    assert.deepEqual(readdirSync(folder).sort(), [
      INDEX,
      'generation-2-rank-0.safetensors',
      'generation-2-rank-1.safetensors',
    ]);
  });
});
