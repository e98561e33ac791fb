/**
 * Fuzzes checkpoints: damaged files must give their tensors or a CheckpointError; saves overlap,
 * are killed, or meet special files.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { CheckpointError, loadSafetensors, SafetensorsFile } from '../../lib/index.js';
import { fuzzFiles, type scenes } from './checkpoint-files.js';
import { describeError, Finding, type Rng } from './rng.js';

const codes: readonly [code: string, bytes: number][] = [
  ['F32', 4],
  ['F64', 8],
  ['F16', 2],
  ['BF16', 2],
  ['I64', 8],
  ['I32', 4],
  ['I16', 2],
  ['I8', 1],
  ['U8', 1],
  ['BOOL', 1],
];
const names = [
  'a',
  'layer.0.weight',
  '',
  '__proto__',
  'constructor',
  'ünï',
  '\u0000',
  'x'.repeat(300),
  '__metadata__',
  'toString',
];

type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
type Field = [name: string, value: Json];

/** A valid header as a list of fields, so that names may be given twice. */
function validFields(rng: Rng): { fields: Field[]; bytes: number } {
  const fields: Field[] = rng.chance(0.3) ? [['__metadata__', { step: '7' }]] : [];
  let at = 0;
  for (let i = rng.int(0, 4); i > 0; i--) {
    const [code, itemBytes] = rng.pick(codes);
    const shape = rng.list(rng.int(0, 3), () => rng.int(0, 4));
    const bytes = shape.reduce((a, b) => a * b, itemBytes);
    fields.push([
      rng.chance(0.6) ? `t${i}` : rng.pick(names),
      { dtype: code, shape, data_offsets: [at, at + bytes] },
    ]);
    at += bytes;
  }
  return { fields, bytes: at };
}

const oddNumbers: readonly Json[] = [
  -1,
  0,
  1,
  1.5,
  7,
  2 ** 31,
  2 ** 53,
  2 ** 53 - 1,
  1e308,
  '1',
  null,
  true,
  [],
  {},
];

/**
 * Nested lists. In a field they are the text "@depth", because JSON.stringify would overflow the
 * stack.
 */
function nested(depth: number): string {
  return `${'['.repeat(depth)}${']'.repeat(depth)}`;
}

/** Damages one value of a field. */
function damageField(rng: Rng, fields: Field[]): void {
  const field = rng.pick(fields);
  if (field[1] === null || typeof field[1] !== 'object' || Array.isArray(field[1])) return;
  const entry = field[1];
  switch (rng.int(0, 8)) {
    case 0:
      entry[rng.pick(['dtype', 'shape', 'data_offsets'])] = `@${rng.pick([3, 50_000])}`;
      return;
    case 8:
      entry['dtype'] = rng.pick<Json>(['F8_E4M3', 'f32', '', 7, null, ['F32'], '__proto__']);
      return;
    case 1:
      entry['shape'] = rng.pick<Json>([
        [2 ** 40, 2 ** 40],
        [-1],
        'no',
        null,
        [[1]],
        Array.from({ length: 40 }, () => 1),
        [2 ** 53],
        [0, 2 ** 52],
      ]);
      return;
    case 2:
      entry['data_offsets'] = [rng.pick(oddNumbers), rng.pick(oddNumbers)];
      return;
    case 3:
      entry['data_offsets'] = rng.pick<Json>([[], [0], [0, 0, 0], 'x', null, [8, 0]]);
      return;
    case 4:
      fields.push([field[0], structuredClone(field[1])]);
      return;
    case 5:
      field[1] = rng.pick<Json>([null, 1, 'x', [], {}]);
      return;
    case 6:
      field[0] = rng.pick(names);
      return;
    default:
      entry[rng.pick(names)] = rng.pick(oddNumbers);
  }
}

const oddText = [
  ' ',
  '\n',
  '\t   ',
  '\uFEFF',
  '-',
  '0',
  '.0',
  'e1',
  ',',
  ':',
  '{',
  '}',
  '[',
  ']',
  '"',
  '\\',
  '\\u0061',
  '\\ud800',
  '\0',
  'null',
  '"q":[{}],',
  ' '.repeat(70_000),
];

function encode(fields: readonly Field[], rng: Rng): Uint8Array {
  if (rng.chance(0.03))
    return new TextEncoder().encode(nested(rng.pick([10, 1000, 20_000, 200_000])));
  if (rng.chance(0.03))
    return new TextEncoder().encode(`{"a":${nested(rng.pick([100, 100_000]))}}`);
  let text = `{${fields.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value).replace(/"@(\d+)"/g, (_, depth) => nested(Number(depth)))}`).join(',')}}`;
  for (let n = rng.chance(0.3) ? rng.int(1, 3) : 0; n > 0; n--) {
    const at = rng.chance(0.2) ? rng.pick([0, text.length]) : rng.int(0, text.length);
    text = text.slice(0, at) + rng.pick(oddText) + text.slice(at + rng.int(0, 1));
  }
  return new TextEncoder().encode(text);
}

/** A file that is mostly valid except for one or two damages. */
export function makeFile(rng: Rng): Uint8Array {
  const { fields, bytes } = validFields(rng);
  for (let n = rng.int(0, 2); n > 0 && fields.length > 0; n--) damageField(rng, fields);
  const json = encode(fields, rng);
  const file = new Uint8Array(
    8 + Math.max(0, json.length + bytes + (rng.chance(0.1) ? rng.int(-4, 9) : 0)),
  );
  const claimed = rng.chance(0.1)
    ? rng.pick([
        0n,
        1n,
        2n ** 31n,
        2n ** 63n,
        2n ** 64n - 1n,
        100_000_001n,
        BigInt(json.length + 1),
        BigInt(Math.max(0, json.length - 1)),
      ])
    : BigInt(json.length);
  new DataView(file.buffer).setBigUint64(0, claimed, true);
  file.set(json.subarray(0, file.length - 8), 8);
  for (let n = rng.chance(0.3) ? rng.int(1, 4) : 0; n > 0; n--) {
    const at = rng.int(0, file.length - 1);
    file[at] = (file[at] as number) ^ (1 << rng.int(0, 7));
  }
  return rng.chance(0.15) ? file.subarray(0, rng.int(0, file.length)) : file;
}

let scratch: string | null = null;

function scratchFile(name: string): string {
  if (scratch === null) {
    const made = mkdtempSync(path.join(tmpdir(), 'shardwise-fuzz-'));
    scratch = made;
    process.on('exit', () => rmSync(made, { recursive: true, force: true }));
  }
  return path.join(scratch, name);
}

const counts = new Map<string, number>();
const count = (what: string): void => void counts.set(what, (counts.get(what) ?? 0) + 1);

/** Counts of the cases by kind. */
export function reportCheckpoint(): string {
  return [...counts].map(([what, n]) => `${n} ${what}`).join(', ');
}

/** Compares an accepted header with JSON.parse. @throws Finding if they differ */
async function compare(file: string, bytes: Uint8Array): Promise<void> {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  let parsed: Record<string, { shape: number[]; data_offsets: [number, number] }>;
  try {
    parsed = JSON.parse(
      new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(
        bytes.subarray(8, 8 + length),
      ),
    );
  } catch (error) {
    throw new Finding(`a header was accepted that is not JSON: ${(error as Error).message}`);
  }
  const opened = await SafetensorsFile.open(file);
  const expected = Object.keys(parsed).filter((name) => name !== '__metadata__');
  if ([...expected].sort().join() !== opened.names.sort().join())
    throw new Finding(`names ${opened.names}, not ${expected}`);
  for (const name of expected) {
    const t = await opened.get(name).catch(() => null); // bytes that are not bools
    if (t !== null && t.shape.join() !== parsed[name]?.shape.join())
      throw new Finding(`"${name}" has shape [${t.shape}], not [${parsed[name]?.shape}]`);
    t?.dispose();
  }
  if (JSON.stringify(opened.metadata) !== JSON.stringify(parsed['__metadata__'] ?? {}))
    throw new Finding(`metadata ${JSON.stringify(opened.metadata)}`);
  await opened.close();
}

async function fuzzReader(rng: Rng, trace: (line: string) => void): Promise<void> {
  const bytes = makeFile(rng);
  trace(`${bytes.length} bytes: ${Buffer.from(bytes.subarray(0, 1000)).toString('latin1')}`);
  const file = scratchFile('case.safetensors');
  writeFileSync(file, bytes);
  try {
    const tensors = await loadSafetensors(file);
    for (const name of Object.keys(tensors)) tensors[name]?.tolist();
    for (const name of Object.keys(tensors)) tensors[name]?.dispose();
    await compare(file, bytes);
    count('files read');
  } catch (error) {
    if (!(error instanceof CheckpointError)) {
      const head = Buffer.from(bytes.subarray(0, 300)).toString('latin1');
      throw new Finding(
        `${error instanceof Finding ? error.message : 'not a CheckpointError'} for ` +
          `${head}\n${describeError(error)}`,
      );
    }
    count('files refused');
  }
}

/** Runs one case. @throws Finding */
export async function fuzzCheckpoint(rng: Rng, trace: (line: string) => void): Promise<void> {
  const at = rng.unit();
  const scene: keyof typeof scenes | null =
    at < 0.002
      ? 'killed processes'
      : at < 0.005
        ? 'terminated workers'
        : at < 0.025
          ? 'overlaps'
          : at < 0.045
            ? 'obstacles'
            : null;
  if (scene === null) return fuzzReader(rng, trace);
  trace(scene);
  await fuzzFiles(scene, rng, scratchFile('folder'));
  count(scene);
}
