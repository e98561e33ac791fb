/**
 * Compares parameters between ranks by the purpose of their collectives. Native code compares the
 * whole text of a purpose, and an error shows the first 263 bytes of it.
 */
import { createHash } from 'node:crypto';
import { type ProcessGroup, withPurpose } from '../../distributed/index.js';
import { type DType, nn, type Shape, type Tensor } from '../../index.js';

const ADVICE = 'Build the same model on all ranks.';
const SAME_ORDER = 'Call the same modules in the same order on all ranks.';

/** Bytes of descriptions that an error shows, beside the module. */
const SHOWN = 160;
/** How many hashes an error shows of more. */
const HASHES = 8;

/** What ranks must have in common of a tensor: `float32[4, 5]`, and whether it is frozen. */
export function describeTensor(t: Tensor): string {
  const isFrozen = t instanceof nn.Parameter && !t.requiresGrad;
  return describe(t.dtype, t.shape, isFrozen);
}

export function describe(dtype: DType, shape: Shape, isFrozen: boolean): string {
  return `${dtype.name}[${shape.join(', ')}]${isFrozen ? ' frozen' : ''}`;
}

const made = new WeakMap<ProcessGroup, number>();

/**
 * Says which of the modules that a group shards or reduces is meant: `number 2 of its group`, in
 * the order in which they were made. Those of two models may have one path and one shape.
 */
export function numberedOn(group: ProcessGroup): string {
  const number = (made.get(group) ?? 0) + 1;
  made.set(group, number);
  return `number ${number} of its group`;
}

/** A list of parameters that the ranks of a group must have in common. */
export interface ParameterList {
  /** The module in words. */
  readonly owner: string;
  /** Of {@link numberedOn}. */
  readonly number: string;
  /** A description of each parameter, in order. */
  readonly texts: readonly string[];
}

/**
 * Runs `fn`, whose collective also compares the parameters: ranks that have others get a
 * CollectiveError. It shows a few parameters; of many it shows hashes, which say where they differ.
 */
export function comparingParameters<T>({ owner, number, texts }: ParameterList, fn: () => T): T {
  if (texts.length === 0) return fn();
  const all = texts.join('; ');
  return all.length <= SHOWN
    ? withPurpose(`of the parameters of ${owner}, ${number}: ${all}\n${ADVICE}`, fn)
    : withPurpose(
        `of the ${texts.length} parameters of ${owner}, ${number}, by their hashes ` +
          `${hashesOf(texts)}: ${all}\n${ADVICE} Print namedParameters() of it where the ` +
          'hashes differ.',
        fn,
      );
}

/**
 * Runs `fn`, whose collective also compares whose parameters or gradients it is about: those of
 * other modules may have the same size.
 */
export function comparingOwners<T>(
  of: 'parameters' | 'gradients',
  { owner, number }: ParameterList,
  fn: () => T,
): T {
  return withPurpose(`of the ${of} of ${owner}, ${number}\n${SAME_ORDER}`, fn);
}

/**
 * The collectives of a module that all its ranks call: the first compares the parameters, later
 * ones whose they are.
 */
export class ComparedCollectives {
  private isCompared = false;
  private readonly of: 'parameters' | 'gradients';
  private readonly list: ParameterList;

  constructor(of: 'parameters' | 'gradients', list: ParameterList) {
    this.of = of;
    this.list = list;
  }

  run<T>(fn: () => T): T {
    const { of, list, isCompared } = this;
    this.isCompared = true;
    return isCompared ? comparingOwners(of, list, fn) : comparingParameters(list, fn);
  }
}

/** `1-5 3fa2c1, 6-10 …`: a hash for every few parameters. */
function hashesOf(texts: readonly string[]): string {
  const each = Math.ceil(texts.length / HASHES);
  const hashes: string[] = [];
  for (let first = 0; first < texts.length; first += each) {
    const some = texts.slice(first, first + each);
    const hash = createHash('sha256').update(some.join('\n')).digest('hex').slice(0, 6);
    const range = some.length === 1 ? `${first + 1}` : `${first + 1}-${first + some.length}`;
    hashes.push(`${range} ${hash}`);
  }
  return hashes.join(', ');
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
