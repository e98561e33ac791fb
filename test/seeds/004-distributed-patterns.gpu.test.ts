/** Patterns of distributed training on a GPU, as test_distributed_patterns.py requires them. */

import { skipWithoutCuda } from '../skip.js';
import { gathersInHooks } from './004-gathered.js';
import { resizesAndFills, resizesToNothing } from './004-storages.js';
import { BACKENDS } from './compiled.js';

for (const backend of BACKENDS)
  describe(`distributed patterns on a GPU, backend ${backend}`, () => {
    before(function () {
      skipWithoutCuda(this);
    });

    it('seed 004.3: a storage is resized to nothing after its last use', () =>
      resizesToNothing(backend, 'cuda'));

    it('seed 004.5: a storage of nothing is resized to the size of another, and filled', () =>
      resizesAndFills(backend, 'cuda'));

    it('seed 004.19: hooks gather the parameter of a module, and free it', () =>
      gathersInHooks(backend, 'cuda'));
  });
