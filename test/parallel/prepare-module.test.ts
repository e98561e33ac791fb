/**
 * PrepareModuleInput, PrepareModuleOutput and PrepareModuleInputOutput: layouts of arguments and
 * results.
 */
import assert from 'node:assert/strict';
import {
  initDeviceMesh,
  PrepareModuleInput,
  PrepareModuleInputOutput,
  PrepareModuleOutput,
  parallelizeModule,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { float64, nn, randn, type Tensor } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { assertClose, placementsOf } from './compare.js';

const RANKS = 3;
const dtype = float64;
const meshOf = () => initDeviceMesh('cpu', [RANKS], { meshDimNames: ['tp'] });

/** Records what a module's forward gets. */
class Probe extends nn.Module<
  [x: Tensor, y: Tensor | null, options?: { mask?: Tensor }],
  [Tensor, string]
> {
  seen: unknown[] = [];
  forward(x: Tensor, y: Tensor | null, options: { mask?: Tensor } = {}): [Tensor, string] {
    this.seen = [x, y, options];
    return [x.mul(2), 'kept'];
  }
}

describe('PrepareModuleInput and PrepareModuleOutput', () => {
  it(
    'redistribute positional arguments and named options before forward',
    withRanks(RANKS, async () => {
      const mesh = meshOf();
      const [x, mask] = [randn([2, 3], { dtype }), randn([3], { dtype })];
      const module = parallelizeModule(
        new Probe(),
        mesh,
        PrepareModuleInput({
          inputLayouts: [Shard(0), null],
          desiredInputLayouts: [Replicate(), null],
          inputKwargLayouts: { mask: Replicate() },
          desiredInputKwargLayouts: { mask: Shard(0) },
        }),
      );
      module(x, x, { mask });
      const [first, second, options] = module.seen as [Tensor, Tensor, { mask: Tensor }];
      assert.deepEqual([placementsOf(first), first.shape], ['[Replicate()]', [6, 3]]);
      assert.equal(second, x);
      assert.deepEqual(
        [placementsOf(options.mask), options.mask.toLocal().shape],
        ['[Shard(0)]', [1]],
      );
      module(x, null);
      assert.deepEqual(module.seen.slice(1), [null, {}]);
      assert.throws(
        () => (module as unknown as (x: Tensor) => void)(x),
        /PrepareModuleInput: Probe was called with 1 positional arguments, but inputLayouts has 2/,
      );
      const local = parallelizeModule(
        new nn.Identity(),
        mesh,
        PrepareModuleInput({
          inputLayouts: Shard(0),
          desiredInputLayouts: Replicate(),
          useLocalOutput: true,
        }),
      );
      assert.deepEqual([placementsOf(local(x)), local(x).shape], ['plain', [6, 3]]);
    }),
  );

  it(
    'redistribute results after forward',
    withRanks(RANKS, async (rank) => {
      const mesh = meshOf();
      const x = randn([6, 3], { dtype });
      const outputs = {
        outputLayouts: [Replicate(), null],
        desiredOutputLayouts: [Shard(0), null],
      };
      const module = parallelizeModule(new Probe(), mesh, PrepareModuleOutput(outputs));
      const [out, word] = module(x, null);
      assert.equal(word, 'kept');
      await assertClose(out, x.mul(2).narrow(0, 2 * rank, 2), 'the local result');
      const both = parallelizeModule(
        new Probe(),
        mesh,
        PrepareModuleInputOutput({
          inputLayouts: [Shard(0), null],
          desiredInputLayouts: [Shard(0), null],
          useLocalInput: true,
          ...outputs,
          useLocalOutput: false,
        }),
      );
      const [wide] = both(x, null);
      assert.equal(placementsOf(both.seen[0] as Tensor), 'plain');
      assert.equal(placementsOf(wide), '[Shard(0)]');
      const single = parallelizeModule(
        new nn.Identity(),
        mesh,
        PrepareModuleOutput({
          outputLayouts: [Shard(0), Shard(0)],
          desiredOutputLayouts: [Shard(0), Shard(0)],
        }),
      );
      assert.throws(
        () => single(x),
        /PrepareModuleOutput: Identity returned 1 results, but outputLayouts has 2/,
      );
    }),
  );

  it('refuse layouts that do not fit each other', () => {
    assert.throws(
      () => PrepareModuleInput({ inputLayouts: [Shard(0)], desiredInputLayouts: [Shard(0), null] }),
      /expected as many desiredInputLayouts as inputLayouts, got 2 and 1/,
    );
    assert.throws(
      () => PrepareModuleInput({ inputLayouts: Shard(0) }),
      /expected both inputLayouts and desiredInputLayouts, or neither, got only the former/,
    );
    assert.throws(
      () => PrepareModuleInput({ desiredInputKwargLayouts: { mask: Shard(0) } }),
      /expected inputKwargLayouts to have "mask", because desiredInputKwargLayouts has it/,
    );
  });
});
