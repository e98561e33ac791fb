/** The training text: Moby-Dick or a file as bytes, and a byte-bigram model as baseline. */
import { UserError } from '../common/arguments.js';
import { fileBytes, mobyDick } from '../common/text.js';

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
  const bytes = file === null ? mobyDick() : fileBytes('--text', file);
  const cut = Math.floor(bytes.length * 0.9);
  const [train, validation] = [bytes.subarray(0, cut), bytes.subarray(cut)];
  if (validation.length <= window)
    throw new UserError(
      `--text ${file} has ${bytes.length} bytes, of which a tenth is held out; expected at least ${10 * (window + 1)}`,
    );
  return { train, validation };
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
