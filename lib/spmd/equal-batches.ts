/** Compares the batches of ranks: a step is captured as if all of them had equal ones. */
import { withPurpose } from '../core/call-context.js';
import { formatShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import type { DeviceMesh } from '../distributed/device-mesh/device-mesh.js';

const ADVICE =
  'Pass tensors of equal shapes and dtypes on all ranks: pad the last batch, or leave it out.';

/**
 * Ranks whose batches have other shapes or dtypes get a CollectiveError that names both. It comes
 * with the first collective that completes, since ranks do not wait here.
 */
export function compareBatches(step: string, batch: readonly Tensor[], mesh: DeviceMesh): void {
  const [first] = batch;
  if (first === undefined || mesh.getCoordinate() === null) return;
  const texts = batch.map(({ dtype, sizes: shape }) => `${dtype.name}${formatShape(shape)}`);
  withPurpose(`of the batch of ${step}: ${texts.join(', ')}\n${ADVICE}`, () => {
    for (let meshDim = 0; meshDim < mesh.ndim; meshDim++) {
      const group = mesh.getGroup(meshDim);
      if (group.size === 1) continue;
      const { device } = first;
      group.run('spmd.compile', { kind: 'barrier', input: null, output: null, device });
    }
  });
}
