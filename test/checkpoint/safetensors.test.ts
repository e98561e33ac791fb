/** Checkpoints: exact round trips, and no file that can do harm. */
import assert from 'node:assert/strict';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { freemem, tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import {
  bfloat16,
  bool,
  CheckpointError,
  float16,
  float32,
  float64,
  int8,
  int16,
  int32,
  int64,
  loadSafetensors,
  nn,
  randn,
  SafetensorsFile,
  saveSafetensors,
  tensor,
  uint8,
  zeros,
} from '../../lib/index.js';

const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-'));
const file = path.join(folder, 'state.safetensors');
after(() => rmSync(folder, { recursive: true, force: true }));

/** A file with the given header and so many bytes of data. */
function write(header: unknown, dataBytes: number): void {
  const json = new TextEncoder().encode(typeof header === 'string' ? header : JSON.stringify(header));
  const bytes = new Uint8Array(8 + json.length + dataBytes);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(json.length), true);
  bytes.set(json, 8);
  writeFileSync(file, bytes);
}

describe('safetensors', () => {
  it('keeps every dtype, shape and bit', async () => {
    const state = Object.fromEntries(
      [float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8, bool].map((dtype) => [
        dtype.name,
        tensor([
          [0, 1, 2.5],
          [7, 100, 3],
        ]).to(dtype),
      ]),
    );
    await saveSafetensors(file, { ...state, empty: zeros([0, 3]), scalar: tensor(5), transposed: randn([3, 2]).t() }, { metadata: { step: '7' } });
    const loaded = await loadSafetensors(file);
    for (const [name, t] of Object.entries(state)) {
      assert.equal(loaded[name]?.dtype, t.dtype);
      assert.deepEqual(loaded[name]?.tolist(), t.tolist());
    }
    assert.deepEqual(loaded['empty']?.shape, [0, 3]);
    assert.deepEqual(loaded['scalar']?.shape, []);
    const opened = await SafetensorsFile.open(file);
    assert.equal(opened.metadata['step'], '7');
    await opened.close();
  });

  it('lets a module go on from its state, and lists what does not fit', async () => {
    const model = new nn.Linear(3, 2);
    await saveSafetensors(file, model.stateDict());
    const other = new nn.Linear(3, 2);
    other.loadStateDict(await loadSafetensors(file));
    assert.deepEqual(other.weight.tolist(), model.weight.tolist());
    assert.throws(() => new nn.Linear(4, 2).loadStateDict(model.stateDict()), /weight: the checkpoint has shape \[2, 3\], the module \[2, 4\]/);
    assert.throws(() => new nn.Linear(3, 2, { bias: false }).loadStateDict(model.stateDict()), /unexpected: bias/);
  });

  const hostile: Record<string, [header: unknown, dataBytes: number, message: RegExp]> = {
    'a header that is not JSON': ['{', 0, /not JSON/],
    'a header that is a list': [[], 0, /not a JSON object/],
    'an unknown dtype': [{ a: { dtype: 'F8', shape: [1], data_offsets: [0, 1] } }, 1, /unknown dtype/],
    'a negative size': [{ a: { dtype: 'U8', shape: [-1], data_offsets: [0, 0] } }, 0, /shape/],
    'a shape that overflows': [{ a: { dtype: 'U8', shape: [2 ** 40, 2 ** 40], data_offsets: [0, 0] } }, 0, /needs/],
    'offsets outside the file': [{ a: { dtype: 'U8', shape: [9], data_offsets: [0, 9] } }, 8, /data section of 8/],
    'offsets that do not match the shape': [{ a: { dtype: 'F32', shape: [2], data_offsets: [0, 4] } }, 4, /needs 8 bytes/],
    'tensors that overlap': [{ a: { dtype: 'U8', shape: [4], data_offsets: [0, 4] }, b: { dtype: 'U8', shape: [4], data_offsets: [2, 6] } }, 6, /inside the one before/],
    'a hole between tensors': [{ a: { dtype: 'U8', shape: [2], data_offsets: [2, 4] } }, 4, /hole/],
    'data that no tensor covers': [{ a: { dtype: 'U8', shape: [2], data_offsets: [0, 2] } }, 4, /end at byte 2/],
    'lists nested deeper than any stack': [`{"a":{"dtype":"U8","shape":${'['.repeat(50_000)}${']'.repeat(50_000)},"data_offsets":[0,0]}}`, 0, /shape/],
    'a dtype nested deeper than any stack': [`{"a":{"dtype":${'['.repeat(50_000)}${']'.repeat(50_000)},"shape":[],"data_offsets":[0,0]}}`, 0, /dtype/],
    'metadata that is not strings': [{ __metadata__: { a: 1 } }, 0, /__metadata__/],
  };
  for (const [what, [header, dataBytes, message]] of Object.entries(hostile)) {
    it(`refuses ${what}`, async () => {
      write(header, dataBytes);
      await assert.rejects(loadSafetensors(file), (error: CheckpointError) => error instanceof CheckpointError && message.test(error.message));
    });
  }

  it('takes any name as a name', async () => {
    const names = ['__proto__', 'constructor', 'toString', ''];
    await saveSafetensors(file, Object.fromEntries(names.map((name, i) => [name, tensor([i])])), { metadata: Object.fromEntries([['__proto__', 'x']]) });
    const loaded = await loadSafetensors(file);
    assert.deepEqual(Object.keys(loaded), names);
    assert.equal(Object.getPrototypeOf(loaded), Object.prototype);
    assert.deepEqual(
      Object.values(loaded).map((t) => t.tolist()),
      [[0], [1], [2], [3]],
    );
    await assert.rejects(saveSafetensors(file, { __metadata__: tensor([1]) }), CheckpointError);
  });

  it('answers every truncation and every changed byte of the header with a CheckpointError or the right values', async () => {
    await saveSafetensors(file, { a: tensor([1, 2, 3]), b: tensor([[4], [5]]) });
    const good = readFileSync(file);
    await fc.assert(
      fc.asyncProperty(fc.nat(good.length - 1), fc.nat(127), fc.nat(255), async (length, at, value) => {
        const bytes = Uint8Array.from(good.subarray(0, length));
        if (at < bytes.length) bytes[at] = value;
        writeFileSync(file, bytes);
        await loadSafetensors(file).catch((error: unknown) => assert.ok(error instanceof CheckpointError, String(error)));
      }),
      { numRuns: 200 },
    );
  });
});

describe('a tensor of more than 2 GiB', () => {
  it('is read in pieces', async function () {
    this.timeout(60000);
    const bytes = 2 ** 31 + 16;
    if (freemem() < 3 * bytes) this.skip();
    const large = path.join(folder, 'large.safetensors');
    const header = Buffer.from(JSON.stringify({ t: { dtype: 'U8', shape: [bytes], data_offsets: [0, bytes] } }));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(header.length));
    writeFileSync(large, Buffer.concat([length, header]));
    const start = 8 + header.length;
    const handle = openSync(large, 'r+');
    writeSync(handle, Uint8Array.of(1, 2, 3), 0, 3, start + bytes - 3); // the rest is a hole
    closeSync(handle);
    const { t } = await loadSafetensors(large);
    assert.deepEqual(t?.narrow(0, bytes - 4, 4).tolist(), [0, 1, 2, 3]);
    t?.dispose();
    rmSync(large);
  });
});
