/**
 * Invalid headers are refused, and a long header neither blocks the event loop nor fills the heap.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { Header } from '../../lib/checkpoint/header.js';
import { inSlices } from '../../lib/checkpoint/time-slices.js';
import { CheckpointError, loadSafetensors, SafetensorsFile } from '../../lib/index.js';
import { programArguments } from '../run-program.js';

const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-header-'));
const file = path.join(folder, 'm.safetensors');
after(() => rmSync(folder, { recursive: true, force: true }));

function write(header: string | Uint8Array, dataBytes = 0): void {
  const json = Buffer.from(header as string);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  writeFileSync(file, Buffer.concat([length, json, Buffer.alloc(dataBytes)]));
}

const entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}';
const one = (fields: string): string => `{"a":{${fields}}}`;

describe('the header of a safetensors file', () => {
  const refusedHeaders: Record<string, [header: string | Uint8Array, message: RegExp]> = {
    'a byte order mark': [`\uFEFF{"a":${entry}}`, /begin with {/],
    'blanks before it': [` {"a":${entry}}`, /begin with {/],
    'two tensors of one name': [
      `{"a":${entry},"b":${entry},"a":${entry}}`,
      /tensor "a" is given twice/,
    ],
    'two tensors of one name in other letters': [
      `{"a":${entry},"\\u0061":${entry}}`,
      /tensor "a" is given twice/,
    ],
    'a shape given twice': [
      one('"dtype":"U8","shape":[9],"shape":[0],"data_offsets":[0,0]'),
      /tensor "a" has shape twice/,
    ],
    'a dtype given twice': [
      one('"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]'),
      /tensor "a" has dtype twice/,
    ],
    'offsets given twice': [
      one('"dtype":"U8","data_offsets":[0,0],"shape":[0],"data_offsets":[0,0]'),
      /tensor "a" has data_offsets twice/,
    ],
    'metadata given twice': [
      `{"__metadata__":{},"a":${entry},"__metadata__":{}}`,
      /__metadata__ is given twice/,
    ],
    'a metadata name given twice': [
      '{"__metadata__":{"k":"1","k":"2"}}',
      /__metadata__ has "k" twice/,
    ],
    'metadata that is null': ['{"__metadata__":null}', /__metadata__ must map/],
    'the size -0': [one('"dtype":"U8","shape":[-0],"data_offsets":[0,0]'), /has shape \[-0/],
    'the size 0.0': [one('"dtype":"U8","shape":[0.0],"data_offsets":[0,0]'), /has shape \[0\./],
    'the size 0e0': [one('"dtype":"U8","shape":[0e0],"data_offsets":[0,0]'), /has shape \[0e/],
    'the size 00': [one('"dtype":"U8","shape":[00],"data_offsets":[0,0]'), /has shape \[00/],
    'a size that no number holds': [
      one('"dtype":"U8","shape":[9007199254740993,0],"data_offsets":[0,0]'),
      /has shape/,
    ],
    'the offset -0': [
      one('"dtype":"U8","shape":[0],"data_offsets":[-0,0]'),
      /has data_offsets \[-0/,
    ],
    'a shape whose product overflows before a 0': [
      one('"dtype":"U8","shape":[1099511627776,1099511627776,0],"data_offsets":[0,0]'),
      /needs Infinity/,
    ],
    'a shape without an end': [
      one('"dtype":"U8","shape":[0,],"data_offsets":[0,0]'),
      /has shape \[0,/,
    ],
    'a missing field': [one('"dtype":"U8","data_offsets":[0,0]'), /tensor "a" has no shape/],
    'an inherited field': [
      '{"a":{"__proto__":{"shape":[0]},"dtype":"U8","data_offsets":[0,0]}}',
      /tensor "a" has no shape/,
    ],
    'text behind the end': [`{"a":${entry}}x`, /not JSON \(something behind the end/],
    'a zero byte behind the end': [`{"a":${entry}}\0`, /not JSON/],
    'a comma before the end': [`{"a":${entry},}`, /not JSON/],
    'a comma before the end of a tensor': [
      one('"dtype":"U8","shape":[0],"data_offsets":[0,0],'),
      /not JSON/,
    ],
    'a name without quotes': [`{a:${entry}}`, /not JSON/],
    'a control character': [`{"a\n":${entry}}`, /control character/],
    'half of a surrogate pair': [`{"\\ud800":${entry}}`, /surrogate/],
    'the other half': [`{"\\udc00":${entry}}`, /wrong escape/],
    'a wrong escape': [`{"\\x41":${entry}}`, /wrong escape/],
    'bytes that are no UTF-8': [
      Buffer.concat([Buffer.from('{"'), Buffer.from([0xc3, 0x28]), Buffer.from(`":${entry}}`)]),
      /UTF-8/,
    ],
    'a surrogate in UTF-8': [
      Buffer.concat([
        Buffer.from('{"'),
        Buffer.from([0xed, 0xa0, 0x80]),
        Buffer.from(`":${entry}}`),
      ]),
      /UTF-8/,
    ],
    'unknown fields nested too deep': [
      one(`"q":${'['.repeat(129)}${']'.repeat(129)},${entry.slice(1, -1)}`),
      /nested deeper/,
    ],
    'an unknown field that is no JSON': [one(`"q":nul,${entry.slice(1, -1)}`), /not JSON/],
    'an unknown field whose brackets do not fit': [
      one(`"q":[{"a":1]},${entry.slice(1, -1)}`),
      /not JSON/,
    ],
    'nothing at all': ['', /begin with {/],
    'a tensor without elements inside another': [
      '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}}',
      /"b" starts at byte 2, inside the one before/,
    ],
    'two tensors in one place': [
      '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}',
      /inside the one before/,
    ],
  };
  for (const [what, [header, message]] of Object.entries(refusedHeaders)) {
    it(`is refused for ${what}`, async () => {
      write(header, /\[0,4\]/.test(String(header)) ? 4 : 0);
      await assert.rejects(
        loadSafetensors(file),
        (error: unknown) => error instanceof CheckpointError && message.test(error.message),
      );
    });
  }

  it('may have whitespace, unknown fields and escapes, and fields and tensors in any order', async () => {
    write(
      '{ "late" :\n{ "data_offsets" : [ 4 , 6 ] , "q" : [ { "a" : [ -1.5e3 , "x\\"" , null ] } , { } , [ ] ] , "shape" : [ 2 ] , "dtype" : "\\u00558" } ,' +
        '"\\ud83d\\ude00" : {"dtype":"U8","shape":[4],"data_offsets":[0,4]},\t"none":{"dtype":"F32","shape":[3,0],"data_offsets":[4,4]},"__metadata__":{"__proto__":"p","":"\\n"} } \r\n ',
      6,
    );
    const opened = await SafetensorsFile.open(file);
    assert.deepEqual(opened.names, ['late', '😀', 'none']);
    assert.deepEqual((await opened.get('😀')).shape, [4]);
    assert.deepEqual((await opened.get('none')).shape, [3, 0]);
    assert.deepEqual(Object.entries(opened.metadata), [
      ['__proto__', 'p'],
      ['', '\n'],
    ]);
    await opened.close();
  });

  it('keeps the order of its names, also of whole numbers', async () => {
    write(`{"b":${entry},"10":${entry},"9":${entry},"a":${entry},"0":${entry}}`);
    const opened = await SafetensorsFile.open(file);
    assert.deepEqual(opened.names, ['b', '10', '9', 'a', '0']);
    await opened.close();
  });

  const long: Record<string, string> = {
    tensors: `{${Array.from({ length: 20_000 }, (_, i) => `"${i}":${entry}`).join(',')}}`,
    'tensors that lie in the other order': `{${Array.from({ length: 20_000 }, (_, i) => `"${i}":{"dtype":"U8","shape":[1],"data_offsets":[${19_999 - i},${20_000 - i}]}`).join(',')}}`,
    blanks: `{"a"${' '.repeat(1e6)}:${entry}}`,
    'blanks in a shape': one(`"dtype":"U8","shape":[${' '.repeat(1e6)}0],"data_offsets":[0,0]`),
    'text in metadata': `{"__metadata__":{"a":"${'é'.repeat(5e5)}"}}`,
    'escapes in metadata': `{"__metadata__":{"a":"${'\\n'.repeat(5e5)}"}}`,
    'entries of metadata': `{"__metadata__":{${Array.from({ length: 60_000 }, (_, i) => `"${i}":"12345678"`).join(',')}}}`,
    'unknown numbers': one(`"q":[${'1,'.repeat(5e5)}1],${entry.slice(1, -1)}`),
    'unknown objects': one(`"q":[${'{},'.repeat(3e5)}{}],${entry.slice(1, -1)}`),
    'unknown fields': one(`${'"q":1,'.repeat(2e5)}${entry.slice(1, -1)}`),
  };
  for (const [what, json] of Object.entries(long)) {
    it(`is read in steps of some thousand bytes: a million bytes of ${what}`, () => {
      const bytes = Buffer.from(json);
      const dataBytes = what.includes('other order') ? 20_000 : 0;
      const work = Header.parse('f', bytes, 8 + bytes.length + dataBytes);
      let steps = 0;
      while (work.next().done !== true) steps++;
      assert.ok(steps > bytes.length / 6000, `${steps} steps for ${bytes.length} bytes`);
    });
  }

  it('lets the event loop run while it is parsed', async () => {
    const bytes = Buffer.from(
      `{${Array.from({ length: 100_000 }, (_, i) => `"${i}":${entry}`).join(',')}}`,
    );
    let [turns, reading] = [0, true];
    const turn = (): void => {
      turns++;
      if (reading) setImmediate(turn);
    };
    setImmediate(turn);
    const header = await inSlices(Header.parse('f', bytes, 8 + bytes.length));
    reading = false;
    // parsing takes a hundred milliseconds on the fastest machine
    assert.ok(turns > 10, `${turns} turns`);
    assert.equal(header.size, 100_000);
    assert.deepEqual(header.get('99999')?.shape, [0]);
    assert.equal(header.get('100000'), null);
  });

  it('may describe more tensors than fit into the heap: loading all is refused, loading one works', async () => {
    write(`{${Array.from({ length: 200_000 }, (_, i) => `"${i}":${entry}`).join(',')}}`);
    const { stdout } = await promisify(execFile)(process.execPath, [
      '--max-old-space-size=100',
      ...programArguments('checkpoint/small-heap'),
      file,
    ]);
    assert.match(
      stdout,
      /ERR_CHECKPOINT: .*its 200000 tensors are more than fit into the JavaScript heap of \d+ bytes; open it as SafetensorsFile/,
    );
    assert.match(stdout, /tensor 199999 has shape \[0\]/);
  }).timeout(60_000);

  it('is refused if a name or the list of metadata is too long', async () => {
    write(`{"${'x'.repeat(65_537)}":${entry}}`);
    await assert.rejects(
      loadSafetensors(file),
      /a name of 65537 bytes, more than 65536 are refused/,
    );
    write(`{"__metadata__":{${Array.from({ length: 65_537 }, (_, i) => `"${i}":""`).join(',')}}}`);
    await assert.rejects(loadSafetensors(file), /more than 65536 entries/);
  });

  it('is refused together with a tensor if the container has no memory for them', async () => {
    const constrained = process.constrainedMemory;
    try {
      write(
        `{"__metadata__":{"a":"${'x'.repeat(1e6)}"},"w":{"dtype":"U8","shape":[5000000],"data_offsets":[0,5000000]}}`,
        5_000_000,
      );
      process.constrainedMemory = () => 1_000_000;
      await assert.rejects(
        SafetensorsFile.open(file),
        (error: unknown) =>
          error instanceof CheckpointError &&
          /no memory for a header of 1000\d+ bytes/.test(error.message),
      );
      process.constrainedMemory = () => 7_000_000;
      const opened = await SafetensorsFile.open(file);
      process.constrainedMemory = () => 4_000_000;
      await assert.rejects(
        opened.get('w'),
        (error: unknown) =>
          error instanceof CheckpointError &&
          /no memory for tensor "w" of 5000000 bytes/.test(error.message),
      );
      process.constrainedMemory = () => 0; // no limit
      assert.equal((await opened.get('w')).numel(), 5_000_000);
      await opened.close();
    } finally {
      process.constrainedMemory = constrained;
    }
  });
});
