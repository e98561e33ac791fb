/** Events of local ranks: none may block on work that needs the JavaScript of another rank. */
import assert from 'node:assert/strict';
import { allReduce, getRank, launch } from '../../../lib/distributed.js';
import { cuda, DistributedError, IndexError, ones } from '../../../lib/index.js';
import { failLater, newStream, timed } from '../../core/on-streams.js';
import { signal } from '../support/reused-ranks.js';

describe('a device event of a local rank', () => {
  it('has a time once it is done, while a collective waits for another rank', async () => {
    const asked = signal<void>();
    await launch(2, async () => {
      const t = ones([4]);
      const s = newStream();
      const [begin, end] = [timed(), timed()];
      begin.record(s);
      end.record(s);
      await s.done();
      if (getRank() === 1) await asked.promise;
      allReduce(t);
      if (getRank() === 0) {
        end.synchronize();
        assert.ok(begin.elapsedTime(end) >= 0);
        asked.resolve();
      }
      await t.read();
    });
  });

  it('is refused behind a collective that waits for another rank', async () => {
    const asked = signal<void>();
    await launch(2, async () => {
      const t = ones([4]);
      if (getRank() === 1) await asked.promise;
      allReduce(t);
      if (getRank() === 0) {
        const [begin, end] = [timed(), timed()];
        const own = newStream();
        begin.record(newStream());
        cuda.stream(own, () => t.mul(2));
        end.record(own);
        assert.throws(() => end.synchronize(), DistributedError);
        assert.throws(() => begin.elapsedTime(end), DistributedError);
        asked.resolve();
      }
      await t.read();
    });
  });

  it('reports its failure although another rank has since taken the stream', async () => {
    const [free, queued, told] = [signal<void>(), signal<void>(), signal<void>()];
    await launch(2, async () => {
      const t = ones([4]);
      if (getRank() === 0) {
        const s = newStream();
        const end = timed();
        failLater(s, 99);
        end.record(s);
        assert.throws(() => s.synchronize(), IndexError);
        s.dispose();
        free.resolve();
        await queued.promise;
        assert.throws(() => end.synchronize(), /index 99 /);
        told.resolve();
        allReduce(t);
        await t.read();
        return;
      }
      await free.promise;
      const s = newStream();
      allReduce(t);
      failLater(s, 55);
      cuda.stream(s, () => t.mul(2));
      queued.resolve();
      await told.promise;
      await t.read();
      assert.throws(() => s.synchronize(), /index 55 /);
    });
  });
});
