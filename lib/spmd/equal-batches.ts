/**
 * Compares the batches of ranks, and what their steps make: a step is captured as if all of them
 * had equal ones.
 */
import type { CapturedStep } from '../compile/step/capture-step.js';
import { withPurpose } from '../core/call-context.js';
import type { Device } from '../core/device.js';
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
  compare(`of the batch of ${step}: ${texts.join(', ')}\n${ADVICE}`, first.device, mesh);
}

const MADE_ADVICE =
  'What a step makes is taken for equal on all ranks: pass what differs, such as a tensor of the ' +
  'rank, as part of the batch, or distribute it with DTensor.fromLocal.';

/** The same for tensors that a captured step makes and uses beside distributed ones. */
export function compareMade(step: string, { made, graph }: CapturedStep, mesh: DeviceMesh): void {
  const device = graph.placeholders[0]?.metas[0]?.device;
  if (made.length === 0 || device === undefined || mesh.getCoordinate() === null) return;
  compare(`of what ${step} makes: ${made.join(', ')}\n${MADE_ADVICE}`, device, mesh);
}

/** Makes an error of purposes that differ. */
function compare(purpose: string, device: Device, mesh: DeviceMesh): void {
  withPurpose(purpose, () => {
    for (let meshDim = 0; meshDim < mesh.ndim; meshDim++) {
      const group = mesh.getGroup(meshDim);
      if (group.size === 1) continue;
      group.run('spmd.compile', { kind: 'barrier', input: null, output: null, device });
    }
  });
}
