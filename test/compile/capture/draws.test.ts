/** Seeds and draws of a captured function happen at every run, in order. */
import assert from 'node:assert/strict';
import {
  compile,
  forkRng,
  Generator,
  getRngState,
  initialSeed,
  manualSeed,
  nn,
  rand,
  seed,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { assertSameAsEager } from '../same-as-eager.js';

/** Compares results and the state of the default generator over three calls. */
function assertSameDraws(fn: (w: Tensor) => Tensor[]): void {
  const [eager, compiled] = [fn, compile(fn, { fullgraph: true })].map((run) => {
    manualSeed(11);
    return [1, 2, 3].map((k) => [run(tensor([k, -k])).map((t) => t.tolist()), getRngState()]);
  });
  assert.deepEqual(compiled, eager);
}

describe('a captured function that seeds', () => {
  it('draws the numbers of the seed at every run, and others after it', () => {
    assertSameDraws((w) => {
      manualSeed(3);
      return [w.mul(rand([2])), rand([2])];
    });
  });

  it('draws equal numbers after equal seeds, and leaves the generator where eager code does', () => {
    assertSameDraws((w) => {
      manualSeed(3);
      const first = rand([2]);
      manualSeed(3);
      return [first.mul(w), rand([2]), rand([2])];
    });
  });

  it('seeds a generator of its own', () => {
    assertSameAsEager(() => {
      const generator = new Generator(1);
      return {
        fn: (w) => {
          const before = rand([2], { generator });
          generator.manualSeed(5);
          return w.mul(before).add(rand([2], { generator }));
        },
        state: () => generator.getState(),
      };
    });
  });

  it('keeps the state that forkRng keeps', () => {
    assertSameDraws((w) => {
      const inside = forkRng(() => {
        manualSeed(7);
        return nn.functional.dropout(w, 0.5);
      });
      return [inside, rand([2])];
    });
  });

  it('is refused if it reads a seed or a state, or takes a seed by chance', () => {
    const generator = new Generator(1);
    for (const read of [
      initialSeed,
      getRngState,
      seed,
      () => generator.seed,
      () => generator.initialSeed(),
      () => generator.getState(),
    ])
      assert.throws(
        () => compile((w: Tensor) => (read(), w.add(1)), { fullgraph: true })(tensor([1])),
        /compile: .* while the function was captured/,
      );
  });
});
