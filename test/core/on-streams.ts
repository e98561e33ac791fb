/** Streams of the CPU and work on them, for tests of streams and events. */
import { cuda, int64, ones, type Tensor, tensor } from '../../lib/index.js';

export const newStream = (): cuda.Stream => new cuda.Stream({ device: 'cpu' });
export const timed = (): cuda.Event => new cuda.Event({ enableTiming: true });

/** Behind a product that takes milliseconds: the stream fails later than the call. */
export function failLater(s: cuda.Stream, index = 99): Tensor {
  const [large, x, at] = [ones([800, 800]), ones([4]), tensor([index], { dtype: int64 })];
  return cuda.stream(s, () => {
    large.mm(large).dispose();
    large.dispose();
    return x.gather(0, at);
  });
}
