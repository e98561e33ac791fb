/** View ops: other windows on the memory of their input. */
import { defineOp, type Op, type OpDefinition, type ViewMeta } from '../core/op.js';
import type { ShardingRule } from '../core/sharding-rule.js';
import type { Tensor } from '../core/tensor.js';

/** Adds a view op: traits and shape rule follow from the window it computes. @internal */
export function defineView<P extends object>(definition: {
  name: string;
  doc: string;
  view: (input: Tensor, params: P) => ViewMeta;
  sharding: ShardingRule<P>;
  vjp: OpDefinition<P>['vjp'];
  samples: Op<P>['samples'];
}): Op<P> {
  return defineOp<P>({
    ...definition,
    traits: ['view'],
    meta: ([x], params) => {
      const input = x as Tensor;
      const { shape, strides } = definition.view(input, params);
      return [{ shape, strides, dtype: input.dtype, device: input.device }];
    },
  });
}
