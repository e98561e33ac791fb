/** Events of ranks that share the process: none may wait for what JavaScript has yet to do for another. */
import assert from 'node:assert/strict';
import { allReduce, getRank, launch } from '../../lib/distributed.js';
import { cuda, DistributedError, IndexError, int64, ones, type Tensor, tensor } from '../../lib/index.js';

const newStream = (): cuda.Stream => new cuda.Stream({ device: 'cpu' });
const timed = (): cuda.Event => new cuda.Event({ enableTiming: true });

/** Lets a rank wait for the other one without a collective. */
function signal(): { promise: Promise<void>; give: () => void } {
  let give = (): void => {};
  const promise = new Promise<void>((resolve) => {
    give = resolve;
  });
  return { promise, give };
}

function bad(s: cuda.Stream, index: number): Tensor {
  const [large, x, at] = [ones([400, 400]), ones([4]), tensor([index], { dtype: int64 })];
  return cuda.stream(s, () => {
    large.mm(large);
    return x.gather(0, at);
  });
}

describe('an event of a rank', () => {
  it('that is done has a time while a collective waits for another rank', async () => {
    const asked = signal();
    await launch(2, async () => {
      const t = ones([4]);
      if (getRank() === 1) await asked.promise;
      else {
        const s = newStream();
        const [begin, end] = [timed(), timed()];
        begin.record(s);
        end.record(s);
        await s.done();
        allReduce(t);
        end.synchronize();
        assert.ok(begin.elapsedTime(end) >= 0);
        asked.give();
        await t.read();
        return;
      }
      allReduce(t);
      await t.read();
    });
  });

  it('that comes behind a collective which waits for another rank is refused', async () => {
    const asked = signal();
    await launch(2, async () => {
      const t = ones([4]);
      if (getRank() === 1) await asked.promise;
      allReduce(t);
      if (getRank() === 0) {
        const [begin, end] = [timed(), timed()];
        begin.record(newStream());
        end.record(new cuda.Stream({ device: 'cpu' }));
        const own = newStream();
        cuda.stream(own, () => t.mul(2));
        end.record(own);
        assert.throws(() => end.synchronize(), DistributedError);
        assert.throws(() => begin.elapsedTime(end), DistributedError);
        asked.give();
      }
      await t.read();
    });
  });

  it('tells of its failure although another rank has the stream since, whose work waits', async () => {
    const [free, queued, told] = [signal(), signal(), signal()];
    await launch(2, async () => {
      const t = ones([4]);
      if (getRank() === 0) {
        const s = newStream();
        const end = timed();
        bad(s, 99);
        end.record(s);
        assert.throws(() => s.synchronize(), IndexError);
        s.dispose();
        free.give();
        await queued.promise;
        assert.throws(() => end.synchronize(), /index 99 /);
        told.give();
        allReduce(t);
        await t.read();
        return;
      }
      await free.promise;
      const s = newStream();
      allReduce(t);
      bad(s, 55);
      cuda.stream(s, () => t.mul(2));
      queued.give();
      await told.promise;
      await t.read();
      assert.throws(() => s.synchronize(), /index 55 /);
    });
  });
});
