/** File sizes, includes of native folders, and equal names of kernel files follow the rules. */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import {
  markdownFindings,
  mirrorFindings,
  nativeFindings,
  sizeFindings,
} from '../../scripts/check-tree.js';

describe('the files of the tree', () => {
  it('are short enough to read', () => assert.deepEqual(sizeFindings(), []));
  it('have narrow lines of Markdown', () => assert.deepEqual(markdownFindings(), []));
  it('keep the rules of native folders: allowed includes, CUDA in cuda/ only, no throws in JavaScript', () =>
    assert.deepEqual(nativeFindings(), []));
  it('have the same names for kernels of the CPU and of CUDA', () =>
    assert.deepEqual(mirrorFindings(), []));
});
