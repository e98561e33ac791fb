/** Errors without a GPU: they name the requested device once, with advice. */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import { cuda, DeviceError, ones } from '../../lib/index.js';
import { skipBecause } from '../skip.js';

describe('a missing GPU', () => {
  const asked: Record<string, [device: string, () => unknown]> = {
    'ones on cuda:3': ['cuda:3', () => ones([2], { device: 'cuda:3' })],
    'to cuda': ['cuda:0', () => ones([2]).to('cuda')],
    getDeviceProperties: ['cuda:2', () => cuda.getDeviceProperties(2)],
    synchronize: ['cuda:0', () => cuda.synchronize()],
    memoryAllocated: ['cuda:1', () => cuda.memoryAllocated('cuda:1')],
    Stream: ['cuda:4', () => new cuda.Stream({ device: 'cuda:4' })],
    'Event.record': ['cuda:0', () => new cuda.Event().record()],
  };
  for (const [name, [device, ask]] of Object.entries(asked)) {
    it(`is reported once with the reason and hints: ${name}`, function () {
      const unavailable = cuda.whyUnavailable();
      if (unavailable === null) skipBecause(this, 'CUDA is there');
      assert.throws(ask, (error: unknown) => {
        assert.ok(error instanceof DeviceError);
        const [first] = error.message.split('\n');
        assert.equal(first, `device "${device}" is not available: ${unavailable.reason}`);
        assert.deepEqual(error.message.match(/cuda:\d/g), [device]);
        for (const hint of unavailable.hints)
          assert.ok(error.message.includes(`\n  - ${hint}`), error.message);
        return true;
      });
    });
  }

  it('does not affect the CPU', () => {
    assert.throws(() => cuda.memoryAllocated('cpu' as 'cuda'), {
      name: /DeviceError/,
      message: 'cuda: expected a CUDA device, got cpu',
    });
  });
});
