/** The memory of converted weights, which autocast keeps until its region ends. */
import assert from 'node:assert/strict';
import { collector } from '../../lib/eager/collector.js';
import { amp, autograd, memory, nn, randn, type Tensor } from '../../lib/index.js';

const OPTIONS = { deviceType: 'cpu', dtype: 'bfloat16' } as const;
const WIDTH = 512;
/** Of a weight in bfloat16. */
const WEIGHT_BYTES = WIDTH * WIDTH * 2;

const inRegion = <T>(fn: () => T): T => amp.autocast(OPTIONS, fn);
const allocated = (): number => memory.stats('cpu').allocatedBytes;

/** As many young collections as make an object old. */
function makeOld(): void {
  const { young } = collector();
  for (let i = 0; i < 3; i++) young?.();
}

const isEqual = (a: Tensor, b: Tensor): boolean => a.sub(b).abs().max().item() === 0;

describe('a weight that autocast converted', () => {
  const layer = new nn.Linear(WIDTH, WIDTH, { bias: false });
  const x = randn([4, WIDTH]);

  it('is freed by backward, also after collections in the midst of the region', () => {
    const input = randn([4, WIDTH], { requiresGrad: true }); // so that the graph saves the weight
    const measured = (): number => {
      const loss = inRegion(() => {
        const y = layer.forward(input);
        makeOld();
        return y.sum();
      });
      const before = allocated();
      loss.backward();
      layer.weight.grad = null;
      input.grad = null;
      return before - allocated();
    };
    measured();
    makeOld();
    assert.ok(measured() >= WEIGHT_BYTES);
  });

  it('is freed at the end of the region, if no graph needs it', () => {
    inRegion(() => layer.forward(x).detach()).dispose();
    makeOld();
    const before = allocated();
    inRegion(() => {
      layer.forward(x.detach()).detach();
      makeOld();
      assert.ok(allocated() >= before + WEIGHT_BYTES);
    });
    makeOld();
    assert.ok(allocated() < before + WEIGHT_BYTES);
  });

  it('serves several passes and a second backward', () => {
    const input = randn([4, WIDTH], { requiresGrad: true });
    const expected = inRegion(() => layer.forward(input).sum());
    const [wanted] = autograd.grad(expected, [input]) as [Tensor];
    const loss = inRegion(() => {
      const first = layer.forward(input);
      makeOld();
      const [early] = autograd.grad(first.sum(), [input]) as [Tensor];
      makeOld();
      assert.ok(isEqual(early, wanted));
      return layer.forward(input).sum();
    });
    makeOld();
    const [once] = autograd.grad(loss, [input], { retainGraph: true }) as [Tensor];
    makeOld();
    const [twice] = autograd.grad(loss, [input]) as [Tensor];
    assert.ok(isEqual(once, wanted) && isEqual(twice, wanted));
  });

  it('stays where the program saw it: in a hook on saved tensors', () => {
    const seen: Tensor[] = [];
    const pack = (t: Tensor): Tensor => {
      seen.push(t);
      return t;
    };
    const loss = autograd.savedTensorsHooks(
      pack,
      (t: Tensor) => t,
      () => inRegion(() => layer.forward(x).sum()),
    );
    loss.backward();
    makeOld();
    assert.ok(seen.some((t) => t.dtype.name === 'bfloat16'));
    for (const t of seen) t.sum().item();
  });

  it('is let go by a region that throws', () => {
    const fail = (): void =>
      inRegion(() => {
        layer.forward(x);
        makeOld();
        throw new Error('stop');
      });
    assert.throws(fail, /stop/);
    collector().full();
    const before = allocated();
    assert.throws(fail, /stop/);
    makeOld();
    collector().full();
    assert.equal(allocated(), before);
  });
});
