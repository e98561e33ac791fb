/**
 * Graphs keep the memory of what they saved, and none of the program's tensors: backward frees it
 * at once where the program dropped them, and what the program holds stays.
 */
import assert from 'node:assert/strict';
import { checkpoint } from '../../lib/distributed.js';
import {
  autograd,
  bfloat16,
  FreedError,
  float16,
  float32,
  InPlaceError,
  memory,
  ones,
  randn,
  scope,
  type Tensor,
  zeros,
} from '../../lib/index.js';
import { runProgram } from '../run-program.js';

const COUNT = 2 ** 16;
const BYTES = 4 * COUNT;
const LAYERS = 8;

const allocated = (): number => memory.stats().allocatedBytes;
const leaf = (): Tensor => ones([COUNT]).requiresGrad_();

/** A graph that saves a tensor for each layer. */
function chain(x: Tensor): Tensor {
  let h = x;
  for (let i = 0; i < LAYERS; i++) h = h.sin();
  return h.sum();
}

const bytesOf = (count: number): number => count * BYTES;

describe('the memory that a graph saved', () => {
  it('is freed by backward without a collection, once the tensors were collected', () => {
    const x = leaf();
    const loss = chain(x);
    memory.collect();
    const before = allocated();
    loss.backward();
    x.grad = null;
    assert.ok(before - allocated() >= bytesOf(LAYERS - 1), `${before - allocated()} bytes freed`);
  });

  it('is freed by a collection if the graph is dropped without backward', () => {
    const x = leaf();
    const drop = (): void => void chain(x);
    memory.collect();
    const before = allocated();
    drop();
    memory.collect();
    assert.equal(allocated(), before);
  });

  it('stays flat where many graphs are dropped without backward', () => {
    const x = leaf();
    memory.collect();
    memory.resetPeak();
    for (let i = 0; i < 400; i++) chain(x);
    const { peakAllocatedBytes } = memory.stats();
    assert.ok(peakAllocatedBytes < 400 * 2 ** 20, `${peakAllocatedBytes} bytes`);
  });

  it('stays where the program holds the tensor, a view, detach() or data of it', () => {
    const holders: Record<string, (t: Tensor) => unknown> = {
      tensor: (t) => t,
      view: (t) => t.view([2, -1]),
      detach: (t) => t.detach(),
      data: (t) => t.data,
      storage: (t) => t.untypedStorage(),
    };
    for (const [name, hold] of Object.entries(holders)) {
      const x = leaf();
      const forward = (): [Tensor, unknown] => {
        const y = x.mul(2);
        return [y.sin().cos().sum(), hold(y)];
      };
      const [loss, held] = forward();
      memory.collect();
      loss.backward();
      memory.collect();
      ones([COUNT]).mul(7); // what would take freed memory
      if (name === 'storage') assert.equal((held as { size(): number }).size(), BYTES);
      else assert.equal((held as Tensor).sum().item(), 2 * COUNT, name);
    }
  });

  it('keeps through views that were saved', () => {
    const x = leaf();
    const forward = (): Tensor => {
      const y = x.mul(2);
      return y.view([4, -1]).sin().chunk(2, 0)[1]?.cos().sum() as Tensor;
    };
    const loss = forward();
    memory.collect();
    loss.backward();
    const slope = (x.grad as Tensor).slice(0, COUNT - 1, COUNT).item() as number;
    assert.ok(Math.abs(slope + 2 * Math.cos(2) * Math.sin(Math.sin(2))) < 1e-5);
  });

  it('serves several backward passes of a retained graph', () => {
    const x = leaf();
    const loss = chain(x);
    memory.collect();
    loss.backward({ retainGraph: true });
    const first = (x.grad as Tensor).clone();
    memory.collect();
    loss.backward();
    assert.deepEqual(
      (x.grad as Tensor).slice(0, 0, 4).tolist(),
      first.mul(2).slice(0, 0, 4).tolist(),
    );
    assert.throws(() => loss.backward(), /a second time/);
  });

  it('serves second derivatives, whose graph outlives the first', () => {
    const x = leaf();
    const first = (): Tensor =>
      autograd.grad(x.mul(1).exp().mul(x).sum(), [x], { createGraph: true })[0] as Tensor;
    const slope = first();
    memory.collect();
    const [second] = autograd.grad(slope.sum(), [x]) as [Tensor];
    assert.ok(Math.abs((second.slice(0, 0, 1).item() as number) - 3 * Math.E) < 1e-4);
  });

  it('is the program’s where a custom function or a hook keeps what it gets', () => {
    const kept: Tensor[] = [];
    class Keeps extends autograd.Function {
      static forward(ctx: autograd.FunctionContext, t: Tensor): Tensor {
        const y = t.mul(3);
        ctx.saveForBackward(t, y);
        return y;
      }
      static backward(ctx: autograd.FunctionContext, g: Tensor): Tensor {
        kept.push(...(ctx.savedTensors as Tensor[]));
        return ctx.savedTensors[0]?.mul(g) as Tensor;
      }
    }
    class GivesSaved extends autograd.Function {
      static override keepsNoGrads = true;
      static forward(ctx: autograd.FunctionContext, t: Tensor): Tensor {
        ctx.saveForBackward(t);
        return t.mul(1);
      }
      static backward(ctx: autograd.FunctionContext): Tensor {
        return ctx.savedTensors[0] as Tensor;
      }
    }
    const x = leaf();
    const forward = (): Tensor => {
      const y = x.mul(2);
      y.registerHook((g) => void kept.push(g));
      return GivesSaved.apply(Keeps.apply(y)).sum();
    };
    const loss = forward();
    memory.collect();
    loss.backward();
    memory.collect();
    ones([COUNT]).mul(7);
    assert.deepEqual(
      kept.map((t) => t.sum().item()),
      [2 * COUNT, 6 * COUNT, 12 * COUNT],
    );
    assert.equal((x.grad as Tensor).sum().item(), 24 * COUNT);
  });

  it('may not be overwritten, and may be replaced by set_ and data', () => {
    const x = leaf();
    const y = x.mul(2);
    const loss = y.sin().sum();
    y.detach().zero_();
    assert.throws(() => loss.backward(), InPlaceError);

    const z = x.mul(2);
    const other = z.cos().sum();
    z.data = zeros([COUNT]);
    memory.collect();
    other.backward();
    assert.equal((x.grad as Tensor).abs().sum().item(), 0);
  });

  it('follows data to another part of the same memory, and to another dtype', () => {
    const x = leaf();
    const both = randn([2, COUNT]);
    const part = both.select(0, 0);
    const loss = x.mul(part).sum();
    part.data = both.select(0, 1);
    loss.backward();
    assert.ok((x.grad as Tensor).equal(part));

    const halves = randn([COUNT]).to(bfloat16);
    const gradient = (): Tensor => autograd.grad(x.mul(halves).sum(), [x])[0] as Tensor;
    gradient();
    halves.data = halves.view(float16);
    assert.equal(gradient().sub(halves.to(float32)).nanToNum().abs().sum().item(), 0);
  });

  it('is freed where a checkpoint recomputes it', () => {
    const x = leaf();
    const run = (): void => {
      checkpoint((t: Tensor) => t.sin().cos().exp(), x.mul(2))
        .sum()
        .backward();
      x.grad = null;
    };
    run();
    memory.collect();
    const before = allocated();
    run();
    memory.collect();
    assert.equal(allocated(), before);
  });
});

describe('the memory that graphs alone keep after its scope', () => {
  const SIDE = Math.sqrt(COUNT);
  const square = (): Tensor => ones([SIDE, SIDE]).requiresGrad_();
  const weight = square();

  /** A layer whose gradient rules take views of what they saved: products transpose it. */
  const layer = (x: Tensor): Tensor => scope(() => x.sin().matmul(weight).sum());

  it('is freed by backward, also where a rule took views of it', () => {
    scope(() => {
      const x = square();
      const loss = layer(x).add(layer(x));
      const before = allocated();
      loss.backward();
      // Two sines are freed, two gradients are new.
      assert.ok(allocated() - before <= COUNT, `${allocated() - before} bytes more`);
      weight.grad = null;
    });
  });

  it('stays until the end of the outer scope where the program sees it in backward', () => {
    class Sine extends autograd.Function {
      static seen: Tensor[] = [];
      static forward(context: autograd.FunctionContext, x: Tensor): Tensor {
        context.saveForBackward(x);
        return x.sin();
      }
      static backward(context: autograd.FunctionContext, grad: Tensor): Tensor {
        const [x] = context.savedTensors as [Tensor];
        Sine.seen = [x, x.view([-1])];
        return grad.mul(x.cos());
      }
    }
    scope(() => {
      const x = square();
      scope(() => Sine.apply(x.mul(2)).sum()).backward();
      for (const seen of Sine.seen) assert.equal(seen.sum().item(), 2 * COUNT);
    });
    for (const seen of Sine.seen) assert.throws(() => seen.sum(), FreedError);
  });
});

describe('the memory of a tensor that a scope returned', () => {
  it('is freed by backward where a graph saved it, once the tensor was collected', () => {
    const x = leaf();
    const chained = (): Tensor => {
      let h = x;
      for (let i = 0; i < LAYERS; i++) h = scope(() => h.mul(2)).sin();
      return h.sum();
    };
    const loss = chained();
    memory.collect();
    const before = allocated();
    loss.backward();
    x.grad = null;
    assert.ok(before - allocated() >= bytesOf(LAYERS - 1), `${before - allocated()} bytes freed`);
  });

  it('stays where the program holds any tensor on it', () => {
    const stored: Tensor[] = [];
    const returned = (): void => {
      const { views } = scope(() => {
        const t = ones([COUNT]);
        stored.push(t.view([2, -1]));
        return { views: [t, t.slice(0, 1)], alone: ones([COUNT]) };
      });
      stored.push(views[1] as Tensor, scope(() => ones([COUNT])).slice(0, 1));
    };
    returned();
    memory.collect();
    const values = stored.map((t) => t.sum().item());
    assert.deepEqual(values, [COUNT, COUNT - 1, COUNT - 1]);
  });

  it('is freed by a collection, and belongs to a later scope that it is returned through', () => {
    const run = (): Tensor =>
      scope(() => scope(() => ones([COUNT])).mul(scope(() => ones([COUNT]))));
    memory.collect();
    const before = allocated();
    const result = run();
    assert.equal(allocated() - before, BYTES);
    assert.equal(result.sum().item(), COUNT);
    const dropped = (): number => run().shape.length;
    dropped();
    memory.collect();
    assert.ok(allocated() - before <= BYTES);
  });
});

describe('a training step without scopes', () => {
  it('needs little more than one with scopes, and no full collections', async function () {
    this.timeout(240_000);
    interface Figures {
      least: number;
      full: number;
    }
    const scoped = await runProgram<Figures>('core/programs/gpt-steps', 'scopes', '1');
    const plain = await runProgram<Figures>('core/programs/gpt-steps', 'plain', '4');
    // Where a step is short beside a young collection, up to 128 MiB of garbage gather.
    const more = (plain.least - scoped.least) / 2 ** 20;
    assert.ok(more <= 0.1 * (scoped.least / 2 ** 20) + 128, `${more.toFixed(0)} MiB more`);
    assert.ok(plain.least <= 1.5 * scoped.least, `${plain.least} for ${scoped.least}`);
    assert.ok(plain.full < 0.5, `${plain.full} full collections a step`);
  });
});
