/**
 * The ranks check the checksums together: those of disjoint parts give that of a chunk by XOR, so
 * nobody reads more than its own part.
 */
import path from 'node:path';
import { numelOf } from '../../../core/shape.js';
import { CheckpointError } from '../../../index.js';
import type { CheckpointIndex, Chunk } from '../checkpoint-index.js';

/** A part of a chunk that a rank has read. */
export interface ReadPart {
  /** Of the tensor in the state. */
  readonly path: string;
  readonly file: string;
  /** Of the chunk in the file. */
  readonly name: string;
  /** Where the part begins in the chunk. */
  readonly starts: readonly number[];
  readonly sizes: readonly number[];
  /** Of the chunk with zeros in the place of all that is not of the part. */
  readonly checksum: number;
}

/** What was read of a chunk, by any rank. */
interface Coverage {
  readonly path: string;
  readonly ranks: Set<number>;
  readonly seen: Map<string, number>;
  checksum: number;
  numel: number;
  /** Whether two ranks read the same part and got different bytes. */
  differs: boolean;
}

/** @throws CheckpointError if the bytes of a chunk are not those that were written */
export function verifyChecksums(
  folder: string,
  index: CheckpointIndex,
  read: readonly (readonly ReadPart[])[],
): void {
  const coverage = coverageOf(read);
  const checked = new Set<string>();
  for (const { chunks } of Object.values(index.tensors))
    for (const chunk of chunks) {
      const key = `${chunk.file} ${chunk.name}`;
      const found = coverage.get(key);
      if (found === undefined || checked.has(key)) continue;
      checked.add(key);
      checkCoverage(folder, chunk, found);
    }
}

function coverageOf(read: readonly (readonly ReadPart[])[]): Map<string, Coverage> {
  const coverage = new Map<string, Coverage>();
  read.forEach((parts, rank) => {
    for (const part of parts) {
      const key = `${part.file} ${part.name}`;
      const found: Coverage = coverage.get(key) ?? {
        path: part.path,
        ranks: new Set(),
        seen: new Map(),
        checksum: 0,
        numel: 0,
        differs: false,
      };
      coverage.set(key, found);
      found.ranks.add(rank);
      const region = `${part.starts} ${part.sizes}`;
      const known = found.seen.get(region);
      if (known !== undefined) {
        found.differs ||= known !== part.checksum;
        continue;
      }
      found.seen.set(region, part.checksum);
      found.checksum = (found.checksum ^ part.checksum) >>> 0;
      found.numel += numelOf(part.sizes);
    }
  });
  return coverage;
}

/** Parts that together are not the chunk, each element once, cannot be checked. */
function checkCoverage(folder: string, chunk: Chunk, found: Coverage): void {
  const isWhole = found.numel === numelOf(chunk.sizes);
  if (!found.differs && (!isWhole || found.checksum === chunk.checksum)) return;
  const file = path.join(folder, chunk.file);
  const owner = found.path === chunk.name ? '' : `, a part of "${found.path}",`;
  throw new CheckpointError(
    `${file}: the bytes of "${chunk.name}"${owner} that rank ${[...found.ranks].join(', ')} read ` +
      'are not those that were saved: the file is damaged. The state is partly loaded; load ' +
      'another checkpoint.',
    { file, tensor: found.path, ranks: [...found.ranks] },
  );
}
