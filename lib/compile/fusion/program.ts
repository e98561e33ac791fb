/** Makes the program of a group: the steps of its members, over the values that it reads. */
import type { ComputeType } from '../../core/dtype.js';
import { contiguousStrides, isContiguousLayout, type Shape } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import { writer } from '../../eager/submit.js';
import { computeTypeOf } from '../../ops/define-pointwise.js';
import type {
  FusedOperand,
  FusedOutput,
  FusedProgram,
  FusedStep,
} from '../../ops/fused-pointwise.js';
import type { Node, Value, ValueMeta } from '../graph/node.js';
import { standIn, standIns } from '../partition/memory.js';
import { type NodeValue, ValueMap } from '../partition/value-map.js';
import { computedShape, isJoin } from './candidates.js';
import type { Group } from './groups.js';

/** The shape in which a group computes. */
export function shapeOf({ space, members }: Group): Shape {
  return space.shape ?? computedShape(members[0] as Node);
}

/**
 * The program of a group, whose inputs are those of the group in their order, and whose outputs are
 * the results of its stored members.
 *
 * @param operands - what each member reads
 */
export function programOf(
  group: Group,
  operands: ReadonlyMap<Node, readonly Value[]>,
): FusedProgram {
  const numbers = new ValueMap<number>();
  const computing = group.members.filter((node) => !isJoin(node));
  for (const value of group.inputs) numbers.set(value, numbers.keys.length);
  for (const node of computing) numbers.set({ node, output: 0 }, numbers.keys.length);
  const numberOf = (value: Value): number => numbers.get(value as NodeValue) as number;
  const operandsOf = (node: Node): readonly Value[] => operands.get(node) as readonly Value[];
  const operandOf = (value: Value): FusedOperand =>
    'number' in value ? { number: value.number.scalarValue } : { value: numberOf(value) };
  const steps = computing.map((node) => stepOf(node, operandsOf(node).map(operandOf)));
  const shape = shapeOf(group);
  const outputs = group.stored.map((node): FusedOutput => {
    const { strides, dtype, shape: own } = node.metas[0] as ValueMeta;
    if (isJoin(node)) {
      const { dim } = node.params as { dim: number };
      return { value: operandsOf(node).map(numberOf), dim, shape: own, strides, dtype };
    }
    const isFlat = isContiguousLayout(own, strides);
    return {
      value: numberOf({ node, output: 0 }),
      shape,
      strides: isFlat ? contiguousStrides(shape) : strides,
      dtype,
    };
  });
  return { steps, outputs };
}

function stepOf(node: Node, operands: readonly FusedOperand[]): FusedStep {
  const { op, params, metas } = node;
  const meta = metas[0] as ValueMeta;
  const { dtype } = meta;
  const inputs = standIns(node);
  if (op === null || op.pointwise === null) {
    // A conversion, exact until it is rounded.
    const { computeType } = (inputs[0] as Tensor).dtype;
    return { name: dtype.name, kernel: -1, computeType, dtype, operands, params: [] };
  }
  const numbers: number[] = [];
  op.params.append?.({ param: (value) => void numbers.push(value) }, params);
  const computeType = computeTypeOf(op.pointwise, inputs, standIn(meta)) as ComputeType;
  return {
    name: op.name,
    kernel: writer.kernelId(op),
    computeType,
    dtype,
    operands,
    params: numbers,
  };
}
