/** Defines view ops: the window that a view computes gives its shape rule. */

import { defineOp, type Op, type OpDefinition, type Sample, type ViewMeta } from '../core/op.js';
import type { ParamSchema, ParamsOf } from '../core/op-params.js';
import type { ShardingRule } from '../core/sharding-rule.js';
import type { Tensor } from '../core/tensor.js';

/** Adds a view op: traits and shape rule follow from the window it computes. @internal */
export function defineView<const S extends ParamSchema = Record<never, never>>(definition: {
  name: string;
  doc: string;
  params?: S;
  view: (input: Tensor, params: ParamsOf<S>) => ViewMeta;
  sharding: ShardingRule<ParamsOf<S>>;
  vjp: OpDefinition<S>['vjp'];
  joinGradients?: OpDefinition<S>['joinGradients'];
  samples: () => readonly Sample<ParamsOf<S>>[];
  traits?: OpDefinition<S>['traits'];
  publicCall?: (inputs: readonly [Tensor], params: ParamsOf<S>) => Tensor;
}): Op<ParamsOf<S>> {
  const { view, samples, ...rest } = definition;
  return defineOp({
    ...rest,
    inputs: ['x'],
    view,
    samples: samples as () => readonly Sample<ParamsOf<S>, readonly [Tensor]>[],
    meta: ([x], params) => {
      const { shape, strides, dtype = x.dtype } = view(x, params);
      return [{ shape, strides, dtype, device: x.device }];
    },
  });
}
