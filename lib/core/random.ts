/** The random state: a seed and a counter. Every draw takes a block of counters, so equal programs draw equal numbers. */
import { ArgumentError } from './errors.js';
import { currentHome, processHome } from './home.js';
import { checkNumber, optionsOf, shown } from './options.js';
import { captureWatch } from './watch.js';

/** A source of random numbers for the random ops. */
export class Generator {
  private seedValue: number;
  private used = 0;

  constructor(seed = 0) {
    this.seedValue = checkSeed(seed);
  }

  /** Starts again from `seed`, an integer below 2^53. @throws ArgumentError */
  manualSeed(seed: number): this {
    captureWatch.unsupported?.('a random generator was seeded');
    this.seedValue = checkSeed(seed);
    this.used = 0;
    return this;
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
  getState(): { seed: number; offset: number } {
    return { seed: this.seedValue, offset: this.used };
  }

  setState(state: { seed: number; offset: number }): void {
    captureWatch.unsupported?.('the state of a random generator was set');
    const { seed, offset } = optionsOf('setState', state, 'seed offset');
    checkNumber('setState', 'offset', offset, { from: 0, whole: true });
    this.seedValue = checkSeed(seed);
    this.used = offset;
  }

  /** @internal the params of one draw; the counter moves on */
  next(): { seedLow: number; seedHigh: number; offset: number } {
    captureWatch.draws?.(this);
    const high = Math.floor(this.seedValue / 2 ** 32);
    return { seedLow: this.seedValue - high * 2 ** 32, seedHigh: high, offset: this.used++ };
  }
}

function checkSeed(seed: number): number {
  if (!Number.isSafeInteger(seed) || seed < 0) throw new ArgumentError(`manualSeed: expected a non-negative integer below 2^53, got ${shown(seed)}`, { seed });
  return seed;
}

/** The generator that ops use when none is given; of ranks that share a process, each has its own. */
export const defaultGenerator = new Generator(Math.floor(Math.random() * 2 ** 32));
processHome.generator = defaultGenerator;

/** The one of the present rank. @internal */
export function currentGenerator(): Generator {
  const home = currentHome();
  home.generator ??= new Generator(Math.floor(Math.random() * 2 ** 32));
  return home.generator;
}

/** Seeds the default generator; the same seed gives the same numbers on the CPU, on CUDA and on any mesh. */
export function manualSeed(seed: number): Generator {
  return currentGenerator().manualSeed(seed);
}

/** The seed of the default generator. */
export function initialSeed(): number {
  captureWatch.unsupported?.('the seed was read');
  return currentGenerator().seed;
}

/** Seeds the default generator by chance and returns the seed. */
export function seed(): number {
  const chosen = Math.floor(Math.random() * Number.MAX_SAFE_INTEGER);
  currentGenerator().manualSeed(chosen);
  return chosen;
}

/** Where the default generator stands. */
export function getRngState(): { seed: number; offset: number } {
  captureWatch.unsupported?.('the state of the random generator was read');
  return currentGenerator().getState();
}

/** Puts the default generator where it stood. @throws ArgumentError */
export function setRngState(state: { seed: number; offset: number }): void {
  currentGenerator().setState(state);
}
