/** `limitAllGathers`: whether gathers take turns in the memory of whole parameters. */
import assert from 'node:assert/strict';
import { type FullyShardedDataParallel, worldGroup } from '../../../lib/distributed.js';
import { optim, type Storage } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import {
  assertClose,
  batchOf,
  Model,
  makeModel,
  type Net,
  oneDevice,
  step,
  valuesOf,
  wrap,
} from './models.js';

const STEPS = 2;

describe('limitAllGathers', () => {
  for (const limitAllGathers of [true, false, undefined])
    it(
      `of ${limitAllGathers} ${limitAllGathers === false ? 'frees memory when compute has run' : 'hands memory from gather to gather'}`,
      withRanks(2, async (rank) => {
        const expected = await oneDevice(Model, STEPS);
        const processGroup = worldGroup();
        const inner = makeModel(Model);
        const model = wrap(inner, { processGroup, limitAllGathers });
        const net = (inner.first as FullyShardedDataParallel).module as Net;
        const whole = new Set<Storage>();
        net.up.registerForwardPreHook((linear) => {
          whole.add(linear.weight.untypedStorage());
        });
        // The stream of the gathers frees what later gathers may take at once.
        const freed: string[] = [];
        const sizes = (): number => [...whole].reduce((sum, storage) => sum + storage.size(), 0);
        const onStream = processGroup.onStream.bind(processGroup);
        processGroup.onStream = (device, fn) => {
          const before = sizes();
          const result = onStream(device, fn);
          if (sizes() < before) freed.push('by the stream of gathers');
          return result;
        };
        const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
        for (let i = 0; i < STEPS; i++) {
          step(model, adam, batchOf(i, rank, 2));
          assert.equal(sizes(), 0);
        }
        // After forward and after backward of each step.
        assert.equal(freed.length, limitAllGathers === false ? 0 : 2 * STEPS);
        assertClose(await valuesOf(Object.entries(model.stateDict())), expected);
      }),
    );
});
