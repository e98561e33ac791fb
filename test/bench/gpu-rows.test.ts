/** The rows of the GPU benchmark are known to our worker and to PyTorch, and can be selected. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { ourWorker } from '../../bench/gpu/peers.js';
import { chosenRows, copyRow, groups, rows } from '../../bench/gpu/rows.js';
import { ops } from '../../bench/gpu/work.js';

const gpu = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..', 'bench', 'gpu');

describe('the rows of the kernel benchmark', () => {
  it('are known to both our worker and the peer', () => {
    const peer = readFileSync(path.join(gpu, 'peer_torch.py'), 'utf8');
    for (const { job } of [copyRow, ...rows]) {
      assert.ok(ops.includes(job.op), `ours: ${job.op}`);
      assert.match(peer, new RegExp(`^ +"${job.op}": `, 'm'), `peer: ${job.op}`);
    }
  });

  it('are asked of a worker that answers', async () => {
    const worker = ourWorker();
    try {
      assert.deepEqual(await worker.ask({ drop: true }), {});
      const unknown = { op: 'nothing is called so', shape: [1], dtype: 'float32' };
      assert.match((await worker.ask({ prepare: unknown })).failed ?? '', /nothing is called so/);
    } finally {
      worker.end();
    }
  });

  it('have unique names', () => {
    const names = rows.map(({ name }) => name);
    assert.deepEqual(
      names.filter((name, i) => names.indexOf(name) !== i),
      [],
    );
  });

  it('are selected by group or by a part of the name, and an unknown name is refused', () => {
    for (const group of groups) assert.ok(chosenRows([group]).length > 0, group);
    assert.ok(chosenRows(['with dropout']).length === 2);
    assert.equal(chosenRows([]).length, rows.length);
    assert.throws(
      () => chosenRows(['nothing is called so']),
      /no row is called "nothing is called so", and no group: there are matmul, /,
    );
  });

  it('are those of one group if the text is its name, even if other names contain it', () => {
    for (const group of groups)
      assert.deepEqual(
        chosenRows([group]),
        rows.filter((row) => row.group === group),
      );
    assert.equal(chosenRows(['float32']).length, 3);
    assert.equal(chosenRows(['matmul']).length, 9);
    assert.ok(chosenRows(['matmul nt']).some(({ group }) => group === 'skinny'));
    assert.equal(chosenRows(['float32', 'matmul nt, float32']).length, 3);
  });

  it('run only eagerly in the peer where the page says so', () => {
    const peer = readFileSync(path.join(gpu, 'peer_torch.py'), 'utf8');
    const uncompiled =
      /^uncompiled = \{\*common_ops, (.*)\}$/m
        .exec(peer)?.[1]
        ?.split(', ')
        .map((op) => op.slice(1, -1)) ?? [];
    const ofPage = [copyRow, ...rows].filter(
      ({ group, job }) =>
        ['copy', 'adamw', 'attention', 'host'].includes(group) || job.op === 'training_adamw',
    );
    const ops = new Set(
      ofPage.map(({ job }) => (job.host && job.op === 'layer_norm' ? 'layer_norm_host' : job.op)),
    );
    assert.deepEqual([...ops].sort(), uncompiled.sort());
  });
});
