/** A tensor cannot be sent to another thread, and the error says what can. */
import assert from 'node:assert/strict';
import { serialize } from 'node:v8';
import { MessageChannel } from 'node:worker_threads';
import { nn, ones } from '../../lib/index.js';

const advice = /a tensor, which belongs to its thread: send await x\.read\(\).*worker-threads\.md/;

describe('a tensor that is sent to a thread', () => {
  const x = ones([2]);
  const { port1 } = new MessageChannel();
  after(() => port1.close());

  const senders: Record<string, (value: unknown) => unknown> = {
    structuredClone: (value) => structuredClone(value),
    postMessage: (value) => port1.postMessage(value),
    'v8.serialize': (value) => serialize(value),
  };
  for (const [name, send] of Object.entries(senders))
    it(`makes ${name} fail with what to send`, () => {
      for (const value of [
        x,
        { batch: [x] },
        new nn.Linear(2, 2).stateDict(),
        ones([1], { device: 'meta' }),
      ])
        assert.throws(() => send(value), advice);
    });

  it('is sent as the typed array that read() gives', async () => {
    assert.deepEqual(structuredClone(await x.read()), new Float32Array([1, 1]));
  });

  it('has a device that prints as its name', async () => {
    const { inspect } = await import('node:util');
    assert.equal(inspect(x.device), 'Device(cpu)');
  });
});
