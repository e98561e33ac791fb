/** Safetensors files round-trip exactly, and damaged or hostile files do no harm. */
import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import {
  ArgumentError,
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

/** Writes a file with this header and `dataBytes` bytes of data. */
function write(header: unknown, dataBytes: number): void {
  const json = new TextEncoder().encode(
    typeof header === 'string' ? header : JSON.stringify(header),
  );
  const bytes = new Uint8Array(8 + json.length + dataBytes);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(json.length), true);
  bytes.set(json, 8);
  writeFileSync(file, bytes);
}

describe('a safetensors file', () => {
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
    await saveSafetensors(
      file,
      { ...state, empty: zeros([0, 3]), scalar: tensor(5), transposed: randn([3, 2]).t() },
      { metadata: { step: '7' } },
    );
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

  it('restores a module, and lists what does not fit', async () => {
    const model = new nn.Linear(3, 2);
    await saveSafetensors(file, model.stateDict());
    const other = new nn.Linear(3, 2);
    other.loadStateDict(await loadSafetensors(file));
    assert.deepEqual(other.weight.tolist(), model.weight.tolist());
    assert.throws(
      () => new nn.Linear(4, 2).loadStateDict(model.stateDict()),
      /weight: the checkpoint has shape \[2, 3\], the module \[2, 4\]/,
    );
    assert.throws(
      () => new nn.Linear(3, 2, { bias: false }).loadStateDict(model.stateDict()),
      /unexpected: bias/,
    );
  });

  const hostile: Record<string, [header: unknown, dataBytes: number, message: RegExp]> = {
    'a header that is not JSON': ['{', 0, /not JSON/],
    'a header that is a list': [[], 0, /not a JSON object/],
    'an unknown dtype': [
      { a: { dtype: 'F8', shape: [1], data_offsets: [0, 1] } },
      1,
      /unknown dtype/,
    ],
    'a negative size': [{ a: { dtype: 'U8', shape: [-1], data_offsets: [0, 0] } }, 0, /shape/],
    'a shape that overflows': [
      { a: { dtype: 'U8', shape: [2 ** 40, 2 ** 40], data_offsets: [0, 0] } },
      0,
      /needs/,
    ],
    'offsets outside the file': [
      { a: { dtype: 'U8', shape: [9], data_offsets: [0, 9] } },
      8,
      /data section of 8/,
    ],
    'offsets that do not match the shape': [
      { a: { dtype: 'F32', shape: [2], data_offsets: [0, 4] } },
      4,
      /needs 8 bytes/,
    ],
    'tensors that overlap': [
      {
        a: { dtype: 'U8', shape: [4], data_offsets: [0, 4] },
        b: { dtype: 'U8', shape: [4], data_offsets: [2, 6] },
      },
      6,
      /inside the one before/,
    ],
    'a hole between tensors': [{ a: { dtype: 'U8', shape: [2], data_offsets: [2, 4] } }, 4, /hole/],
    'data that no tensor covers': [
      { a: { dtype: 'U8', shape: [2], data_offsets: [0, 2] } },
      4,
      /end at byte 2/,
    ],
    'lists nested deeper than any stack': [
      `{"a":{"dtype":"U8","shape":${'['.repeat(50_000)}${']'.repeat(50_000)},"data_offsets":[0,0]}}`,
      0,
      /shape/,
    ],
    'a dtype nested deeper than any stack': [
      `{"a":{"dtype":${'['.repeat(50_000)}${']'.repeat(50_000)},"shape":[],"data_offsets":[0,0]}}`,
      0,
      /dtype/,
    ],
    'metadata that is not strings': [{ __metadata__: { a: 1 } }, 0, /__metadata__/],
  };
  for (const [what, [header, dataBytes, message]] of Object.entries(hostile)) {
    it(`is refused for ${what}`, async () => {
      write(header, dataBytes);
      await assert.rejects(
        loadSafetensors(file),
        (error: CheckpointError) => error instanceof CheckpointError && message.test(error.message),
      );
    });
  }

  it('has the same bytes if written in small chunks, also of tensors that are not contiguous', async () => {
    const state = {
      a: randn([7, 5]).t(),
      half: randn([3, 3]).to(float16),
      none: zeros([0]),
      one: tensor(5),
      long: tensor([1, 2, 3]).to(int64),
    };
    const whole = path.join(folder, 'whole.safetensors');
    await saveSafetensors(whole, state);
    for (const chunkBytes of [1, 12, 100]) {
      await saveSafetensors(file, state, { chunkBytes });
      assert.deepEqual(readFileSync(file), readFileSync(whole));
    }
    assert.deepEqual((await loadSafetensors(file))['a']?.tolist(), state.a.tolist());
  });

  it('that cannot be written is a CheckpointError, and leaves no file behind', async () => {
    const taken = path.join(folder, 'taken.safetensors');
    mkdirSync(taken);
    await assert.rejects(
      saveSafetensors(path.join(folder, 'none', 'x.safetensors'), { a: tensor([1]) }),
      CheckpointError,
    );
    await assert.rejects(
      saveSafetensors(file, { a: [1] as never }),
      /saveSafetensors: expected a to be a tensor/,
    );
    await assert.rejects(
      saveSafetensors(file, { a: tensor([1]) }, { metadata: { step: 7 as never } }),
      /metadata "step" must be a string, got/,
    );
    await assert.rejects(loadSafetensors(folder), CheckpointError);
    await assert.rejects(saveSafetensors(taken, { a: tensor([1]) }), CheckpointError);
    const freed = tensor([1]);
    freed.dispose();
    const target = path.join(folder, 'freed.safetensors');
    await assert.rejects(saveSafetensors(target, { freed }));
    assert.ok(!existsSync(target));
    assert.deepEqual(
      readdirSync(folder).filter((name) => name.endsWith('.partial')),
      [],
    );
  });

  it('with a tensor of a terabyte still loads the other tensors, and refuses that one', async () => {
    const huge = 2 ** 40;
    write(
      {
        huge: { dtype: 'U8', shape: [huge], data_offsets: [0, huge] },
        last: { dtype: 'U8', shape: [2], data_offsets: [huge, huge + 2] },
      },
      0,
    );
    const headerBytes = readFileSync(file).length;
    await assert.rejects(
      loadSafetensors(file),
      (error: Error) => error instanceof CheckpointError && /data section of 0/.test(error.message),
    );
    truncateSync(file, headerBytes + huge + 2); // sparse: takes no space
    const opened = await SafetensorsFile.open(file);
    assert.deepEqual((await opened.get('last')).tolist(), [0, 0]);
    await assert.rejects(
      opened.get('huge'),
      (error: Error) =>
        error instanceof CheckpointError &&
        /no memory for tensor "huge" of 1099511627776 bytes/.test(error.message),
    );
    await opened.close();
  });

  it('is refused for bools that are neither 0 nor 1', async () => {
    await saveSafetensors(file, { mask: tensor([true, false, true]) });
    const bytes = Uint8Array.from(readFileSync(file));
    bytes[bytes.length - 1] = 255;
    writeFileSync(file, bytes);
    await assert.rejects(loadSafetensors(file), /tensor "mask" of bools holds the byte 255 at 2/);
  });

  it('that cannot be saved leaves nothing behind, and its path must be a string', async () => {
    const place = mkdtempSync(path.join(tmpdir(), 'shardwise-save-'));
    mkdirSync(path.join(place, 'taken', 'inside'), { recursive: true });
    await assert.rejects(
      saveSafetensors(path.join(place, 'taken'), { a: tensor([1]) }),
      CheckpointError,
    );
    assert.deepEqual(readdirSync(place), ['taken']);
    await assert.rejects(saveSafetensors(tensor([1]) as never, {}), ArgumentError);
    await assert.rejects(loadSafetensors(undefined as never), ArgumentError);
  });

  it('accepts any string as a name', async () => {
    const names = ['__proto__', 'constructor', 'toString', ''];
    await saveSafetensors(file, Object.fromEntries(names.map((name, i) => [name, tensor([i])])), {
      metadata: Object.fromEntries([['__proto__', 'x']]),
    });
    const loaded = await loadSafetensors(file);
    assert.deepEqual(Object.keys(loaded), names);
    assert.equal(Object.getPrototypeOf(loaded), Object.prototype);
    assert.deepEqual(
      Object.values(loaded).map((t) => t.tolist()),
      [[0], [1], [2], [3]],
    );
    await assert.rejects(saveSafetensors(file, { __metadata__: tensor([1]) }), CheckpointError);
  });

  it('with any truncation or changed byte in its header gives a CheckpointError or the right values', async () => {
    await saveSafetensors(file, { a: tensor([1, 2, 3]), b: tensor([[4], [5]]) });
    const good = readFileSync(file);
    await fc.assert(
      fc.asyncProperty(
        fc.nat(good.length - 1),
        fc.nat(127),
        fc.nat(255),
        async (length, at, value) => {
          const bytes = Uint8Array.from(good.subarray(0, length));
          if (at < bytes.length) bytes[at] = value;
          writeFileSync(file, bytes);
          await loadSafetensors(file).catch((error: unknown) =>
            assert.ok(error instanceof CheckpointError, String(error)),
          );
        },
      ),
      { numRuns: 200 },
    );
  });
});
