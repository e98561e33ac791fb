/** One capture of a backward pass serves all compilers; each compiler gets what it asks for. */
import assert from 'node:assert/strict';
import {
  type BackwardCompiler,
  type CompileBackend,
  compile,
  compiledAutograd,
  compiler,
  type Node,
} from '../../../lib/compile/index.js';
import { fullyShard, initDeviceMesh } from '../../../lib/distributed.js';
import { manualSeed, nn, optim, randn, type Tensor, tensor } from '../../../lib/index.js';
import { CompileCounterWithBackend } from '../../../lib/testing/index.js';
import { onRanks } from '../../distributed/support/on-ranks.js';
import { runProgram } from '../../run-program.js';
import { warningsOf } from '../warnings.js';

/** A pass whose hook counts captures: hooks run at captures only. */
class Pass {
  captures = 0;
  private readonly hook = (grad: Tensor): Tensor => {
    this.captures++;
    return grad.mul(3);
  };

  run(compilerOf: BackwardCompiler): unknown {
    const x = tensor([1, 2], { requiresGrad: true });
    compiledAutograd.enable(compilerOf, () => {
      const y = x.mul(2);
      y.registerHook(this.hook);
      y.square().sum().backward();
    });
    return x.grad?.tolist();
  }
}

const GRADIENT = [24, 48];

/** The compiler of the seeds: a program calls this in each step. */
const compiledBy =
  (backend: CompileBackend | 'eager' | 'inductor'): BackwardCompiler =>
  (module) =>
    compile(module, { backend, fullgraph: true });

describe('captures of backward passes, whichever compilers they were for', () => {
  beforeEach(() => compiler.reset());

  it('serve compilers that are made in each step, and so does what one backend compiled', () => {
    const pass = new Pass();
    const counter = CompileCounterWithBackend('inductor');
    for (let step = 0; step < 10; step++) assert.deepEqual(pass.run(compiledBy(counter)), GRADIENT);
    assert.deepEqual([pass.captures, counter.frameCount], [1, 1]);
  });

  it('serve a sharded model whose loop makes a compiler in each step with one backward graph', async () => {
    const train = async (around: (fn: () => void) => void): Promise<number[]> => {
      manualSeed(0);
      const model = new nn.Sequential(new nn.Linear(8, 8), new nn.ReLU(), new nn.Linear(8, 8));
      fullyShard(model, { mesh: initDeviceMesh('cpu', [2]), reshardAfterForward: true });
      const optimizer = new optim.SGD(model.parameters(), { lr: 1e-2 });
      const losses: number[] = [];
      for (let step = 0; step < 10; step++) {
        manualSeed(step);
        const loss = model(randn([2, 8])).sum();
        around(() => loss.backward());
        losses.push((await loss.read())[0] as number);
        optimizer.step();
        optimizer.zeroGrad();
      }
      return losses;
    };
    await onRanks(2, async () => {
      const counter = CompileCounterWithBackend('aot_eager');
      const expected = await train((fn) => fn());
      const seen = await train((fn) => compiledAutograd.enable(compiledBy(counter), fn));
      assert.deepEqual(seen, expected);
      assert.equal(counter.frameCount, 1);
    });
  });

  it('run by the backend that each compiler names', () => {
    const pass = new Pass();
    const [first, second] = [
      CompileCounterWithBackend('eager'),
      CompileCounterWithBackend('eager'),
    ];
    for (let step = 0; step < 3; step++)
      for (const backend of [first, 'inductor', second] as const)
        assert.deepEqual(pass.run(compiledBy(backend)), GRADIENT);
    assert.deepEqual([pass.captures, first.frameCount, second.frameCount], [1, 1, 1]);
  });

  it('run by what a compiler returns that does not call compile', () => {
    const pass = new Pass();
    const seen: string[] = [];
    const opByOp =
      (name: string): BackwardCompiler =>
      (module) => {
        seen.push(`${name} compiles`);
        return (...inputs) => {
          seen.push(`${name} runs`);
          return module.run(inputs);
        };
      };
    const first = opByOp('first');
    for (const each of [first, compiledBy('inductor'), first, opByOp('second')])
      assert.deepEqual(pass.run(each), GRADIENT);
    const expected = [
      'first compiles',
      'first runs',
      'first runs',
      'second compiles',
      'second runs',
    ];
    assert.deepEqual(seen, expected);
    assert.equal(pass.captures, 1);
  });

  it('keep the edits of a compiler to itself', () => {
    const pass = new Pass();
    const withoutHook: BackwardCompiler = (module) => {
      const [, before, hooked] = module.graph.callNodes.filter(({ op }) => op?.name === 'mul');
      module.graph.replaceUses(hooked as Node, before as Node);
      module.recompile();
      return compile(module, { backend: 'eager' });
    };
    for (let step = 0; step < 2; step++) {
      assert.deepEqual(pass.run(compiledBy('eager')), GRADIENT);
      assert.deepEqual(pass.run(withoutHook), [8, 16]);
    }
    assert.equal(pass.captures, 1);
  });

  it('warn once of a loop that makes a compiler of its own in each step', async () => {
    const pass = new Pass();
    const found = await warningsOf(() => {
      for (let step = 0; step < 20; step++)
        pass.run(
          (module) =>
            (...inputs) =>
              module.run(inputs),
        );
    });
    assert.equal(found.length, 1);
    assert.match(
      found[0] as string,
      /8 compilers .* graph of a backward pass.* outside of the loop/,
    );
    assert.equal(pass.captures, 1);
  });

  it('keep neither compilers nor hooks alive, nor what these close over', async function () {
    this.timeout(60_000);
    const { kept, made } = await runProgram<{ kept: number; made: number }>(
      'compile/programs/dropped-compilers',
    );
    assert.ok(made > 150);
    assert.equal(kept, 0);
  });
});
