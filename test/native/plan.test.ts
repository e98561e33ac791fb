/** The raw addon refuses plans that do not fit, and runs of them that would reach other memory. */
import assert from 'node:assert/strict';
import { addon } from '../../lib/runtime.js';
import { FLOAT32, INT64, storage, stream, words } from './raw-commands.js';

const kernel = (name: string): number => addon.kernelNames.indexOf(name);

/** An operand: a vector in a slot, from a byte on. */
const vector = (slot: number, count: number, first = 0, dtype = FLOAT32): number[] => [
  slot,
  first,
  dtype,
  1,
  count,
  1,
];

/** A command of these inputs and one output, without patches. */
const command = (
  name: string,
  inputs: number[][],
  output: number[],
  params: number[],
): number[] => [
  kernel(name),
  inputs.length,
  1,
  params.length,
  0,
  0,
  ...inputs.flat(),
  ...output,
  ...params,
];

interface Parts {
  given?: number;
  outputs?: number[];
  arena?: number;
  draws?: number;
  /** The command behind which each given storage is freed. */
  frees?: number[];
  commands: number[][];
}

const planWords = ({
  given = 1,
  outputs = [32],
  arena = 0,
  draws = 0,
  frees = new Array(Math.max(0, Math.min(given, 9))).fill(-1),
  commands,
}: Parts): number[] => [
  given,
  outputs.length,
  arena,
  draws,
  commands.length,
  ...outputs,
  ...frees,
  ...commands.flat(),
];

/** y = exp(x) of 8 numbers: the given storage is slot 0, the output slot 1. */
const exp = command('exp', [vector(0, 8)], vector(1, 8), [0]);

/** Plans are freed with their tokens. */
const tokens: unknown[] = [];

function create(list: readonly number[]): number {
  tokens.push(addon.createPlan(Float64Array.from(list), 0));
  return words[0] as number;
}

const code = (expected: string) => (error: NodeJS.ErrnoException) => {
  assert.equal(error.code, expected, error.message);
  return true;
};

const misfits: Record<string, Parts> = {
  'a kernel that does not exist': { commands: [[999, ...exp.slice(1)]] },
  'a slot that does not exist': { commands: [command('exp', [vector(0, 8)], vector(3, 8), [0])] },
  'a handle in place of a slot': {
    commands: [command('exp', [vector(2 ** 24 + 1, 8)], vector(1, 8), [0])],
  },
  'an output that is too small': { outputs: [28], commands: [exp] },
  'an arena that is too small': {
    outputs: [],
    arena: 32,
    commands: [command('exp', [vector(0, 8)], vector(1, 8, 4), [0])],
  },
  'operands that the kernel does not expect': {
    commands: [command('exp', [vector(0, 8)], vector(1, 4), [0])],
  },
  'an operand between two elements': {
    commands: [command('exp', [vector(0, 8, 2)], vector(1, 8), [0])],
  },
  'an output whose elements share memory': {
    commands: [command('exp', [vector(0, 8)], [1, 0, FLOAT32, 1, 8, 0], [0])],
  },
  'a patch of a parameter that the command does not have': {
    draws: 1,
    commands: [[...exp.slice(0, 4), 1, 0, ...exp.slice(6), 5, 0]],
  },
  'a patch by a word that a run does not get': {
    draws: 1,
    commands: [[...exp.slice(0, 4), 1, 0, ...exp.slice(6), 0, 1]],
  },
  'a storage that is freed before its last use': {
    outputs: [32, 32],
    frees: [0],
    commands: [
      command('exp', [vector(0, 8)], vector(1, 8), [0]),
      command('exp', [vector(0, 8)], vector(2, 8), [0]),
    ],
  },
  'a storage that is freed behind no command': { frees: [1], commands: [exp] },
  'a negative number of storages': { given: -1, commands: [exp] },
  'more storages than words fit': { given: 2 ** 40, commands: [] },
  'more outputs than words fit': { outputs: new Array(2 ** 19).fill(0), commands: [] },
};

describe('a plan of the addon', () => {
  after(() => tokens.splice(0));

  for (const [what, parts] of Object.entries(misfits))
    it(`is refused for ${what}`, () =>
      assert.throws(() => create(planWords(parts)), code('SW_INVALID')));

  it('is refused if it is cut off anywhere, or has words left over', () => {
    const list = planWords({ commands: [exp] });
    for (let length = 0; length < list.length; length++)
      assert.throws(() => create(list.slice(0, length)), code('SW_INVALID'), `${length} words`);
    assert.throws(() => create([...list, 0]), code('SW_INVALID'));
  });

  it('is refused for what is no Float64Array, and for a device that does not exist', () => {
    for (const bad of [null, {}, [1], new Float32Array(8), new Uint8Array(4)])
      assert.throws(() => addon.createPlan(bad as never, 0), code('SW_INVALID'));
    assert.throws(() => addon.createPlan(new Float64Array(5), 200), code('SW_DEVICE'));
  });

  it('computes from the storage that it is given, and frees its arena', () => {
    const before = addon.memoryStats(0).allocatedBytes;
    const chain = planWords({
      arena: 32,
      commands: [
        command('exp', [vector(0, 8)], vector(2, 8), [0]),
        command('exp', [vector(2, 8)], vector(1, 8), [0]),
      ],
    });
    const id = create(chain);
    const given = storage(40);
    words.set([given, 8]);
    assert.equal(addon.runPlan(id, stream, false), undefined);
    const output = words[0] as number;
    const values = new Float32Array(8);
    addon.readSync(output, 0, values, stream);
    assert.deepEqual([...values], new Array(8).fill(Math.fround(Math.E)));
    addon.release(output);
    addon.release(given);
    assert.equal(addon.memoryStats(0).allocatedBytes, before);
  });

  it('frees given storages behind their last use, before it allocates what comes later', () => {
    const large = 2 ** 20;
    const chain = planWords({
      outputs: [4 * large, 4 * large],
      arena: 32,
      frees: [1],
      commands: [
        command('exp', [vector(0, 8)], vector(3, 8), [0]),
        command('exp', [vector(0, large)], vector(1, large), [0]),
        command('exp', [vector(3, 8)], vector(2, 8), [0]),
      ],
    });
    const id = create(chain);
    const given = storage(4 * large);
    const before = addon.memoryStats(0).allocatedBytes;
    addon.resetPeakStats(0);
    words.set([given, 0]);
    addon.runPlan(id, stream, false);
    const outputs = [...words.subarray(0, 2)];
    const { allocatedBytes, peakAllocatedBytes } = addon.memoryStats(0);
    assert.ok(peakAllocatedBytes - before < 4.1 * large, `${peakAllocatedBytes - before}`);
    assert.ok(Math.abs(allocatedBytes - before - 4 * large) < 4096);
    words.set([given, 0]);
    assert.equal(addon.runPlan(id, stream, false), false, 'it is freed');
    for (const handle of outputs) addon.release(handle);
  });

  it('does not free a storage that it is given twice', () => {
    const add = command('exp', [vector(0, 8)], vector(2, 8), [0]);
    const id = create(planWords({ given: 2, frees: [0, -1], commands: [add] }));
    const given = storage(32);
    words.set([given, 0, given, 0]);
    assert.equal(addon.runPlan(id, stream, false), false);
    addon.release(given);
  });

  it('goes on behind a command whose outputs found no memory, and only then', () => {
    const id = create(
      planWords({
        outputs: [32, 2 ** 49],
        commands: [exp, command('exp', [vector(1, 8)], vector(2, 8), [0])],
      }),
    );
    const given = storage(32);
    const before = addon.memoryStats(0).allocatedBytes;
    assert.throws(() => addon.runPlan(id, stream, false, true), code('SW_INVALID'));
    for (const goesOn of [false, true]) {
      words.set([given, 0]);
      assert.throws(() => addon.runPlan(id, stream, false, goesOn), code('SW_OUT_OF_MEMORY'));
      assert.equal(words[0], 1);
    }
    assert.equal(addon.memoryStats(0).allocatedBytes, before);
    assert.throws(() => addon.runPlan(id, stream, false, true), code('SW_INVALID'));
    addon.release(given);
  });

  it('does not run with storages that do not fit', () => {
    const id = create(planWords({ commands: [exp] }));
    const small = storage(16);
    const freed = storage(32);
    addon.release(freed);
    const fitting = storage(32);
    const larger = storage(64);
    const cases = [
      [small, 0],
      [freed, 0],
      [fitting, 4],
      [larger, 2],
      [fitting, -4],
      [fitting, 2 ** 60],
      [fitting, Number.NaN],
      [fitting, 0.5],
      [0, 0],
      [Number.POSITIVE_INFINITY, 0],
    ];
    for (const given of cases) {
      words.set(given);
      assert.equal(addon.runPlan(id, stream, true), false, String(given));
    }
    for (const handle of [small, fitting, larger]) addon.release(handle);
  });

  it('does not run under an id that it does not have, or on a stream that does not exist', () => {
    const id = create(planWords({ commands: [exp] }));
    for (const [plan, on] of [
      [id + 1000, stream],
      [id, 1000],
      [Number.NaN, stream],
    ] as const)
      assert.throws(() => addon.runPlan(plan, on, false), code('SW_CLOSED'));
  });

  it('checks again what a run patches', () => {
    // Reduces as many dims as a word says.
    const sum = [kernel('reduce_sum'), 1, 1, 1, 1, 0, ...[0, 0, FLOAT32, 2, 4, 2, 2, 1]];
    const list = planWords({
      outputs: [16],
      draws: 1,
      commands: [[...sum, ...vector(1, 4), 1, 0, 0]],
    });
    const id = create(list);
    const given = storage(32);
    words.set([given, 0, 1]);
    addon.runPlan(id, stream, false);
    addon.release(words[0] as number);
    words.set([given, 0, 2]);
    assert.throws(() => addon.runPlan(id, stream, false), code('SW_INVALID'));
    assert.equal(words[0], 0);
    addon.release(given);
  });

  it('does not run a command with an output over its indices, in one storage or two views of it', () => {
    const gather = command('gather', [vector(0, 4), vector(1, 4, 0, INT64)], vector(2, 4), []);
    const apart = create(planWords({ given: 3, outputs: [], commands: [gather] }));
    const [values, index, into] = [storage(16), storage(32), storage(16)];
    words.set([values, 0, index, 0, into, 0]);
    assert.equal(addon.runPlan(apart, stream, false), undefined);
    words.set([values, 0, index, 0, index, 16]);
    assert.throws(() => addon.runPlan(apart, stream, false), code('SW_INVALID'));
    assert.equal(words[0], 0);
    const over = command('gather', [vector(0, 4), vector(1, 4, 0, INT64)], vector(1, 4), []);
    const within = create(planWords({ given: 2, outputs: [], commands: [over] }));
    words.set([values, 0, index, 0]);
    assert.throws(() => addon.runPlan(within, stream, false), code('SW_INVALID'));
    for (const handle of [values, index, into]) addon.release(handle);
  });

  it('says which command failed', () => {
    const picked = command(
      'index_select',
      [[0, 0, FLOAT32, 3, 1, 4, 1, 4, 1, 1], vector(1, 1, 0, INT64)],
      [2, 0, FLOAT32, 3, 1, 1, 1, 1, 1, 1],
      [],
    );
    const list = planWords({
      given: 2,
      outputs: [16],
      commands: [command('exp', [vector(0, 4)], vector(2, 4), [0]), picked],
    });
    const id = create(list);
    const [values, index] = [storage(16), storage(8)];
    addon.write(index, 0, BigInt64Array.of(4n), stream);
    addon.synchronize(stream);
    words.set([values, 0, index, 0]);
    assert.throws(() => addon.runPlan(id, stream, false), code('SW_INDEX'));
    assert.equal(words[0], 1);
    addon.release(values);
    addon.release(index);
  });
});
