/** Guards: what must be equal for a compiled graph to be used again. */
import { isGradEnabled } from '../autograd/grad-mode.js';
import { Tensor } from '../core/tensor.js';
import { isPlain } from './tree.js';

const identities = new WeakMap<object, number>();
let nextIdentity = 0;

function identityOf(value: object): number {
  let id = identities.get(value);
  if (id === undefined) {
    id = nextIdentity++;
    identities.set(value, id);
  }
  return id;
}

/**
 * A key of the arguments: tensors by metadata, plain values and objects by value, modules by identity and training flag,
 * everything else by identity.
 */
export function guardKey(args: readonly unknown[]): string {
  return `${isGradEnabled() ? 'grad' : 'no-grad'}|${args.map(keyOf).join('|')}`;
}

function keyOf(value: unknown): string {
  if (value instanceof Tensor) {
    const kind = value.isLeaf ? 'leaf' : 'node';
    const empty = value.storage !== null && value.storage.nbytes === 0 ? ' freed' : '';
    return `${value.dtype.name}[${value.shape.join()}]/${value.strides.join()}@${value.device}${value.requiresGrad ? ` grad ${kind}` : ''}${empty}`;
  }
  if (Array.isArray(value)) return `[${value.map(keyOf).join()}]`;
  if (isPlain(value)) return `{${Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}:${keyOf(v)}`)}}`;
  if (typeof value === 'function' || (typeof value === 'object' && value !== null)) {
    const training = (value as { training?: boolean }).training;
    return `#${identityOf(value)}${training === undefined ? '' : training ? ' training' : ' eval'}`;
  }
  return `${typeof value}:${Object.is(value, -0) ? '-0' : String(value)}`;
}
