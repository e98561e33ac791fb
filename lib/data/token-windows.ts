/** Windows of token ids, of a file or of memory, for models of language. */
import { closeSync, fstatSync, openSync, read } from 'node:fs';
import { promisify } from 'node:util';
import { ArgumentError, DataError } from '../core/errors.js';
import { checkNumber, checkOneOf, optionsOf, unexpected } from '../core/options.js';
import type { Dataset } from './dataset.js';

const readAt = promisify(read);

/** Inputs, and what follows each of them. */
export interface TokenWindow {
  /** Token ids, as int64. */
  inputs: BigInt64Array;
  /** The token after each input. */
  targets: BigInt64Array;
}

/** Options of {@link tokenWindows}. */
export interface TokenWindowsOptions {
  /** Inputs of a window. */
  length: number;
  /** From the start of a window to the next one's. `length` by default: side by side. */
  stride?: number;
  /** What the file holds for each token, lowest byte first. `'uint16'` by default. */
  dtype?: 'uint16' | 'uint32';
}

/** A dataset of windows. A file is open until it is closed. */
export interface TokenWindows extends Dataset<TokenWindow>, Disposable {
  /** The number of tokens. */
  readonly tokens: number;
  /** Closes the file. */
  close(): void;
}

/** Tokens in memory, and where those that were asked for begin. */
type Found = readonly [tokens: ArrayLike<number>, start: number];
type ReadTokens = (start: number, count: number) => Found | Promise<Found>;

/**
 * The windows of token ids in a file, as `Uint16Array` or `Uint32Array` are written, or in memory.
 * A file is not loaded: each window is read when it is needed, so that it may be larger than memory.
 *
 * @param source - the path of the file, or the tokens
 * @throws ArgumentError for bad options, a file that is no list of whole tokens, and fewer tokens
 * than a window has; errors of the system for a file that cannot be opened; DataError in a loader
 * for a file that became shorter
 * @example
 * const windows = tokenWindows(Uint16Array.from([5, 6, 7, 8, 9]), { length: 2 });
 * windows.length; // 2
 */
export function tokenWindows(
  source: string | URL | ArrayLike<number>,
  options: TokenWindowsOptions,
): TokenWindows {
  const op = 'tokenWindows';
  const {
    length,
    stride = length,
    dtype = 'uint16',
  } = optionsOf(op, options, 'length stride dtype');
  checkNumber(op, 'length', length, { from: 1, whole: true });
  checkNumber(op, 'stride', stride, { from: 1, whole: true });
  checkOneOf(op, 'dtype', dtype, ['uint16', 'uint32']);
  const { tokens, readTokens, close } = opened(op, source, dtype);
  if (tokens <= length) {
    close();
    throw new ArgumentError(
      `${op}: expected more tokens than the ${length} of a window, got ${tokens}`,
      { op, tokens, length },
    );
  }
  return {
    tokens,
    length: Math.floor((tokens - 1 - length) / stride) + 1,
    async get(index) {
      const [found, start] = await readTokens(index * stride, length + 1);
      return windowOf(found, start, length);
    },
    close,
    [Symbol.dispose]: close,
  };
}

function windowOf(tokens: ArrayLike<number>, start: number, length: number): TokenWindow {
  const inputs = new BigInt64Array(length);
  const targets = new BigInt64Array(length);
  // Ids are below 2^32, so that the low words suffice, and no bigint is made.
  const [low, lowOfTargets] = [new Uint32Array(inputs.buffer), new Uint32Array(targets.buffer)];
  for (let t = 0; t < length; t++) {
    low[2 * t] = tokens[start + t] as number;
    lowOfTargets[2 * t] = tokens[start + t + 1] as number;
  }
  return { inputs, targets };
}

interface Opened {
  readonly tokens: number;
  readonly readTokens: ReadTokens;
  readonly close: () => void;
}

function opened(op: string, source: string | URL | ArrayLike<number>, dtype: string): Opened {
  if (typeof source === 'string' || source instanceof URL) return openedFile(op, source, dtype);
  const { length: tokens } = (source ?? {}) as Partial<ArrayLike<number>>;
  if (!Number.isSafeInteger(tokens))
    throw unexpected(op, 'source', 'the path of a file, or an array of token ids', source);
  return {
    tokens: tokens as number,
    readTokens: (start) => [source as ArrayLike<number>, start],
    close: () => {},
  };
}

function openedFile(op: string, file: string | URL, dtype: string): Opened {
  const Tokens = dtype === 'uint16' ? Uint16Array : Uint32Array;
  const itemsize = Tokens.BYTES_PER_ELEMENT;
  const descriptor = openSync(file, 'r');
  const { size } = fstatSync(descriptor);
  let isOpen = true;
  const close = (): void => {
    if (isOpen) closeSync(descriptor);
    isOpen = false;
  };
  if (size % itemsize !== 0) {
    close();
    throw new ArgumentError(
      `${op}: expected a file of ${dtype}, ${itemsize} bytes each, got ${file} of ${size} bytes`,
      { op, file: String(file), size, dtype },
    );
  }
  const readTokens = async (start: number, count: number): Promise<Found> => {
    if (!isOpen) throw new DataError(`${op}: ${file} was closed`, { file: String(file) });
    const tokens = new Tokens(count);
    const bytes = tokens.byteLength;
    const { bytesRead } = await readAt(descriptor, tokens, 0, bytes, start * itemsize);
    if (bytesRead < bytes)
      throw new DataError(
        `${op}: ${file} ended at byte ${start * itemsize + bytesRead}; it had ${size} bytes`,
        { file: String(file), size },
      );
    return [tokens, 0];
  };
  return { tokens: size / itemsize, readTokens, close };
}
