/** Replaces the memory of a tensor that keeps its identity: `set_` and the `data` property. */

import { aliasOf } from '../core/alias-of.js';
import { toOneDevice } from '../core/device.js';
import {
  AutogradError,
  DeviceError,
  DtypeError,
  InPlaceError,
  ShardingError,
} from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { formatShape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import { requireTensor } from '../ops/operand.js';
import { isGradEnabled } from './grad-mode.js';

function checkSame(target: Tensor, source: Tensor): void {
  if (source.dtype !== target.dtype) {
    throw new DtypeError(
      `set_: expected a tensor of dtype ${target.dtype.name}, got ${source.dtype.name}. ` +
        `Convert it with .to(${target.dtype.name}) first.`,
      { op: 'set_' },
    );
  }
  if (source.device !== target.device) {
    throw new DeviceError(
      `set_: expected a tensor on ${target.device}, got one on ${source.device}. ` +
        `${toOneDevice(target.device, source.device)}`,
      { op: 'set_' },
    );
  }
}

/**
 * Refuses a plain source for a distributed tensor: the whole would silently become its own local
 * shard. @throws ShardingError
 */
function checkDistributed(op: string, target: Tensor, source: Tensor): void {
  if (target.sharding === null || source.sharding !== null) return;
  throw new ShardingError(
    `${op}: expected a distributed tensor for one placed as ${target.sharding.spec}, got a ` +
      `plain ${source.dtype.name}${formatShape(source.sizes)}. Convert it by distributeTensor(t, ` +
      'mesh, placements) if it is the whole tensor, or by DTensor.fromLocal(t, mesh, placements) ' +
      'if it is the local shard; a plain parameter is a new one: new nn.Parameter(t).',
    { op },
  );
}

function checkRecording(target: Tensor, source: Tensor): void {
  if (!isGradEnabled()) return;
  if (target.requiresGrad) {
    throw new InPlaceError(
      'set_: expected a tensor that requires no gradient, got one that does; its gradient ' +
        'would be lost. Call it inside noGrad(() => ...).',
      {
        op: 'set_',
        shape: target.sizes,
      },
    );
  }
  if (source.requiresGrad)
    throw new AutogradError(
      'set_: the source requires a gradient, which would be lost. Pass source.detach(), or do ' +
        'it inside noGrad(() => ...).',
    );
}

/**
 * Puts `target` on the memory of `source`: the function form of the method. @throws as {@link
 * Tensor.set_}
 *
 * @see PyTorch `torch.ops.fsdp.set_`
 */
export function set_<T extends Tensor>(target: T, source: Tensor): T {
  requireTensor(target, 'set_', 'target');
  requireTensor(source, 'set_', 'source');
  checkSame(target, source);
  checkDistributed('set_', target, source);
  checkRecording(target, source);
  layers.backend.effects.swap(target, source, true);
  return target;
}

function setData(target: Tensor, source: Tensor): void {
  requireTensor(source, 'data', 'the value');
  checkDistributed('data', target, source);
  if (target.requiresGrad && !source.dtype.isFloatingPoint) {
    throw new DtypeError(
      'data: expected floating point values for a tensor that requires a gradient, got ' +
        `${source.dtype.name}. Call requiresGrad_(false) first.`,
      {
        op: 'data',
        given: source.dtype.name,
      },
    );
  }
  layers.backend.effects.swap(target, source, false);
}

const members: PropertyDescriptorMap & ThisType<Tensor> = {
  set_: {
    value(source: Tensor): Tensor {
      return set_(this, source);
    },
    writable: true,
    configurable: true,
  },
  data: {
    get(): Tensor {
      const storage = this.liveStorage('data');
      storage.changesUnseen = true;
      return aliasOf(this, storage);
    },
    set(source: Tensor) {
      setData(this, source);
    },
    configurable: true,
  },
};
Object.defineProperties(Tensor.prototype, members);

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Puts this tensor on the memory of `source`, with its shape and strides, without a copy. The
     * tensor keeps its identity, hooks and `.grad`; its version goes up. Earlier views of it keep
     * the old memory; if it was a view, it no longer is one. The memory then lives at least as long
     * as the old memory would have, also if `source` belongs to an inner scope. FSDP swaps sharded
     * and gathered parameters with it. Gradient: none.
     *
     * @throws DtypeError, DeviceError if the tensors differ; ShardingError for a plain source of a
     * distributed tensor; InPlaceError, AutogradError if one requires a gradient and recording is
     * on; FreedError
     * @see PyTorch `Tensor.set_` and `torch.ops.fsdp.set_`
     */
    set_(source: Tensor): this;
    /**
     * A tensor on the same memory without history, whose in-place changes autograd does not notice,
     * because it has its own version counter. Prefer `detach()`.
     *
     * Assigning puts this tensor on other memory, as {@link set_} does, but of any dtype and
     * device, without checks of the graph, and without incrementing the version: backward then
     * reads saved inputs from the new memory.
     *
     * @throws DtypeError on assigning integers or booleans to a tensor that requires a gradient.
     * @throws ShardingError on assigning a plain tensor to a distributed one. @throws FreedError
     * @see PyTorch `Tensor.data`
     */
    data: Tensor;
  }
}
