/** Words of plans, as native/README.md describes them, from recorded and damaged commands. */
import { ALLOCATE, anyWord, type Command, IMMEDIATE, INDEX_VIEW } from './commands.js';
import type { Rng } from './rng.js';

const ITEM_BYTES = [4, 8, 2, 2, 8, 4, 2, 1, 1, 1];

/** A plan, and what a run of it writes into the shared words. */
export interface FuzzedPlan {
  readonly words: number[];
  /** Handle and first byte of each given storage, then random state. */
  readonly run: number[];
  readonly outputs: number;
}

/** Slots of one plan: each handle, each output, and the arena. */
class Slots {
  readonly given: number[] = [];
  readonly outputs: number[] = [];
  arena = 0;

  /** The slot and the first byte of an operand. Outputs are numbered from the end of `count`. */
  place(rng: Rng, kind: number, value: number, item: number, count: number): [number, number] {
    if (kind !== ALLOCATE) {
      let at = this.given.indexOf(kind);
      if (at < 0) at = this.given.push(kind) - 1;
      return [at, value * item];
    }
    if (rng.chance(0.5)) return [count + this.outputs.push(value) - 1, 0];
    const first = rng.chance(0.9) ? this.arena : 0;
    this.arena += Number.isFinite(value) ? Math.ceil(Math.abs(value) / 64) * 64 : 0;
    return [-ALLOCATE, first];
  }
}

/** A plan of these commands. A few words may be damaged. */
export function planOf(rng: Rng, commands: readonly Command[]): FuzzedPlan {
  const handles = new Set(
    commands
      .flatMap(({ operands }) => operands.map(({ kind }) => kind))
      .filter((kind) => kind >= 0),
  );
  const slots = new Slots();
  const draws = rng.int(0, 2);
  const arenaPlaces: number[] = [];
  const body: number[] = [];
  for (const { kernel, inputs, outputs, cost, operands, params } of commands) {
    const patches = params.length > 0 && draws > 0 && rng.chance(0.3) ? 1 : 0;
    body.push(kernel, inputs, outputs, params.length, patches, cost);
    for (const { kind, value, dtype, sizes, strides } of operands) {
      const layout = [sizes.length, ...sizes, ...strides];
      if (kind === IMMEDIATE) body.push(kind, value, dtype);
      else if (kind === INDEX_VIEW) body.push(kind, value, dtype, ...layout);
      else {
        const [slot, first] = slots.place(rng, kind, value, ITEM_BYTES[dtype] ?? 8, handles.size);
        if (slot === -ALLOCATE && kind === ALLOCATE) arenaPlaces.push(body.length);
        body.push(slot, first, dtype, ...layout);
      }
    }
    body.push(...params);
    if (patches > 0) body.push(rng.int(0, params.length - 1), rng.int(0, draws - 1));
  }
  const arena = slots.given.length + slots.outputs.length;
  for (const at of arenaPlaces) body[at] = arena;
  const { given, outputs } = slots;
  const words = [
    given.length,
    outputs.length,
    slots.arena,
    draws,
    commands.length,
    ...outputs,
    ...given.map(() => (rng.chance(0.8) ? -1 : rng.int(0, commands.length - 1))),
    ...body,
  ];
  for (let n = rng.pick([0, 0, 0, 1, 2]); n > 0; n--)
    words[rng.int(0, words.length - 1)] = rng.chance(0.5) ? rng.int(-1, 9) : rng.pick(anyWord);
  if (rng.chance(0.1)) words.length = rng.int(0, words.length);
  const run = [
    ...given.flatMap((handle) => [handle, rng.chance(0.9) ? 0 : rng.pick([4, 64, ...anyWord])]),
    ...rng.list(draws, () => (rng.chance(0.8) ? rng.int(0, 4) : rng.pick(anyWord))),
  ];
  return { words, run, outputs: words[1] ?? 0 };
}
