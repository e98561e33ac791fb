/**
 * What the example learns: a list of token ids, or the bytes of a text as ids. Tokenizers are not
 * part of it: ids of a pretrained vocabulary come from a file.
 */
import { UserError } from '../common/arguments.js';
import { fileBytes, mobyDick } from '../common/text.js';
import type { LlamaConfig } from './config.js';
import type { Options } from './options.js';

/** Token ids of the training part and of the held-out end. */
export interface Data {
  readonly train: ArrayLike<number>;
  readonly validation: ArrayLike<number>;
}

/**
 * Reads the tokens; the last tenth is held out.
 *
 * @throws UserError for a file that is no list of ids, ids beyond the vocabulary, and too few of them
 */
export function loadData(options: Options, config: LlamaConfig): Data {
  const { text, tokens: file, context } = options;
  const tokens = file === null ? bytesOf(text, config) : idsOf(file, config);
  const end = Math.floor(tokens.length * 0.9);
  const [train, validation] = [tokens.slice(0, end), tokens.slice(end)];
  if (validation.length > context + 1) return { train, validation };
  throw new UserError(
    `${file ?? text ?? 'Moby-Dick'} has ${tokens.length} tokens, of which a tenth is held out; expected at least ` +
      `${10 * (context + 2)} for --context ${context}`,
  );
}

function bytesOf(text: string | null, { vocabSize }: LlamaConfig): Uint8Array {
  if (vocabSize < 256)
    throw new UserError(
      `a text needs a vocabulary of 256 bytes, the model has ${vocabSize} tokens; give --tokens`,
    );
  return text === null ? mobyDick() : fileBytes('--text', text);
}

function idsOf(file: string, { vocabSize }: LlamaConfig): Int32Array {
  const bytes = fileBytes('--tokens', file);
  let ids: unknown;
  try {
    ids = JSON.parse(new TextDecoder().decode(bytes));
  } catch (error) {
    throw new UserError(`--tokens ${file} is not JSON: ${(error as Error).message}`);
  }
  if (!Array.isArray(ids)) throw new UserError(`--tokens ${file}: expected a list of token ids`);
  const wrong = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= vocabSize);
  if (wrong !== -1)
    throw new UserError(
      `--tokens ${file}: expected ids from 0 to ${vocabSize - 1}, got ` +
        `${JSON.stringify(ids[wrong])} at index ${wrong}`,
    );
  return Int32Array.from(ids as number[]);
}
