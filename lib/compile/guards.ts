/** Guards: what must be equal for a compiled graph to be used again. */
import { isGradEnabled, isInferenceMode } from '../autograd/grad-mode.js';
import { getDefaultDevice } from '../core/device.js';
import { getDefaultDtype } from '../core/dtype.js';
import { Tensor } from '../core/tensor.js';
import { isPlain, tensorsIn } from './tree.js';

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
 * A key of the modes and the arguments: tensors by metadata and by which of them are one, modules by identity and training flag, the
 * rest as {@link keyOf} says.
 */
export function guardKey(args: readonly unknown[]): string {
  return `${ambient.map((state) => state()).join()}|${args.map((arg) => keyOf(arg)).join('|')}|${sharedTensors(args)}`;
}

/** Which arguments are the same tensor, since a function may ask whether they are. Empty where all differ. */
function sharedTensors(args: readonly unknown[]): string {
  const tensors = tensorsIn(args);
  if (tensors.length < 2 || new Set(tensors).size === tensors.length) return '';
  return tensors.map((t) => tensors.indexOf(t)).join();
}

/** Metadata of a tensor that a graph depends on. */
export function tensorKey(t: Tensor): string {
  const kind = t.isLeaf ? 'leaf' : 'node';
  const empty = t.storage !== null && t.storage.nbytes === 0 ? ' freed' : '';
  return `${t.dtype.name}[${t.shape.join()}]/${t.strides.join()}@${t.device}${t.requiresGrad ? ` grad ${kind}` : ''}${empty}`;
}

/**
 * A key of a value that a graph may depend on: tensors as `ofTensor` says, plain values by value, arrays, maps, sets and objects by what
 * they hold, objects of classes and functions by identity too.
 */
export function keyOf(value: unknown, ofTensor: (t: Tensor) => string = tensorKey, above: readonly object[] = []): string {
  if (value instanceof Tensor) return ofTensor(value);
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value !== 'function' && (typeof value !== 'object' || value === null)) return `${typeof value}:${Object.is(value, -0) ? '-0' : String(value)}`;
  if (above.includes(value)) return `^${above.indexOf(value)}`;
  return keyOfObject(value, (item) => keyOf(item, ofTensor, [...above, value]));
}

function keyOfObject(value: object, keyOfItem: (item: unknown) => string): string {
  if (Array.isArray(value)) return `[${value.map(keyOfItem).join()}]`;
  if (value instanceof Map || value instanceof Set) return `${value.constructor.name}(${Array.from(value, keyOfItem).join()})`;
  if (ArrayBuffer.isView(value)) return `#${identityOf(value)}`;
  if (typeof value === 'function') return `#${identityOf(value)}${'training' in value ? (value.training ? ' training' : ' eval') : ''}`;
  const own = Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}:${keyOfItem(item)}`);
  return `${isPlain(value) ? '' : `#${identityOf(value)}`}{${own.join()}}`;
}
