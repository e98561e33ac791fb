/** What a plan is for, and how it estimates. */

import { type Rates, type RatesName, ratesOf } from '../../compile/estimate/rates.js';
import { type DType, type DTypeLike, dtypeOf } from '../../core/dtype.js';
import { ArgumentError } from '../../core/errors.js';
import {
  checkFunction,
  checkNumber,
  checkOneOf,
  listOf,
  optionsOf,
  unexpected,
} from '../../core/options.js';
import { isPlain } from '../../core/plain-object.js';
import { MOST_FAKE_RANKS } from '../../distributed/launch/fake-world.js';
import { LAYOUTS, type LayoutName, type ShardParameter } from './layouts.js';

/** The ranks that a plan is for; none of them exists. */
export interface PlanMesh {
  /** The ranks along each dim. */
  readonly shape: readonly number[];
  /** A name for each dim. */
  readonly meshDimNames: readonly string[];
}

/** Options of `plan`. */
export interface PlanOptions {
  /** The layouts to compare; all that the mesh has dims for by default. */
  readonly layouts?: readonly LayoutName[];
  /** The device of the step's tensors. */
  readonly device?: 'cpu' | 'cuda';
  /** A table of rates, or the name of a known one. By default that of the device. */
  readonly rates?: RatesName | Rates;
  /** The bytes that a rank has for tensors; null for any number. */
  readonly memoryBytes?: number | null;
  /** MiB of a bucket of fused gradients in `dp` and `tp`; null for a collective a gradient. */
  readonly bucketSizeMb?: number | null;
  /**
   * Where `tp` shards parameters: by default linear layers by columns and by rows in turns, where
   * the ranks share them evenly, and nothing else.
   */
  readonly shardParameter?: ShardParameter | null;
  /**
   * The parameters that `fsdp` gathers together have one name: by default that of the layer with
   * the first number, such as `layers.0` for `layers.0.up.weight`, and `''` for all others.
   */
  readonly groupOf?: (name: string) => string;
  /**
   * The dtype in which `fsdp` gathers parameters, as `paramDtype` of a MixedPrecisionPolicy; by
   * default their own. The step computes in it by `autocast`.
   */
  readonly paramDtype?: DTypeLike | null;
  /** The dtype in which `fsdp` reduces gradients; by default `paramDtype`. */
  readonly reduceDtype?: DTypeLike | null;
}

/** The checked settings of a plan. */
export interface Settings {
  readonly layouts: readonly LayoutName[];
  readonly mesh: PlanMesh;
  readonly device: 'cpu' | 'cuda';
  readonly rates: Rates;
  readonly memoryBytes: number | null;
  readonly bucketSizeMb: number | null;
  readonly shardParameter: ShardParameter | null;
  readonly groupOf: (name: string) => string;
  readonly paramDtype: DType | null;
  readonly reduceDtype: DType | null;
}

const byFirstNumber = (name: string): string => /^(?:.*?\.)?\d+(?=\.)/.exec(name)?.[0] ?? '';

/** @throws ArgumentError for a mesh or options of other types; DtypeError for what is no dtype */
export function settingsOf(mesh: PlanMesh, options: PlanOptions): Settings {
  const name = 'plan';
  const { shape, meshDimNames } = checkedMesh(mesh);
  const {
    layouts = LAYOUTS.filter((each) => each !== 'fsdp x tp' || shape.length > 1),
    device = 'cpu',
    rates = device === 'cuda' ? 'h200' : 'cpu',
    memoryBytes = null,
    bucketSizeMb = 25,
    shardParameter = null,
    groupOf = byFirstNumber,
    paramDtype = null,
    reduceDtype = null,
  } = optionsOf(
    name,
    options,
    'layouts device rates memoryBytes bucketSizeMb shardParameter groupOf paramDtype reduceDtype',
  );
  const names = listOf(name, 'layouts', `a list of ${LAYOUTS.join(', ')}`, layouts);
  for (const each of names) checkOneOf(name, 'layouts', each, LAYOUTS);
  checkOneOf(name, 'device', device, ['cpu', 'cuda']);
  if (memoryBytes !== null) checkNumber(name, 'memoryBytes', memoryBytes, { above: 0 });
  if (bucketSizeMb !== null) checkNumber(name, 'bucketSizeMb', bucketSizeMb, { above: 0 });
  if (shardParameter !== null) checkFunction(name, 'shardParameter', shardParameter);
  checkFunction(name, 'groupOf', groupOf);
  if (names.includes('fsdp x tp') && shape.length < 2)
    throw new ArgumentError(
      `plan: the layout "fsdp x tp" needs a mesh of two dims or more, got [${shape.join(', ')}]`,
      { op: name, argument: 'layouts' },
    );
  return {
    layouts: names,
    mesh: { shape, meshDimNames },
    device,
    rates: ratesOf(name, rates),
    memoryBytes,
    bucketSizeMb,
    shardParameter,
    groupOf,
    paramDtype: floatingDtype('paramDtype', paramDtype),
    reduceDtype: floatingDtype('reduceDtype', reduceDtype),
  };
}

/** @throws ArgumentError for what is no floating dtype */
function floatingDtype(argument: string, given: DTypeLike | null): DType | null {
  const dtype = given === null ? null : dtypeOf(given, 'plan', argument);
  if (dtype === null || dtype.isFloatingPoint) return dtype;
  throw unexpected('plan', argument, 'a floating point dtype or null', given);
}

/** @throws ArgumentError for what is no mesh */
function checkedMesh(given: PlanMesh): PlanMesh {
  const expected =
    'an object with shape and meshDimNames, such as { shape: [8], meshDimNames: ["dp"] }';
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw unexpected('plan', 'mesh', expected, given);
  // A DeviceMesh has more members; a name that is wrong in a literal would be ignored.
  if (isPlain(given)) optionsOf('plan: mesh', given, 'shape meshDimNames');
  const { shape, meshDimNames } = given as Partial<PlanMesh>;
  if (!Array.isArray(shape) || shape.length === 0)
    throw unexpected(
      'plan',
      'mesh.shape',
      'the number of ranks along each dim, such as [8]',
      shape,
    );
  if (!Array.isArray(meshDimNames))
    throw unexpected(
      'plan',
      'mesh.meshDimNames',
      'a name for each dim, such as ["dp"]',
      meshDimNames,
    );
  for (const size of shape) checkNumber('plan', 'mesh.shape', size, { from: 1, whole: true });
  if (shape.reduce((a, b) => a * b, 1) > MOST_FAKE_RANKS)
    throw new ArgumentError(
      `plan: expected a mesh of at most ${MOST_FAKE_RANKS} ranks, got [${shape.join(', ')}]. Plan ` +
        'for fewer: times of such groups grow by the latency of each doubling.',
      { op: 'plan', argument: 'mesh' },
    );
  const areNames =
    meshDimNames.length === shape.length &&
    new Set(meshDimNames).size === shape.length &&
    meshDimNames.every((each) => typeof each === 'string');
  if (!areNames)
    throw unexpected('plan', 'mesh.meshDimNames', `${shape.length} different names`, meshDimNames);
  return { shape: [...shape], meshDimNames: [...meshDimNames] };
}
