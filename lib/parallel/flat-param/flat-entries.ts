/**
 * The parameters of a flat parameter: where modules use them, and checks that they fit together.
 */
import { contiguousStrides } from '../../core/shape.js';
import type { DeviceMesh } from '../../distributed/index.js';
import { DTensor, type Placement } from '../../dtensor/index.js';
import {
  ArgumentError,
  compiler,
  DeviceError,
  DtypeError,
  nn,
  noGrad,
  type Shape,
  type Tensor,
} from '../../index.js';
import { localOf, type Slot } from '../fully-shard/sharded-parameter.js';
import type { ShardParamInfo } from './layout.js';

const OP = 'FlatParamHandle';

/**
 * Many parameters in one tensor. Modules use views of it; optimizers update it as a whole.
 *
 * @see PyTorch `torch.distributed.fsdp._flat_param.FlatParameter`
 */
export class FlatParameter extends nn.Parameter {
  /** What this rank holds of each parameter, in order. */
  _shardParamInfos: readonly ShardParamInfo[] = [];
  /** Whether this rank holds all parameters, so that nothing is divided. */
  _isWhole = true;
}

/** One parameter of a flat parameter. */
export interface FlatEntry {
  /** The dotted path from the module of the handle. */
  readonly name: string;
  /** Every property that holds it: several if it is shared. */
  readonly slots: readonly Slot[];
  /** With tensor parallelism that of the local shard. */
  readonly shape: Shape;
  readonly stride: Shape;
  readonly numel: number;
  /** Its placements for tensor parallelism. */
  readonly distributed: Distributed | null;
}

interface Distributed {
  readonly mesh: DeviceMesh;
  readonly placements: readonly Placement[];
  readonly shape: Shape;
  readonly stride: Shape;
}

/** The parameters that handles have taken, with the properties that held them. */
const flattened = new WeakMap<nn.Parameter, readonly Slot[]>();

/** Marks parameters that a handle has taken. Calls of modules find other tensors in their place. */
export function markFlattened(entries: ReadonlyMap<nn.Parameter, FlatEntry>): void {
  for (const [parameter, { slots }] of entries) {
    flattened.set(parameter, slots);
    for (const { module, name } of slots) compiler.markRebound(module, name);
  }
}

/** Lets optimizers refuse a parameter that something stands for. */
export function markReplaced(parameter: nn.Parameter, name: string, by: string): void {
  parameter.replacedBecause =
    `"${name}" was replaced by ${by}. Make the optimizer after new ` +
    'FullyShardedDataParallel(model), of model.parameters().';
}

/**
 * The parameters of a module and those below that no handle has taken, each once.
 *
 * @throws ArgumentError for one that a handle has taken from another module that shares it
 */
export function notFlattened(module: nn.AnyModule): nn.Parameter[] {
  const found = new Set<nn.Parameter>();
  for (const [path, owner] of module.namedModules())
    for (const [name, parameter] of ownParameters(owner)) {
      if (parameter instanceof FlatParameter) continue;
      const slots = flattened.get(parameter);
      if (slots === undefined) found.add(parameter);
      else if (!slots.some((slot) => slot.module === owner && slot.name === name))
        throw flattenedAlready(path === '' ? name : `${path}.${name}`);
    }
  return [...found];
}

function flattenedAlready(name: string): ArgumentError {
  return new ArgumentError(
    `${OP}: "${name}" is part of a flat parameter already. Parameters that modules share are ` +
      'flattened together: wrap the module that contains all of them.',
    { op: OP, parameter: name },
  );
}

export function memberOf(slot: Slot): unknown {
  return (slot.module as unknown as Record<string, unknown>)[slot.name];
}

export function setMember({ module, name }: Slot, value: unknown): void {
  (module as unknown as Record<string, unknown>)[name] = value;
}

/**
 * The given parameters in the order in which a module and those below hold them.
 *
 * @throws ArgumentError for an empty list, a parameter that is not in the module, and one that is
 * flattened already or used outside of the module that flattened it
 */
export function entriesOf(
  params: readonly nn.Parameter[],
  module: nn.AnyModule,
): Map<nn.Parameter, FlatEntry> {
  if (params.length === 0)
    throw new ArgumentError(
      `${OP}: Cannot construct a FlatParamHandle with an empty parameter list`,
      { op: OP },
    );
  const wanted = new Set(params);
  const found = new Map<nn.Parameter, { name: string; slots: Slot[] }>();
  for (const [path, owner] of module.namedModules())
    for (const [name, parameter] of ownParameters(owner)) {
      if (!wanted.has(parameter)) continue;
      const known = found.get(parameter);
      if (known === undefined)
        found.set(parameter, {
          name: path === '' ? name : `${path}.${name}`,
          slots: [{ module: owner, name }],
        });
      else known.slots.push({ module: owner, name });
    }
  const missing = [...wanted].filter((parameter) => !found.has(parameter)).length;
  if (missing > 0)
    throw new ArgumentError(
      `${OP}: expected parameters of ${module.constructor.name}, got ${missing} that neither it ` +
        'nor a module below it has. Pass [...module.parameters()].',
      { op: OP, missing },
    );
  return new Map(
    [...found].map(([parameter, { name, slots }]) => [parameter, entryOf(parameter, name, slots)]),
  );
}

/** The parameters of a module itself, also those that it holds twice. */
function ownParameters(module: nn.AnyModule): Iterable<[string, nn.Parameter]> {
  return module.namedParameters('', { recurse: false, removeDuplicate: false });
}

function entryOf(parameter: nn.Parameter, name: string, slots: readonly Slot[]): FlatEntry {
  if (parameter instanceof FlatParameter || flattened.has(parameter)) throw flattenedAlready(name);
  const local = noGrad(() => localOf(parameter));
  return {
    name,
    slots,
    shape: local.shape,
    stride: contiguousStrides(local.shape),
    numel: local.numel(),
    distributed:
      parameter instanceof DTensor
        ? {
            mesh: parameter.deviceMesh,
            placements: parameter.placements,
            shape: parameter.shape,
            stride: parameter.stride(),
          }
        : null,
  };
}

/**
 * @throws DtypeError unless the dtypes are one floating dtype, DeviceError for several devices and
 * for meta, ArgumentError if some are frozen and `useOrigParams` is false
 */
export function checkUniform(
  entries: ReadonlyMap<nn.Parameter, FlatEntry>,
  useOrigParams: boolean,
): void {
  const [[first, { name: firstName }]] = [...entries] as [[nn.Parameter, FlatEntry]];
  for (const [{ dtype, device, requiresGrad }, { name }] of entries) {
    if (!dtype.isFloatingPoint)
      throw new DtypeError(
        `${OP}: expected floating parameters, got "${name}" of ${dtype.name}. Make it a buffer.`,
        { op: OP, parameter: name, dtype: dtype.name },
      );
    if (dtype !== first.dtype)
      throw new DtypeError(
        `${OP}: expected parameters of one dtype, got ${first.dtype.name} for ` +
          `"${firstName}" and ${dtype.name} for "${name}". Wrap the modules of each dtype first.`,
        { op: OP, parameters: [firstName, name] },
      );
    if (device !== first.device || String(device) === 'meta')
      throw new DeviceError(
        `${OP}: expected parameters in the memory of one device, got "${firstName}" on ` +
          `${first.device} and "${name}" on ${device}. Move the module first, or give ` +
          'it memory with toEmpty({ device }).',
        { op: OP, parameters: [firstName, name] },
      );
    if (!useOrigParams && requiresGrad !== first.requiresGrad)
      throw new ArgumentError(
        `${OP}: expected all parameters to have the same requiresGrad, got ` +
          `${first.requiresGrad} for "${firstName}" and ${requiresGrad} for "${name}". ` +
          'Pass { useOrigParams: true }, or wrap the frozen modules first.',
        { op: OP, parameters: [firstName, name] },
      );
  }
}

/** A part of a whole flat tensor, as modules use it. */
export function viewOf(entry: FlatEntry, flat: Tensor, start: number): Tensor {
  const { shape, stride, distributed } = entry;
  const view = flat.asStrided(shape, stride, flat.storageOffset + start);
  if (distributed === null) return view;
  const { mesh, placements, ...whole } = distributed;
  return DTensor.fromLocal(view, mesh, placements, whole);
}

/** The local shard of a value or gradient that modules use, in the placements of the parameter. */
export function localLike({ distributed }: FlatEntry, t: Tensor): Tensor {
  if (distributed === null || !(t instanceof DTensor)) return t;
  return t.redistribute(distributed.mesh, distributed.placements).toLocal();
}

/** The mesh over which tensor parallelism shards a parameter; null if each rank has all of it. */
export function shardingMesh({ distributed }: FlatEntry): DeviceMesh | null {
  return distributed?.placements.some((placement) => placement.isShard()) ? distributed.mesh : null;
}
