/** Files with a JSON value on each line. */
import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { DataError } from '../core/errors.js';
import { unexpected } from '../core/options.js';
import type { IterableDataset } from './dataset.js';

/** A line of a file, and its number from 1. */
export interface NumberedLine {
  /** From 1. */
  readonly line: number;
  /** Without its end. */
  readonly text: string;
}

/**
 * The values of an NDJSON file (JSON Lines), read as a stream; empty lines are left out, and a name
 * that ends with `.gz` is one of a compressed file. Ranks and workers parse the lines that they
 * take.
 *
 * @throws ArgumentError for what is no path; in an iteration, an error of the system for a file
 * that cannot be read, and DataError for a line that is not JSON, with its number
 * @example
 * const rows = ndjson<{ text: string }>('rows.ndjson');
 * const loader = new DataLoader(mapDataset(rows, ({ text }) => text.length), { batchSize: 8 });
 */
export function ndjson<Row = unknown>(file: string | URL): IterableDataset<Row, NumberedLine> {
  if (!(file instanceof URL) && (typeof file !== 'string' || file === ''))
    throw unexpected('ndjson', 'file', 'a path or a file URL', file);
  const name = file instanceof URL ? file.pathname : file;
  return {
    get({ line, text }) {
      try {
        return JSON.parse(text) as Row;
      } catch (error) {
        throw new DataError(
          `${name}:${line} is not JSON: ${(error as Error).message}`,
          { file: name, line },
          { cause: error },
        );
      }
    },
    [Symbol.asyncIterator]: () => linesOf(file, name),
  };
}

/** Not by readline, which reports no errors of its input. */
async function* linesOf(file: string | URL, name: string): AsyncGenerator<NumberedLine, void> {
  const stored = createReadStream(file);
  // An error of the file is one of what reads it.
  const input = name.endsWith('.gz') ? pipeline(stored, createGunzip(), () => {}) : stored;
  let line = 0;
  let rest = '';
  try {
    for await (const chunk of input.setEncoding('utf8')) {
      const texts = (rest + chunk).split('\n');
      rest = texts.pop() as string;
      for (const text of texts) {
        line++;
        if (text.trim() !== '') yield { line, text };
      }
    }
    if (rest.trim() !== '') yield { line: line + 1, text: rest };
  } finally {
    stored.destroy();
  }
}
