/** The tensors that modules own and optimizers update. */

import { ArgumentError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { keep } from '../core/scope.js';
import { Tensor } from '../core/tensor.js';

/**
 * A leaf tensor. Assigning it to a module registers it there. It shares the memory of `data`.
 *
 * @example
 * class Scale extends nn.Module {
 *   factor = new nn.Parameter(ones([1]));
 *   forward(x: Tensor) {
 *     return x.mul(this.factor);
 *   }
 * }
 * [...new Scale().namedParameters()].map(([name]) => name); // ['factor']
 */
export class Parameter extends Tensor {
  constructor(data: Tensor, requiresGrad = true) {
    if (!(data instanceof Tensor))
      throw new ArgumentError('nn.Parameter: expected a tensor', { op: 'nn.Parameter' });
    if (typeof requiresGrad !== 'boolean')
      throw new ArgumentError(
        `nn.Parameter: expected requiresGrad to be true or false, got ${typeof requiresGrad}`,
        { op: 'nn.Parameter', argument: 'requiresGrad' },
      );
    const { capture } = layers.backend;
    capture?.usesMemory(data);
    super(
      data.sizes,
      data.strides,
      data.storageOffset,
      data.dtype,
      data.device,
      data.liveStorage('nn.Parameter'),
    );
    this.sharding = data.sharding;
    this.versionCounter = data.sharedVersion();
    keep(this);
    layers.backend.observer?.mark(this.storage, 'parameter');
    if (capture !== null) {
      if (new.target !== Parameter)
        capture.unsupported(`the parameter ${new.target.name}, a subclass, was made`);
      capture.createsParameter(this, data);
    }
    this.requiresGrad_(requiresGrad);
  }
}
