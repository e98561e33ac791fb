/**
 * Whether plain tensors are the same on all ranks: they are saved once, so a difference would mix
 * the values of ranks.
 */
import { crc32 } from 'node:zlib';
import { CheckpointError, noGrad, type Tensor } from '../../../index.js';
import type { HeldPart } from './save-plan.js';

/** Of larger tensors, as many elements are compared: ranks that diverge do in most of them. */
const MOST_COMPARED = 65_536;

/** A checksum of the elements of a tensor, or of a sample that is the same on all ranks. */
export async function sampleChecksum(t: Tensor): Promise<number> {
  const sample = noGrad(() => sampleOf(t.detach()));
  const { buffer, byteOffset, byteLength } = await sample.read();
  return crc32(new Uint8Array(buffer, byteOffset, byteLength));
}

/** Elements at equal distances, which is odd, so that it goes through all columns. */
function sampleOf(t: Tensor): Tensor {
  const numel = t.numel();
  const flat = t.reshape([-1]);
  if (numel <= MOST_COMPARED) return flat;
  const step = Math.ceil(numel / MOST_COMPARED) | 1;
  return flat.asStrided([Math.ceil(numel / step)], [step], flat.storageOffset).contiguous();
}

/** @throws CheckpointError if the ranks hold other values of a plain tensor */
export function checkReplicas(op: string, held: readonly (readonly HeldPart[])[]): void {
  const first = new Map<string, { readonly rank: number; readonly checksum: number }>();
  const others = new Map<string, number[]>();
  held.forEach((parts, rank) => {
    for (const { path, checksum } of parts) {
      if (checksum === undefined) continue;
      const known = first.get(path);
      if (known === undefined) first.set(path, { rank, checksum });
      else if (known.checksum !== checksum) others.set(path, [...(others.get(path) ?? []), rank]);
    }
  });
  const [differing] = others;
  if (differing === undefined) return;
  const [path, ranks] = differing;
  const more = others.size === 1 ? '' : ` (and ${others.size - 1} more)`;
  throw new CheckpointError(
    `${op}: "${path}"${more} differs between rank ${first.get(path)?.rank} and rank ` +
      `${ranks.join(', ')}. A plain tensor is saved once: broadcast it before the save, give ` +
      'each rank a name of its own for it, or make it a distributed tensor. Parameters of a ' +
      'replicated model differ if their gradients were not averaged.',
    { op, path, ranks: [first.get(path)?.rank, ...ranks] },
  );
}
