/** Guards: what must be equal for a compiled graph to be used again. */
import { isGradEnabled, isInferenceMode } from '../autograd/grad-mode.js';
import { getDefaultDevice } from '../core/device.js';
import { getDefaultDtype } from '../core/dtype.js';
import { Tensor } from '../core/tensor.js';
import { isPlain } from './tree.js';

const identities = new WeakMap<object, number>();
let nextIdentity = 0;

/** A number for each object, the same as long as it lives. */
export function identityOf(value: object): number {
  let id = identities.get(value);
  if (id === undefined) {
    id = nextIdentity++;
    identities.set(value, id);
  }
  return id;
}

/** Modes that change what a function does, each as a string; layers above add theirs. */
const ambient: (() => string)[] = [
  () => (isGradEnabled() ? 'grad' : 'no-grad'),
  () => (isInferenceMode() ? 'inference' : ''),
  () => getDefaultDtype().name,
  () => String(getDefaultDevice()),
];

/** Adds a mode that captured functions depend on. @internal */
export function addAmbientGuard(state: () => string): void {
  ambient.push(state);
}

/**
 * A key of the modes and the arguments: tensors by metadata, plain values and objects by value, modules by identity and training flag,
 * everything else by identity.
 */
export function guardKey(args: readonly unknown[]): string {
  return `${ambient.map((state) => state()).join()}|${args.map(keyOf).join('|')}`;
}

/** Metadata of a tensor that a graph depends on. */
export function tensorKey(t: Tensor): string {
  const kind = t.isLeaf ? 'leaf' : 'node';
  const empty = t.storage !== null && t.storage.nbytes === 0 ? ' freed' : '';
  return `${t.dtype.name}[${t.shape.join()}]/${t.strides.join()}@${t.device}${t.requiresGrad ? ` grad ${kind}` : ''}${empty}`;
}

function keyOf(value: unknown): string {
  if (value instanceof Tensor) return tensorKey(value);
  if (Array.isArray(value)) return `[${value.map(keyOf).join()}]`;
  if (isPlain(value)) return `{${Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}:${keyOf(v)}`)}}`;
  if (typeof value === 'function' || (typeof value === 'object' && value !== null)) {
    const training = (value as { training?: boolean }).training;
    return `#${identityOf(value)}${training === undefined ? '' : training ? ' training' : ' eval'}`;
  }
  return `${typeof value}:${Object.is(value, -0) ? '-0' : String(value)}`;
}
