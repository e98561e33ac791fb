/** Each kind of value that a state may hold comes back as the same kind, or is refused by its path. */
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { distributedCheckpoint } from '../../../lib/distributed.js';
import {
  ArgumentError,
  CheckpointError,
  type CheckpointState,
  type CheckpointValue,
  loadCheckpoint,
  nn,
  ones,
  type Stateful,
  saveCheckpoint,
  saveSafetensors,
  type Tensor,
  zeros,
} from '../../../lib/index.js';

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-values-'));
  file = path.join(folder, 'run.safetensors');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Values of all kinds that JSON has, or turns into something else. */
const values: CheckpointState = {
  map: new Map<string | number | null, CheckpointValue>([
    ['a', new Map([[1, [new Set([2n, NaN])]]])],
    [2, undefined],
    [null, -0],
  ]),
  set: new Set(['x', -0, Infinity, undefined, true]),
  date: new Date(1234567890123),
  bytes: Uint8Array.of(0, 128, 255),
  part: new Float64Array([1, NaN, -0, 4]).subarray(1, 3),
  ids: BigInt64Array.of(-1n, 2n ** 60n),
  buffer: Buffer.from('buffer'),
  raw: Uint8Array.of(1, 2).buffer,
  view: new DataView(Uint8Array.of(1, 2, 3).buffer),
  numbers: [NaN, -Infinity, -0, 2n ** 70n, undefined, null],
  nested: { deep: [{ when: new Date(5), tags: new Set(['a']) }] },
  marks: { $value: 'bigint 5', inner: { $value: ['Map', []] }, one: { $tensor: 'x' } },
};

/** An object of the program that holds its state as it is. */
class Holder implements Stateful {
  state: unknown;
  constructor(state: unknown) {
    this.state = state;
  }
  stateDict(): unknown {
    return this.state;
  }
  loadStateDict(state: unknown): void {
    this.state = state;
  }
}

describe('a value of a state', () => {
  it('comes back as the same kind', async () => {
    await saveCheckpoint(file, values);
    const names = Object.keys(values);
    const empty = Object.fromEntries(names.map((name) => [name, null]));
    assert.deepEqual(await loadCheckpoint(file, empty), values);
  });

  it('is a date that was never valid, and stays one', async () => {
    await saveCheckpoint(file, { date: new Date(NaN) });
    const { date } = await loadCheckpoint(file, { date: new Date() });
    assert.ok(date instanceof Date && Number.isNaN(date.getTime()));
  });

  it('comes back as the same kind within the state dict of an object', async () => {
    await saveCheckpoint(file, { own: new Holder(values) });
    const own = new Holder(null);
    await loadCheckpoint(file, { own });
    assert.deepEqual(own.state, values);
  });

  it('comes back as the same kind from a checkpoint of several ranks', async () => {
    await distributedCheckpoint.save(folder, { own: new Holder(values), ...values });
    const own = new Holder(null);
    const state: CheckpointState = { own, ...values, map: null, set: null, date: null };
    await distributedCheckpoint.load(folder, state);
    assert.deepEqual(own.state, values);
    assert.deepEqual(state, { own, ...values });
  });

  it('is found in maps: tensors are filled in place, and objects take their state', async () => {
    const made = (value: number) => ({
      nets: new Map<string, nn.Linear>([['a', new nn.Linear(1, 1)]]),
      sums: new Map([[7, ones([2]).mul(value)]]),
      counts: new Map([[`${value}`, value]]),
      own: new Holder(new Map([['x', ones([1]).mul(value)]])),
    });
    const [saved, target] = [made(3), made(0)];
    await saveCheckpoint(file, saved);
    const sum = target.sums.get(7) as Tensor;
    await loadCheckpoint(file, target);
    assert.deepEqual(sum.tolist(), [3, 3]);
    const weight = (run: typeof saved) => run.nets.get('a')?.weight.tolist();
    assert.deepEqual(weight(target), weight(saved));
    assert.deepEqual(target.counts, saved.counts);
    const { state } = target.own;
    assert.deepEqual((state as Map<string, Tensor>).get('x')?.tolist(), [3]);
  });
});

describe('a value that no file holds', () => {
  class Plain {
    value = 1;
  }
  class Table extends Map {}
  const key = {};
  const addItself = (set: Set<unknown>) => set.add(set);
  const setItself = (map: Map<unknown, unknown>) => map.set('m', map);
  for (const [what, value] of Object.entries({
    'a function': () => 1,
    'an instance of a class': new Plain(),
    'an instance of a subclass of Map': new Table().set(1, 2),
    'a symbol': Symbol('s'),
    'a WeakMap': new WeakMap([[key, 1]]),
    'a regular expression': /a/,
    'a promise': Promise.resolve(1),
    'an object with a symbol as name': { [Symbol('s')]: 1 },
    'a map with objects as keys': new Map([[key, 1]]),
    'a set of tensors': new Set([ones([1])]),
    'a set of itself': addItself(new Set()),
    'a map of itself': setItself(new Map()),
  }))
    it(`is refused by its path: ${what}`, async () => {
      const refused = (state: unknown, at: RegExp) =>
        assert.rejects(
          saveCheckpoint(file, state as never),
          (error: Error) =>
            error instanceof ArgumentError &&
            error.message.startsWith('saveCheckpoint: ') &&
            at.test(error.message),
        );
      await refused({ a: [{ b: value }] }, /"a\.0\.b/);
      await refused({ optimizer: new Holder({ state: { x: value } }) }, /"optimizer\.state\.x/);
      await refused({ a: new Map([['m', [value]]]) }, /"a\.m\.0/);
    });

  it('is refused with what to give: the state dict of an object within a state dict', async () => {
    const own = new Holder({ net: new nn.Linear(1, 1) });
    await assert.rejects(saveCheckpoint(file, { own }), /"own\.net".*a Linear.*stateDict\(\)/s);
    const inner = new Holder({ inner: new Plain() });
    await assert.rejects(
      distributedCheckpoint.save(folder, { inner }),
      /distributedCheckpoint\.save: .*"inner\.inner".*a Plain/s,
    );
  });
});

describe('a checkpoint with another kind of value', () => {
  it('is refused, before anything changes', async () => {
    const refused = async (saved: unknown, state: CheckpointState, message: RegExp) => {
      await saveCheckpoint(file, { x: saved } as CheckpointState);
      const before = { ...state };
      await assert.rejects(
        loadCheckpoint(file, state),
        (error: Error) => error instanceof CheckpointError && message.test(error.message),
      );
      assert.deepEqual(state, before);
    };
    await refused({}, { x: new Map() }, /"x" of the state is a Map, .* has an object there/);
    await refused(new Map(), { x: { a: zeros([1]) } }, /"x" of the state is an object, .* a Map/);
    await refused([1], { x: new Set([1]) }, /"x" of the state is a Set, .* has an Array there/);
    await refused(new Map([['a', 1]]), { x: new Map([['b', [1]]]) }, /"x\.b".*"x\.a"/s);
  });

  it('is refused as damaged if its values are none', async () => {
    for (const text of ['{', '5', '{"state":{"$value":["Function","AAAA"]},"random":{}}']) {
      await saveSafetensors(file, {}, { metadata: { 'shardwise.checkpoint': text } });
      await assert.rejects(loadCheckpoint(file, {}), CheckpointError, text);
    }
  });
});
