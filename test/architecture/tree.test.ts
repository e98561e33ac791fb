/** Rules about files: sizes, includes of native folders, equal kernel files. */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import { mirrorFindings, nativeFindings, sizeFindings } from '../../scripts/check-tree.js';

describe('files of the tree', () => {
  it('are short enough to read', () => assert.deepEqual(sizeFindings(), []));
  it('of native folders include only what they may, only cuda/ knows CUDA, and nothing throws in JavaScript', () =>
    assert.deepEqual(nativeFindings(), []));
  it('of CPU kernels have twins on CUDA', () => assert.deepEqual(mirrorFindings(), []));
});
