/** Random arguments of the kinds in calls.ts. */
import { bool, type Tensor } from '../../lib/index.js';
import type { Rng } from './rng.js';
import {
  anyIndex,
  anyInteger,
  anyNumber,
  anyShape,
  anySizes,
  anyTensor,
  dtypes,
} from './tensors.js';

/** The tensors of the case so far, which calls may use. */
export interface Pool {
  readonly rng: Rng;
  readonly tensors: Tensor[];
}

const words: Readonly<Record<string, readonly unknown[]>> = {
  R: [null, 'trunc', 'floor', 'up'],
  G: ['none', 'tanh'],
  U: ['set', 'add', 'multiply', 'amax', 'amin', 'mean'],
  L: ['none', 'mean', 'sum', 'all'],
  e: [
    'ij,jk->ik',
    'i,i->',
    'ii->i',
    'bij,bjk->bik',
    '...i,...i',
    'ab,cd->abcd',
    'i->j',
    '->',
    'ij->ji,',
  ],
};

function shapeLike(rng: Rng, shape: readonly number[]): number[] {
  const sizes = shape
    .slice(0, 16)
    .filter((size) => size < 500)
    .map((size) => (rng.chance(0.1) ? 1 : size));
  return rng.chance(0.2) ? sizes.slice(1) : sizes;
}

function operand({ rng, tensors }: Pool, receiver: Tensor | null): Tensor {
  if (rng.chance(0.3)) return rng.pick(tensors);
  if (receiver === null || receiver.numel() > 1e5 || rng.chance(0.3)) return anyTensor(rng);
  return anyTensor(
    rng,
    shapeLike(rng, receiver.shape),
    rng.chance(0.7) ? receiver.dtype : rng.pick(dtypes),
  );
}

function dim(rng: Rng, receiver: Tensor | null): number {
  const ndim = receiver?.ndim ?? 0;
  return ndim > 0 && rng.chance(0.8) ? rng.int(-ndim, ndim - 1) : anyInteger(rng);
}

function mask({ rng, tensors }: Pool, receiver: Tensor | null): Tensor {
  if (receiver === null || receiver.numel() > 1e5 || rng.chance(0.2)) return rng.pick(tensors);
  return anyTensor(rng, shapeLike(rng, receiver.shape), bool);
}

function index(rng: Rng, receiver: Tensor | null): Tensor {
  const sizes =
    receiver === null || rng.chance(0.5)
      ? anyShape(rng).slice(0, rng.int(0, 2))
      : shapeLike(rng, receiver.shape);
  return anyIndex(rng, sizes);
}

function argument(kind: string, pool: Pool, receiver: Tensor | null): unknown {
  const { rng } = pool;
  switch (kind) {
    case 't':
    case 'l':
      return operand(pool, kind === 'l' ? receiver : null);
    case 'o':
      return rng.chance(0.25) ? anyNumber(rng) : operand(pool, receiver);
    case 'i':
      return index(rng, receiver);
    case 'm':
      return mask(pool, receiver);
    case 'd':
      return dim(rng, receiver);
    case 'D':
      return rng.chance(0.3)
        ? dim(rng, receiver)
        : rng.chance(0.2)
          ? null
          : rng.list(rng.int(0, 3), () => dim(rng, receiver));
    case 'n':
      return anyInteger(rng);
    case 'x':
      return anyNumber(rng);
    case 's':
      return receiver !== null && rng.chance(0.4) ? [...receiver.shape].reverse() : anySizes(rng);
    case 'S':
      return receiver !== null && rng.chance(0.7)
        ? receiver.shape.slice(rng.int(0, receiver.ndim))
        : anySizes(rng);
    case 'T':
      return rng.list(rng.int(0, 3), () => operand(pool, rng.pick(pool.tensors)));
    case 'I':
      return rng.list(rng.int(0, 3), () =>
        rng.chance(0.2) ? null : rng.chance(0.2) ? mask(pool, receiver) : index(rng, receiver),
      );
    case 'f':
      return rng.chance(0.5);
    case 'y':
      return rng.pick(dtypes);
    default:
      return rng.pick(words[kind] as readonly unknown[]);
  }
}

function options(text: string, pool: Pool, receiver: Tensor | null): Record<string, unknown> {
  const fields = text.split(',').map((field) => field.split(':') as [string, string]);
  const given = fields.filter(() => pool.rng.chance(0.6));
  return Object.fromEntries(given.map(([name, kind]) => [name, argument(kind, pool, receiver)]));
}

/** Arguments for a line of calls.ts. */
export function makeArguments(kinds: string, pool: Pool, receiver: Tensor | null): unknown[] {
  const made: unknown[] = [];
  for (let at = 0; at < kinds.length; at++) {
    const kind = kinds[at] as string;
    if (kind === '?') {
      if (pool.rng.chance(0.5)) break;
    } else if (kind === '{') {
      const end = kinds.indexOf('}', at);
      made.push(options(kinds.slice(at + 1, end), pool, receiver));
      at = end;
    } else if (kind === 'k') made.push(options('keepdim:f', pool, receiver));
    else if (kind === 'a') made.push(options('alpha:x', pool, receiver));
    else made.push(argument(kind, pool, receiver));
  }
  return made;
}
