/**
 * A state as tensors and plain values by dotted path. The same walk serves saving and loading: what
 * is loaded goes into the tensors and objects that are there.
 */

import { builtInOf, isMap } from '../../../checkpoint/state/built-ins.js';
import {
  isRecord,
  isStateful,
  joined,
  membersOf,
  putAt,
  refuseCycles,
} from '../../../checkpoint/state/paths.js';
import { withoutTensors, withTensors } from '../../../checkpoint/state/tensor-places.js';
import { unexpected } from '../../../core/options.js';
import {
  ArgumentError,
  type CheckpointState,
  type CheckpointValue,
  type DTypeLike,
  defaultGenerator,
  Generator,
  getRngState,
  nn,
  optim,
  type RngState,
  type Stateful,
  setRngState,
  Tensor,
} from '../../../index.js';
import type { CheckpointIndex } from '../checkpoint-index.js';
import { optimizerEntries } from './optimizer-entries.js';
import { targetLike } from './targets.js';

/** The random numbers of this rank, as a part of a state. */
export const rng: Stateful = Object.freeze({
  stateDict: (): RngState => getRngState(),
  loadStateDict: (state: RngState): void => setRngState(state),
});

/** A plain value, and what takes the loaded one. */
export interface ValueEntry {
  readonly value: unknown;
  readonly set: (value: unknown) => void;
  /** Whether it is the state of random numbers, which may differ between ranks. */
  readonly isRandom?: boolean;
}

/** The entries of a state. */
export class StateEntries {
  readonly tensors = new Map<string, Tensor>();
  readonly values = new Map<string, ValueEntry>();
  /** Paths of buffers of modules, which may differ between ranks. */
  readonly buffers = new Set<string>();
  /** Paths of tensors that have another path before: shared parameters are stored once. */
  readonly aliases = new Map<string, string>();
  private readonly firstPaths = new Map<Tensor, string>();
  /** What to do when all tensors and values are loaded. */
  readonly finish: (() => void)[] = [];
  /** What is checked when the whole state is known. */
  readonly checks: (() => void)[] = [];
  /** The names of the parameters of all modules. */
  readonly parameterNames = new Map<Tensor, string>();
  readonly op: string;
  /** The checkpoint to load; null while saving. */
  readonly saved: CheckpointIndex | null;

  constructor(op: string, state: CheckpointState, saved: CheckpointIndex | null = null) {
    this.op = op;
    this.saved = saved;
    if (!isRecord(state)) throw unexpected(op, 'state', 'an object of values by name', state);
    this.nameParameters(state, '', 0);
    for (const [name, value] of Object.entries(state))
      this.visit(name, value, (loaded) => {
        state[name] = loaded as CheckpointValue;
      });
    for (const check of this.checks) check();
  }

  /** @throws ArgumentError for a second tensor or value of a path */
  addTensor(path: string, tensor: Tensor): void {
    this.checkPath(path);
    if (tensor.device.type === 'meta')
      throw new ArgumentError(
        `${this.op}: "${path}" is on meta and has no memory; call toEmpty({ device }) first`,
        { op: this.op, path },
      );
    const known = this.firstPaths.get(tensor);
    if (known === undefined) this.firstPaths.set(tensor, path);
    else this.aliases.set(path, known);
    this.tensors.set(path, tensor);
  }

  addValue(path: string, entry: ValueEntry): void {
    this.checkPath(path);
    this.values.set(path, entry);
  }

  private checkPath(path: string): void {
    if (!this.tensors.has(path) && !this.values.has(path)) return;
    throw new ArgumentError(
      `${this.op}: the state has "${path}" twice: names with dots can mean the same path`,
      { op: this.op, path },
    );
  }

  private nameParameters(value: unknown, path: string, level: number): void {
    if (value instanceof nn.Module) {
      for (const [name, parameter] of value.namedParameters())
        if (!this.parameterNames.has(parameter))
          this.parameterNames.set(parameter, joined(path, name));
    } else if (isRecord(value) && level < MOST_LEVELS)
      for (const [name, each] of Object.entries(value))
        this.nameParameters(each, joined(path, name), level + 1);
  }

  private visit(path: string, value: unknown, set: (value: unknown) => void, level = 0): void {
    if (value instanceof Tensor) this.addTensor(path, value);
    else if (value instanceof nn.Module) this.visitModule(path, value);
    else if (value instanceof optim.Optimizer) optimizerEntries(this, path, value);
    else if (value instanceof Generator) this.visitGenerator(path, value);
    else if (value === rng) this.visitRng(path);
    else if (isStateful(value)) this.visitStateful(path, value);
    else if (this.saved !== null && isRecord(value) && Object.keys(value).length === 0)
      this.fill(this.saved, path, value);
    else if (isRecord(value) || (Array.isArray(value) && hasStates(value))) {
      if (level === MOST_LEVELS)
        throw new ArgumentError(
          `${this.op}: "${path}" is nested too deep; does the state contain itself?`,
          { op: this.op, path },
        );
      const record = value as Record<string, unknown>;
      for (const [name, each] of Object.entries(record))
        this.visit(
          joined(path, name),
          each,
          (loaded) => {
            record[name] = loaded;
          },
          level + 1,
        );
    } else if (isPlainValue(value)) this.addValue(path, { value, set });
    else
      throw unexpected(
        this.op,
        path,
        'a tensor, a plain value, or an object with stateDict and loadStateDict',
        value,
      );
  }

  /** The tensors of the state dict are those of the module, so they are loaded in place. */
  private visitModule(path: string, module: nn.AnyModule): void {
    const state = module.stateDict({ keepVars: true });
    const buffers = new Set(module.buffers());
    for (const [name, tensor] of Object.entries(state)) {
      this.addTensor(joined(path, name), tensor);
      if (buffers.has(tensor)) this.buffers.add(joined(path, name));
    }
    if (this.saved === null) return;
    const own = new Set(
      [...module.parameters(), ...module.buffers()].map((t) => t.untypedStorage()),
    );
    const isCopy = (t: Tensor): boolean => !own.has(t.untypedStorage());
    if (Object.values(state).some(isCopy)) this.finish.push(() => module.loadStateDict(state));
  }

  /** An empty object gets all that the checkpoint has there. */
  private fill(saved: CheckpointIndex, path: string, record: Record<string, unknown>): void {
    const prefix = `${path}.`;
    const put = (full: string, value: unknown): void =>
      putAt(record, full.slice(prefix.length), value);
    for (const [full, { shape, dtype }] of Object.entries(saved.tensors)) {
      if (!full.startsWith(prefix)) continue;
      const tensor = targetLike(undefined, shape, dtype as DTypeLike);
      this.addTensor(full, tensor);
      this.finish.push(() => put(full, tensor));
    }
    for (const full of Object.keys(saved.values))
      if (full.startsWith(prefix))
        this.addValue(full, { value: null, set: (value) => put(full, value) });
  }

  private visitRng(path: string): void {
    this.addValue(path, {
      value: getRngState(),
      set: (state) => setRngState(state as RngState),
      isRandom: true,
    });
  }

  private visitGenerator(path: string, generator: Generator): void {
    if (generator === defaultGenerator) {
      this.visitRng(path); // ranks of one process have generators of their own
      return;
    }
    this.addValue(path, {
      value: generator.getState(),
      set: (state) => generator.setState(state as RngState),
      isRandom: true,
    });
  }

  /** The tensors of the state one by one, all else as one value. */
  private visitStateful(path: string, stateful: Stateful): void {
    const given = new Map<string, Tensor>();
    const state = stateful.stateDict();
    refuseCycles(this.op, state, path);
    const value = withoutTensors(state, '', given);
    if (this.saved === null) {
      for (const [name, tensor] of given) this.addTensor(joined(path, name), tensor);
      this.addValue(path, { value, set: () => {} });
      return;
    }
    const targets = new Map<string, Tensor>();
    for (const [full, { shape, dtype }] of Object.entries(this.saved.tensors)) {
      if (!full.startsWith(`${path}.`)) continue;
      const name = full.slice(path.length + 1);
      const tensor = targetLike(given.get(name), shape, dtype as DTypeLike);
      targets.set(name, tensor);
      this.addTensor(full, tensor);
    }
    let loaded: unknown;
    this.addValue(path, {
      value,
      set: (saved) => {
        loaded = withTensors(saved, targets);
      },
    });
    this.finish.push(() => {
      if (loaded !== undefined) stateful.loadStateDict(loaded as never);
    });
  }
}

const MOST_LEVELS = 100;

/** Whether a list is more than a plain value. */
const hasStates = (list: readonly unknown[]): boolean => list.some((each) => !isPlainValue(each));

function isPlainValue(value: unknown, level = 0): boolean {
  if (value instanceof Tensor || isStateful(value) || level > MOST_LEVELS) return false;
  if (typeof value !== 'object' || value === null)
    return !['function', 'symbol'].includes(typeof value);
  if (!isRecord(value) && !Array.isArray(value) && !isMap(value)) return builtInOf(value) !== null;
  return [...membersOf(value).values()].every((each) => isPlainValue(each, level + 1));
}
