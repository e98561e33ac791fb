/** Distributed tensors and parallel models on GPUs, as PyTorch's test_dtensor_compile.py has them. */
import { CASES, RANKS } from './001-parallel-models.js';
import {
  readsDeviceOfMesh,
  returnsPartialSums,
  takesOtherGradients,
  takesUnevenGradients,
  takesUnevenGradientsOfFakeRanks,
} from './001-tensors.js';
import { BACKENDS } from './compiled.js';
import { describeOnGpus } from './worlds.js';

describeOnGpus('a compiled function on distributed tensors', (world) => {
  for (const backend of BACKENDS) {
    it(`seed 001.11: takes a gradient for a result whose shards differ in size, backend ${backend}`, () =>
      takesUnevenGradients(backend, world));

    it(`seed 001.11: takes it as a rank beyond the size of its world, backend ${backend}`, () =>
      takesUnevenGradientsOfFakeRanks(backend, world));

    it(`seed 001.14: takes a gradient of other placements and strides, backend ${backend}`, () =>
      takesOtherGradients(backend, world));

    it(`seed 001.16: reads the device of the mesh of an argument, backend ${backend}`, () =>
      readsDeviceOfMesh(backend, world));

    it(`seed 001.18: returns sums that are not yet reduced, backend ${backend}`, () =>
      returnsPartialSums(backend, world));
  }
});

describeOnGpus('a parallel model in one frame', (world) => {
  for (const { title, backends, run } of CASES)
    for (const backend of backends)
      it(`${title}, backend ${backend}`, async () => {
        await world.onRanks(RANKS, (rank) => run(backend, world.device, rank));
      });
});
