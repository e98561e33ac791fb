/**
 * Copies of many tensors in one command: foreachCopy_, and the unpacking and packing of flat
 * buffers between ranks, splitWithSizesCopy and chunkCat.
 */
import { toOneDevice } from '../core/device.js';
import { dispatch, dispatchOne } from '../core/dispatch.js';
import { type DType, promoteTypes } from '../core/dtype.js';
import { ArgumentError, DeviceError, InPlaceError, ShapeError } from '../core/errors.js';
import { gradState } from '../core/modes.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkNumber } from '../core/options.js';
import { formatShape, numelOf, type Shape, sameShape, wrapDim } from '../core/shape.js';
import { defineFunction } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { copyRowMajor } from './copy.js';
import { cat } from './join.js';
import { requireTensor, requireTensors } from './operand.js';
import { countParams, defineStep, inChunks, MAX_TENSORS, writesTo } from './optimizer-steps.js';
import { sampleTensor } from './samples.js';
import { decomposedForeachRule } from './sharding/concat-and-foreach.js';
import { split } from './split.js';

const foreachCopyOp = defineStep(
  'foreachCopy',
  'y = x for many tensors, converted.',
  '(y[count]: [...], x[count]: numel(y[i])) -> ()',
  countParams,
  writesTo(0),
);

/**
 * y = x for each pair, in place and converted to the dtype of y, many in one command. Shapes:
 * broadcast in each pair; pairs of equal shapes on one device are fast. Dtypes: any. Gradient: as
 * of {@link Tensor.copy_}, pair by pair.
 *
 * @throws ArgumentError for what are no lists of tensors, or lists of two lengths; ShapeError,
 * InPlaceError as {@link Tensor.copy_}
 * @see PyTorch `torch._foreach_copy_`
 */
export function foreachCopy_(targets: readonly Tensor[], sources: readonly Tensor[]): void {
  requireTensors(targets, 'foreachCopy_', 'targets');
  requireTensors(sources, 'foreachCopy_', 'sources');
  if (targets.length !== sources.length)
    throw new ArgumentError(
      `foreachCopy_: expected a source for each of ${targets.length} targets, got ` +
        `${sources.length}`,
      { op: 'foreachCopy_', targets: targets.length, sources: sources.length },
    );
  if (canShareCommand(targets, sources))
    inChunks([targets, sources], (inputs, count) => dispatch(foreachCopyOp, inputs, { count }));
  else for (const [i, target] of targets.entries()) target.copy_(sources[i] as Tensor);
}

/** Whether the copies depend neither on their order nor on anything that copy_ does besides. */
function canShareCommand(targets: readonly Tensor[], sources: readonly Tensor[]): boolean {
  if (targets.length === 0) return true;
  const { device } = targets[0] as Tensor;
  const written = new Set<unknown>();
  for (let i = 0; i < targets.length; i++) {
    const [y, x] = [targets[i] as Tensor, sources[i] as Tensor];
    if (y.device !== device || x.device !== device || !sameShape(y.sizes, x.sizes)) return false;
    if (gradState.recording && (y.requiresGrad || x.requiresGrad)) return false;
    if ((y.sharding === null) !== (x.sharding === null)) return false;
    if (y.sharding?.spec.placements.some((placement) => placement.isPartial())) return false;
    written.add(y.storage);
  }
  return !sources.some((x) => written.has(x.storage)) && !targets.some(overlapsItself);
}

const overlapsItself = (t: Tensor): boolean =>
  t.sharding === null && t.strides.some((stride, d) => stride === 0 && (t.sizes[d] as number) > 1);

const splitParams = { ...countParams, dim: param.value<number>() };

/** A kernel takes rows one by one: more are faster as copies of whole views. */
const MOST_ROWS = 4096;

/** The first input is read, the others are written. */
const splitWithSizesCopyOp: Op<ParamsOf<typeof splitParams>> = defineOp({
  name: 'splitWithSizesCopy',
  doc: 'Parts of a tensor along a dim, each into a tensor of its own.',
  operands: '(x: dense [r, n], y[count]: dense [...]) -> ()',
  params: splitParams,
  meta: () => [],
  mutates: (inputs) => inputs.slice(1).map((_, i) => i + 1),
  lower: (command, inputs, _, { dim }) => {
    const [x, ...parts] = inputs as [Tensor, ...Tensor[]];
    const outer = numelOf(x.sizes.slice(0, dim));
    const inner = numelOf(x.sizes.slice(dim));
    command.view(x, [outer, inner], [inner, 1]);
    for (const part of parts) command.tensor(part);
    command.cost(x.numel());
  },
  vjp: 'not-differentiable',
  samples: () => [],
});

/** Options of {@link splitWithSizesCopy}. */
export interface SplitWithSizesCopyOptions {
  /** Tensors to write the parts into; new ones by default. */
  out?: readonly Tensor[];
}

/**
 * Parts of the sizes listed along a dim, as {@link split} has them, but copied: into new tensors,
 * or into those of `out`, all in one command where they are contiguous and there are at most 4096
 * rows. It unpacks what an all-gather of flat buffers has given: `[ranks, numel]` with `dim` 1 into
 * the rows of each parameter. Shapes: as of {@link split}, which those of `out` must equal. Dtypes:
 * any; `out` may have others. Gradient: yes, without `out`.
 *
 * @returns the parts, or `out`
 * @throws ShapeError for sizes that do not add up to that of the dim, or another shape in `out`;
 * ArgumentError for another number of tensors in `out`; InPlaceError for `out` where gradients are
 * recorded; IndexError as {@link split}
 * @see PyTorch `torch.split_with_sizes_copy`
 */
export const splitWithSizesCopy = defineFunction(
  'splitWithSizesCopy(input, /, splitSizes, dim, *, out)',
  (
    input: Tensor,
    splitSizes: readonly number[],
    dim = 0,
    { out }: SplitWithSizesCopyOptions = {},
  ): readonly Tensor[] => {
    const op = 'splitWithSizesCopy';
    requireTensor(input, op);
    if (!Array.isArray(splitSizes))
      throw new ArgumentError(`${op}: expected splitSizes to be a list of sizes`, { op });
    if (out === undefined) return split(input, splitSizes, { dim }).map(copyRowMajor);
    requireTensors(out, op, 'out');
    if (out.length !== splitSizes.length)
      throw new ArgumentError(
        `${op}: expected a tensor in out for each of ${splitSizes.length} sizes, got ${out.length}`,
        { op, sizes: splitSizes.length, out: out.length },
      );
    refuseRecording(op, [input, ...out]);
    const at = wrapDim(dim, input.sizes.length, op);
    checkParts(op, input, splitSizes, at, out);
    const isFast = [input, ...out].every(
      (t) => t.sharding === null && t.device === input.device && t.isContiguous(),
    );
    const hasFewRows = numelOf(input.sizes.slice(0, at)) <= MOST_ROWS;
    if (isFast && hasFewRows && !out.some((t) => t.storage === input.storage))
      dispatch(splitWithSizesCopyOp, [input, ...out], { count: out.length, dim: at });
    else foreachCopy_(out, split(input, splitSizes, { dim: at }));
    return out;
  },
);

function checkParts(
  op: string,
  input: Tensor,
  sizes: readonly number[],
  dim: number,
  out: readonly Tensor[],
): void {
  const total = sizes.reduce((a, b) => a + b, 0);
  if (total !== input.sizes[dim])
    throw new ShapeError(
      `${op}: sizes ${formatShape(sizes)} add up to ${total}, expected the size of dim ${dim} ` +
        `of ${formatShape(input.sizes)}`,
      { op, sizes },
    );
  out.forEach((t, i) => {
    const expected = input.sizes.with(dim, sizes[i] as number);
    if (!sameShape(t.sizes, expected))
      throw new ShapeError(
        `${op}: expected tensor ${i} of out to have shape ${formatShape(expected)}, got ` +
          `${formatShape(t.sizes)}`,
        { op, tensor: i, expected, given: t.sizes },
      );
  });
}

/** As in PyTorch, what is written into `out` has no history. */
function refuseRecording(op: string, tensors: readonly Tensor[]): void {
  if (gradState.recording && tensors.some((t) => t.requiresGrad))
    throw new InPlaceError(
      `${op}: a result in out has no gradient, but a tensor of the call requires one. ` +
        'Call it in noGrad, or without out.',
      { op },
    );
}

const chunkParams = {
  ...countParams,
  chunks: param.kernel(),
  dim: param.value<number>(),
  dtype: param.value<DType>(),
};
type Chunks = ParamsOf<typeof chunkParams>;

/** Elements of a chunk of a tensor, with its padding. */
function chunkLength({ sizes: shape }: Tensor, { dim, chunks }: Chunks): number {
  return Math.ceil((shape[dim] as number) / chunks) * numelOf(shape.slice(dim + 1));
}

const chunkCatOp: Op<Chunks> = defineOp({
  name: 'chunkCat',
  doc: 'Chunks of many tensors along a dim, padded by zeros, the i-th of each joined to row i.',
  outputs: ['y'],
  operands: '(x[count]: dense [...]) -> (y: dense [r, n])',
  params: chunkParams,
  sharding: decomposedForeachRule<Chunks>(),
  meta: (inputs, params) => {
    const first = inputs[0] as Tensor;
    const width = inputs.reduce((sum, t) => sum + chunkLength(t, params), 0);
    const shape = [...first.sizes.slice(0, params.dim), params.chunks, width];
    return [{ shape, strides: null, dtype: params.dtype, device: first.device }];
  },
  lower: (command, inputs, [y], { dim, chunks }) => {
    for (const x of inputs) {
      const inner = numelOf(x.sizes.slice(dim + 1));
      const size = x.sizes[dim] as number;
      command.view(x, [numelOf(x.sizes.slice(0, dim)), size, inner], [size * inner, inner, 1]);
    }
    const width = y.sizes[dim + 1] as number;
    command.outputView(y, [numelOf(y.sizes.slice(0, dim)) * chunks, width], [width, 1]);
    command.cost(y.numel());
  },
  vjp: 'not-differentiable',
  decompose: (inputs, params) => {
    const { dim, chunks, dtype } = params;
    const columns = inputs.map((t) => {
      const lead = t.sizes.slice(0, dim);
      const length = chunkLength(t, params);
      const flat = t.reshape([...lead, numelOf(t.sizes.slice(dim))]);
      const padding = flat.newZeros([...lead, chunks * length - numelOf(t.sizes.slice(dim))]);
      return cat([flat, padding], dim)
        .reshape([...lead, chunks, length])
        .to(dtype);
    });
    return [cat(columns, dim + 1)];
  },
  samples: () => {
    const tensors = [sampleTensor([5, 3]), sampleTensor([2], { seed: 2 }), sampleTensor([4, 1, 2])];
    const { dtype } = tensors[0] as Tensor;
    return [{ inputs: tensors, params: { count: 3, chunks: 2, dim: 0, dtype } }];
  },
  publicCall: (inputs, { dim, chunks }) => chunkCat(inputs, dim, chunks),
});

/** Options of {@link chunkCat}. */
export interface ChunkCatOptions {
  /** The tensor to write into, which may have another dtype; a new one by default. */
  out?: Tensor;
}

/**
 * Each tensor in `numChunks` chunks along a dim, the last ones padded by zeros, and the i-th chunks
 * of all tensors joined as row i: what a reduce-scatter of many gradients sends. Shapes: n times
 * `[a, k, ...]` with `dim` 1 to `[a, numChunks, s]`, where s is the sum of the elements of one
 * chunk of each; sizes before `dim` are equal. Dtypes: any, promoted, or that of `out`. Gradient:
 * all, without `out`.
 *
 * @throws ArgumentError for no tensors, or fewer than one chunk; IndexError for a dim out of range;
 * ShapeError for other sizes before the dim that differ, or another shape of `out`; DeviceError for
 * tensors on different devices; InPlaceError for `out` where gradients are recorded
 * @see PyTorch `torch._chunk_cat`
 */
export const chunkCat = defineFunction(
  'chunkCat(tensors, /, dim, numChunks, *, out)',
  (
    tensors: readonly Tensor[],
    dim: number,
    numChunks: number,
    { out }: ChunkCatOptions = {},
  ): Tensor => {
    const op = 'chunkCat';
    checkChunked(op, tensors, numChunks);
    const first = tensors[0] as Tensor;
    const at = wrapDim(dim, first.sizes.length, op);
    checkLeading(op, tensors, at);
    if (out !== undefined) {
      requireTensor(out, op, 'out');
      refuseRecording(op, [out, ...tensors]);
    }
    const dtype = out?.dtype ?? tensors.reduce((d, t) => promoteTypes(d, t.dtype), first.dtype);
    const rows = (some: readonly Tensor[], into: Tensor | null): Tensor =>
      dispatchOne(
        chunkCatOp,
        some.map((t) => t.contiguous()),
        { count: some.length, chunks: numChunks, dim: at, dtype },
        into,
      );
    if (tensors.length <= MAX_TENSORS) return rows(tensors, out ?? null);
    const parts: Tensor[] = [];
    for (let i = 0; i < tensors.length; i += MAX_TENSORS)
      parts.push(rows(tensors.slice(i, i + MAX_TENSORS), null));
    const whole = cat(parts, at + 1);
    return out === undefined ? whole : out.copy_(whole);
  },
);

function checkChunked(op: string, tensors: readonly Tensor[], numChunks: number): void {
  requireTensors(tensors, op);
  checkNumber(op, 'numChunks', numChunks, { from: 1, whole: true });
  if (tensors.length === 0) throw new ArgumentError(`${op}: expected at least one tensor`, { op });
  const { device } = tensors[0] as Tensor;
  for (const [i, t] of tensors.entries())
    if (t.device !== device)
      throw new DeviceError(
        `${op}: tensor ${i} is on ${t.device}, tensor 0 on ${device}. ` +
          `${toOneDevice(device, t.device)}`,
        { op, tensor: i, given: String(t.device) },
      );
}

function checkLeading(op: string, tensors: readonly Tensor[], dim: number): void {
  const lead: Shape = (tensors[0] as Tensor).sizes.slice(0, dim);
  tensors.forEach((t, i) => {
    if (t.sizes.length > dim && sameShape(t.sizes.slice(0, dim), lead)) return;
    throw new ShapeError(
      `${op}: expected tensor ${i} to have a dim ${dim} after ${formatShape(lead)}, got ` +
        `${formatShape(t.sizes)}`,
      { op, tensor: i, given: t.sizes },
    );
  });
}
