/**
 * The random state: a seed and a counter. Every draw takes a block of counters, so equal programs
 * draw equal numbers. Draws of distributed tensors use one seed of all ranks and separate counters,
 * see {@link MeshDraws}.
 */
import { ArgumentError } from './errors.js';
import { layers } from './hooks.js';
import { checkMeshDraws, type DrawPlace, MeshDraws, type MeshDrawsState } from './mesh-rng.js';
import { checkFunction, checkNumber, checkSynchronous, optionsOf, shown } from './options.js';
import { currentRuntime, processRuntime, type RankRuntime } from './rank-runtime.js';
import type { Tensor } from './tensor.js';

/** The state of a generator as plain data, to save and restore. */
export interface RngState {
  /** The seed. */
  seed: number;
  /** The number of draws so far. */
  offset: number;
  /** The state of draws on meshes, if there were any. */
  onMeshes?: MeshDrawsState;
}

/** The parameters of an op that draws. @internal */
export interface DrawParams {
  readonly seedLow: number;
  readonly seedHigh: number;
  readonly offset: number;
}

/** A generator, or its draws for the ranks of a mesh. @internal */
export interface DrawSource {
  next(): DrawParams;
}

/** A source of random numbers for the random ops. */
export class Generator {
  private seedValue: number;
  private used = 0;
  /** Null before the first draw on a mesh; it then begins at the seed. */
  private onMeshes: MeshDraws | null = null;
  /** Whether the program has chosen the state. @internal */
  isSeeded = true;

  constructor(seed = 0) {
    this.seedValue = checkSeed(seed);
  }

  /** A generator with a random seed. @internal */
  static unseeded(seed = seedByChance()): Generator {
    const made = new Generator(seed);
    made.isSeeded = false;
    return made;
  }

  /** A generator that continues from a state. @internal */
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

  /** As {@link manualSeed}, for plain tensors only: draws on meshes continue. @internal */
  reseed(seed: number): void {
    checkSeed(seed);
    layers.backend.capture?.seeds(this, seed);
    this.seedValue = seed;
    this.used = 0;
    this.isSeeded = true;
  }

  /** The seed that the numbers start from. */
  get seed(): number {
    layers.backend.capture?.unsupported('the seed was read');
    return this.seedValue;
  }

  /** The seed that the numbers start from, as a method as in PyTorch. */
  initialSeed(): number {
    return this.seed;
  }

  /** Seed and position, to be restored later. */
  getState(): RngState {
    layers.backend.capture?.unsupported('the state of a random generator was read');
    const state = { seed: this.seedValue, offset: this.used };
    return this.onMeshes === null ? state : { ...state, onMeshes: this.onMeshes.state() };
  }

  /**
   * Restores a state. If the state is of a program without ranks, draws on meshes continue from it
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

  /** Returns a function that restores the current state. @internal */
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
   * The state from which draws on meshes begin; a random one if the program has not seeded this
   * generator. @internal
   */
  origin(): { seed: number; offset: number } {
    return this.isSeeded
      ? { seed: this.seedValue, offset: this.used }
      : { seed: seedByChance(), offset: 0 };
  }

  /** Sets the state of draws on meshes, which is equal on all ranks. @internal */
  agree({ seed, offset }: { seed: number; offset: number }): void {
    this.onMeshes = new MeshDraws({ seed, offset, draws: {} });
  }

  /** The parameters of the next draw; advances the counter. @internal */
  next(): DrawParams {
    layers.backend.capture?.draws(this, this);
    return drawParams(this.seedValue, this.used++);
  }

  /** The parameters of the next draw on a mesh, which all its ranks make. @internal */
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

/** The default generator of ops. Ranks that share a process have a default generator each. */
export const defaultGenerator = Generator.unseeded();
processRuntime.generator = defaultGenerator;

/** @internal */
export function generatorOf(runtime: RankRuntime): Generator {
  runtime.generator ??= Generator.unseeded();
  return runtime.generator;
}

/** The default generator of the current rank. @internal */
export function currentGenerator(): Generator {
  return generatorOf(currentRuntime());
}

/** The ranks that now share the draws of plain tensors; null outside of {@link drawnTogether}. */
let together: DrawPlace | null = null;

/** Runs `fn`; its draws are equal on all ranks of a mesh. @internal */
export function drawnTogether<T>(place: DrawPlace | null, fn: () => T): T {
  const before = together;
  together = place;
  try {
    return fn();
  } finally {
    together = before;
  }
}

/** The ranks that own one of the tensors; null if all are plain. @internal */
export function drawPlaceOf(...tensors: readonly (Tensor | null)[]): DrawPlace | null {
  return tensors.find((t) => t !== null && t.sharding !== null)?.sharding?.draws ?? null;
}

/** The parameters of a draw on `meta`, which takes no numbers. @internal */
export const NO_DRAW: DrawParams = Object.freeze({ seedLow: 0, seedHigh: 0, offset: 0 });

/** The next draw of `generator`, or of the default one, for an op on these tensors. @internal */
export function nextDraw(
  generator: Generator | undefined,
  ...beside: readonly (Tensor | null)[]
): DrawParams {
  for (const t of beside) if (t?.device.type === 'meta') return NO_DRAW;
  const source = generator ?? currentGenerator();
  const place = drawPlaceOf(...beside) ?? together;
  return place === null ? source.next() : source.nextTogether(place);
}

/**
 * Seeds the default generator; the same seed gives the same numbers on the CPU, on CUDA, and on any
 * mesh if all ranks pass it.
 *
 * @example
 * manualSeed(0);
 * const first = randn([3]);
 * manualSeed(0);
 * randn([3]).equal(first); // true
 */
export function manualSeed(seed: number): Generator {
  return currentGenerator().manualSeed(seed);
}

/** The seed of the default generator. */
export function initialSeed(): number {
  return currentGenerator().seed;
}

/**
 * Seeds the default generator with a random seed and returns it. Draws on meshes continue as
 * before, because each rank gets another seed.
 */
export function seed(): number {
  layers.backend.capture?.unsupported('seed() chose a seed by chance');
  const chosen = Math.floor(Math.random() * Number.MAX_SAFE_INTEGER);
  currentGenerator().reseed(chosen);
  return chosen;
}

/**
 * Runs `fn` and restores the state of the default generator after it, also after an error.
 *
 * @throws ArgumentError if `fn` is no function, or returns a promise
 * @see PyTorch `torch.random.fork_rng`
 * @example
 * const preview = forkRng(() => {
 *   manualSeed(0);
 *   return model(randn([2, 8]));
 * });
 * preview.shape; // [2, 8]
 */
export function forkRng<T>(fn: () => T): T {
  checkFunction('forkRng', 'fn', fn);
  const generator = currentGenerator();
  const restoreInRuns = layers.backend.capture?.keepsRng(generator);
  const restore = generator.remember();
  try {
    const result = fn();
    checkSynchronous('forkRng', result, 'the state would come back at its first await');
    return result;
  } finally {
    restoreInRuns?.();
    restore();
  }
}

/**
 * Returns a function that runs others with the random numbers that the default generator gives
 * next, and brings its state back after each. @internal
 */
export function drawsAgain(): <T>(fn: () => T) => T {
  const generator = currentGenerator();
  const goBack = generator.remember();
  return (fn) => {
    const restore = generator.remember();
    const { capture } = layers.backend;
    goBack();
    try {
      return capture === null ? fn() : capture.drawsAgain(fn);
    } finally {
      restore();
    }
  };
}

/** The state of the default generator. */
export function getRngState(): RngState {
  return currentGenerator().getState();
}

/** Restores the state of the default generator. @throws ArgumentError */
export function setRngState(state: RngState): void {
  currentGenerator().setState(state);
}
