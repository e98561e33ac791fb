/**
 * Root hooks of mocha: a required GPU must exist, and the addon shuts down at the end. Small tensors
 * are fused, too, and failures write no files.
 */
import { fusionThreshold } from '../lib/compile/fusion/threshold.js';
import { writer } from '../lib/eager/submit.js';

fusionThreshold.leastOnCpu = 0;
process.env['SHARDWISE_FLIGHT_RECORD'] ??= 'off';

export const mochaHooks = {
  /**
   * Suites that need a GPU skip themselves; on a machine that must have one, that would be a
   * failure that nobody sees.
   */
  async beforeAll(): Promise<void> {
    if (process.env['SHARDWISE_TEST_GPU'] !== 'require') return;
    const { cuda } = await import('../lib/index.js');
    if (!cuda.isAvailable())
      throw new Error(
        'SHARDWISE_TEST_GPU=require, but no CUDA device can be used: see npx shardwise doctor',
      );
  },

  afterAll(): void {
    writer.addon.shutdown();
  },
};
