/** A checkpoint of one process whose bytes have changed is not loaded. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  arange,
  CheckpointError,
  empty,
  loadCheckpoint,
  loadSafetensors,
  manualSeed,
  nn,
  optim,
  SafetensorsFile,
  saveCheckpoint,
  saveSafetensors,
  zeros,
} from '../../lib/index.js';

let folder: string;
let file: string;
before(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-checksums-'));
  file = path.join(folder, 'run.safetensors');
});
after(() => rmSync(folder, { recursive: true, force: true }));

const KEY = 'shardwise.checkpoint';

function makeState() {
  const model = new nn.Linear(5, 3);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.125 });
  return { model, optimizer, large: arange(3_000_000), none: empty([0, 3]), step: 7 };
}

/** The file with one bit of a byte changed. */
function withFlippedBit(at: number, bit = 0): void {
  const bytes = readFileSync(file);
  bytes[at] = (bytes[at] as number) ^ (1 << bit);
  writeFileSync(file, bytes);
}

const dataStart = (): number => 8 + Number(readFileSync(file).readBigUInt64LE(0));

describe('a checkpoint of one process', () => {
  beforeEach(() => {
    manualSeed(1);
    return saveCheckpoint(file, makeState());
  });

  it('is loaded if its bytes are those that were saved', async () => {
    const [saved, loaded] = [makeState(), makeState()];
    manualSeed(1);
    saved.model.resetParameters();
    await loadCheckpoint(file, loaded);
    assert.ok(loaded.large.equal(saved.large));
    assert.equal(loaded.step, 7);
  });

  it('is refused if one bit of a tensor has changed, and the error names file and tensor', async () => {
    const size = readFileSync(file).length;
    for (const [at, tensor] of [
      [dataStart(), 'model.weight'],
      [size - 1, 'large'],
      [size - 9_000_000, 'large'],
    ] as const) {
      withFlippedBit(at);
      const state = makeState();
      const before = state.model.weight.detach().clone();
      await assert.rejects(
        loadCheckpoint(file, state),
        (error: Error) =>
          error instanceof CheckpointError &&
          error.message.includes(
            `${file}: the bytes of "${tensor}" are not those that were saved`,
          ) &&
          error.details['tensor'] === tensor,
      );
      assert.ok(state.model.weight.equal(before), 'nothing was loaded');
      withFlippedBit(at);
    }
    await loadCheckpoint(file, makeState());
  });

  it('is refused if one bit of its header has changed, wherever that is', async () => {
    manualSeed(1);
    await saveCheckpoint(file, { weight: zeros([2, 2]), rate: 0.125, step: 7 });
    const text = readFileSync(file).subarray(0, dataStart()).toString('latin1').trimEnd();
    for (let at = 8; at < text.length; at++) {
      withFlippedBit(at, at % 7);
      await loadCheckpoint(file, { weight: zeros([2, 2]), rate: 0, step: 0 })
        .then(
          // The name of the checksum alone is not covered by it.
          () =>
            assert.match(text.slice(at - 16, at + 16), /checksum/, text.slice(at - 20, at + 20)),
          (error: unknown) => assert.ok(error instanceof CheckpointError, String(error)),
        )
        .finally(() => withFlippedBit(at, at % 7));
    }
  });

  it('is loaded from a file of an earlier version, which has no checksums', async () => {
    await using opened = await SafetensorsFile.open(file);
    const { state, random } = JSON.parse(opened.metadata[KEY] as string);
    const tensors = await loadSafetensors(file);
    await saveSafetensors(file, tensors, {
      metadata: { [KEY]: JSON.stringify({ state, random }) },
    });
    const loaded = { ...makeState(), step: 0, large: zeros([3_000_000], { dtype: 'int64' }) };
    await loadCheckpoint(file, loaded);
    assert.equal(loaded.step, 7);
    assert.equal(Number(loaded.large.sum().item()), (3_000_000 * 2_999_999) / 2);
  });

  it('stays a file that other programs read', async () => {
    const { large } = await loadSafetensors(file);
    assert.ok(large?.equal(arange(3_000_000)));
  });
});
