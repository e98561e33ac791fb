/** Buckets: which gradients lie in one buffer, where in it, and the buffer. */
import { contiguousStrides, isNonOverlappingAndDense } from '../../core/shape.js';
import { AutogradError, autograd, keep, type nn, noGrad, type Tensor, zeros } from '../../index.js';

/** The first bucket is small, so that communication begins soon. */
export const FIRST_BUCKET_BYTES = 2 ** 20;
/** Gradients begin at multiples of this, as kernels read them fastest. */
const ALIGNMENT_BYTES = 16;

/** A parameter whose gradient is reduced. */
export interface ReducedParameter {
  /** Its place in the order of the module's parameters. */
  readonly index: number;
  readonly name: string;
  readonly parameter: nn.Parameter;
}

/**
 * Divides parameters, in the order in which gradients are expected, into buckets of one dtype and
 * device. A bucket is full when it has reached the cap; the first one at 1 MiB.
 *
 * @see PyTorch `compute_bucket_assignment_by_size`
 */
export function planBuckets(
  parameters: readonly ReducedParameter[],
  capBytes: number,
): ReducedParameter[][] {
  const full: ReducedParameter[][] = [];
  const open = new Map<string, { list: ReducedParameter[]; bytes: number; cap: number }>();
  for (const each of parameters) {
    const { dtype, device, nbytes } = each.parameter;
    const key = `${dtype.name} ${device}`;
    let bucket = open.get(key);
    if (bucket === undefined) {
      bucket = { list: [], bytes: 0, cap: Math.min(FIRST_BUCKET_BYTES, capBytes) };
      open.set(key, bucket);
    }
    bucket.list.push(each);
    bucket.bytes += nbytes;
    if (bucket.bytes < bucket.cap) continue;
    full.push(bucket.list);
    open.set(key, { list: [], bytes: 0, cap: capBytes });
  }
  for (const { list } of open.values()) if (list.length > 0) full.push(list);
  return full;
}

/** The element at which each gradient begins, and the number of elements of the bucket. */
export function layoutOf(parameters: readonly ReducedParameter[]): {
  readonly offsets: readonly number[];
  readonly numel: number;
} {
  const step = ALIGNMENT_BYTES / ((parameters[0] as ReducedParameter).parameter.itemsize || 1);
  let numel = 0;
  const offsets = parameters.map(({ parameter }) => {
    const offset = Math.ceil(numel / step) * step;
    numel = offset + parameter.numel();
    return offset;
  });
  return { offsets, numel };
}

/** What a communication hook sees of a bucket. */
export interface GradBucket {
  /** Its number; bucket 0 is reduced first. */
  index(): number;
  /** All gradients of the bucket, flat, and unused elements between them. */
  buffer(): Tensor;
  /** The gradients, as views of the buffer. */
  gradients(): readonly Tensor[];
  /** The parameters of the gradients. */
  parameters(): readonly nn.Parameter[];
  /** Whether it is the last bucket of the backward pass. */
  isLast(): boolean;
}

export class Bucket implements GradBucket {
  readonly list: readonly ReducedParameter[];
  readonly views: readonly Tensor[];
  /** The reason for the collective, which all ranks must have. */
  readonly purpose: string;
  /** Gradients that have not arrived. */
  pending: number;
  private readonly at: number;
  private readonly count: number;
  private readonly flat: Tensor;

  /** @param number - of {@link numberedOn} */
  constructor(list: readonly ReducedParameter[], at: number, count: number, number: string) {
    this.list = list;
    this.at = at;
    this.count = count;
    this.pending = list.length;
    const { offsets, numel } = layoutOf(list);
    const { dtype, device } = (list[0] as ReducedParameter).parameter;
    this.flat = noGrad(() => keep(zeros([numel], { dtype, device })));
    this.views = list.map(({ parameter }, i) =>
      viewLike(this.flat, parameter, offsets[i] as number),
    );
    this.purpose =
      `of the gradients of the model, ${number}: ${list.map(({ name }) => name).join(', ')}, ` +
      `bucket ${at} of ${count}\n` +
      'Buckets follow the order in which gradients came in the first backward pass. Where that ' +
      'differs from rank to rank, pass { findUnusedParameters: true }. All ranks must ' +
      'freeze the same parameters.';
  }

  index(): number {
    return this.at;
  }

  buffer(): Tensor {
    return this.flat;
  }

  gradients(): readonly Tensor[] {
    return this.views;
  }

  parameters(): readonly nn.Parameter[] {
    return this.list.map(({ parameter }) => parameter);
  }

  isLast(): boolean {
    return this.at === this.count - 1;
  }

  /** Whether a gradient lies in this bucket. */
  holds(grad: Tensor): boolean {
    return grad.untypedStorage() === this.flat.untypedStorage();
  }

  /** Whether its parameters have its dtype and device. */
  fits(): boolean {
    const { dtype, device } = this.flat;
    return this.list.every(
      ({ parameter }) => parameter.dtype === dtype && parameter.device === device,
    );
  }

  /** Makes backward write gradients into the bucket, or no more. */
  receive(on: boolean): void {
    for (const [i, { parameter }] of this.list.entries())
      autograd.setGradMemory(parameter, on ? (this.views[i] as Tensor) : null);
  }

  /** Frees the buffer when no `.grad` shows it. */
  dispose(): void {
    for (const view of this.views) view.dispose();
    this.flat.dispose();
  }

  /** @throws AutogradError unless a hook has returned the reduced buffer */
  checkedResult(result: unknown): Tensor {
    const { flat } = this;
    const numel = (result as Tensor | null)?.numel?.();
    if (numel === flat.numel()) return result as Tensor;
    throw new AutogradError(
      'DistributedDataParallel: expected the communication hook to return the reduced tensor of ' +
        `${flat.numel()} elements of bucket ${this.at}, got ` +
        `${numel === undefined ? 'no tensor' : `${numel} elements`}`,
      { op: 'DistributedDataParallel' },
    );
  }
}

/** A view in the layout of the parameter, so that optimizers walk both in one order. */
function viewLike(flat: Tensor, parameter: Tensor, offset: number): Tensor {
  const { shape } = parameter;
  const strides = parameter.stride();
  const isDense = isNonOverlappingAndDense(shape, strides);
  return flat.asStrided(shape, isDense ? strides : contiguousStrides(shape), offset).detach();
}
