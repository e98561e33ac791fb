/**
 * What stands for the addon where none can be loaded: the package imports, types, fake tensors and
 * simulation work, and the first call that needs native code says what is missing.
 */
import type { Addon } from './addon.js';

/** Commands are encoded before they are refused; none is longer. */
const WORDS_BYTES = 8 * 2 ** 16;

/** Calls that have an answer without native code. */
const answers = {
  words: new ArrayBuffer(WORDS_BYTES),
  kernelNames: [] as string[],
  tokenCounts: (): void => {},
  deviceCount: (): number => 0,
  openBackend: (): string => 'there is no native addon to open it',
};

/** An addon whose calls do what `load` does: throw why there is none. */
export function missingAddon(load: () => unknown): Addon {
  return new Proxy(answers as unknown as Addon, {
    get: (known, name) => Reflect.get(known, name) ?? load,
  });
}
