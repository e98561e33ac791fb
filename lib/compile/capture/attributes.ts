/**
 * Attributes of modules that a captured function sets. Each run sets them on the same modules: to
 * plain values, and to the tensors of the run. After the capture they are as they were before it.
 */
import { Tensor } from '../../core/tensor.js';
import { map as mapTensors } from '../../core/tree.js';
import { PLACE } from './functions.js';
import type { Recorder } from './recorder.js';

type Attributes = Record<string, unknown>;
type Snapshot = ReadonlyMap<string, unknown>;

/** The attributes that one capture has found changed. */
export class AttributeWrites {
  /** The attributes of modules when they were last compared. */
  private readonly latest = new Map<object, Snapshot>();
  /** The names of changed attributes. */
  private readonly written = new Map<object, Set<string>>();

  /** Records the changes since the last call. */
  record(recorder: Recorder): void {
    for (const [module, name, value] of this.changes(recorder)) {
      const { constructor } = module;
      recorder.addEffect('setAttribute', {
        inputs: value instanceof Tensor ? [recorder.valueOf(value)] : [],
        params: {
          module,
          name,
          of: constructor.name,
          value: mapTensors(() => PLACE, value),
        },
      });
    }
    this.accept(recorder);
  }

  /** Takes the changes since the last call for changes that a recorded call makes again. */
  accept(recorder: Recorder): void {
    for (const [module, name] of this.changes(recorder)) {
      const names = this.written.get(module);
      if (names === undefined) this.written.set(module, new Set([name]));
      else names.add(name);
    }
    for (const [module] of recorder.guards.modulesBefore())
      this.latest.set(module, new Map(Object.entries(module)));
  }

  /** Undoes the changes since the last call. Whether there were any. */
  undo(recorder: Recorder): boolean {
    const changes = this.changes(recorder);
    for (const [module, name] of changes) {
      const before = this.latest.get(module) ?? recorder.guards.modulesBefore().get(module);
      reset(module, name, before as Snapshot);
    }
    return changes.length > 0;
  }

  /** Whether an attribute that the function set has the tensor. */
  has(t: Tensor): boolean {
    for (const [module, names] of this.written)
      for (const name of names) if ((module as Attributes)[name] === t) return true;
    return false;
  }

  /**
   * Gives all attributes the values that they had before the capture. An old tensor that the
   * function replaces and does not use may be another one at each run.
   */
  restore(recorder: Recorder): void {
    const { guards } = recorder;
    for (const [module, names] of this.written)
      for (const name of names) {
        const before = guards.modulesBefore().get(module) as Snapshot;
        reset(module, name, before);
        const old = before.get(name);
        if (old instanceof Tensor && !recorder.isBorrowed(old)) guards.overwrites(module, name);
      }
    this.written.clear();
  }

  /** Changed attributes whose values a run can set. Guards find all other changes. */
  private changes(recorder: Recorder): [module: object, name: string, value: unknown][] {
    const found: [module: object, name: string, value: unknown][] = [];
    for (const [module, first] of recorder.guards.modulesBefore()) {
      const before = this.latest.get(module) ?? first;
      for (const [name, value] of Object.entries(module))
        if (isSettable(value) && !(before.has(name) && Object.is(before.get(name), value)))
          found.push([module, name, value]);
    }
    return found;
  }
}

const isSettable = (value: unknown): boolean =>
  value === null ||
  value instanceof Tensor ||
  (typeof value !== 'object' && typeof value !== 'function');

function reset(module: object, name: string, before: Snapshot): void {
  if (before.has(name)) (module as Attributes)[name] = before.get(name);
  else delete (module as Attributes)[name];
}
