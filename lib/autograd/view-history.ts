/**
 * Records in-place changes of views. The base gets a new history at once; its views get theirs from
 * the base when their `gradFn` is read next.
 */
import { InPlaceError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import { isNonOverlappingAndDense, overlapsItself, type Shape } from '../core/shape.js';
import { PENDING_HANDLE } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';
import { arange } from '../ops/ranges.js';
import { edgeOf } from './accumulate-grad.js';
import { changeHistory, type Gradients, Node, type NodeFacts } from './node.js';

interface Layout {
  shape: Shape;
  strides: Shape;
}

interface Window extends Layout {
  offset: number;
}

function windowOn(base: Tensor, view: Tensor): Window {
  return {
    shape: view.sizes,
    strides: view.strides,
    offset: view.storageOffset - base.storageOffset,
  };
}

/** @throws InPlaceError for a view whose change cannot be tracked. */
export function checkViewChange(op: { readonly name: string }, into: Tensor): void {
  if (into.inPlaceForbidden !== null) {
    throw new InPlaceError(
      `${op.name}: this tensor cannot be changed in place: ${into.inPlaceForbidden}`,
      { op: op.name },
    );
  }
  const base = into.base;
  if (base !== null && into.sharding !== null) {
    throw new InPlaceError(
      `${op.name}: a view of a distributed tensor cannot be changed in place under autograd. ` +
        'Use the op that gives a new tensor, or change it inside noGrad(() => ...).',
      {
        op: op.name,
      },
    );
  }
  if (base !== null && base.storage !== into.storage) {
    throw new InPlaceError(
      `${op.name}: this view cannot be changed in place under autograd: set_ or \`data =\` ` +
        'gave its base other memory, so the two no longer share any. Change it inside noGrad(() ' +
        '=> ...), or make the view again.',
      { op: op.name },
    );
  }
  if (base !== null && !isNonOverlappingAndDense(base.sizes, base.strides)) {
    throw new InPlaceError(
      `${op.name}: a view of a tensor with gaps or overlaps cannot be changed in place under ` +
        'autograd; clone() the base first',
      { op: op.name },
    );
  }
}

/** The gradient of a changed base. Inside the changed window it passes through the in-place op. */
class CopySlices extends Node {
  readonly name = 'CopySlices';
  private readonly base: Layout;
  private readonly window: Window;
  private readonly inner: Node;
  private readonly selfIndex: number;

  constructor(base: Tensor, window: Window, inner: Node, selfIndex: number) {
    super(1, [edgeOf(base), ...inner.edges.map((edge, i) => (i === selfIndex ? null : edge))]);
    this.base = { shape: base.sizes, strides: base.strides };
    this.window = window;
    this.inner = inner;
    this.selfIndex = selfIndex;
  }

  apply([grad]: Gradients): Gradients {
    if (!grad) return this.edges.map(() => null);
    // The window is in terms of the base's layout, which the gradient may not have.
    const whole = zerosStridedLike(grad, this.base.shape, this.base.strides);
    whole.copy_(grad);
    const part = whole.asStrided(this.window.shape, this.window.strides, this.window.offset);
    const results = this.inner.apply([part.clone()]);
    const own = this.selfIndex < 0 ? null : results[this.selfIndex];
    if (own) part.copy_(own);
    else part.zero_();
    return [whole, ...results.map((g, i) => (i === this.selfIndex ? null : g))];
  }

  override facts(): NodeFacts | null {
    const inner = this.inner.facts();
    if (inner === null) return null;
    return { ...inner, facts: [this.base, this.window, this.selfIndex, ...inner.facts] };
  }

  override release(): void {
    this.inner.release();
  }
}

/** The gradient of a view of a changed base. It is written into zeros of the base's shape. */
class ViewOfChanged extends Node {
  readonly name = 'AsStrided';
  private readonly window: Window;
  private readonly base: Layout;

  constructor(base: Tensor, window: Window) {
    super(1, [edgeOf(base)]);
    this.window = window;
    this.base = { shape: base.sizes, strides: base.strides };
  }

  apply([grad]: Gradients): Gradients {
    if (!grad) return [null];
    const whole = zerosStridedLike(grad, this.base.shape, this.base.strides);
    addInto(whole, this.window, grad);
    return [whole];
  }

  override facts(): NodeFacts {
    return { facts: [this.base, this.window], saved: [], draws: [] };
  }
}

/** Zeros of the dtype and device of `like`, in the given layout if it is dense. */
function zerosStridedLike(like: Tensor, shape: Shape, strides: Shape): Tensor {
  const fresh = like.newZeros(shape);
  if (!isNonOverlappingAndDense(shape, strides)) return fresh;
  // Graphs know of ops only.
  const isPending = fresh.storage?.handle === PENDING_HANDLE;
  if (isPending || layers.backend.capture !== null)
    return fresh.asStrided(shape, strides, 0).detach();
  fresh.strides = strides;
  return fresh;
}

/** Adds a gradient into a window of dense memory; elements at one place add up. */
function addInto(whole: Tensor, { shape, strides, offset }: Window, grad: Tensor): void {
  if (!overlapsItself(shape, strides)) {
    whole.asStrided(shape, strides, offset).add_(grad);
    return;
  }
  const count = whole.numel();
  const places = arange(count, { device: whole.device })
    .asStrided(shape, strides, offset)
    .reshape(-1);
  whole.asStrided([count], [1], 0).indexAdd_(0, places, grad.reshape(-1));
}

/**
 * The same for a distributed base. It has no gradient through earlier views, because their windows
 * in the local shards are not known. The values of such a view are those of the changed base.
 */
class ViewOfChangedDTensor extends Node {
  readonly name = 'ViewOfChangedDTensor';

  constructor(base: Tensor) {
    super(1, [edgeOf(base)]);
  }

  apply([grad]: Gradients): Gradients {
    if (!grad) return [null];
    throw new InPlaceError(
      'backward: expected a view created after the in-place change of its distributed base, ' +
        'got one created before it, which has no gradient. Create the view after the change, or ' +
        'use the out-of-place op.',
      {},
    );
  }
}

/** Records that the op or function of `node` changed `view`. */
export function rebaseView(view: Tensor, node: Node, selfIndex: number): void {
  const base = view.base as Tensor;
  const copy = new CopySlices(base, windowOn(base, view), node, selfIndex);
  changeHistory(base, copy, 0);
  refreshViewHistory(view);
}

/** Gives a view the history of the in-place change of its base. */
export function refreshViewHistory(view: Tensor): void {
  const base = view.base as Tensor;
  view.nodeVersion = view.currentVersion;
  if (base.node === null) return;
  changeHistory(
    view,
    view.sharding === null
      ? new ViewOfChanged(base, windowOn(base, view))
      : new ViewOfChangedDTensor(base),
    0,
  );
}
