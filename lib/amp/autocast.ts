/**
 * Mixed precision: inside a region, each op runs in the precision of its policy, whatever the
 * dtypes of its operands.
 */
import { isGradEnabled } from '../autograd/grad-mode.js';
import { type AutocastPolicy, type OperandConverter, setAutocast } from '../core/autocast.js';
import type { DeviceType } from '../core/device.js';
import { belowEntry } from '../core/dispatch.js';
import {
  bfloat16,
  type DType,
  type DTypeLike,
  dtypeOf,
  float16,
  float32,
  float64,
  promoteTypes,
} from '../core/dtype.js';
import { DtypeError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { checkFunction, checkOneOf, checkSynchronous, optionsOf } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import { CastCache } from './cast-cache.js';

/** Options of {@link autocast}. */
export interface AutocastOptions {
  /** The device whose ops are converted. On others nothing changes. */
  deviceType: DeviceType;
  /** The low precision. Default: float16 on CUDA, bfloat16 on the CPU. */
  dtype?: DTypeLike;
  /** False switches the outer region's conversion off inside. */
  enabled?: boolean;
  /** Keep converted weights until the outermost region ends. */
  cacheEnabled?: boolean;
}

interface Region {
  dtype: DType;
  enabled: boolean;
  cacheEnabled: boolean;
}

const defaults: Record<DeviceType, DType> = { cpu: bfloat16, cuda: float16 };
const regions: Record<DeviceType, Region | null> = { cpu: null, cuda: null };
const cache = new CastCache();
let depth = 0;
/** The dtypes of the open regions: `bfloat16/` on the CPU alone. */
let state = '/';

function checkDeviceType(op: string, deviceType: unknown): void {
  checkOneOf(op, 'deviceType', deviceType, Object.keys(regions));
}

/** Whether a region converts operands on this type of device. */
export function isAutocastEnabled(deviceType: DeviceType): boolean {
  checkDeviceType('isAutocastEnabled', deviceType);
  return regions[deviceType]?.enabled === true;
}

/** The low precision of the region on this type of device, or the default if none is open. */
export function getAutocastDtype(deviceType: DeviceType): DType {
  checkDeviceType('getAutocastDtype', deviceType);
  return regions[deviceType]?.dtype ?? defaults[deviceType];
}

/** The settings that a graph captured inside a region is guarded on. @internal */
export const autocastState = (): string => state;

/** Called after a change of the regions. */
function regionsChanged(): void {
  state = (['cpu', 'cuda'] as const)
    .map((type) => (isAutocastEnabled(type) ? getAutocastDtype(type).name : ''))
    .join('/');
}

/**
 * Runs `fn` with mixed precision on one type of device: products and attention in `dtype`, sums,
 * norms, exponentials and losses in float32 (see the table in docs/amp.md), everything else in the
 * dtype of its operands. Operands of float64 are not converted. Parameters and their gradients stay
 * in float32. The operands of in-place ops are not converted. Run `backward` outside: gradients
 * have the dtypes that forward chose.
 *
 * Differs from PyTorch in one point: layer and RMS norm give float32 on the CPU too.
 *
 * @throws ArgumentError for an unknown device type and for an asynchronous function; DtypeError for
 * a dtype other than bfloat16 and float16
 * @see PyTorch `torch.autocast`; Micikevicius et al., arXiv:1710.03740
 * @example
 * const loss = amp.autocast({ deviceType: 'cuda', dtype: bfloat16 }, () => model(x).mean());
 * loss.backward();
 */
export function autocast<T>(options: AutocastOptions, fn: () => T): T {
  const {
    deviceType,
    dtype: given,
    enabled = true,
    cacheEnabled = true,
  } = optionsOf('autocast', options, 'deviceType dtype enabled cacheEnabled');
  checkDeviceType('autocast', deviceType);
  checkFunction('autocast', 'fn', fn);
  const dtype = given === undefined ? undefined : dtypeOf(given, 'autocast');
  if (dtype !== undefined && dtype !== bfloat16 && dtype !== float16) {
    throw new DtypeError(`autocast: expected dtype bfloat16 or float16, got ${dtype.name}`, {
      op: 'autocast',
    });
  }
  const before = regions[deviceType];
  regions[deviceType] = { dtype: dtype ?? getAutocastDtype(deviceType), enabled, cacheEnabled };
  regionsChanged();
  const autocastBefore = setAutocast(anyEnabled());
  depth++;
  try {
    const result = fn();
    checkSynchronous('autocast', result, 'the region would end at its first await');
    return result;
  } finally {
    depth--;
    regions[deviceType] = before;
    regionsChanged();
    setAutocast(autocastBefore);
    if (depth === 0) cache.clear();
  }
}

function anyEnabled(): boolean {
  return isAutocastEnabled('cpu') || isAutocastEnabled('cuda');
}

/**
 * Whether a region converts this operand: floating point but not float64, on a device with an open
 * region.
 */
function regionOf(t: Tensor): Region | null {
  if (t.storage === null || !t.dtype.isFloatingPoint || t.dtype === float64) return null;
  if (t.device.type === 'meta') return null;
  const region = regions[t.device.type];
  return region?.enabled ? region : null;
}

/** Converts the operands of an op that a region applies to. @internal */
export const operandConverter: OperandConverter = {
  convert(policy, operands) {
    const target = targetOf(policy, operands);
    return target === null ? operands : operands.map((t) => convert(t, target));
  },
  target: targetOf,
  runWithLow(op, operands, params) {
    const low = lowOf(operands);
    if (low === null) return belowEntry(op, operands, params, null);
    const outputs = belowEntry(op, operands, { ...params, low }, null);
    cache.keepConversion(outputs[0] as Tensor, outputs.pop() as Tensor);
    return outputs;
  },
};

/**
 * The dtype in which products will read a result in float32 with a gradient, if one conversion
 * serves all of them. Captures and dispatch modes see conversions as ops.
 */
function lowOf(operands: readonly Tensor[]): DType | null {
  const lead = operands[0] as Tensor;
  const region = regionOf(lead);
  if (region === null || !region.cacheEnabled || lead.dtype !== float32) return null;
  if (layers.backend.capture !== null || layers.hasMode || !isGradEnabled()) return null;
  const converts = operands.every((t) => t.sharding === null) && operands.some((t) => t.isTracked);
  return converts ? region.dtype : null;
}

/** The dtype that the operands of a call are converted to; null if they are not converted. */
function targetOf(policy: AutocastPolicy, operands: readonly Tensor[]): DType | null {
  const lead = operands.find((t) => regionOf(t) !== null);
  if (lead === undefined) return null;
  if (policy === 'low precision') return (regionOf(lead) as Region).dtype;
  if (policy === 'float32') return float32;
  if (lead.device.type !== 'cuda') return null;
  if (policy === 'float32 on cuda') return float32;
  return operands.reduce(
    (widest, t) => (regionOf(t) === null ? widest : promoteTypes(widest, t.dtype)),
    lead.dtype,
  );
}

function convert(t: Tensor, dtype: DType): Tensor {
  const region = regionOf(t);
  if (region === null || t.dtype === dtype) return t;
  const low = dtype === region.dtype && t.dtype === float32;
  return low && region.cacheEnabled && isGradEnabled() ? cache.get(t, dtype) : t.to(dtype);
}
