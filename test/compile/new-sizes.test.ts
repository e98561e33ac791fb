/** Functions that are called with new sizes again and again: which of them graphs serve. */
import assert from 'node:assert/strict';
import { aotAutograd, type GraphModule } from '../../lib/compile/index.js';
import { compile, compiler, nn, ones, rand, type Tensor } from '../../lib/index.js';
import { warningsOf } from './warnings.js';

/** A backend that counts the shapes which it compiles for, and the runs. */
function counting() {
  const counts = { shapes: 0, runs: 0 };
  const fwCompiler = (module: GraphModule) => {
    counts.shapes++;
    return (...inputs: Parameters<typeof module.run>[0][number][]) => {
      counts.runs++;
      return module.run(inputs);
    };
  };
  const bwCompiler = (module: GraphModule) => module.forward.bind(module);
  return { counts, backend: aotAutograd({ fwCompiler, bwCompiler }) };
}

const double = (x: Tensor): Tensor => x.mul(2).add(x.shape[0] as number);

describe('new sizes again and again', () => {
  it('run uncompiled after three captures, with one warning that says what to do', async () => {
    const { counts, backend } = counting();
    const fn = compile(double, { backend });
    const found = await warningsOf(() => {
      for (let n = 2; n < 122; n++)
        assert.deepEqual(fn(ones([n])).tolist(), double(ones([n])).tolist());
    });
    assert.deepEqual(counts, { shapes: 3, runs: 3 });
    assert.equal(found.length, 1);
    assert.match(found[0] as string, /^compile: double is called with new sizes again and again/);
    assert.match(found[0] as string, /Pad arguments to a few sizes\. .*compiler\.markDynamic/);
  });

  it('leave the plans of sizes that were captured earlier', () => {
    const { counts, backend } = counting();
    const fn = compile(double, { backend });
    for (let n = 2; n < 22; n++) fn(ones([n]));
    for (const n of [2, 3, 4, 20]) fn(ones([n]));
    assert.deepEqual(counts, { shapes: 3, runs: 6 });
  });

  it('are captured one by one while graphs serve other calls, without a warning', async () => {
    const { counts, backend } = counting();
    const fn = compile(double, { backend });
    const found = await warningsOf(() => {
      for (let round = 0; round < 60; round++) for (const n of [2, 3, 4, 5, 6]) fn(ones([n]));
    });
    assert.equal(counts.shapes, 5);
    assert.deepEqual(found, []);
  });

  it('count with a number that follows from them', () => {
    const { counts, backend } = counting();
    const fn = compile((x: Tensor, position: number) => x.narrow(0, position, 1), { backend });
    for (let n = 2; n < 42; n++) fn(ones([n]), n - 1);
    assert.equal(counts.shapes, 3);
  });

  it('do not count where fullgraph, dynamic: true or a mark ask for captures', () => {
    for (const options of [{ fullgraph: true }, { dynamic: true }, {}] as const) {
      const { counts, backend } = counting();
      const fn = compile(double, { backend, ...options });
      for (let n = 2; n < 22; n++) {
        const x = ones([n]);
        if (n === 2 && Object.keys(options).length === 0) compiler.markDynamic(x, 0);
        fn(x);
      }
      assert.equal(counts.shapes, 20, JSON.stringify(options));
    }
  });

  it('leave captures to calls that differ in more than sizes', () => {
    const { counts, backend } = counting();
    const model = new nn.Sequential(new nn.Linear(3, 3), new nn.Dropout(0.5));
    const fn = compile((x: Tensor, twice: boolean) => model(x).mul(twice ? 2 : 1), { backend });
    for (let n = 2; n < 12; n++) fn(rand([n, 3]), false);
    assert.equal(counts.shapes, 3);
    fn(rand([20, 3]), true);
    assert.equal(counts.shapes, 4);
    model.eval();
    fn(rand([30, 3]), false);
    assert.equal(counts.shapes, 5);
    fn(rand([31, 3]).requiresGrad_(), false);
    assert.equal(counts.shapes, 6);
  });

  it('make no frames of the modules below', () => {
    const { counts, backend } = counting();
    const model = new nn.Sequential(new nn.Linear(3, 3), new nn.Linear(3, 3));
    const fn = compile((x: Tensor) => model(x).relu(), { backend });
    for (let n = 2; n < 42; n++) {
      const x = rand([n, 3]);
      assert.deepEqual(fn(x).tolist(), model(x).relu().tolist());
    }
    assert.equal(counts.shapes, 3);
  });
});
