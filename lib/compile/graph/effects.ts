/**
 * The effects of a graph beside ops: what each does to the real tensors when the graph runs. A node
 * of kind `effect` names one of them, so that passes, printing and copies see what it does.
 */

import { beginPass, endPass } from '../../autograd/backward-callbacks.js';
import { registerMultiGradHook } from '../../autograd/multi-grad-hook.js';
import { asynchronous, waited } from '../../core/asynchronous.js';
import type { Applicable } from '../../core/backend.js';
import { CompileError } from '../../core/errors.js';
import { layers } from '../../core/hooks.js';
import type { DrawParams, DrawSource, Generator } from '../../core/random.js';
import { setGrad } from '../../core/set-grad.js';
import type { Sharding } from '../../core/sharding.js';
import type { Tensor } from '../../core/tensor.js';
import { map as mapTensors } from '../../core/tree.js';
import { type BoundHook, type HookParams, registerHook } from './hook-effects.js';
import { callOpaque, type OpaqueCall } from './opaque-hooks.js';
import type { RegionParams } from './regions.js';
import type { StateValue } from './state-value.js';

/** A value while a graph runs: a tensor, a version, or the random state of a draw. */
export type RunValue = Tensor | number | DrawParams | BoundHook | StateValue | (() => void) | null;

/** Whether a value is the random state of a draw. @internal */
export function isDraw(value: unknown): value is DrawParams {
  return typeof value === 'object' && value !== null && 'seedLow' in value;
}

interface EffectDefinition<P = object> {
  /** Runs the effect; the value that it returns is its output, or the list of its outputs. */
  run(operands: readonly RunValue[], params: P): RunValue | readonly Tensor[] | void;
  /** Number of outputs; `many`: one for each meta of the node. */
  readonly outputs: 0 | 1 | 'many';
  /** Whether it may be left out if nobody uses its output. */
  readonly pure: boolean;
  /** Whether a recording of the run repeats the effect as it is. */
  readonly isState: boolean;
}

const define = <P extends object>(
  definition: Partial<EffectDefinition<P>> & Pick<EffectDefinition<P>, 'run'>,
): EffectDefinition<P> => ({ outputs: 0, pure: false, isState: false, ...definition });

/** Methods that autograd adds. */
interface Tracked {
  detach_(): Tensor;
  retainGrad(): void;
}

/** The version that the latest run read. @internal */
export interface VersionCell {
  latest: number;
}

/** An attribute of a module, and the value that is no tensor. @internal */
export interface AttributeParams {
  readonly module: object;
  readonly name: string;
  readonly value: unknown;
}

interface FunctionParams {
  readonly function: Applicable;
  /** The arguments, with any tensors where operands stand. */
  readonly template: readonly unknown[];
  /** The number of results. */
  readonly outputs: number;
}

function applyFunction(
  operands: readonly RunValue[],
  { function: fn, template, outputs }: FunctionParams,
): readonly Tensor[] {
  let next = 0;
  const args = mapTensors(() => operands[next++], template) as unknown[];
  const result = fn.apply(...args);
  const results = Array.isArray(result) ? (result as readonly Tensor[]) : [result as Tensor];
  if (results.length !== outputs)
    throw new CompileError(
      `${fn.name} returned ${results.length} tensors, and ${outputs} when compile captured it. ` +
        'Return equally many at every call, or exclude the caller by compiler.disable(fn).',
      { function: fn.name, expected: outputs, given: results.length },
    );
  return results;
}

/** All effects, by name. @internal */
export const effects = {
  /** Puts the first tensor on the memory of the second: `set_` and assigning `data`. */
  set_: define<{ counts: boolean }>({
    run: ([target, source], { counts }) =>
      layers.backend.effects.swap(target as Tensor, source as Tensor, counts),
  }),
  /** Resizes the storage of a tensor. */
  resize_: define<{ bytes: number }>({
    run: ([t], { bytes }) => void (t as Tensor).untypedStorage().resize_(bytes),
  }),
  /** Sets the version counter of a tensor; with a second operand, relative to that version. */
  setVersion: define<{ version: number }>({
    isState: true,
    run: ([t, base], { version }) =>
      layers.backend.effects.setVersion(t as Tensor, ((base as number | undefined) ?? 0) + version),
  }),
  /** The version of a tensor, for `setVersion` and for results. */
  readVersion: define<VersionCell>({
    outputs: 1,
    isState: true,
    run: ([t], cell) => {
      cell.latest = (t as Tensor)._version;
      return cell.latest;
    },
  }),
  /** Keeps the version of a tensor for `restoreVersion`. */
  keepVersion: define({
    outputs: 1,
    run: ([t]) => layers.backend.effects.keepVersion(t as Tensor),
  }),
  /** Gives a tensor the version that `keepVersion` kept. */
  restoreVersion: define({ run: ([_, restore]) => (restore as () => void)() }),
  /** Gives a tensor a version counter of its own, as `data` has. */
  ownVersion: define({
    run: ([t]) => {
      (t as Tensor).versionCounter = null;
    },
  }),
  /** The random state of the next draw of a generator. */
  draw: define<{ source: DrawSource }>({
    outputs: 1,
    run: (_, { source }) => source.next(),
  }),
  /** Seeds a generator. */
  seed: define<{ generator: Generator; seed: number }>({
    run: (_, { generator, seed }) => void generator.manualSeed(seed),
  }),
  /** The state of a generator, for `restoreRng`. */
  keepRng: define<{ generator: Generator }>({
    isState: true,
    outputs: 1,
    run: (_, { generator }) => generator.remember(),
  }),
  /** Gives a generator the state that `keepRng` returned. */
  restoreRng: define({ isState: true, run: ([restore]) => (restore as () => void)() }),
  /**
   * Begins a region of nodes with one tag. `run` runs them, and again in backward; a run that is
   * recorded does nothing here, because the nodes that it records have the tag.
   */
  recompute: define<RegionParams>({ run: () => undefined }),
  /** Makes a tensor the result of a collective, or one that is waited for. */
  setAsynchronous: define<{ value: boolean }>({
    run: ([t], { value }) => void (value ? asynchronous : waited)(t as Tensor),
  }),
  /** Ends the history of a tensor. */
  detach_: define({ run: ([t]) => void (t as Tensor & Tracked).detach_() }),
  /** Keeps the gradient of a tensor that is not a leaf. */
  retainGrad: define({ run: ([t]) => (t as Tensor & Tracked).retainGrad() }),
  /** The local shard of a distributed tensor, on the same memory and without history. */
  localShard: define({
    outputs: 1,
    pure: true,
    run: ([t]) => (t as Tensor).sharding?.local ?? null,
  }),
  /** A distributed tensor over a local shard, of the same mesh and placements as another. */
  distribute: define<{ sharding: Sharding }>({
    outputs: 1,
    pure: true,
    isState: true,
    run: ([t], { sharding }) => sharding.withLocal(t as Tensor),
  }),
  /** Turns gradient tracking of a leaf on or off. */
  requiresGrad_: define<{ value: boolean }>({
    run: ([t], { value }) => void (t as Tensor).requiresGrad_(value),
  }),
  /** A parameter on the memory of a tensor; it does not require a gradient yet. */
  createParameter: define<{ type: new (data: Tensor, requiresGrad: boolean) => Tensor }>({
    outputs: 1,
    run: ([data], { type }) => new type(data as Tensor, false),
  }),
  /** Assigns the `.grad` of a tensor: the second tensor, or null. */
  setGrad: define<{ seen: boolean }>({
    run: ([t, value], { seen }) => {
      const grad = (value as Tensor | undefined) ?? null;
      if (seen) (t as Tensor).grad = grad;
      else setGrad(t as Tensor, grad);
    },
  }),
  /** Sets an attribute of a module: to the operand, if there is one, else to a plain value. */
  setAttribute: define<AttributeParams>({
    isState: true,
    run: ([t], { module, name, value }) => {
      (module as Record<string, unknown>)[name] = t === undefined ? value : t;
    },
  }),
  /** Registers a hook on the tensor or its node; `bindHook` gives it the tensors that it uses. */
  registerHook: define<HookParams>({
    outputs: 1,
    run: ([t], params) => registerHook(t as Tensor, params),
  }),
  /** Gives a registered hook the tensors that its body uses. */
  bindHook: define({
    run: ([hook, ...lifted]) => {
      (hook as BoundHook).lifted = lifted;
    },
  }),
  /**
   * Calls a function that is no part of the graph, which fills and frees the memory of the
   * operands: a hook by its number among those of the pass, or a function itself.
   */
  callOpaque: define<{ fn: OpaqueCall }>({ isState: true, run: (_, { fn }) => callOpaque(fn) }),
  /** Begins a backward pass of a whole step, in which hooks may queue callbacks. */
  beginPass: define({ run: beginPass }),
  /** Ends it: its callbacks run. */
  endPass: define({ run: endPass }),
  /** Registers a hook on the tensors that graphs call and do not contain. */
  registerOpaque: define<{ hook: () => void; mode: 'any' | 'all' }>({
    run: (tensors, { hook, mode }) =>
      void registerMultiGradHook(tensors as readonly Tensor[], hook, { mode }),
  }),
  /** Applies an `autograd.Function`, or another function that records nodes of the tape. */
  applyFunction: define<FunctionParams>({ outputs: 'many', run: applyFunction }),
  /** The `.grad` of a tensor, which is not null: guards compare that. */
  readGrad: define({ outputs: 1, pure: true, run: ([t]) => (t as Tensor).grad }),
} as const satisfies Record<string, EffectDefinition<never>>;

/** The name of an effect in a graph. */
export type EffectName = keyof typeof effects;

/** The definition of an effect. @internal */
export function effectOf(name: EffectName): EffectDefinition {
  return effects[name] as unknown as EffectDefinition;
}
