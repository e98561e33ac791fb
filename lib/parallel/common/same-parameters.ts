/**
 * Compares parameters between ranks by the purpose of their collectives. Native code compares the
 * whole text of a purpose, and an error shows the first 263 bytes of it.
 */
import { broadcast, getBackend, type ProcessGroup, withPurpose } from '../../distributed/index.js';
import {
  type Device,
  type DType,
  empty,
  int32,
  nn,
  noGrad,
  type Shape,
  type Tensor,
} from '../../index.js';

const ADVICE = 'Build the same model on all ranks.';

/** Bytes of descriptions that an error shows, beside the module. */
const SHOWN = 160;

/** What ranks must have in common of a tensor: `float32[4, 5]`, and whether it is frozen. */
export function describeTensor(t: Tensor): string {
  const isFrozen = t instanceof nn.Parameter && !t.requiresGrad;
  return describe(t.dtype, t.shape, isFrozen);
}

export function describe(dtype: DType, shape: Shape, isFrozen: boolean): string {
  return `${dtype.name}[${shape.join(', ')}]${isFrozen ? ' frozen' : ''}`;
}

/** Consecutive descriptions that one error shows. */
interface Chunk {
  readonly first: number;
  readonly texts: string[];
}

function chunksOf(texts: readonly string[]): Chunk[] {
  const chunks: Chunk[] = [];
  let room = 0;
  for (const [i, text] of texts.entries()) {
    room -= text.length + 2;
    if (room < 0) {
      chunks.push({ first: i, texts: [] });
      room = SHOWN - text.length - 2;
    }
    chunks.at(-1)?.texts.push(text);
  }
  return chunks;
}

/** A list of parameters that the ranks of a group must have in common. */
export interface ParameterList {
  /** The module in words. */
  readonly owner: string;
  /** A description of each parameter, in order. */
  readonly texts: readonly string[];
}

/**
 * Runs `fn`, whose collective also compares the parameters: ranks that have others get a
 * CollectiveError that shows the first that differ. Costs nothing for a few parameters; more are
 * compared by a small broadcast for every few of them.
 */
export function comparingParameters<T>(
  { owner, texts }: ParameterList,
  group: ProcessGroup,
  device: Device,
  fn: () => T,
): T {
  const chunks = chunksOf(texts);
  const last = chunks.pop();
  if (last === undefined) return fn();
  const purposeOf = ({ first, texts: shown }: Chunk): string => {
    const which =
      chunks.length === 0
        ? 'the parameters'
        : `parameters ${first + 1} to ${first + shown.length} of ${texts.length}`;
    return `of ${which} of ${owner}: ${shown.join('; ')}\n${ADVICE}`;
  };
  // Ranks of a fake world are copies of this one.
  if (getBackend(group) !== 'fake')
    for (const chunk of chunks) withPurpose(purposeOf(chunk), () => compare(group, device));
  return withPurpose(purposeOf(last), fn);
}

/** The smallest collective: its purpose is what matters. */
function compare(group: ProcessGroup, device: Device): void {
  const nothing = noGrad(() => empty([1], { dtype: int32, device }));
  broadcast(nothing, group.ranks[0] as number, { group });
  nothing.dispose();
}

/** The purpose of a collective of one tensor among those of a module, which ranks compare. */
export function purposeOfTensor(
  name: string,
  t: Tensor,
  [i, count]: readonly [number, number],
  owner: string,
): string {
  return `of "${name}", ${describeTensor(t)}, tensor ${i + 1} of ${count} of ${owner}\n${ADVICE}`;
}
