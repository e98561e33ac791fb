/** The seed cases of resized storages, for a device. */
import assert from 'node:assert/strict';
import { compile, type DeviceName, noGrad, randn, type Tensor } from '../../lib/index.js';
import { assertClose, type BACKENDS, FULL } from './compiled.js';

type Backend = (typeof BACKENDS)[number];

/** 004.2 and 004.3: a storage is resized to nothing after its last use. */
export function resizesToNothing(backend: Backend, device: DeviceName): void {
  const fn = compile(
    (x: Tensor) => {
      const y = x.sin();
      x.untypedStorage().resize_(0);
      return y.cos();
    },
    { ...FULL, backend },
  );
  noGrad(() => {
    for (const size of [10, 10, 20]) {
      const x = randn([size], { device });
      const expected = x.sin().cos();
      assertClose(fn(x).tolist(), expected.tolist());
      assert.equal(x.untypedStorage().nbytes, 0);
    }
  });
}

/** 004.4 and 004.5: a storage of nothing is resized to the size of another, and filled. */
export function resizesAndFills(backend: Backend, device: DeviceName): void {
  const fn = compile(
    (x: Tensor, out: Tensor) => {
      const y = x.sin();
      assert.equal(out.untypedStorage().nbytes, 0);
      out.untypedStorage().resize_(x.untypedStorage().nbytes);
      out.copy_(y.cos());
    },
    { ...FULL, backend },
  );
  noGrad(() => {
    for (const elements of [10, 10, 20]) {
      const x = randn([elements], { device }).narrow(0, 0, 10);
      const out = randn([10], { device });
      out.untypedStorage().resize_(0);
      fn(x, out);
      assert.equal(out.untypedStorage().nbytes, 4 * elements);
      assertClose(out.tolist(), x.sin().cos().tolist());
    }
  });
}
