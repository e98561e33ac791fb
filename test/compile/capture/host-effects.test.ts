/** What cannot be undone after a capture ends the capture before it happens. */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../../lib/compile/index.js';
import {
  allGatherIntoTensor,
  barrier,
  destroyProcessGroup,
  getWorldSize,
  initProcessGroup,
  launch,
} from '../../../lib/distributed.js';
import {
  CompileError,
  compile,
  compiler,
  library,
  memory,
  nn,
  ones,
  type Tensor,
  zeros,
} from '../../../lib/index.js';

type Fn = (x: Tensor) => unknown;

function reasonOf(fn: Fn): string {
  const { breaks } = compiler.explain(fn)(ones([2]));
  return breaks.map(({ reason }) => reason).join();
}

function refusalOf(fn: Fn): string {
  try {
    compile(fn, { fullgraph: true })(ones([2]));
  } catch (error) {
    assert.ok(error instanceof CompileError);
    return error.message;
  }
  throw new Error('was captured');
}

describe('an asynchronous function or a generator', () => {
  it('is not started by a capture, beside which it would go on', async () => {
    let starts = 0;
    const fn = async (x: Tensor): Promise<Tensor> => {
      starts++;
      await null;
      return x.add(starts);
    };
    const compiled = compile(fn);
    assert.deepEqual((await compiled(ones([2]))).tolist(), [2, 2]);
    assert.deepEqual((await compiled(ones([2]))).tolist(), [3, 3]);
    assert.equal(starts, 2);
    assert.match(refusalOf(fn), /^compile: fn is asynchronous or a generator/);
    assert.equal(starts, 2);
  });

  it('yields what it yields uncompiled', () => {
    let starts = 0;
    function* fn(x: Tensor): Generator<Tensor> {
      starts++;
      yield x.add(1);
      yield x.mul(3);
    }
    const yielded = [...compile(fn)(ones([2]))].map((t) => t.tolist());
    assert.deepEqual(yielded, [
      [2, 2],
      [3, 3],
    ]);
    assert.equal(starts, 1);
  });

  it('is found in a module', async () => {
    let starts = 0;
    class Late extends nn.Module<[x: Tensor], Promise<Tensor>> {
      async forward(x: Tensor): Promise<Tensor> {
        starts++;
        await null;
        return x.add(1);
      }
    }
    const late = compile(new Late());
    assert.deepEqual((await late(ones([2]))).tolist(), [2, 2]);
    assert.equal(starts, 1);
  });

  it('may be called by a function, whose promise is refused without an unhandled rejection', async () => {
    const later = async (x: Tensor): Promise<unknown> => {
      await null;
      return x.tolist();
    };
    assert.deepEqual(await compile((x: Tensor) => later(x.add(1)))(ones([2])), [2, 2]);
    await new Promise((resolve) => setImmediate(resolve));
  });
});

describe('a capture', () => {
  it('ends before ranks are launched', async () => {
    let ranks = 0;
    const fn = (): Promise<unknown> => launch(2, async () => void ranks++);
    assert.match(refusalOf(fn), /^compile: launch\(\) was called/);
    await compile(fn)();
    assert.equal(ranks, 2);
  });

  it('ends before a process enters or leaves a world', async () => {
    const enter = (): Promise<void> => initProcessGroup('fake', { rank: 0, worldSize: 3 });
    assert.match(refusalOf(enter), /^compile: initProcessGroup\(\) was called/);
    await compile(enter)();
    assert.equal(getWorldSize(), 3);
    assert.match(
      refusalOf(destroyProcessGroup as () => void),
      /destroyProcessGroup\(\) was called/,
    );
    assert.equal(getWorldSize(), 3);
    compile(() => destroyProcessGroup())();
  });

  it('ends before a collective, also in a world without peers', async () => {
    await initProcessGroup('fake', { rank: 0, worldSize: 3 });
    try {
      const gathered = (x: Tensor): Tensor => {
        const whole = zeros([6]);
        allGatherIntoTensor(whole, x);
        return whole;
      };
      const run = compile(gathered);
      for (let call = 0; call < 2; call++)
        assert.deepEqual(run(ones([2])).tolist(), [1, 1, 1, 1, 1, 1]);
      assert.equal(reasonOf(gathered), 'allGatherIntoTensor() was called');
      assert.equal(
        reasonOf(() => barrier()),
        'barrier() was called',
      );
    } finally {
      destroyProcessGroup();
    }
  });

  it('ends before statistics of memory are read or changed, whose tensors have no memory', () => {
    // Garbage that is collected meanwhile would count.
    memory.collect();
    const grown = (): number => {
      const before = memory.stats().allocatedBytes;
      const t = ones([1000]);
      const bytes = memory.stats().allocatedBytes - before;
      t.dispose();
      return bytes;
    };
    assert.equal(compile(grown)(), grown());
    for (const name of ['stats', 'snapshot', 'resetPeak', 'emptyCache', 'collect'] as const)
      assert.equal(
        reasonOf(() => void memory[name]()),
        `memory.${name}() was called`,
      );
  });

  it('ends before a FakeTensorMode runs a function, whose ops it would not see', () => {
    const fn = (x: Tensor): unknown =>
      new FakeTensorMode().run(() => zeros([3]).shape).concat(x.shape);
    assert.deepEqual(compile(fn)(ones([2])), [3, 2]);
    assert.equal(reasonOf(fn), 'FakeTensorMode.run() was called');
  });

  it('adds to errors what the program says about a storage', () => {
    const shard = ones([2]);
    shard.untypedStorage().explainErrors('It is a shard.');
    const mixed = (x: Tensor): Tensor => x.add(shard.untypedStorage().explained(0)?.length ?? 0);
    assert.deepEqual(compile(mixed, { fullgraph: true })(ones([1])).tolist(), [15]);
  });

  it('ends before an op is defined, whose name would be taken', () => {
    const make = (x: Tensor): unknown =>
      library
        .customOp('hostEffects::once', {}, (t: Tensor) => t.add(1))(x)
        .tolist();
    assert.deepEqual(compile(make)(ones([2])), [2, 2]);
  });
});
