/** Which part of a tensor this rank holds, and in which memory. */
import { computeLocalShapeAndGlobalOffset, DTensor, Replicate } from '../../../dtensor/index.js';
import { noGrad, type Tensor } from '../../../index.js';
import type { Region } from '../regions.js';

/** A part of a tensor in the memory of this rank. */
export interface HeldRegion extends Region {
  /** The memory of the part, without history. */
  readonly local: Tensor;
}

/** The part that this rank holds; null if it holds nothing. */
export function heldRegion(tensor: Tensor): HeldRegion | null {
  return noGrad(() => {
    if (!(tensor instanceof DTensor))
      return { offsets: tensor.shape.map(() => 0), sizes: tensor.shape, local: tensor.detach() };
    if (tensor.deviceMesh.getCoordinate() === null) return null;
    const { shape, offsets } = computeLocalShapeAndGlobalOffset(tensor._spec);
    return { offsets, sizes: shape, local: tensor.toLocal().detach() };
  });
}

/** The tensor without partial values. The ranks of its mesh call it together. */
export function reduced(tensor: Tensor): Tensor {
  if (!(tensor instanceof DTensor) || !tensor.placements.some((each) => each.isPartial()))
    return tensor;
  return noGrad(() =>
    tensor
      .detach()
      .redistribute(
        tensor.placements.map((placement) => (placement.isPartial() ? Replicate() : placement)),
      ),
  );
}

/**
 * Whether this rank contributes values to a tensor of partial sums; the others then hold zeros. Of
 * means and extremes all ranks hold the values.
 */
export function contributes(tensor: Tensor): boolean {
  if (!(tensor instanceof DTensor)) return true;
  const coordinate = tensor.deviceMesh.getCoordinate();
  return tensor.placements.every(
    (placement, meshDim) =>
      !placement.isPartial() || placement.reduceOp !== 'sum' || coordinate?.[meshDim] === 0,
  );
}
