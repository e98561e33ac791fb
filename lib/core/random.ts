/**
 * The random state: a seed and a counter. Every draw takes a block of counters, so equal programs
 * draw equal numbers. Draws of distributed tensors start from a seed that the ranks have in common,
 * and are counted apart: see {@link MeshDraws}.
 */
import { ArgumentError } from './errors.js';
import { layers } from './hooks.js';
import { checkMeshDraws, type DrawPlace, MeshDraws, type MeshDrawsState } from './mesh-rng.js';
import { checkNumber, optionsOf, shown } from './options.js';
import { currentRuntime, processRuntime, type RankRuntime } from './rank-runtime.js';
import type { Tensor } from './tensor.js';

/** Where a generator stands: plain data, to be kept and restored. */
export interface RngState {
  /** The seed. */
  seed: number;
  /** How many draws there were. */
  offset: number;
  /** Where draws of distributed tensors stand, of a generator that may have made some. */
  onMeshes?: MeshDrawsState;
}

/** What an op is told that draws. @internal */
export interface DrawParams {
  readonly seedLow: number;
  readonly seedHigh: number;
  readonly offset: number;
}

/** A generator, or what one has for the ranks of a mesh. @internal */
export interface DrawSource {
  next(): DrawParams;
}

/** A source of random numbers for the random ops. */
export class Generator {
  private seedValue: number;
  private used = 0;
  /** Null before ranks have agreed or drawn: it then begins at the seed. */
  private onMeshes: MeshDraws | null = null;
  /** Whether the program has chosen where it stands. @internal */
  isSeeded = true;

  constructor(seed = 0) {
    this.seedValue = checkSeed(seed);
  }

  /** One whose seed nobody has chosen. @internal */
  static unseeded(seed = seedByChance()): Generator {
    const made = new Generator(seed);
    made.isSeeded = false;
    return made;
  }

  /** One that goes on from there. @internal */
  static at(state: RngState): Generator {
    const made = new Generator();
    made.setState(state);
    return made;
  }

  /** Starts again from `seed`, an integer below 2^53. @throws ArgumentError */
  manualSeed(seed: number): this {
    this.reseed(seed);
    if (this.onMeshes !== null) this.agree({ seed, offset: 0 });
    return this;
  }

  /**
   * As {@link manualSeed}, for plain tensors alone: draws that ranks make together go on. @internal
   */
  reseed(seed: number): void {
    layers.backend.capture?.unsupported('a random generator was seeded');
    this.seedValue = checkSeed(seed);
    this.used = 0;
    this.isSeeded = true;
  }

  /** The seed that the numbers start from. */
  get seed(): number {
    return this.seedValue;
  }

  /** The seed that the numbers start from, as a method as in PyTorch. */
  initialSeed(): number {
    return this.seedValue;
  }

  /** Seed and position, to be restored later. */
  getState(): RngState {
    const state = { seed: this.seedValue, offset: this.used };
    return this.onMeshes === null ? state : { ...state, onMeshes: this.onMeshes.state() };
  }

  /**
   * Goes on from there. A state of a program without ranks is where draws on meshes go on from,
   * too. @throws ArgumentError
   */
  setState(state: RngState): void {
    layers.backend.capture?.unsupported('the state of a random generator was set');
    const { seed, offset, onMeshes } = optionsOf('setState', state, 'seed offset onMeshes');
    checkNumber('setState', 'offset', offset, { from: 0, whole: true });
    if (onMeshes !== undefined) checkMeshDraws('setState', onMeshes);
    this.seedValue = checkSeed(seed);
    this.used = offset;
    this.isSeeded = true;
    if (onMeshes !== undefined) this.onMeshes = new MeshDraws(onMeshes);
    else if (this.onMeshes !== null) this.agree({ seed, offset });
  }

  /** Brings it back to where it stands now, whoever chose that. @internal */
  remember(): () => void {
    const { seedValue, used, isSeeded } = this;
    const onMeshes = this.onMeshes?.state() ?? null;
    return () => {
      this.seedValue = seedValue;
      this.used = used;
      this.isSeeded = isSeeded;
      this.onMeshes = onMeshes === null ? null : new MeshDraws(onMeshes);
    };
  }

  /**
   * Where ranks that have their draws from this one begin. What nobody has seeded is no part of it.
   * @internal
   */
  origin(): { seed: number; offset: number } {
    return this.isSeeded
      ? { seed: this.seedValue, offset: this.used }
      : { seed: seedByChance(), offset: 0 };
  }

  /** Draws on meshes go on from what all ranks have been given. @internal */
  agree({ seed, offset }: { seed: number; offset: number }): void {
    this.onMeshes = new MeshDraws({ seed, offset, draws: {} });
  }

  /** The params of one draw; the counter moves on. @internal */
  next(): DrawParams {
    layers.backend.capture?.draws(this, this);
    return drawParams(this.seedValue, this.used++);
  }

  /** As {@link next}, of the ranks of a mesh. @internal */
  nextTogether(place: DrawPlace): DrawParams {
    layers.backend.capture?.draws(this, { next: () => this.nextTogether(place) });
    this.onMeshes ??= new MeshDraws({ seed: this.seedValue, offset: 0, draws: {} });
    const { seed, offset } = this.onMeshes.next(place);
    this.used++;
    return drawParams(seed, offset);
  }
}

function drawParams(seed: number, offset: number): DrawParams {
  const seedHigh = Math.floor(seed / 2 ** 32);
  return { seedLow: seed - seedHigh * 2 ** 32, seedHigh, offset };
}

function checkSeed(seed: number): number {
  if (!Number.isSafeInteger(seed) || seed < 0)
    throw new ArgumentError(
      `manualSeed: expected a non-negative integer below 2^53, got ${shown(seed)}`,
      { seed },
    );
  return seed;
}

/** @internal */
export function seedByChance(chance = Math.random): number {
  return Math.floor(chance() * 2 ** 32);
}

/**
 * The generator that ops use when none is given; of ranks that share a process, each has its own.
 */
export const defaultGenerator = Generator.unseeded();
processRuntime.generator = defaultGenerator;

/** @internal */
export function generatorOf(runtime: RankRuntime): Generator {
  runtime.generator ??= Generator.unseeded();
  return runtime.generator;
}

/** The one of the present rank. @internal */
export function currentGenerator(): Generator {
  return generatorOf(currentRuntime());
}

/** Whose draws those of plain tensors are meanwhile. */
let together: DrawPlace | null = null;

/** Runs `fn`, which draws what all ranks of a mesh have in common. @internal */
export function drawnTogether<T>(place: DrawPlace | null, fn: () => T): T {
  const before = together;
  together = place;
  try {
    return fn();
  } finally {
    together = before;
  }
}

/** The ranks that hold one of the tensors; null if all are plain. @internal */
export function drawPlaceOf(...tensors: readonly (Tensor | null)[]): DrawPlace | null {
  return tensors.find((t) => t !== null && t.sharding !== null)?.sharding?.draws ?? null;
}

/** The next draw, of `generator` or the default one, for an op on these tensors. @internal */
export function nextDraw(
  generator: Generator | undefined,
  ...beside: readonly (Tensor | null)[]
): DrawParams {
  const source = generator ?? currentGenerator();
  const place = drawPlaceOf(...beside) ?? together;
  return place === null ? source.next() : source.nextTogether(place);
}

/**
 * Seeds the default generator; the same seed gives the same numbers on the CPU, on CUDA and on any
 * mesh, where all ranks give it.
 */
export function manualSeed(seed: number): Generator {
  return currentGenerator().manualSeed(seed);
}

/** The seed of the default generator. */
export function initialSeed(): number {
  layers.backend.capture?.unsupported('the seed was read');
  return currentGenerator().seed;
}

/**
 * Seeds the default generator by chance and returns the seed. What ranks draw on meshes goes on as
 * it was: each has another chance.
 */
export function seed(): number {
  const chosen = Math.floor(Math.random() * Number.MAX_SAFE_INTEGER);
  currentGenerator().reseed(chosen);
  return chosen;
}

/** Where the default generator stands. */
export function getRngState(): RngState {
  layers.backend.capture?.unsupported('the state of the random generator was read');
  return currentGenerator().getState();
}

/** Puts the default generator where it stood. @throws ArgumentError */
export function setRngState(state: RngState): void {
  currentGenerator().setState(state);
}
