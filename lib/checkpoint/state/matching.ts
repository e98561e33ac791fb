/**
 * Compares a state with a saved one, and collects what loads it. Nothing changes before all fits.
 */
import { CheckpointError } from '../../core/errors.js';
import { kindOf } from '../../core/options.js';
import { Generator, type RngState } from '../../core/random.js';
import { formatShape, sameShape } from '../../core/shape.js';
import { Tensor } from '../../core/tensor.js';
import { builtInOf, isMap } from './built-ins.js';
import { type Change, randomChange, stateChange, tensorChange, valueChange } from './changes.js';
import { isRecord, isStateful, joined, membersOf } from './paths.js';

interface Loading {
  readonly file: string;
  readonly strict: boolean;
  readonly changes: Change[];
}

/**
 * The changes that load a saved state. @throws CheckpointError if names, kinds or shapes differ;
 * what objects of the library throw for states that do not fit
 */
export function changesOf(file: string, state: object, saved: object, strict: boolean): Change[] {
  const loading: Loading = { file, strict, changes: [] };
  match(loading, '', state, saved);
  return loading.changes;
}

/** Compares the members of an object, a list or a map with the saved ones. */
function match(loading: Loading, path: string, target: object, saved: object): void {
  const [own, given] = [membersOf(target), membersOf(saved)];
  if (loading.strict) checkNames(loading.file, path, own, given);
  for (const [key, value] of own) {
    if (!given.has(key)) continue;
    const [at, loaded] = [joined(path, String(key)), given.get(key)];
    if (matchInPlace(loading, at, value, loaded)) continue;
    loading.changes.push(valueChange(loading.file, { path: at, owner: target, key }, loaded));
  }
}

type Members = ReadonlyMap<unknown, unknown>;

/** @throws CheckpointError if the file or the state has names that the other has not */
function checkNames(file: string, path: string, own: Members, given: Members): void {
  const lacking = (a: Members, b: Members): string[] =>
    [...b.keys()].filter((key) => !a.has(key)).map((key) => joined(path, String(key)));
  const [missing, extra] = [lacking(given, own), lacking(own, given)];
  if (missing.length + extra.length === 0) return;
  const differences = [
    ...listed('missing in the file', missing),
    ...listed('missing in the state', extra),
  ];
  throw new CheckpointError(
    `${file}: the checkpoint and the state differ: ${differences.join('; ')}. Give a state of ` +
      'the same names, or { strict: false }.',
    { file, missing, extra },
  );
}

const listed = (what: string, names: readonly string[]): string[] =>
  names.length === 0 ? [] : [`${what}: ${names.map((name) => `"${name}"`).join(', ')}`];

/** Whether a value takes the saved one over; if not, it is replaced by it. */
function matchInPlace(loading: Loading, path: string, value: unknown, loaded: unknown): boolean {
  const { file, changes } = loading;
  if (value instanceof Generator) changes.push(randomChange(path, loaded as RngState, value));
  else if (isStateful(value)) changes.push(stateChange(path, value, loaded));
  else if (value instanceof Tensor) changes.push(filling(file, path, value, loaded));
  else {
    checkKind(file, path, value, loaded);
    if (!isContainer(value) || Object(loaded) !== loaded) return false;
    match(loading, path, value, loaded as object);
  }
  return true;
}

/** Objects, and lists and maps that hold more than plain values, are loaded member by member. */
const isContainer = (value: unknown): value is object =>
  (isRecord(value) && Object.keys(value).length > 0) ||
  ((Array.isArray(value) || isMap(value)) &&
    [...value.values()].some((each) => Object(each) === each));

/** @throws CheckpointError for objects of different kinds: a map is not loaded as a list */
function checkKind(file: string, path: string, value: unknown, loaded: unknown): void {
  const [own, saved] = [value, loaded].map((each) =>
    Object(each) === each ? (builtInOf(each as object) ?? (isRecord(each) && 'Object')) : false,
  );
  if (own === false || saved === false || own === saved || loaded instanceof Tensor) return;
  throw new CheckpointError(
    `${file}: "${path}" of the state is ${kindOf(value as object)}, and the checkpoint has ` +
      `${kindOf(loaded as object)} there`,
    { file, path },
  );
}

function filling(file: string, path: string, target: Tensor, loaded: unknown): Change {
  if (!(loaded instanceof Tensor) || !sameShape(loaded.sizes, target.sizes)) {
    const saved = loaded instanceof Tensor ? formatShape(loaded.sizes) : 'no tensor';
    throw new CheckpointError(
      `${file}: "${path}" of the state is a tensor of shape ${formatShape(target.sizes)}, and ` +
        `the checkpoint has ${saved} there`,
      { file, path },
    );
  }
  return tensorChange(path, target, loaded);
}
